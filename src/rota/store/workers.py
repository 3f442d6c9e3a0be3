"""Worker rows, what is known of their quality, and the numbers that only rise."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from rota.core.breakers import Breaker, BreakerState
from rota.core.decisions import NoteHeartbeat, NoteQuality
from rota.core.ids import TaskId
from rota.core.snapshot import Quality
from rota.core.statistics import Statistics
from rota.core.workers import Worker, WorkerState
from rota.store.database import Row, Transaction

REMEMBERED = 2_048  # registrations that need not be decoded anew

_encode = msgspec.json.Encoder().encode
# A registration does not change, and is read with every word of its worker.
_decode_worker = lru_cache(maxsize=REMEMBERED)(msgspec.json.Decoder(Worker).decode)
_interval_ms = lru_cache(maxsize=REMEMBERED)(
    lambda registration: _decode_worker(registration).heartbeat_interval_ms
)
_decode_load = msgspec.json.Decoder(dict[str, Any]).decode
# Sixty-four floats are half as long in MessagePack, and no person reads them.
_pack = msgspec.msgpack.Encoder().encode
_unpack_statistics = msgspec.msgpack.Decoder(Statistics).decode
_unpack_breaker = msgspec.msgpack.Decoder(Breaker).decode


class Workers:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def by_ids(self, ids: list[str]) -> dict[str, Worker]:
        return _workers(self._tx.rows("workers.by_ids", ids)) if ids else {}

    def with_held(self, ids: list[str]) -> tuple[dict[str, Worker], dict[int, int]]:
        """These workers, and how many tasks each incarnation of them holds."""
        rows = self._tx.rows("workers.with_held", ids)
        return _workers(row[:-1] for row in rows), {row[1]: row[-1] for row in rows}

    def has_open_breakers(self) -> bool:
        return bool(self._tx.rows("workers.any_open"))

    def has_cancelled(self) -> bool:
        return bool(self._tx.rows("workers.any_cancelled"))

    def every(self) -> dict[str, Worker]:
        return _workers(self._tx.rows("workers.every"))

    def silent(
        self, *, now_ms: int, intervals: float, also: Iterable[str]
    ) -> tuple[dict[str, Worker], int]:
        """Those not heard for so many of their intervals, and these; and how many there are in all.

        Who was heard in the future is silent, too: the clock was set back.
        """
        heard = self._tx.rows("workers.heard")
        ids = {
            worker_id
            for worker_id, at_ms, registration in heard
            if not 0 <= now_ms - at_ms <= intervals * _interval_ms(registration)
        }
        return self.by_ids([*ids.union(also)]), len(heard)

    def count(self) -> int:
        return int(self._tx.rows("workers.count")[0][0])

    def put(self, worker: Worker) -> None:
        self._tx.run(
            "workers.put",
            worker.id,
            worker.incarnation,
            worker.state,
            worker.last_heartbeat_ms,
            _encode(worker),
            None,
        )
        self.raise_counter("incarnation", worker.incarnation)

    def beat(self, beats: Sequence[NoteHeartbeat]) -> None:
        self._tx.put_many(
            "workers.beat",
            [
                (one.at_ms, None if one.load is None else _encode(one.load), one.worker_id)
                for one in beats
            ],
        )

    def set_state(self, worker_id: str, incarnation: int, state: WorkerState) -> None:
        self._tx.run("workers.set_state", state, worker_id, incarnation)

    def remove(self, worker_id: str, incarnation: int) -> None:
        self._tx.run("workers.remove", worker_id, incarnation)
        self._tx.run("workers.remove_qualities", worker_id)
        self._tx.run("workers.drop_all_cancelled", incarnation)

    # --- quality ----------------------------------------------------------------------------

    def qualities(self, worker_id: str) -> dict[str, Quality]:
        """What is known of one worker, by task name."""
        return {
            name: Quality(_unpack_statistics(statistics), _unpack_breaker(breaker))
            for name, statistics, breaker in self._tx.rows("workers.qualities", worker_id)
        }

    def qualities_of(self, worker_ids: list[str]) -> dict[str, dict[str, Quality]]:
        """What is known of several workers, each by task name; nothing of one that is new."""
        known: dict[str, dict[str, Quality]] = {}
        for worker_id, name, statistics, breaker in self._tx.rows(
            "workers.qualities_of", worker_ids
        ):
            quality = Quality(_unpack_statistics(statistics), _unpack_breaker(breaker))
            known.setdefault(worker_id, {})[name] = quality
        return known

    def every_quality(self, *, open_only: bool = False) -> dict[tuple[str, str], Quality]:
        query = "workers.open_qualities" if open_only else "workers.every_quality"
        return {
            (worker_id, name): Quality(_unpack_statistics(statistics), _unpack_breaker(breaker))
            for worker_id, name, statistics, breaker in self._tx.rows(query)
        }

    def put_qualities(self, notes: Iterable[NoteQuality]) -> None:
        self._tx.put_many(
            "workers.put_quality",
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

    # --- telling of cancellations -----------------------------------------------------------

    def to_cancel(self, incarnations: list[int]) -> dict[int, set[TaskId]]:
        told: dict[int, set[TaskId]] = {}
        if incarnations:
            for incarnation, number in self._tx.rows("workers.cancelled", incarnations):
                told.setdefault(incarnation, set()).add(number)
        return told

    def tell_cancelled(self, pairs: Iterable[tuple[int, TaskId]]) -> None:
        self._tx.many("workers.add_cancelled", pairs)

    def forget_cancelled(self, pairs: Iterable[tuple[int, TaskId]]) -> None:
        self._tx.many("workers.drop_cancelled", pairs)

    # --- numbers that only rise -------------------------------------------------------------

    def counter(self, name: str) -> int:
        return int(self._tx.rows("workers.counter", name)[0][0])

    def raise_counter(self, name: str, value: int) -> None:
        self._tx.run("workers.set_counter", value, name)


def _workers(rows: Iterable[Row]) -> dict[str, Worker]:
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
