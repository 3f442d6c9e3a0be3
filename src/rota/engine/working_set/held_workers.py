"""The workers that the writer holds in memory: registrations, qualities, pending cancellations.

All workers are held, at about 0.5 KiB each. The quality of a worker has about 2.5 KiB for each task
name. It is read from the store when it is first needed, and the least recently used is dropped
beyond `MOST_QUALITIES`. Open circuit breakers are few, and are all held.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from rota.core.decisions import (
    ChangeWorkerState,
    ForgetCancelled,
    NoteHeartbeat,
    NoteQuality,
    PutWorker,
    RemoveWorker,
    TellCancelled,
)
from rota.core.ids import TaskId
from rota.core.snapshot import Quality
from rota.core.workers.circuit_breaker import BreakerState
from rota.core.workers.model import WorkerRecord
from rota.store.database import Transaction
from rota.store.workers import WorkerStore

MOST_QUALITIES = 16_384  # of one worker and one task name each; 40 MiB


class HeldWorkers:
    """The workers as the store has them. Each decision is noted when it is written."""

    def __init__(self) -> None:
        self.by_id: dict[str, WorkerRecord] = {}
        self.last_incarnation = 0
        self.cancelled: dict[int, set[TaskId]] = {}  # to be told, by incarnation
        self.open_breakers: dict[tuple[str, str], Quality] = {}  # by worker and task name
        self.qualities: dict[str, dict[str, Quality]] = {}  # by worker; the last used is last
        self._quality_count = 0

    def __len__(self) -> int:
        return len(self.by_id)

    @classmethod
    def load(cls, tx: Transaction) -> "HeldWorkers":
        held, store = cls(), WorkerStore(tx)
        held.by_id = store.all()
        held.last_incarnation = store.counter("incarnation")
        held.cancelled = store.all_cancelled()
        held.open_breakers = store.all_qualities(open_only=True)
        return held

    # --- reading --------------------------------------------------------------------------------

    def of_ids(self, ids: Iterable[str]) -> dict[str, WorkerRecord]:
        """Return the workers of these ids; unknown ids are left out."""
        by_id = self.by_id
        return {one: by_id[one] for one in ids if one in by_id}

    def silent(
        self, *, now_ms: int, intervals: float, also: Collection[str]
    ) -> dict[str, WorkerRecord]:
        """Return the workers without a heartbeat for so many of their intervals, and `also`.

        A worker with a heartbeat in the future is silent, too: the clock was set back.
        """
        return {
            worker.id: worker
            for worker in self.by_id.values()
            if not 0
            <= now_ms - worker.last_heartbeat_ms
            <= intervals * worker.heartbeat_interval_ms
            or worker.id in also
        }

    def to_cancel(self, workers: Iterable[WorkerRecord]) -> dict[int, set[TaskId]]:
        """Return copies of the cancellations that these workers have to be told of."""
        if not self.cancelled:
            return {}
        incarnations = (worker.incarnation for worker in workers)
        return {one: {*self.cancelled[one]} for one in incarnations if one in self.cancelled}

    def qualities_of(
        self, tx: Transaction, worker_ids: Iterable[str]
    ) -> Mapping[str, Mapping[str, Quality]]:
        """Return the qualities of these workers by task name; the store is read at first use."""
        wanted = [one for one in dict.fromkeys(worker_ids) if one in self.by_id]
        if missing := [one for one in wanted if one not in self.qualities]:
            stored = WorkerStore(tx).qualities(missing)
            for one in missing:
                self._hold_qualities(one, stored.get(one, {}))
        found = {one: self.qualities[one] for one in wanted}
        for one in wanted:
            self.qualities[one] = self.qualities.pop(one)
        self._trim()
        return found

    def _hold_qualities(self, worker_id: str, qualities: dict[str, Quality]) -> None:
        self.qualities[worker_id] = qualities
        self._quality_count += len(qualities)

    def _trim(self) -> None:
        while self._quality_count > MOST_QUALITIES and len(self.qualities) > 1:
            oldest = next(iter(self.qualities))
            self._quality_count -= len(self.qualities.pop(oldest))

    # --- decisions ------------------------------------------------------------------------------

    def note_put(self, decisions: Sequence[PutWorker]) -> None:
        for one in decisions:
            worker = one.worker
            if worker.id not in self.by_id:
                self._hold_qualities(worker.id, {})  # a removed worker leaves none behind
            # The load comes with heartbeats alone.
            self.by_id[worker.id] = msgspec.structs.replace(worker, load={})
            self.last_incarnation = max(self.last_incarnation, worker.incarnation)

    def note_heartbeats(self, decisions: Sequence[NoteHeartbeat]) -> None:
        for one in decisions:
            worker = self.by_id.get(one.worker_id)
            if worker is not None:
                load = worker.load if one.load is None else one.load
                self.by_id[worker.id] = msgspec.structs.replace(
                    worker, last_heartbeat_ms=one.at_ms, load=load
                )

    def note_states(self, decisions: Sequence[ChangeWorkerState]) -> None:
        for one in decisions:
            worker = self.by_id.get(one.worker_id)
            if worker is not None and worker.incarnation == one.incarnation:
                self.by_id[worker.id] = msgspec.structs.replace(worker, state=one.state)

    def note_qualities(self, decisions: Sequence[NoteQuality]) -> None:
        for one in decisions:
            quality = Quality(one.statistics, one.breaker)
            known = self.qualities.get(one.worker_id)
            if known is not None:
                self._quality_count += one.name not in known
                known[one.name] = quality
            if one.breaker.state is BreakerState.OPEN:
                self.open_breakers[one.worker_id, one.name] = quality
            else:
                self.open_breakers.pop((one.worker_id, one.name), None)

    def note_cancelled(self, decisions: Sequence[TellCancelled]) -> None:
        for one in decisions:
            self.cancelled.setdefault(one.incarnation, set()).add(one.task_id)

    def note_told(self, decisions: Sequence[ForgetCancelled]) -> None:
        for one in decisions:
            pending = self.cancelled.get(one.incarnation)
            if pending is not None:
                pending.discard(one.task_id)
                if not pending:
                    del self.cancelled[one.incarnation]

    def note_removed(self, decisions: Sequence[RemoveWorker]) -> None:
        for one in decisions:
            worker = self.by_id.get(one.worker_id)
            if worker is not None and worker.incarnation == one.incarnation:
                del self.by_id[one.worker_id]
            self._quality_count -= len(self.qualities.pop(one.worker_id, {}))
            for key in [key for key in self.open_breakers if key[0] == one.worker_id]:
                del self.open_breakers[key]
            self.cancelled.pop(one.incarnation, None)
