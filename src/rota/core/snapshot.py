"""What does the core know when it decides?

A snapshot holds the part of the store that a batch of events touches, loaded in bulk before
anything is decided. Each decision is noted in it at once, so that the next event of the same
batch is decided on the state the earlier ones have led to. It is a working value of one batch:
made, used and dropped inside one transaction.
"""

from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct

from rota.core import limits
from rota.core.breakers import CLOSED_BREAKER, Breaker, BreakerPolicy
from rota.core.choosing import Strategy
from rota.core.decisions import (
    AddTask,
    FinishTask,
    LeaseTask,
    RequeueTask,
)
from rota.core.events import ShardClaim
from rota.core.ids import TaskId
from rota.core.inbox import InboxItem
from rota.core.scoring import ScoringPolicy
from rota.core.statistics import EMPTY, Statistics
from rota.core.tasks import (
    FINISHED,
    EndedAttempt,
    Ending,
    Lane,
    Lease,
    Task,
    TaskState,
    options_of,
)
from rota.core.valves import ValvePolicy, Watch
from rota.core.workers import HealthPolicy, Worker


class Rules(Struct, frozen=True, kw_only=True):
    """The policies a coordinator runs with."""

    health: HealthPolicy = HealthPolicy()
    scoring: ScoringPolicy = ScoringPolicy()
    breaker: BreakerPolicy = BreakerPolicy()
    valves: ValvePolicy = ValvePolicy()
    strategy: Strategy = Strategy.WEIGHTED
    job_lease_ms: int = 15 * 60 * 1000
    unclaimed_lease_ms: int = 30_000


class Quality(Struct, frozen=True):
    """How one worker does with tasks of one name."""

    statistics: Statistics = EMPTY
    breaker: Breaker = CLOSED_BREAKER


class Snapshot(Struct, kw_only=True):
    now_ms: int
    rules: Rules
    dice: Callable[[], float]  # in [0, 1); handed in, so that a replay rolls the same

    last_task_id: int = 0
    next_incarnation: int = 1
    lanes: dict[int, Lane] = {}
    keys: dict[str, Task] = {}
    workers: dict[str, Worker] = {}
    fleet: int = 0
    leases: dict[TaskId, Lease] = {}
    held: dict[int, int] = {}
    tasks: dict[TaskId, Task] = {}
    finished: dict[TaskId, FinishTask] = {}  # in this batch
    requeued: dict[TaskId, RequeueTask] = {}  # in this batch
    qualities: dict[tuple[str, str], Quality] = {}
    known_queues: set[str] = set()
    to_cancel: dict[int, set[TaskId]] = {}  # by incarnation
    due: list[TaskId] = []
    overdue: list[TaskId] = []  # running past their deadline
    unstarted: list[TaskId] = []  # past their time limit to start
    token_ids: set[str] = set()
    inbox: list[InboxItem] = []  # taken out, to be accepted now
    watch: Watch = Watch()
    stale_claims: set[ShardClaim] = set()  # nobody owns the shard under it

    def note_added(self, decision: AddTask, lane: Lane) -> None:
        if decision.task.key is not None:
            self.keys[decision.task.key] = added_task(decision, lane)

    def note_finished(self, decision: FinishTask) -> None:
        self.finished[decision.id] = decision
        self._drop_lease(decision.id)
        self.note_ends([decision])

    def note_ends(self, decisions: Sequence[FinishTask]) -> None:
        """The tasks that are known whole have come to their end."""
        if not self.tasks:  # of tasks that succeed, nothing but their leases is loaded
            return
        for decision in decisions:
            task = self.tasks.get(decision.id)
            if task is not None:
                self.tasks[decision.id] = msgspec.structs.replace(
                    task,
                    state=decision.state,
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
        """So many leases of an incarnation have ended."""
        if incarnation in self.held:
            self.held[incarnation] -= count

    def note_requeued(self, decision: RequeueTask) -> None:
        self.requeued[decision.id] = decision
        self._drop_lease(decision.id)
        task = self.tasks.get(decision.id)
        if task is not None:
            self.tasks[decision.id] = msgspec.structs.replace(
                task,
                state=TaskState.QUEUED if decision.due_at_ms is None else TaskState.SCHEDULED,
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
        )

    def note_state(self, task_id: TaskId, state: TaskState) -> None:
        task = self.tasks[task_id]
        self.finished.pop(task_id, None)
        if task.state in FINISHED:
            self.tasks[task_id] = revived(task)
        else:
            self.tasks[task_id] = msgspec.structs.replace(task, state=state, due_at_ms=None)

    def _drop_lease(self, task_id: TaskId) -> None:
        lease = self.leases.pop(task_id, None)
        if lease is not None:
            self.note_freed(lease.incarnation, 1)


def logged(log: tuple[EndedAttempt, ...], ended: EndedAttempt | None) -> tuple[EndedAttempt, ...]:
    """The log with one line more, and no longer than it may be."""
    return log if ended is None else (*log, ended)[-limits.MAX_LOGGED_ATTEMPTS :]


def revived(task: Task) -> Task:
    """A finished task as it is after an operator's retry: its attempts start anew."""
    ended = None
    if task.error is not None:
        ended = last_line(task)
    return msgspec.structs.replace(
        task,
        state=TaskState.QUEUED,
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


def last_line(task: Task) -> EndedAttempt | None:
    """The line a finished task's last attempt leaves in its log when the task is sent round again.

    A failing attempt that ended its task stands in `error` and is not in the log yet.
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


def added_task(decision: AddTask, lane: Lane) -> Task:
    """A new task as it stands in the store."""
    new = decision.task
    return Task(
        id=decision.id,
        lane=lane,
        state=TaskState.QUEUED if decision.due_at_ms is None else TaskState.SCHEDULED,
        priority=new.priority,
        payload=bytes(new.payload),
        options=options_of(new),
        key=new.key,
        created_at_ms=decision.created_at_ms,
        due_at_ms=decision.due_at_ms,
    )
