"""What coordinators on one store know of each other, and of each other's writes."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from rota.core.replicas import Counted, Replica
from rota.core.workers.eviction_guards import SweepState
from rota.core.workers.model import Health
from rota.store.database import Transaction, decoding

_encode = msgspec.json.Encoder().encode


class WorkerWatch(Struct, frozen=True, kw_only=True):
    """The outcome of the last sweep over the workers, by any coordinator."""

    watch: SweepState = SweepState()
    healths: Mapping[str, Health] = {}  # of workers that are not healthy


_decode_watch = msgspec.json.Decoder(WorkerWatch).decode
_replica = decoding(Replica, counts=msgspec.json.Decoder(tuple[Counted, ...]).decode)


class SharedFacts(NamedTuple):
    """The writer state that a coordinator carries from batch to batch, as the store has it."""

    last_task_id: int
    last_seq: int  # of the events
    last_notification: int
    last_lane: int
    workers: tuple[int, int]  # another pair: a worker registered or left
    services: int  # another number: a service has changed
    watch: WorkerWatch
    has_open_breakers: bool
    has_cancelled: bool
    has_session_tasks: bool
    has_run_tasks: bool
    has_staged: bool


class Cancellation(NamedTuple):
    """A cancelled task that an incarnation of a worker has to be notified of."""

    incarnation: int
    task_id: int


class ReplicaStore:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    # --- writes of peers ------------------------------------------------------------------------

    def facts(self) -> SharedFacts:
        (row,) = self._tx.records(dict[str, Any], "replicas.facts")
        found: dict[str, Any] = {name: value or 0 for name, value in row.items()}
        ids = ("task_id", "history_id", "run_id", "task_counter")
        return SharedFacts(
            last_task_id=max(found[name] for name in ids),
            last_seq=max(found["event_seq"], found["event_counter"]),
            last_notification=found["last_notification"],
            last_lane=found["last_lane"],
            workers=(found["incarnation"], found["workers"]),
            services=int(found["services"]),
            watch=_decode_watch(found["watch"]) if found["watch"] else WorkerWatch(),
            **{name: bool(value) for name, value in found.items() if name.startswith("has_")},
        )

    def put_watch(self, watch: WorkerWatch) -> None:
        self._tx.execute("replicas.put_watch", value=_encode(watch))

    def live(self, ids: list[int]) -> set[int]:
        """Of these tasks and runs, those that have not ended."""
        return set(self._tx.column("replicas.live", ids=ids))

    def has_ready(self) -> bool:
        return bool(self._tx.value("replicas.has_ready"))

    def cancelled(self, limit: int) -> list[Cancellation]:
        return self._tx.records(Cancellation, "replicas.cancelled", limit=limit)

    def notified_sessions(self, sessions: list[str], *, after: int) -> set[str]:
        """Of these sessions, those with a notification above a number."""
        return set(self._tx.column("replicas.notified_sessions", sessions=sessions, after=after))

    # --- peers ----------------------------------------------------------------------------------

    def record_heartbeat(self, replica: Replica) -> None:
        fields = asdict(replica) | {"counts": _encode(replica.counts)}
        self._tx.execute("replicas.heartbeat", **fields)

    def all(self) -> list[Replica]:
        return self._tx.records(_replica, "replicas.all")

    def silent(self, before_ms: int) -> list[str]:
        """The coordinators without a heartbeat since this time."""
        return self._tx.column("replicas.silent", before_ms=before_ms)

    def delete(self, name: str) -> None:
        self._tx.execute("replicas.delete", name=name)

    def prune(self, before_ms: int) -> None:
        self._tx.execute("replicas.prune", before_ms=before_ms)
