"""Turn decisions into writes, grouped by kind. The only module that knows both sides."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from rota.core.decisions import (
    AddTask,
    ChangeQueue,
    ChangeWorkerState,
    Decision,
    DropToken,
    FinishTask,
    ForgetCancelled,
    ForgetHistory,
    LeaseTask,
    NoteHeartbeat,
    NoteProgress,
    NoteQuality,
    NoteWatch,
    PutToken,
    PutWorker,
    QueueTask,
    RemoveWorker,
    RequeueTask,
    ReviveTask,
    TellCancelled,
)
from rota.core.ids import TaskId
from rota.core.tasks import Task
from rota.store.access import Access
from rota.store.database import Transaction
from rota.store.lanes import Lanes
from rota.store.queues import Queues
from rota.store.sessions import Sessions
from rota.store.tasks import Tasks
from rota.store.workers import Workers


class Applied(Struct):
    """What a batch of writes brought about, for those who wait for it."""

    opened: set[int]  # lanes with something new to claim
    finished: list[TaskId]
    forgotten: int = 0


def by_kind(decisions: Iterable[Decision]) -> dict[type[Decision], list[Any]]:
    """Decisions sorted by what they are; those of one kind keep their order."""
    sorted_out: dict[type[Decision], list[Any]] = {}
    for decision in decisions:
        sorted_out.setdefault(type(decision), []).append(decision)
    return sorted_out


class _Writer:
    """One method a kind of decision; each takes all decisions of its kind at once."""

    def __init__(
        self,
        tx: Transaction,
        lanes: Lanes,
        *,
        now_ms: int,
        tasks: dict[TaskId, Task],
        queues_new: bool,
    ) -> None:
        self._tx = tx
        self._lanes = lanes
        self._now_ms = now_ms
        self._known = tasks
        self._queues_new = queues_new
        self.applied = Applied(opened=set(), finished=[])

    # Made where they are needed: few batches need more than one.

    @property
    def _tasks(self) -> Tasks:
        return Tasks(self._tx, self._lanes)

    @property
    def _workers(self) -> Workers:
        return Workers(self._tx)

    def add(self, decisions: Sequence[AddTask]) -> None:
        self.applied.opened |= self._tasks.add(decisions, is_queued=self._queues_new)

    def finish(self, decisions: Sequence[FinishTask]) -> None:
        self._tasks.finish(decisions)
        self.applied.finished += [one.id for one in decisions]

    def requeue(self, decisions: Sequence[RequeueTask]) -> None:
        self.applied.opened |= self._tasks.requeue(decisions, now_ms=self._now_ms)

    def queue(self, decisions: Sequence[QueueTask]) -> None:
        ids = list(dict.fromkeys(one.id for one in decisions))
        self.applied.opened |= self._tasks.queue([*ids], now_ms=self._now_ms)

    def revive(self, decisions: Sequence[ReviveTask]) -> None:
        ids = [one.id for one in decisions]
        self.applied.opened |= self._tasks.revive([*ids], now_ms=self._now_ms)

    def progress(self, decisions: Sequence[NoteProgress]) -> None:
        self._tasks.note_progress(decisions)

    def put_workers(self, decisions: Sequence[PutWorker]) -> None:
        for one in decisions:
            self._workers.put(one.worker)

    def beat(self, decisions: Sequence[NoteHeartbeat]) -> None:
        self._workers.beat(decisions)

    def set_worker_states(self, decisions: Sequence[ChangeWorkerState]) -> None:
        for one in decisions:
            self._workers.set_state(one.worker_id, one.incarnation, one.state)

    def remove_workers(self, decisions: Sequence[RemoveWorker]) -> None:
        for one in decisions:
            self._workers.remove(one.worker_id, one.incarnation)

    def note_qualities(self, decisions: Sequence[NoteQuality]) -> None:
        self._workers.put_qualities(decisions)

    def tell_cancelled(self, decisions: Sequence[TellCancelled]) -> None:
        self._workers.tell_cancelled([(one.incarnation, one.task_id) for one in decisions])

    def forget_cancelled(self, decisions: Sequence[ForgetCancelled]) -> None:
        self._workers.forget_cancelled([(one.incarnation, one.task_id) for one in decisions])

    def change_queues(self, decisions: Sequence[ChangeQueue]) -> None:
        for one in decisions:
            Queues(self._tx).change(one.queue, paused=one.paused, at_ms=one.at_ms)
            if not one.paused:
                self.applied.opened |= set(self._lanes.matching(queue=one.queue))

    def put_tokens(self, decisions: Sequence[PutToken]) -> None:
        for one in decisions:
            Access(self._tx).put(one.token)

    def drop_tokens(self, decisions: Sequence[DropToken]) -> None:
        for one in decisions:
            Access(self._tx).drop(one.token_id)

    def lease(self, decisions: Sequence[LeaseTask]) -> None:
        self._tasks.lease(decisions, self._known)

    def forget_history(self, decisions: Sequence[ForgetHistory]) -> None:
        for one in decisions:
            gone = self._tasks.forget(one.finished_before_ms, one.most, now_ms=self._now_ms)
            if gone:
                # Their ids must not come again, even if the clock is set back by the next start.
                self._workers.raise_counter("task", max(gone))
                Sessions(self._tx).forget([*gone])
            self.applied.forgotten += len(gone)

    def watch(self, decisions: Sequence[NoteWatch]) -> None:
        """Kept by the engine: it is about this coordinator, not about the work."""


# In the order of the union: what frees something comes before what takes it.
ORDER: tuple[tuple[type[Any], Callable[[_Writer, Any], None]], ...] = (
    (NoteProgress, _Writer.progress),
    (AddTask, _Writer.add),
    (FinishTask, _Writer.finish),
    (RequeueTask, _Writer.requeue),
    (QueueTask, _Writer.queue),
    (ReviveTask, _Writer.revive),
    (PutWorker, _Writer.put_workers),
    (NoteHeartbeat, _Writer.beat),
    (ChangeWorkerState, _Writer.set_worker_states),
    (NoteQuality, _Writer.note_qualities),
    (TellCancelled, _Writer.tell_cancelled),
    (ForgetCancelled, _Writer.forget_cancelled),
    (RemoveWorker, _Writer.remove_workers),
    (ChangeQueue, _Writer.change_queues),
    (PutToken, _Writer.put_tokens),
    (DropToken, _Writer.drop_tokens),
    (LeaseTask, _Writer.lease),
    (ForgetHistory, _Writer.forget_history),
    (NoteWatch, _Writer.watch),
)


WRITERS = dict(ORDER)
PLACES = {kind: place for place, (kind, _) in enumerate(ORDER)}


def apply(
    tx: Transaction,
    lanes: Lanes,
    decisions: Mapping[type[Decision], list[Any]],
    *,
    now_ms: int,
    tasks: dict[TaskId, Task],
    queues_new: bool = True,
) -> Applied:
    """Write all decisions, sorted by kind, in the caller's transaction.

    Queues new: False leaves new tasks out of the queue; whoever says so sees to them.
    """
    writer = _Writer(tx, lanes, now_ms=now_ms, tasks=tasks, queues_new=queues_new)
    for kind in sorted(decisions, key=PLACES.__getitem__):
        WRITERS[kind](writer, decisions[kind])
    return writer.applied
