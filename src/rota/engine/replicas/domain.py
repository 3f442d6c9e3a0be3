"""Replicas inside a batch: the heartbeats of coordinators that share the store."""

from msgspec.structs import replace

from rota.core.replicas import FORGOTTEN_MS, SILENT_MS, BeatReplica
from rota.core.replies import Done
from rota.engine.commit.batch import Batch, Domain
from rota.store.locks import LockStore
from rota.store.replicas import ReplicaStore


class ReplicaDomain(Domain):
    """The coordinators of one batch. The callers of a silent coordinator no longer wait."""

    COMMANDS = frozenset({BeatReplica})

    def __init__(self, batch: Batch) -> None:
        super().__init__(batch)
        self._beats: dict[str, BeatReplica] = {}  # the last of each coordinator

    def reduce(self, command: BeatReplica) -> Done:
        self._beats[command.replica.name] = command
        return Done()

    def write(self) -> None:
        replicas = ReplicaStore(self.batch.tx)
        now_ms = self.batch.context.now_ms
        gone: list[str] = []
        for name, beat in self._beats.items():
            if beat.is_leaving:
                replicas.delete(name)
                gone.append(name)
            else:
                replicas.record_heartbeat(replace(beat.replica, seen_ms=now_ms))
        if any(beat.finds_silent for beat in self._beats.values()):
            gone += replicas.silent(now_ms - SILENT_MS)
        for name in gone:
            LockStore(self.batch.tx).expire_waiters(name, now_ms=now_ms)
        if gone:
            self.batch.locks.outdate()
        replicas.prune(now_ms - FORGOTTEN_MS)
