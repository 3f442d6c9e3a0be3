"""The tasks that runs dispatch in a batch, and the tasks that they cancel."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from rota.core.access import Caller
from rota.core.commands import CancelTasks
from rota.core.decisions import AddTask, Decision, FinishTask, RequeueTask
from rota.core.ids import TaskId, next_ids, to_text
from rota.core.snapshot import Snapshot
from rota.core.tasks import jobs, operations
from rota.core.tasks.headers import is_traceparent
from rota.core.tasks.model import NewTask, TaskState
from rota.core.tasks.trace_links import with_links
from rota.core.workflow.decisions import DispatchTask
from rota.core.workflow.events import FunctionStopped, TaskEnded
from rota.core.workflow.functions.model import FUNCTION_TOKEN, FunctionReport
from rota.engine.commit.batch import Batch
from rota.engine.runs.cache import LiveRun
from rota.errors import StaleLease
from rota.store.tasks.tasks import TaskStore

_decode_report = msgspec.json.Decoder(FunctionReport).decode


class RunTasks:
    def __init__(self, batch: Batch) -> None:
        self._tasks = TaskStore(batch.tx, batch.lanes)
        self._snapshot = batch.snapshot
        self._context = batch.context
        self._added: list[AddTask] = []
        self._made: dict[TaskId, tuple[int, int]] = {}  # task -> run and token
        self._links: dict[TaskId, dict[str, int]] = {}  # of the journal entries that made them
        self._unwanted: dict[TaskId, None] = {}

    def new_id(self) -> int:
        """Return the id of a new task or run: they are one sequence."""
        now_ms = self._context.now_ms
        (number,) = next_ids(1, last=self._snapshot.last_task_id, now_ms=now_ms)
        self._snapshot.last_task_id = number
        return number

    def dispatch(
        self, live: LiveRun, decision: DispatchTask, task_id: TaskId, links: dict[str, int]
    ) -> int:
        """Make a task of a run, and name it in the links of the journal entry."""
        task = NewTask(
            name=decision.task,
            payload=Raw(msgspec.json.encode(decision.payload)),
            queue=decision.queue,
            priority=decision.priority,
            requires=decision.requires,
            timeout_ms=decision.timeout_ms,
            max_attempts=decision.max_attempts,
            backoff=decision.backoff,
            concurrency=decision.concurrency,
            rate=decision.rate,
            fair_key=decision.fair_key,
            headers=with_links(live.headers, decision.links) if decision.links else live.headers,
        )
        self._added.append(AddTask(task_id, task, self._context.now_ms))
        self._made[task_id] = (live.record.id, decision.number)
        self._links[task_id] = links
        links[str(decision.number)] = task_id
        return task_id

    def cancel(self, task_id: TaskId) -> None:
        """Cancel a task; one of this batch is never added, and the journal does not name it."""
        self._unwanted[task_id] = None
        links = self._links.pop(task_id, None)
        if links is not None:
            _, number = self._made[task_id]
            del links[str(number)]

    def close(self, decisions: dict[type[Decision], list[Any]]) -> list[tuple[int, int, int]]:
        """Add to the decisions of a batch; return the new tasks, each with its run and token."""
        if self._added:
            decisions.setdefault(AddTask, []).extend(self._added)
        unwanted = self._unwanted
        if unwanted:
            cancelled = self._cancelled()
            for kind in (AddTask, RequeueTask):
                wanted = [one for one in decisions.pop(kind, ()) if one.id not in unwanted]
                if wanted:
                    decisions[kind] = wanted
            for one in cancelled:
                decisions.setdefault(type(one), []).append(one)
        return [(task, *whose) for task, whose in self._made.items()]

    def _cancelled(self) -> list[Decision]:
        """Return the decisions that end all tasks the runs have cancelled."""
        snapshot = self._snapshot
        standing: list[TaskId] = []
        decisions: list[Decision] = []
        for task_id in self._unwanted:
            requeued = snapshot.requeued.get(task_id)
            if self._made.pop(task_id, None) is not None or task_id in snapshot.finished:
                continue  # the batch has just made the task, which is left out, or has ended it
            if requeued is None:
                standing.append(task_id)
            else:
                decisions.append(self._finished_instead(requeued))
        missing = [one for one in standing if one not in snapshot.tasks]
        if missing:
            snapshot.tasks |= self._tasks.by_ids([*missing])
            snapshot.leases |= self._tasks.leases([*missing])
        if standing:
            decided, _ = operations.cancel(snapshot, CancelTasks(tuple(standing)), self._context)
            decisions += decided
        return decisions

    def _finished_instead(self, requeued: RequeueTask) -> FinishTask:
        """Return the end of a task that was to be retried, but that its run has cancelled."""
        task = self._snapshot.tasks.get(requeued.id)
        return FinishTask(
            id=requeued.id,
            was=TaskState.RUNNING,
            state=TaskState.RUNNING.to(TaskState.CANCELLED),
            fence=requeued.fence,
            attempt=requeued.attempt,
            finished_at_ms=self._context.now_ms,
            worker_id=requeued.ended.worker_id,
            error=requeued.ended.error,
            queue="" if task is None else task.lane.queue,
        )


def check_lease(
    snapshot: Snapshot, tasks: TaskStore, task_id: TaskId, *, fence: int, by: Caller | None
) -> None:
    """Refuse a caller that does not hold the lease of a task within this batch."""
    lease = None
    if task_id not in snapshot.finished and task_id not in snapshot.requeued:
        lease = snapshot.leases.get(task_id) or tasks.leases([task_id]).get(task_id)
    if lease is None or lease.fence != fence:
        raise StaleLease(to_text(task_id))
    jobs.check_starter(lease, by)


def result_of(finished: FinishTask) -> tuple[Any, dict[str, Any] | None]:
    """Return a task's decoded result, or an error: JSON allows numbers that cannot be decoded."""
    if finished.result is None:
        return None, None
    try:
        return msgspec.json.decode(finished.result), None
    except msgspec.DecodeError as error:
        return None, {"type": "result_unreadable", "message": f"the result: {error}"}


