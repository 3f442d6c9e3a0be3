"""A minimal store: the decisions of the core, applied to dictionaries.

Each decision is checked against the state it changes: a transition that the table does not have, a
fence that does not fit, a worker removed while it still holds something are all errors here.
"""

from typing import assert_never

import msgspec
from msgspec.structs import replace

from rota.core.commands import TaskCommand
from rota.core.context import Rules
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
from rota.core.dispatch import matching
from rota.core.ids import TaskId
from rota.core.replies import Reply
from rota.core.snapshot import KeyHolder, Quality, added_task, logged, replaced_task, revived
from rota.core.tasks.keys import KeyPlace
from rota.core.tasks.model import (
    FINISHED,
    TASK_TRANSITIONS,
    Lane,
    Lease,
    TaskRecord,
    TaskState,
    lane_of,
    start_by_ms,
)
from rota.core.tasks.unique import HeldKey, Release
from rota.core.workers.eviction_guards import SweepState
from rota.core.workers.model import WORKER_TRANSITIONS, WorkerRecord
from rota.errors import RotaError
from tests.core.snapshots import Situation, ask, reduce

Answer = Reply | RotaError


class Model:
    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.rules = Rules()
        self.tasks: dict[TaskId, TaskRecord] = {}
        self.leases: dict[TaskId, Lease] = {}
        self.workers: dict[str, WorkerRecord] = {}
        self.qualities: dict[tuple[str, str], Quality] = {}
        self.to_cancel: dict[int, set[TaskId]] = {}
        self.last_task_id = 0
        self.last_incarnation = 0
        self.watch = SweepState()
        self.succeeded: list[TaskId] = []  # once for each time
        self.holders: dict[KeyPlace, tuple[TaskId, HeldKey]] = {}

    def copy(self) -> "Model":
        other = Model(self.now_ms)
        other.tasks, other.leases = dict(self.tasks), dict(self.leases)
        other.workers, other.qualities = dict(self.workers), dict(self.qualities)
        other.to_cancel = {key: set(ids) for key, ids in self.to_cancel.items()}
        other.last_task_id, other.last_incarnation = self.last_task_id, self.last_incarnation
        other.watch, other.succeeded = self.watch, list(self.succeeded)
        other.holders = dict(self.holders)
        return other

    # --- one batch --------------------------------------------------------------------------------

    def handle(self, events: list[TaskCommand]) -> list[Answer]:
        """Decide the events on one snapshot, then carry out what was decided."""
        snapshot = self._snapshot()
        answers: list[Answer] = []
        decisions: list[Decision] = []
        for event in events:
            try:
                decided, reply = reduce(snapshot, event)
            except RotaError as error:
                answers.append(error)
            else:
                decisions += decided
                answers.append(reply)
        for decision in decisions:
            self._apply(decision)
        self.last_task_id = snapshot.last_task_id
        return answers

    def deal(self) -> None:
        """All workers ask for work at once."""
        snapshot = self._snapshot()
        waiting = sorted(self._in(TaskState.QUEUED), key=lambda task: (-task.priority, task.id))
        lanes = dict(enumerate(dict.fromkeys(task.lane for task in waiting)))
        context = snapshot.context
        claims = [
            matching.claim(snapshot, ask(worker), lanes, context)
            for worker in self.workers.values()
        ]
        for group in matching.groups(claims):
            most = sum(one.free for one in group)
            served = {lanes[number] for number in group[0].lanes}
            head = [task for task in waiting if task.lane in served][:most]
            candidates = [
                matching.candidate(
                    snapshot, one, self._known_of(one.worker), context, last_chosen=0
                )
                for one in group
            ]
            for leases in matching.assign(snapshot, head, group, candidates, context):
                for lease in leases:
                    self._apply(lease)
            waiting = [task for task in waiting if task.id not in self.leases]

    def _known_of(self, worker: WorkerRecord) -> dict[str, Quality]:
        return {
            name: quality
            for (worker_id, name), quality in self.qualities.items()
            if worker_id == worker.id
        }

    def _snapshot(self) -> Situation:
        snapshot = Situation(now_ms=self.now_ms, rules=self.rules, dice=lambda: 0.5)
        snapshot.last_task_id = self.last_task_id
        snapshot.next_incarnation = self.last_incarnation + 1
        snapshot.tasks, snapshot.leases = dict(self.tasks), dict(self.leases)
        snapshot.keys = {
            (task.lane.queue, task.key): task
            for task in self.tasks.values()
            if task.key is not None
        }
        snapshot.holders = {
            place: KeyHolder(task_id, held.until_ms)
            for place, (task_id, held) in self.holders.items()
        }
        snapshot.workers, snapshot.fleet = dict(self.workers), len(self.workers)
        snapshot.qualities = dict(self.qualities)
        snapshot.to_cancel = {key: set(ids) for key, ids in self.to_cancel.items()}
        snapshot.held = {worker.incarnation: 0 for worker in self.workers.values()}
        for lease in self.leases.values():
            snapshot.held[lease.incarnation] = snapshot.held.get(lease.incarnation, 0) + 1
        snapshot.watch = self.watch
        snapshot.due = [
            task.id
            for task in self._in(TaskState.SCHEDULED)
            if task.due_at_ms is not None and task.due_at_ms <= self.now_ms
        ]
        snapshot.overdue = [
            lease.id
            for lease in self.leases.values()
            if lease.deadline_ms is not None and lease.deadline_ms <= self.now_ms
        ]
        snapshot.unstarted = [
            task.id
            for task in self.tasks.values()
            if (limit := start_by_ms(task.options, created_at_ms=task.created_at_ms)) is not None
            and limit <= self.now_ms
        ]
        return snapshot

    def _in(self, state: TaskState) -> list[TaskRecord]:
        return [task for task in self.tasks.values() if task.state is state]

    # --- one decision -----------------------------------------------------------------------------

    def _apply(self, decision: Decision) -> None:  # noqa: C901, PLR0912, PLR0915 - a table
        match decision:
            case AddTask():
                assert decision.id > max(self.tasks, default=0)
                self.tasks[decision.id] = added_task(decision, lane_of(decision.task))
                if decision.holds is not None:
                    place = (decision.task.queue, decision.holds.key)
                    self.holders[place] = (decision.id, decision.holds)
            case ReplaceTask():
                assert self.tasks[decision.id] == decision.before
                assert decision.before.state in {TaskState.QUEUED, TaskState.SCHEDULED}
                self.tasks[decision.id] = replaced_task(decision)
            case FinishTask():
                self._finish(decision)
            case RequeueTask():
                self._requeue(decision)
            case QueueTask():
                self._move(decision.id, TaskState.QUEUED, due_at_ms=None)
            case ReviveTask():
                ended = self.tasks[decision.id]
                again = revived(ended, now_ms=self.now_ms)
                assert again.options == (decision.options or ended.options)
                self.tasks[decision.id] = again
            case AcknowledgeTask():
                assert self.tasks[decision.id].state is TaskState.FAILED
            case LeaseTask():
                self._lease(decision)
            case NoteProgress():
                assert self.leases[decision.id].fence == decision.fence
            case KeepLines() | ForgetLogs():
                assert decision.id in self.tasks
            case PutWorker():
                assert decision.worker.incarnation > self.last_incarnation
                self.last_incarnation = decision.worker.incarnation
                self.workers[decision.worker.id] = decision.worker
            case NoteHeartbeat():
                self._change_worker(decision.worker_id, last_heartbeat_ms=decision.at_ms)
            case ChangeWorkerState():
                before = self.workers[decision.worker_id]
                assert before.incarnation == decision.incarnation
                assert decision.state in WORKER_TRANSITIONS[before.state]
                self._change_worker(decision.worker_id, state=decision.state)
            case RemoveWorker():
                worker = self.workers.pop(decision.worker_id)
                assert worker.incarnation == decision.incarnation
                self.to_cancel.pop(worker.incarnation, None)
                for name in self._known_of(worker):
                    del self.qualities[worker.id, name]
            case NoteQuality():
                quality = Quality(decision.statistics, decision.breaker)
                self.qualities[decision.worker_id, decision.name] = quality
            case TellCancelled():
                self.to_cancel.setdefault(decision.incarnation, set()).add(decision.task_id)
            case ForgetCancelled():
                self.to_cancel.get(decision.incarnation, set()).discard(decision.task_id)
            case NoteWatch():
                self.watch = decision.watch
            case ChangeQueue() | CloseRates() | PutToken() | DropToken() | ForgetHistory():
                pass
            case _:
                assert_never(decision)

    def _move(self, task_id: TaskId, state: TaskState, **changes: object) -> None:
        task = self.tasks[task_id]
        assert state in TASK_TRANSITIONS[task.state], f"{task.state} to {state}"
        self.tasks[task_id] = replace(task, state=state, **changes)

    def _release(self, task_id: TaskId, *, at: tuple[Release, ...]) -> None:
        """Take the keys of a task from it that it lets go of at one of these points."""
        self.holders = {
            place: (holder, held)
            for place, (holder, held) in self.holders.items()
            if holder != task_id or held.release not in at
        }

    def _change_worker(self, worker_id: str, **changes: object) -> None:
        self.workers[worker_id] = replace(self.workers[worker_id], **changes)

    def _drop_lease(self, task_id: TaskId, fence: int) -> None:
        assert self.leases.pop(task_id).fence == fence, "the lease has moved on"

    def _finish(self, decision: FinishTask) -> None:
        task = self.tasks[decision.id]
        assert (task.state, task.fence) == (decision.was, decision.fence)
        if decision.was is TaskState.RUNNING:
            self._drop_lease(decision.id, decision.fence)
        self._release(decision.id, at=(Release.START, Release.END))
        if decision.state is TaskState.SUCCEEDED:
            self.succeeded.append(decision.id)
        self._move(
            decision.id,
            decision.state,
            attempt=decision.attempt,
            worker_id=decision.worker_id,
            finished_at_ms=decision.finished_at_ms,
            result=None if decision.result is None else bytes(decision.result),
            error=decision.error,
            due_at_ms=None,
            deadline_ms=None,
            incarnation=task.incarnation if decision.was is TaskState.RUNNING else None,
        )

    def _requeue(self, decision: RequeueTask) -> None:
        task = self.tasks[decision.id]
        self._drop_lease(decision.id, decision.fence)
        self._move(
            decision.id,
            TaskState.QUEUED if decision.due_at_ms is None else TaskState.SCHEDULED,
            attempt=decision.attempt,
            due_at_ms=decision.due_at_ms,
            log=logged(task.log, decision.ended),
            worker_id=None,
            incarnation=None,
            started_at_ms=None,
            deadline_ms=None,
        )

    def _lease(self, decision: LeaseTask) -> None:
        task = self.tasks[decision.id]
        assert task.state is decision.was
        assert decision.fence == task.fence + 1, "a fence rises by one"
        assert decision.attempt == task.attempt + 1
        self._release(decision.id, at=(Release.START,))
        holder = next(
            (one.id for one in self.workers.values() if one.incarnation == decision.incarnation),
            decision.holder,
        )
        self.leases[decision.id] = Lease(
            id=decision.id,
            lane=task.lane,
            incarnation=decision.incarnation,
            holder=decision.holder,
            fence=decision.fence,
            attempt=decision.attempt,
            started_at_ms=decision.started_at_ms,
            deadline_ms=decision.deadline_ms,
        )
        self._move(
            decision.id,
            TaskState.RUNNING,
            fence=decision.fence,
            attempt=decision.attempt,
            incarnation=decision.incarnation,
            worker_id=holder,
            started_at_ms=decision.started_at_ms,
            deadline_ms=decision.deadline_ms,
            due_at_ms=None,
        )

    # --- what must always hold --------------------------------------------------------------------

    def check(self) -> None:
        running = {task.id for task in self._in(TaskState.RUNNING)}
        assert running == self.leases.keys(), "a task runs exactly while it is leased"
        incarnations = {worker.incarnation: worker for worker in self.workers.values()}
        held: dict[int, int] = {}
        for lease in self.leases.values():
            held[lease.incarnation] = held.get(lease.incarnation, 0) + 1
            assert lease.holder is not None or lease.incarnation in incarnations, "orphaned lease"
            assert 1 <= lease.attempt <= self.tasks[lease.id].options.max_attempts
        for incarnation, worker in incarnations.items():
            assert held.get(incarnation, 0) <= worker.max_concurrent_tasks, "capacity overshot"
        assert len(self.succeeded) == len(set(self.succeeded)), "completed twice"
        keyed = [task for task in self.tasks.values() if task.key is not None]
        keys = [(task.lane.queue, task.key) for task in keyed]
        assert len(keys) == len(set(keys)), "a key was accepted twice"
        for holder, key in self.holders.values():
            assert self.tasks[holder].state not in FINISHED, "a finished task holds a key"
            assert key.release is Release.END or self.tasks[holder].fence == 0, "not released"
        told = {incarnation for incarnation, ids in self.to_cancel.items() if ids}
        assert told <= incarnations.keys(), "nobody is left to be told"

    def comparable(self) -> bytes:
        """All of it as one text, to compare two models by."""
        return msgspec.json.encode(
            [
                [*self.tasks.values()],
                sorted(self.leases.items()),
                [*self.workers.values()],
                sorted((key, sorted(ids)) for key, ids in self.to_cancel.items() if ids),
                [(key, quality.breaker) for key, quality in sorted(self.qualities.items())],
                self.succeeded,
                sorted(self.holders.items()),
                self.watch,
            ]
        )


LANES = (Lane("default", "resize"), Lane("mail", "send"))
