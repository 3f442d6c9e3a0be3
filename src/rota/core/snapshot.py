"""The snapshot that the reducer decides a batch on.

A snapshot holds the part of the store that a batch of commands touches. The time, the policies and
the dice are in the `Context`. The engine loads a snapshot in bulk before the reducer decides
anything. The reducer notes each decision in it at once, so that the next command of the batch sees
the state after the earlier ones. A snapshot belongs to one batch: it is made, used and dropped
inside one transaction.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import msgspec
from msgspec import Struct

from rota.core import limits
from rota.core.commands import EpochClaim
from rota.core.decisions import (
    AddTask,
    FinishTask,
    LeaseTask,
    ReplaceTask,
    RequeueTask,
)
from rota.core.flows.model import FlowSpec, LimitKind, LimitUse
from rota.core.ids import TaskId
from rota.core.tasks.inbox import InboxItem
from rota.core.tasks.keys import KeyPlace
from rota.core.tasks.lanes import LaneRoom
from rota.core.tasks.logs import TaskLogs
from rota.core.tasks.model import (
    FINISHED,
    EndedAttempt,
    Ending,
    Lane,
    Lease,
    TaskRecord,
    TaskState,
    holds_key_while_running,
    lane_of,
    options_of,
    retried_options,
    waiting_state,
)
from rota.core.workers.circuit_breaker import CLOSED_BREAKER, Breaker
from rota.core.workers.eviction_guards import SweepState
from rota.core.workers.model import WorkerRecord
from rota.core.workers.statistics import EMPTY, Statistics


class Quality(Struct, frozen=True):
    """The performance of one worker with tasks of one name."""

    statistics: Statistics = EMPTY
    breaker: Breaker = CLOSED_BREAKER


class KeyHolder(Struct, frozen=True):
    """The task that holds a key by which it is unique or debounced."""

    task_id: TaskId
    until_ms: int | None = None  # it lets go of the key at this moment at the latest


MOST_KEYS = limits.MAX_LIMIT_KEYS


class Snapshot(Struct, kw_only=True):
    last_task_id: int = 0
    next_incarnation: int = 1
    lanes: dict[int, Lane] = {}
    keys: dict[KeyPlace, TaskRecord] = {}
    holders: dict[KeyPlace, KeyHolder] = {}  # of the keys of submitted unique tasks
    released: set[TaskId] = set()  # tasks that have let go of their keys in this batch
    workers: dict[str, WorkerRecord] = {}
    fleet: int = 0
    leases: dict[TaskId, Lease] = {}
    held: dict[int, int] = {}
    repeated: AbstractSet[TaskId] = frozenset()  # leased tasks that were granted a second time
    tasks: dict[TaskId, TaskRecord] = {}
    finished: dict[TaskId, FinishTask] = {}  # in this batch
    requeued: dict[TaskId, RequeueTask] = {}  # in this batch
    qualities: dict[tuple[str, str], Quality] = {}
    known_queues: set[str] = set()
    to_cancel: dict[int, set[TaskId]] = {}  # by incarnation
    due: list[TaskId] = []
    overdue: list[TaskId] = []  # running past their deadline
    unstarted: list[TaskId] = []  # not started within their time limit
    token_ids: set[str] = set()
    inbox: list[InboxItem] = []  # taken from the inbox, to be accepted in this batch
    lane_room: LaneRoom | None = None  # None: every new task finds its lane
    limits: dict[str, LimitUse] = {}  # those that new tasks name; unknown ones are left out
    new_keys: int = MOST_KEYS  # keys of limits that may still be added
    owned_keys: dict[str, int] = {}  # keys of limits that each binding has named first
    new_kinds: dict[str, LimitKind] = {}  # of the keys that this batch has added
    # Combinations of lane and flow that may still be added, and those that are known; None: more
    # than the batch has tasks.
    new_flows: int | None = None
    known_flows: set[tuple[Lane, FlowSpec]] = set()
    lingering: set[TaskId] = set()  # cancelled tasks whose worker still has their slot
    job_slots: dict[TaskId, tuple[str, ...]] = {}  # the keys whose slots a job takes when it starts
    slot_room: dict[str, int] = {}  # slots that are free, of those keys
    queue_room: dict[str, int] = {}  # tasks that queues with `max_queued` still take
    watch: SweepState = SweepState()
    logs: dict[TaskId, TaskLogs] = {}  # of the tasks that workers send log lines of
    stale_claims: set[EpochClaim] = set()  # no member owns the shard under this epoch

    def note_added(self, decision: AddTask, lane: Lane) -> None:
        if decision.task.key is not None:
            self.keys[lane.queue, decision.task.key] = added_task(decision, lane)
        if decision.holds is not None:
            self.tasks[decision.id] = added_task(decision, lane)
            holder = KeyHolder(decision.id, decision.holds.until_ms)
            self.holders[lane.queue, decision.holds.key] = holder

    def note_replaced(self, decision: ReplaceTask) -> TaskRecord:
        self.tasks[decision.id] = task = replaced_task(decision)
        return task

    def note_finished(self, decision: FinishTask) -> None:
        self.finished[decision.id] = decision
        self._drop_lease(decision.id)
        self.note_ends([decision])

    def note_ends(self, decisions: Sequence[FinishTask]) -> None:
        """Mark the finished tasks among those that the snapshot has loaded whole."""
        if self.holders:
            self.released.update(one.id for one in decisions)
        if not self.tasks:  # for tasks that succeed, the engine loads only the leases
            return
        for decision in decisions:
            task = self.tasks.get(decision.id)
            if task is not None:
                self.tasks[decision.id] = msgspec.structs.replace(
                    task,
                    state=task.state.to(decision.state),
                    attempt=decision.attempt,
                    fence=decision.fence,
                    worker_id=decision.worker_id,
                    due_at_ms=None,
                    deadline_ms=None,
                    finished_at_ms=decision.finished_at_ms,
                    result=decision.result,
                    error=decision.error,
                )

    def note_freed(self, incarnation: int, count: int) -> None:
        """Note that `count` leases of an incarnation have ended."""
        if incarnation in self.held:
            self.held[incarnation] -= count

    def note_requeued(self, decision: RequeueTask) -> None:
        self.requeued[decision.id] = decision
        self._drop_lease(decision.id)
        task = self.tasks.get(decision.id)
        if task is not None:
            self.tasks[decision.id] = msgspec.structs.replace(
                task,
                state=task.state.to(waiting_state(decision.due_at_ms)),
                due_at_ms=decision.due_at_ms,
                attempt=decision.attempt,
                worker_id=None,
                incarnation=None,
                started_at_ms=None,
                deadline_ms=None,
                progress=None,
                partial=None,
                log=logged(task.log, decision.ended),
            )

    def note_leased(self, decision: LeaseTask, lane: Lane) -> None:
        self.held[decision.incarnation] = self.held.get(decision.incarnation, 0) + 1
        self.leases[decision.id] = Lease(
            id=decision.id,
            lane=lane,
            incarnation=decision.incarnation,
            holder=decision.holder,
            fence=decision.fence,
            attempt=decision.attempt,
            started_at_ms=decision.started_at_ms,
            deadline_ms=decision.deadline_ms,
            owner=decision.owner,
        )
        if self.holders and not holds_key_while_running(self.tasks[decision.id].options):
            self.released.add(decision.id)

    def note_state(self, task_id: TaskId, state: TaskState, *, now_ms: int) -> None:
        task = self.tasks[task_id]
        self.finished.pop(task_id, None)
        if task.state in FINISHED:
            self.tasks[task_id] = revived(task, now_ms=now_ms)
        else:
            self.tasks[task_id] = msgspec.structs.replace(
                task, state=task.state.to(state), due_at_ms=None
            )

    def _drop_lease(self, task_id: TaskId) -> None:
        lease = self.leases.pop(task_id, None)
        if lease is not None:
            self.note_freed(lease.incarnation, 1)


def logged(log: tuple[EndedAttempt, ...], ended: EndedAttempt | None) -> tuple[EndedAttempt, ...]:
    """Append an ended attempt to a task's log, and drop the oldest beyond the limit."""
    return log if ended is None else (*log, ended)[-limits.MAX_LOGGED_ATTEMPTS :]


