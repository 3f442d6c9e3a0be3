"""Situations: snapshots with the tasks, workers and leases that a test is about, at a time."""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

from rota.core import reducer
from rota.core.commands import BeatWorker, LeaseWork, ReportResults, Result, TaskCommand
from rota.core.context import Context, Rules
from rota.core.ids import TaskId
from rota.core.reducer import Decided
from rota.core.snapshot import Snapshot
from rota.core.tasks.model import (
    JOB_INCARNATION,
    Backoff,
    Lane,
    Lease,
    NewTask,
    TaskOptions,
    TaskRecord,
    TaskState,
)
from rota.core.workers.model import WorkerRecord

NOW_MS = 1_000_000
LANE = Lane("default", "work")
NO_WAIT = Backoff(kind="none")


class Situation(Snapshot, kw_only=True):
    """A snapshot, and the context in which commands are decided on it."""

    now_ms: int
    rules: Rules
    dice: Callable[[], float]

    @property
    def context(self) -> Context:
        now_ms = self.now_ms
        return Context(now_ms=now_ms, steady_ms=now_ms, rules=self.rules, dice=self.dice)


def context_at(now_ms: int, **rules: Any) -> Context:
    """A context in which both clocks show the same time."""
    return situation(now_ms=now_ms, **rules).context


def situation(
    *, now_ms: int = NOW_MS, dice: Callable[[], float] = lambda: 0.0, **rules: Any
) -> Situation:
    return Situation(now_ms=now_ms, rules=Rules(**rules), dice=dice)


def reduce(snapshot: Situation, command: TaskCommand) -> Decided:
    """Decide a command in the context of its situation."""
    return reducer.reduce(snapshot, command, snapshot.context)


def new_task(name: str = "work", **options: Any) -> NewTask:
    return NewTask(name=name, **options)


def add_task(
    snapshot: Snapshot, number: int = 1, state: TaskState = TaskState.QUEUED, **changes: Any
) -> TaskRecord:
    """Put a task into the snapshot; options of the task may be among the changes."""
    names = set(TaskOptions.__struct_fields__) & changes.keys()
    options = TaskOptions(**{name: changes.pop(name) for name in names})
    fields: dict[str, Any] = {"lane": LANE, "created_at_ms": 0, **changes}
    task = TaskRecord(id=TaskId(number), state=state, options=options, **fields)
    snapshot.tasks[task.id] = task
    return task


def add_worker(snapshot: Situation, worker_id: str = "w1", **changes: Any) -> WorkerRecord:
    fields: dict[str, Any] = {
        "incarnation": len(snapshot.workers) + 1,
        "node_id": "n1",
        "max_concurrent_tasks": 10,
        "last_heartbeat_ms": snapshot.now_ms,
        "started_at_ms": 0,
        **changes,
    }
    worker = WorkerRecord(id=worker_id, **fields)
    snapshot.workers[worker.id] = worker
    snapshot.fleet = len(snapshot.workers)
    snapshot.next_incarnation = max(snapshot.next_incarnation, worker.incarnation + 1)
    snapshot.held.setdefault(worker.incarnation, 0)
    return worker


def add_running(
    snapshot: Situation,
    number: int = 1,
    *,
    worker: WorkerRecord | None = None,
    holder: str | None = None,
    fence: int = 1,
    attempt: int = 1,
    started_at_ms: int | None = None,
    deadline_ms: int | None = None,
    **changes: Any,
) -> Lease:
    """Put a leased task into the snapshot: held by a worker, or by a caller of the jobs API."""
    incarnation = JOB_INCARNATION if worker is None else worker.incarnation
    started_at_ms = snapshot.now_ms if started_at_ms is None else started_at_ms
    task = add_task(
        snapshot,
        number,
        TaskState.RUNNING,
        fence=fence,
        attempt=attempt,
        incarnation=incarnation,
        worker_id=holder if worker is None else worker.id,
        started_at_ms=started_at_ms,
        deadline_ms=deadline_ms,
        **changes,
    )
    lease = Lease(
        id=task.id,
        lane=task.lane,
        incarnation=incarnation,
        holder=holder,
        fence=fence,
        attempt=attempt,
        started_at_ms=started_at_ms,
        deadline_ms=deadline_ms,
    )
    snapshot.leases[task.id] = lease
    snapshot.held[incarnation] = snapshot.held.get(incarnation, 0) + 1
    return lease


def done(lease: Lease, **changes: Any) -> Result:
    """A success under the lease, unless changed."""
    return msgspec.structs.replace(Result(lease.id, lease.fence, result=Raw(b"1")), **changes)


def report(worker: WorkerRecord, *results: Result) -> ReportResults:
    return ReportResults(worker_id=worker.id, incarnation=worker.incarnation, results=list(results))


def beat(worker: WorkerRecord, *running: int) -> BeatWorker:
    return BeatWorker(
        worker_id=worker.id,
        incarnation=worker.incarnation,
        running=tuple(TaskId(number) for number in running),
    )


def ask(worker: WorkerRecord, most: int = 100) -> LeaseWork:
    return LeaseWork(worker_id=worker.id, incarnation=worker.incarnation, most=most)
