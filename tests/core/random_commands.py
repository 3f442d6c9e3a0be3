"""Random commands that fit the state of a model, more or less.

An event is drawn as a few small numbers and read against the model: "the second task", "the first
worker's third lease". So a failing example shrinks to something that a person can follow.
"""

from typing import Any

from hypothesis import strategies as st
from msgspec import Raw

from rota.core.commands import (
    AttemptLines,
    BeatWorker,
    CancelTasks,
    CompleteJob,
    ExpireAttempts,
    FailJob,
    LeaveWorker,
    Progress,
    QueueDueTasks,
    RegisterWorker,
    ReportLogs,
    ReportProgress,
    ReportResults,
    Result,
    RetryTasks,
    ReturnLeases,
    SetWorkerState,
    StartJob,
    SubmitTasks,
    SweepWorkers,
    TaskCommand,
)
from rota.core.ids import TaskId
from rota.core.tasks.logs import LogLine
from rota.core.tasks.model import JOB_INCARNATION, NewTask, TaskError
from rota.core.tasks.unique import Debounce, Unique
from rota.core.workers.model import WorkerState
from tests.core.model import LANES, Model
from tests.core.snapshots import NO_WAIT

KINDS = (
    "submit",
    "register",
    "leave",
    "beat",
    "set_state",
    "report",
    "report",
    "progress",
    "logs",
    "return",
    "cancel",
    "retry",
    "start",
    "complete",
    "fail",
    "due",
    "expire",
    "sweep",
)
NUMBERS = st.integers(0, 5)
HAPPENINGS = st.tuples(st.sampled_from(KINDS), NUMBERS, NUMBERS, NUMBERS)
Happening = tuple[str, int, int, int]

RESULTS: tuple[dict[str, Any], ...] = (
    {"result": Raw(b"1")},
    {"ok": False, "error": TaskError(message="boom")},
    {"ok": False, "error": TaskError(retryable=False)},
    {"ok": False, "retry_in_ms": 0},
    {"ok": False, "snooze_ms": 10},
    {"ok": False, "snooze_ms": 10, "rate_limited": True},
    {"result": Raw(b"1")},
)


UNIQUE = (
    Unique(key="u"),
    Unique(key="u", while_="queued"),
    Unique(key="u", on_conflict="replace"),
    Unique(key="u", on_conflict="reject", for_ms=700),
    Unique(key="u", while_="queued", on_conflict="replace"),
    Unique(by=("payload",), while_="queued"),
)
DEBOUNCED = (
    Debounce(key="d", wait_ms=300, max_wait_ms=500),
    Debounce(key="d", wait_ms=20, keep="first"),
)


def event_of(model: Model, happening: Happening) -> TaskCommand | None:  # noqa: PLR0911 - a table
    """The event that these numbers mean now; None when there is nothing for them to mean."""
    kind, first, second, third = happening
    match kind:
        case "submit":
            return SubmitTasks([_new_task(first, second, third)] * (1 + second % 2))
        case "register":
            return RegisterWorker(
                worker_id=f"w{first % 3}", node_id="n", max_concurrent_tasks=1 + second % 3
            )
        case "due":
            return QueueDueTasks()
        case "expire":
            return ExpireAttempts()
        case "sweep":
            return SweepWorkers()
        case "cancel" | "retry" | "start" | "complete" | "fail":
            task_id = _task(model, first)
            return None if task_id is None else _about_task(kind, task_id, second)
        case _:
            return _by_worker(model, kind, first, second, third)


def _new_task(first: int, second: int, third: int) -> NewTask:
    lane = LANES[first % 2]
    return NewTask(
        name=lane.name,
        queue=lane.queue,
        priority=second % 3,
        key=f"k{third}" if third < 2 else None,
        max_attempts=1 + first % 3,
        backoff=NO_WAIT if third == 3 else None,
        delay_ms=10 if third == 4 else None,
        timeout_ms=500 if second == 1 else None,
        start_within_ms=800 if second == 2 else None,
        on_expiry="discard" if first == 2 else "fail",
        unique=UNIQUE[first] if third == 5 and second != 1 else None,
        debounce=DEBOUNCED[first % 2] if third == 5 and second == 1 else None,
    )


def _task(model: Model, number: int) -> TaskId | None:
    """One of the newest tasks."""
    newest = sorted(model.tasks, reverse=True)[:4]
    return newest[number % len(newest)] if newest else None


def _about_task(kind: str, task_id: TaskId, number: int) -> TaskCommand:
    match kind:
        case "cancel":
            return CancelTasks((task_id,))
        case "retry":
            return RetryTasks((task_id,))
        case "start":
            return StartJob(task_id=task_id, holder=f"h{number % 2}")
        case "complete":
            return CompleteJob(task_id=task_id, result=Raw(b"%d" % (number % 2)))
        case _:
            return FailJob(task_id=task_id, error=TaskError(message=f"e{number % 2}"))


def _by_worker(  # noqa: PLR0911 - a table
    model: Model, kind: str, first: int, second: int, third: int
) -> TaskCommand | None:
    if not model.workers:
        return None
    worker = sorted(model.workers.values(), key=lambda one: one.id)[first % len(model.workers)]
    # Now and then a process that has been replaced speaks up.
    incarnation = worker.incarnation - (third == 5)
    held = sorted(
        lease.id for lease in model.leases.values() if lease.incarnation == worker.incarnation
    )
    match kind:
        case "leave":
            return LeaveWorker(worker_id=worker.id, incarnation=incarnation)
        case "beat":
            return BeatWorker(
                worker_id=worker.id, incarnation=incarnation, running=tuple(held[: second % 3])
            )
        case "set_state":
            return SetWorkerState(worker_id=worker.id, state=list(WorkerState)[second % 3])
        case _:
            pass
    task_id = held[second % len(held)] if held else _task(model, second)
    if task_id is None:
        return None
    fence = model.tasks[task_id].fence - (third == 0)
    match kind:
        case "report":
            results = [Result(task_id, fence, **RESULTS[third])]
            return ReportResults(worker_id=worker.id, incarnation=incarnation, results=results)
        case "progress":
            items = [Progress(task_id, fence, progress=Raw(b"0.5"))]
            return ReportProgress(worker_id=worker.id, incarnation=incarnation, items=items)
        case "logs":
            lines = [LogLine(third, "info", "shop", "packed")]
            log = AttemptLines(task_id, fence, lines, first=third % 2)
            return ReportLogs(worker_id=worker.id, incarnation=incarnation, items=[log])
        case _:
            assert incarnation != JOB_INCARNATION or third == 5
            return ReturnLeases(
                worker_id=worker.id, incarnation=incarnation, leases=((task_id, fence),)
            )