def runs_function(token: int) -> bool:
    """Whether the task of a token runs the function of its run."""
    return token == FUNCTION_TOKEN


def ended_event(finished: FinishTask, token: int, *, now_ms: int) -> TaskEnded | FunctionStopped:
    """Return the event that tells a run of the end of a task of one of its tokens."""
    if runs_function(token) and finished.state is TaskState.SUCCEEDED:
        return _stopped_event(finished, now_ms=now_ms)
    is_ok = finished.state is TaskState.SUCCEEDED
    is_cancelled = finished.state is TaskState.CANCELLED
    result, error = None, None
    if is_ok:
        result, error = result_of(finished)
        is_ok = error is None
    elif finished.error is not None:
        error = msgspec.to_builtins(finished.error)
    elif is_cancelled:
        error = {"type": "cancelled", "message": "the task was cancelled"}
    return TaskEnded(now_ms, token, is_ok, result, error, is_cancelled, _span_of(finished))


def _stopped_event(finished: FinishTask, *, now_ms: int) -> TaskEnded | FunctionStopped:
    """Return the event of a function that has stopped; a result that is no report is a failure."""
    try:
        report = _decode_report(finished.result or b"null")
    except msgspec.DecodeError as error:
        unreadable = {"type": "report_invalid", "message": f"the report of the function: {error}"}
        return TaskEnded(now_ms, FUNCTION_TOKEN, ok=False, error=unreadable)
    return FunctionStopped(now_ms, report, _span_of(finished))


def _span_of(finished: FinishTask) -> str | UnsetType:
    """Return the context of the span that has executed a task; a malformed one is ignored."""
    found = finished.traceparent
    return UNSET if found is None or not is_traceparent(found) else found
