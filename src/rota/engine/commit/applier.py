"""Turns decisions into writes, grouped by kind. Only this module knows both sides."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from rota.core.decisions import (
    AcknowledgeTask,
    AddTask,
    ChangeQueue,
    ChangeWorkerState,
    CloseRates,
    Decision,
    DropToken,
    FinishTask,
    ForgetCancelled,
    ForgetHistory,
    ForgetLogs,
    KeepLines,
    LeaseTask,
    NoteHeartbeat,
    NoteProgress,
    NoteQuality,
    NoteWatch,
    PutToken,
    PutWorker,
    QueueTask,
    RemoveWorker,
    ReplaceTask,
    RequeueTask,
    ReviveTask,
    TellCancelled,
)
from rota.core.ids import TaskId
from rota.core.tasks.model import TaskRecord, TaskState
from rota.engine.working_set.working_set import WorkingSet
from rota.store.access import TokenStore
from rota.store.database import Transaction
from rota.store.sessions import SessionStore
from rota.store.tasks.lanes import Lanes
from rota.store.tasks.logs import LogStore
from rota.store.tasks.queues import QueueStore
from rota.store.tasks.row_types import QueuedPlace
from rota.store.tasks.tasks import TaskStore
from rota.store.workers import WorkerStore


class Applied(Struct):
    """The effects of a batch's writes that callers may wait for."""

    opened: set[int]  # lanes with new work
    finished: list[TaskId]
    forgotten: int = 0
    logged: list[TaskId] = []  # with new log lines