def revived(task: TaskRecord, *, now_ms: int) -> TaskRecord:
    """Return a finished task after an operator's retry: attempts and start limit start over."""
    ended = None
    if task.state is TaskState.FAILED and task.error is not None:
        ended = last_line(task)
    return msgspec.structs.replace(
        task,
        state=task.state.to(TaskState.QUEUED),
        options=retried_options(task.options, now_ms=now_ms),
        attempt=0,
        worker_id=None,
        incarnation=None,
        started_at_ms=None,
        finished_at_ms=None,
        due_at_ms=None,
        result=None,
        error=None,
        progress=None,
        partial=None,
        log=logged(task.log, ended),
    )


def last_line(task: TaskRecord) -> EndedAttempt | None:
    """Return the log line for the last attempt of a finished task that is queued again.

    An attempt whose failure ended its task is in `error`, and not in the log yet.
    """
    assert task.finished_at_ms is not None
    return EndedAttempt(
        attempt=task.attempt,
        fence=task.fence,
        ending=Ending.FAILED,
        worker_id=task.worker_id,
        started_at_ms=task.started_at_ms,
        ended_at_ms=task.finished_at_ms,
        next_state=TaskState.FAILED,
        error=task.error,
    )


def replaced_task(decision: ReplaceTask) -> TaskRecord:
    """Return a task with the contents of another; its attempts start over."""
    before, new = decision.before, decision.task
    return msgspec.structs.replace(
        before,
        lane=lane_of(new),
        priority=new.priority,
        payload=bytes(new.payload),
        options=decision.options,
        due_at_ms=decision.due_at_ms,
        attempt=0,
    )


def added_task(decision: AddTask, lane: Lane) -> TaskRecord:
    """Return a new task as the store has it."""
    new = decision.task
    return TaskRecord(
        id=decision.id,
        lane=lane,
        state=waiting_state(decision.due_at_ms),
        priority=new.priority,
        payload=bytes(new.payload),
        options=options_of(new),
        key=new.key,
        created_at_ms=decision.created_at_ms,
        due_at_ms=decision.due_at_ms,
    )
