"""Commands on their way through the engine, with their callers and their cost class.

Each command has a weight, and is cheap or not. The writer uses both to decide where a batch runs
and when it is full.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from msgspec import Struct

from rota.core.commands import (
    BeatWorker,
    Command,
    CompleteJob,
    FailJob,
    LeaseWork,
    ReportLogs,
    ReportProgress,
    ReportResults,
    ReturnLeases,
    StartJob,
    SubmitTasks,
)
from rota.core.decisions import TellCancelled
from rota.core.events import EventBatch
from rota.core.flows.commands import FlowReply
from rota.core.ids import TaskId
from rota.core.kv import KvReply
from rota.core.locks import LockAnswer
from rota.core.outbound.push import PushReply
from rota.core.replies import Granted, Reply
from rota.core.schedules.commands import ScheduleReply
from rota.core.sessions import ClearNotifications
from rota.core.shards.commands import BeatMember, SaveCheckpoint, ShardReply
from rota.core.shards.members import Assignment
from rota.core.webhooks.commands import WebhookReply
from rota.core.workflow.commands import (
    LookAtOperations,
    LookAtReply,
    LookAtStream,
    ReportOperations,
    RunReply,
    RunShown,
    StartRun,
)
from rota.engine.dispatch.lease_rows import GrantedRows
from rota.errors import RotaError

CHEAP_TASKS = 20  # a command about no more tasks than this takes microseconds
CHEAP_LINES = 50  # the same for the log lines of a report
CHEAP_SHARDS = 1_000  # the same for the shards that a member's beat lists

Outcome = (
    Reply
    | RunReply
    | ShardReply
    | ScheduleReply
    | KvReply
    | LockAnswer
    | FlowReply
    | WebhookReply
    | PushReply
    | RotaError
)
ReplyCallback = Callable[[Any], None]  # takes the outcome, or the exception


class QueuedCommand:
    """One command on its way through the engine, with its caller."""

    __slots__ = (
        "can_wait",
        "command",
        "future",
        "is_abandoned",
        "is_cheap",
        "is_forwarded",
        "is_of_follower",
        "is_subscription",
        "is_waiting",
        "on_reply",
        "on_resolved",
        "remainder",
        "weight",
    )

    def __init__(
        self,
        command: Command,
        future: "asyncio.Future[Any]",
        *,
        can_wait: bool = False,
        on_reply: ReplyCallback | None = None,
        is_subscription: bool = False,
    ) -> None:
        self.command = command
        self.future = future
        self.on_reply = on_reply  # called with the outcome, instead of resolving the future
        # Called as soon as the future is done, before any task that awaits a future resumes.
        self.on_resolved: Callable[[], None] | None = None
        self.can_wait = can_wait  # a lease call that may wait for work
        self.is_subscription = is_subscription  # after a grant, the remainder goes on waiting
        self.remainder: QueuedCommand | None = None  # the call that waits for the remainder
        self.is_waiting = False  # a batch has had no work for it
        self.is_abandoned = False  # the caller has stopped waiting
        self.is_forwarded = False  # the leader, another coordinator, executes it
        self.is_of_follower = False  # a follower has forwarded it to this leader
        self.weight, self.is_cheap = _cost_of(command)


def _cost_of(command: Command) -> tuple[int, bool]:
    """Return the number of changes in a command, and whether they take microseconds."""
    cost = COSTS.get(type(command))
    return (1, False) if cost is None else cost(command)


def _of_tasks(count: int) -> tuple[int, bool]:
    return count, count <= CHEAP_TASKS


def _of_lines(command: ReportLogs) -> tuple[int, bool]:
    lines = sum(len(one.lines) for one in command.items)
    return max(1, len(command.items)), max(lines, len(command.items)) <= CHEAP_LINES


def _trifle(_: Any) -> tuple[int, bool]:
    return 1, True


# Kinds that are not listed are not cheap. A table, since every command is looked up.
COSTS: dict[type[Any], Callable[[Any], tuple[int, bool]]] = {
    SubmitTasks: lambda command: _of_tasks(len(command.tasks)),
    ReportResults: lambda command: _of_tasks(len(command.results)),
    LeaseWork: lambda command: (1, command.most <= CHEAP_TASKS),
    BeatMember: lambda command: (1, len(command.holds) <= CHEAP_SHARDS),
    BeatWorker: _trifle,
    ReportProgress: _trifle,
    ReportLogs: _of_lines,
    StartJob: _trifle,
    CompleteJob: _trifle,
    FailJob: _trifle,
    StartRun: _trifle,
    ReportOperations: lambda command: _of_tasks(len(command.items)),
    LookAtOperations: _trifle,
    LookAtStream: _trifle,
    LookAtReply: _trifle,
    SaveCheckpoint: _trifle,
    ClearNotifications: _trifle,
}


class BatchCounts(Struct, frozen=True):
    """How many tasks were submitted and finished, counted once for metrics and events."""

    submitted: Mapping[str, int] = {}  # by queue
    finished: Mapping[tuple[str, str], int] = {}  # by queue and state


NOTHING_COUNTED = BatchCounts()


class EndNotice(NamedTuple):
    """The end of a task or a run, as a waiting caller gets it."""

    id: int
    run: RunShown | None = None  # as it ended; None: a task, or the run has to be read


class Delivery(Struct):
    """The replies and notifications of a committed batch."""

    answers: list[tuple[QueuedCommand, Outcome | Exception]] = []
    ended: list[int] = []  # tasks and runs
    logged: list[int] = []  # tasks with new log lines
    ended_runs: dict[int, RunShown] = {}  # those of `ended` that this coordinator has ended
    next_moment_ms: int | None = None  # when the next duty is due
    pushes: list[Assignment] = []
    next_firing_ms: int | None = None  # when the next schedule is due, if that has changed
    next_sweep_ms: int | None = None  # when the next sweep of a service or a lock is due
    granted_locks: list[LockAnswer] = []  # to waiting callers
    events: list[EventBatch] = []
    sessions: set[str] = set()  # sessions with new notifications
    cancelled: list[TellCancelled] = []
    counts: list[BatchCounts] = []
    last_seq: int = 0  # of the events in the log; 0: nothing was committed

    def add(self, other: "Delivery") -> None:
        self.answers += other.answers
        self.ended += other.ended
        self.logged += other.logged
        self.ended_runs |= other.ended_runs
        self.next_moment_ms = earlier(self.next_moment_ms, other.next_moment_ms)
        self.next_firing_ms = earlier(self.next_firing_ms, other.next_firing_ms)
        self.pushes += other.pushes
        self.next_sweep_ms = earlier(self.next_sweep_ms, other.next_sweep_ms)
        self.granted_locks += other.granted_locks
        self.events += other.events
        self.sessions |= other.sessions
        self.cancelled += other.cancelled
        self.counts += other.counts
        self.last_seq = max(self.last_seq, other.last_seq)


def earlier(one_ms: int | None, other_ms: int | None) -> int | None:
    if one_ms is None or other_ms is None:
        return other_ms if one_ms is None else one_ms
    return min(one_ms, other_ms)


def returned_by(entry: QueuedCommand, outcome: object) -> Iterator[ReturnLeases]:
    """Yield the commands that return the leases granted to a caller that has gone."""
    remainder, entry.remainder = entry.remainder, None
    if remainder is not None:
        remainder.is_abandoned = True
        if not remainder.future.cancel() and not remainder.future.cancelled():
            yield from returned_by(
                remainder, remainder.future.exception() or remainder.future.result()
            )
    command = entry.command
    if isinstance(command, LeaseWork) and (leases := tuple(_holdings(outcome))):
        yield ReturnLeases(
            worker_id=command.worker_id, incarnation=command.incarnation, leases=leases
        )


def _holdings(outcome: object) -> Iterator[tuple[TaskId, int]]:
    """Yield the task and the fence of each lease that was granted."""
    if isinstance(outcome, Granted):
        yield from ((task.id, task.fence) for task in outcome.leases)
    elif isinstance(outcome, GrantedRows):
        yield from outcome.holdings()
