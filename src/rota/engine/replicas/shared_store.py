"""The extra steps of a batch when several coordinators share a store.

The batch knows whether peers have written since the last batch. It writes the state that a lone
coordinator would only hold in memory. Only the first coordinator to run a timed duty executes it.
"""

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from rota.core.commands import SweepWorkers
from rota.core.replicas import FORGOTTEN_MS, SILENT_MS, BeatReplica, Counted, Replica
from rota.core.workers.eviction_guards import SweepState
from rota.core.workers.model import Health
from rota.core.workers.registry import SWEEP_INTERVAL_MS
from rota.store.database import Transaction
from rota.store.locks import LockStore
from rota.store.replicas import ReplicaStore, WorkerWatch
from rota.store.workers import WorkerStore


class SharedStore(Struct, frozen=True, kw_only=True):
    """What a batch knows about the peers on its store."""

    replica: str  # the name of this coordinator
    counts: Callable[[], tuple[Counted, ...]]  # its own counts, called for each heartbeat
    changed_by_peer: bool  # a peer has written since the last batch
    workers_changed: bool  # by these writes, workers joined or left


class Known(Struct, frozen=True):
    """State of a batch that peers need as well."""

    watch: SweepState
    healths: Mapping[str, Health]
    last_notification: int


def share(
    tx: Transaction,
    sharing: SharedStore,
    before: Known,
    after: Known,
    commands: Iterable[object],
    *,
    now_ms: int,
) -> list[Replica]:
    """Write the changed state for peers, and the heartbeat if the batch has one.

    Returns all coordinators on the store after a heartbeat, otherwise an empty list.
    """
    if (before.watch, before.healths) != (after.watch, after.healths):
        ReplicaStore(tx).put_watch(WorkerWatch(watch=after.watch, healths=after.healths))
    if after.last_notification > before.last_notification:
        WorkerStore(tx).raise_counter("news", after.last_notification)
    replicas: list[Replica] = []
    for command in commands:
        if type(command) is BeatReplica:
            replicas = note_replica(tx, command, sharing.counts(), now_ms=now_ms)
    return replicas


def is_swept(command: object, watch: SweepState, *, now_ms: int) -> bool:
    """Whether a coordinator has swept the workers a moment ago: two sweeps must lie apart.

    A sweep that confirms the previous one proves little if that was a moment ago.
    """
    if type(command) is not SweepWorkers or watch.previous_sweep_ms is None:
        return False
    return 0 <= now_ms - watch.previous_sweep_ms < SWEEP_INTERVAL_MS // 2


def note_replica(
    tx: Transaction, command: BeatReplica, counts: tuple[Counted, ...], *, now_ms: int
) -> list[Replica]:
    """Record a coordinator's heartbeat and counts; return all coordinators, including itself."""
    replicas, locks = ReplicaStore(tx), LockStore(tx)
    if command.is_leaving:
        replicas.delete(command.replica.name)
        locks.expire_waiters(command.replica.name, now_ms=now_ms)
        return []
    replicas.record_heartbeat(replace(command.replica, seen_ms=now_ms, counts=counts))
    for name in replicas.silent(now_ms - SILENT_MS):
        locks.expire_waiters(name, now_ms=now_ms)
    replicas.prune(now_ms - FORGOTTEN_MS)
    return replicas.all()
