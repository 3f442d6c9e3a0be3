"""Worker rows, the quality of workers, pending cancellations, and counters that only rise."""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from rota.core.decisions import NoteHeartbeat, NoteQuality
from rota.core.ids import TaskId
from rota.core.snapshot import Quality
from rota.core.workers.circuit_breaker import Breaker, BreakerState
from rota.core.workers.model import WorkerRecord, WorkerState
from rota.core.workers.statistics import Statistics
from rota.store.database import Row, Transaction

CACHED_REGISTRATIONS = 2_048

_encode = msgspec.json.Encoder().encode
# A registration does not change, and is read with every request of its worker.
_decode_worker = lru_cache(maxsize=CACHED_REGISTRATIONS)(msgspec.json.Decoder(WorkerRecord).decode)
_decode_load = msgspec.json.Decoder(dict[str, Any]).decode
# 64 floats are half as long in MessagePack as in JSON.
_pack = msgspec.msgpack.Encoder().encode
_unpack_statistics = msgspec.msgpack.Decoder(Statistics).decode
_unpack_breaker = msgspec.msgpack.Decoder(Breaker).decode


class WorkerStore:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def by_ids(self, ids: list[str]) -> dict[str, WorkerRecord]:
        return _workers(self._tx.rows("workers.by_ids", ids=ids)) if ids else {}

    def all(self) -> dict[str, WorkerRecord]:
        return _workers(self._tx.rows("workers.all"))

    def put(self, worker: WorkerRecord) -> None:
        self._tx.pipeline(
            "workers.put",
            id=worker.id,
            incarnation=worker.incarnation,
            state=worker.state,
            last_heartbeat_ms=worker.last_heartbeat_ms,
            registration=_encode(worker),
        )
        self.raise_counter("incarnation", worker.incarnation)

    def record_heartbeats(self, heartbeats: Sequence[NoteHeartbeat]) -> None:
        self._tx.pipeline_many(
            "workers.record_heartbeat",
            ("at_ms", "load", "worker_id"),
            [
                (one.at_ms, None if one.load is None else _encode(one.load), one.worker_id)
                for one in heartbeats
            ],
        )

    def set_state(self, worker_id: str, incarnation: int, state: WorkerState) -> None:
        self._tx.pipeline("workers.set_state", id=worker_id, incarnation=incarnation, state=state)

    def delete(self, worker_id: str, incarnation: int) -> None:
        self._tx.pipeline("workers.delete", id=worker_id, incarnation=incarnation)
        self._tx.pipeline("workers.delete_qualities", worker_id=worker_id)
        self._tx.pipeline("workers.drop_all_cancelled", incarnation=incarnation)

    # --- quality --------------------------------------------------------------------------------

    def qualities(self, worker_ids: list[str]) -> dict[str, dict[str, Quality]]:
        """The quality of these workers, by worker and task name. A new worker has no entry."""
        found: dict[str, dict[str, Quality]] = {}
        rows = self._tx.rows("workers.qualities", worker_ids=worker_ids)
        for (worker_id, name), quality in _qualities(rows):
            found.setdefault(worker_id, {})[name] = quality
        return found

    def all_qualities(self, *, open_only: bool = False) -> dict[tuple[str, str], Quality]:
        """The quality of every worker, by worker and task name; or those of open breakers."""
        query = "workers.open_qualities" if open_only else "workers.all_qualities"
        return dict(_qualities(self._tx.rows(query)))

    def put_qualities(self, notes: Iterable[NoteQuality]) -> None:
        self._tx.pipeline_many(
            "workers.put_quality",
            ("worker_id", "name", "is_open", "statistics", "breaker"),
            [
                (
                    note.worker_id,
                    note.name,
                    int(note.breaker.state is BreakerState.OPEN),
                    _pack(note.statistics),
                    _pack(note.breaker),
                )
                for note in notes
            ],
        )

    # --- cancellations --------------------------------------------------------------------------

    def all_cancelled(self) -> dict[int, set[TaskId]]:
        """The cancelled tasks that workers have to be notified of, by incarnation."""
        found: dict[int, set[TaskId]] = {}
        for incarnation, task_id in self._tx.rows("workers.all_cancelled"):
            found.setdefault(incarnation, set()).add(task_id)
        return found

    def add_cancelled(self, pairs: Iterable[tuple[int, TaskId]]) -> None:
        """Record cancelled tasks; each pair is an incarnation and a task."""
        self._tx.pipeline_many("workers.add_cancelled", ("incarnation", "task_id"), pairs)

    def drop_cancelled(self, pairs: Iterable[tuple[int, TaskId]]) -> None:
        self._tx.pipeline_many("workers.drop_cancelled", ("incarnation", "task_id"), pairs)

    # --- counters -------------------------------------------------------------------------------

    def counter(self, name: str) -> int:
        return int(self._tx.value("workers.counter", name=name))

    def raise_counter(self, name: str, value: int) -> None:
        self._tx.pipeline("workers.raise_counter", name=name, value=value)


def _qualities(rows: Iterable[Row]) -> Iterator[tuple[tuple[str, str], Quality]]:
    for worker_id, name, statistics, breaker in rows:
        yield (worker_id, name), Quality(_unpack_statistics(statistics), _unpack_breaker(breaker))


def _workers(rows: Iterable[Row]) -> dict[str, WorkerRecord]:
    return {
        worker_id: msgspec.structs.replace(
            _decode_worker(registration),
            incarnation=incarnation,
            state=WorkerState(state),
            last_heartbeat_ms=last_heartbeat_ms,
            load={} if load is None else _decode_load(load),
        )
        for worker_id, incarnation, state, last_heartbeat_ms, registration, load in rows
    }