class _Writer:
    """Writes decisions: one method for each kind, which takes all decisions of its kind.

    What is written to the store is noted in the working set at the same place.
    """

    def __init__(
        self,
        tx: Transaction,
        lanes: Lanes,
        held: WorkingSet,
        *,
        now_ms: int,
        tasks: dict[TaskId, TaskRecord],
        run_tokens: Mapping[TaskId, tuple[int, int]],
        queues_new: bool,
    ) -> None:
        self._tx = tx
        self._lanes = lanes
        self._held = held
        self._now_ms = now_ms
        self._known = tasks
        self._run_tokens = run_tokens
        self._queues_new = queues_new
        self.applied = Applied(opened=set(), finished=[])

    # The stores are made on use: few batches need more than one.

    @property
    def _tasks(self) -> TaskStore:
        return TaskStore(self._tx, self._lanes)

    @property
    def _workers(self) -> WorkerStore:
        return WorkerStore(self._tx)

    def add(self, decisions: Sequence[AddTask]) -> None:
        held = self._held
        flows = held.flows.numbers.of_added(self._tx, decisions, now_ms=self._now_ms)
        queues = held.flows.queues
        ranks = queues.ranks_of_added(decisions) if queues.eras else {}
        opened = self._tasks.add(decisions, is_queued=self._queues_new, flows=flows, ranks=ranks)
        self.applied.opened |= opened
        if not self._queues_new:
            return
        for one in decisions if queues.depths else ():
            queues.count_queued(one.task.queue, int(one.due_at_ms is None))
        if flows:
            held.flows.note_added(decisions, flows, self._run_tokens, ranks)
            decisions = [one for one in decisions if one.id not in flows]
        if held.windows.may_cover(opened, decisions):
            held.windows.note_added(decisions, self._run_tokens)

    def replace(self, decisions: Sequence[ReplaceTask]) -> None:
        """Write the last contents of each task, over what the store has."""
        first: dict[TaskId, TaskRecord] = {}
        last: dict[TaskId, ReplaceTask] = {}
        for one in decisions:
            first.setdefault(one.id, one.before)
            last[one.id] = one
        if self._held.flows.is_used:
            # A task that this batch has added does not know its flow and its rank yet.
            stored = self._tasks.by_ids([one for one, task in first.items() if task.flow is None])
            first |= stored
        whole = [structs.replace(one, before=first[one.id]) for one in last.values()]
        flows = self._held.flows.numbers.of_replaced(self._tx, whole, now_ms=self._now_ms)
        places = self._tasks.replace(whole, flows)
        queued = TaskState.QUEUED
        self._held.note_left([task for task in first.values() if task.state is queued])
        self._note_queued(places)

    def finish(self, decisions: Sequence[FinishTask]) -> None:
        self._tasks.finish(decisions, self._held.key_holders(decisions, self._known))
        self._held.note_finished(decisions, self._known, now_ms=self._now_ms)
        self.applied.finished += [one.id for one in decisions]

    def acknowledge(self, decisions: Sequence[AcknowledgeTask]) -> None:
        self._tasks.acknowledge(decisions)

    def requeue(self, decisions: Sequence[RequeueTask]) -> None:
        ids = [one.id for one in decisions]
        self._held.leases.note_ended(ids)
        # Before they are queued: a task that keeps its slot has to be known as its holder.
        self._held.flows.note_requeued(ids, now_ms=self._now_ms)
        self._note_queued(self._tasks.requeue(decisions, now_ms=self._now_ms))

    def close_rates(self, decisions: Sequence[CloseRates]) -> None:
        for one in decisions:
            self._held.flows.limits.close_rates(one.keys, until_ms=one.until_ms)

    def queue(self, decisions: Sequence[QueueTask]) -> None:
        ids = list(dict.fromkeys(one.id for one in decisions))
        self._note_queued(self._tasks.queue([*ids], now_ms=self._now_ms))

    def revive(self, decisions: Sequence[ReviveTask]) -> None:
        tasks = [self._known[one.id] for one in decisions]
        flows = self._held.flows.numbers.of_revived(self._tx, tasks, now_ms=self._now_ms)
        ranks = self._held.flows.queues.ranks_of_revived(tasks)
        places = self._tasks.revive(decisions, now_ms=self._now_ms, flows=flows, ranks=ranks)
        self._note_queued(places)

    def _note_queued(self, places: Sequence[QueuedPlace]) -> None:
        self._held.note_queued(places)
        self.applied.opened.update(self._held.flows.numbers.lane_of(place.lane) for place in places)

    def progress(self, decisions: Sequence[NoteProgress]) -> None:
        self._tasks.note_progress(decisions)

    def keep_lines(self, decisions: Sequence[KeepLines]) -> None:
        LogStore(self._tx).keep(decisions)
        self.applied.logged = list({one.id for one in decisions})

    def forget_logs(self, decisions: Sequence[ForgetLogs]) -> None:
        LogStore(self._tx).forget(decisions)

    def put_workers(self, decisions: Sequence[PutWorker]) -> None:
        for one in decisions:
            self._workers.put(one.worker)
        self._held.workers.note_put(decisions)

    def beat(self, decisions: Sequence[NoteHeartbeat]) -> None:
        self._workers.record_heartbeats(decisions)
        self._held.workers.note_heartbeats(decisions)

    def set_worker_states(self, decisions: Sequence[ChangeWorkerState]) -> None:
        for one in decisions:
            self._workers.set_state(one.worker_id, one.incarnation, one.state)
        self._held.workers.note_states(decisions)

    def remove_workers(self, decisions: Sequence[RemoveWorker]) -> None:
        for one in decisions:
            self._workers.delete(one.worker_id, one.incarnation)
        self._held.workers.note_removed(decisions)
        for one in decisions:
            self._held.flows.note_worker_gone(one.incarnation, now_ms=self._now_ms)

    def note_qualities(self, decisions: Sequence[NoteQuality]) -> None:
        self._workers.put_qualities(decisions)
        self._held.workers.note_qualities(decisions)

    def tell_cancelled(self, decisions: Sequence[TellCancelled]) -> None:
        pairs = [(one.incarnation, one.task_id) for one in decisions]
        self._workers.add_cancelled(pairs)
        self._held.workers.note_cancelled(decisions)
        self._held.flows.note_lingering(pairs)

    def forget_cancelled(self, decisions: Sequence[ForgetCancelled]) -> None:
        self._workers.drop_cancelled([(one.incarnation, one.task_id) for one in decisions])
        self._held.workers.note_told(decisions)
        self._held.flows.note_let_go((one.task_id for one in decisions), now_ms=self._now_ms)

    def change_queues(self, decisions: Sequence[ChangeQueue]) -> None:
        for one in decisions:
            QueueStore(self._tx).set_paused(one.queue, paused=one.paused, at_ms=one.at_ms)
            if not one.paused:
                self.applied.opened |= set(self._lanes.matching(queue=one.queue))

    def put_tokens(self, decisions: Sequence[PutToken]) -> None:
        for one in decisions:
            TokenStore(self._tx).put(one.token)

    def drop_tokens(self, decisions: Sequence[DropToken]) -> None:
        for one in decisions:
            TokenStore(self._tx).delete(one.token_id)

    def lease(self, decisions: Sequence[LeaseTask]) -> None:
        self._tasks.lease(decisions, self._known)
        self._held.note_leased(decisions, self._known, now_ms=self._now_ms)

    def forget_history(self, decisions: Sequence[ForgetHistory]) -> None:
        for one in decisions:
            gone = self._tasks.prune(one.finished_before_ms, one.most, now_ms=self._now_ms)
            if gone:
                # These ids must not be used again, even if the clock is set back before the next
                # start.
                self._workers.raise_counter("task", max(gone))
                SessionStore(self._tx).drop_tasks([*gone])
            self.applied.forgotten += len(gone)
        if self._held.flows.is_used:
            self._held.flows.prune(self._tx, now_ms=self._now_ms)

    def watch(self, decisions: Sequence[NoteWatch]) -> None:
        """Write nothing: the engine keeps the watch, which is about this coordinator."""


# In the order of the union: decisions that free something come before decisions that take it.
ORDER: tuple[tuple[type[Any], Callable[[_Writer, Any], None]], ...] = (
    (NoteProgress, _Writer.progress),
    (KeepLines, _Writer.keep_lines),
    (ForgetLogs, _Writer.forget_logs),
    (AddTask, _Writer.add),
    (ReplaceTask, _Writer.replace),
    (FinishTask, _Writer.finish),
    (AcknowledgeTask, _Writer.acknowledge),
    (RequeueTask, _Writer.requeue),
    (CloseRates, _Writer.close_rates),
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
    held: WorkingSet,
    now_ms: int,
    tasks: dict[TaskId, TaskRecord],
    run_tokens: Mapping[TaskId, tuple[int, int]],
    queues_new: bool = True,
) -> Applied:
    """Write all decisions, sorted by kind, in the caller's transaction.

    Run tokens: the run and the token of new tasks that work for one.
    Queues new: False leaves new tasks out of the queue; the caller then queues or leases them.
    """
    writer = _Writer(
        tx,
        lanes,
        held,
        now_ms=now_ms,
        tasks=tasks,
        run_tokens=run_tokens,
        queues_new=queues_new,
    )
    kinds = decisions if len(decisions) == 1 else sorted(decisions, key=PLACES.__getitem__)
    for kind in kinds:
        WRITERS[kind](writer, decisions[kind])
    return writer.applied
