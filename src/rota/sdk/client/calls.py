"""API calls about tasks, queues, workers, events and operations.

The calls about workflows and runs are in `run_calls`, those about values and locks in `kv_calls`,
those about services in `service_calls`, those about limits in `limit_calls`.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from rota.core.tasks.logs import LogLevel
from rota.core.tasks.model import NewTask, TaskState
from rota.core.workers.model import Health
from rota.messages import (
    AcknowledgedSelection,
    Acknowledging,
    AttemptLogItem,
    BacklogPage,
    EventPage,
    HealthAnswer,
    HeartbeatAnswer,
    HeartbeatRequest,
    LeaseAnswer,
    LeaseRequest,
    LogPage,
    LogReport,
    NewTokenAnswer,
    Overview,
    ProgressItem,
    ProgressReport,
    QueuePage,
    QueueView,
    ResultAnswer,
    ResultItem,
    ResultReport,
    ScalePage,
    SystemView,
    TaskCount,
    TaskPage,
    TaskSelection,
    TaskView,
    TokenPage,
    TokenRequest,
    WorkerPage,
    WorkerRegistration,
    WorkerView,
)
from rota.messages.dashboard import TaskTimeline
from rota.sdk.client.requests import (
    ApiCall,
    Decoder,
    Nothing,
    decoder_of,
    delete,
    get,
    new_key,
    path_at,
    post,
)


class Receipt(Struct, frozen=True, kw_only=True):
    """The part of a submitted task that its handle needs."""

    id: str
    state: TaskState
    duplicate: bool = False


# --- tasks -----------------------------------------------------------------------------------


def submit(tasks: Sequence[NewTask]) -> ApiCall[list[TaskView]]:
    """Submit up to 10,000 tasks; the call is repeatable only if every task has a key."""
    return _submission(tasks, list[TaskView])


def submit_for_receipts(tasks: Sequence[NewTask]) -> ApiCall[list[Receipt]]:
    """Submit tasks, and read from the answer only what their handles need."""
    return _submission(tasks, list[Receipt])


def _submission(tasks: Sequence[NewTask], answer: Any) -> ApiCall[Any]:
    is_repeatable = all(task.key is not None for task in tasks)
    call = post("/api/tasks", answer, tasks, is_repeatable=is_repeatable)
    if is_repeatable:
        return call
    return replace(call, made_repeatable=lambda: _submission_with_keys(tasks, answer))


def _submission_with_keys(tasks: Sequence[NewTask], answer: Any) -> ApiCall[Any]:
    """The same submission with a key for every task, so that it is safe to repeat."""
    keyed = [one if one.key is not None else replace(one, key=new_key()) for one in tasks]
    is_added = [one.key is None for one in tasks]
    call = post("/api/tasks", answer, keyed, is_repeatable=True)
    return replace(call, decoder=_KeyedDecoder(decoder_of(answer), is_added))


class _KeyedDecoder:
    """Clears `duplicate` for tasks with an added key: their submitter sent them once."""

    def __init__(self, inner: Decoder[Any], is_added: Sequence[bool]) -> None:
        self._inner = inner
        self._is_added = is_added

    def decode(self, content: bytes, /) -> Any:
        found = self._inner.decode(content)
        return [
            replace(one, duplicate=False) if is_added and one.duplicate else one
            for one, is_added in zip(found, self._is_added, strict=True)
        ]


def get_task(task_id: str, *, wait_ms: int = 0) -> ApiCall[TaskView]:
    """One task; with `wait_ms` as soon as it has finished, or unfinished after that time."""
    return get(path_at("tasks", task_id), TaskView, wait_ms=wait_ms)


def get_timeline(task_id: str) -> ApiCall[TaskTimeline]:
    """The events and attempts of a task, and why it waits."""
    return get(path_at("tasks", task_id, "timeline"), TaskTimeline)


def get_logs(
    task_id: str,
    *,
    attempt: int | None = None,
    level: LogLevel | None = None,
    after: int | None = None,
    limit: int | None = None,
    wait_ms: int = 0,
) -> ApiCall[LogPage]:
    """Lines of a task's log after a number; `wait_ms` waits for the first, or the task's end."""
    query = {"attempt": attempt, "level": level, "after": after, "limit": limit}
    return get(path_at("tasks", task_id, "logs"), LogPage, query.items(), wait_ms=wait_ms)


def list_tasks(
    *,
    state: TaskState | str | None = None,
    queue: str | None = None,
    name: str | None = None,
    label: str | None = None,
    key: str | None = None,
    acknowledged: bool | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> ApiCall[TaskPage]:
    wanted = {
        "state": state,
        "queue": queue,
        "name": name,
        "label": label,
        "key": key,
        "acknowledged": acknowledged,
        "limit": limit,
        "cursor": cursor,
    }
    return get("/api/tasks", TaskPage, wanted.items())


def cancel_task(task_id: str) -> ApiCall[TaskView]:
    return post(path_at("tasks", task_id, "cancel"), TaskView)


def retry_task(task_id: str) -> ApiCall[TaskView]:
    return post(path_at("tasks", task_id, "retry"), TaskView)


def cancel_tasks(selection: TaskSelection) -> ApiCall[TaskCount]:
    return post("/api/tasks/cancel", TaskCount, selection, is_repeatable=selection.dry_run)


def retry_tasks(selection: TaskSelection) -> ApiCall[TaskCount]:
    return post("/api/tasks/retry", TaskCount, selection, is_repeatable=selection.dry_run)


def acknowledge_task(task_id: str, *, reason: str = "", undo: bool = False) -> ApiCall[TaskView]:
    """Note that a failed task needs no attention any more, or that it does again."""
    asked = Acknowledging(reason=reason, undo=undo)
    return post(path_at("tasks", task_id, "acknowledge"), TaskView, asked)


def acknowledge_tasks(selection: AcknowledgedSelection) -> ApiCall[TaskCount]:
    return post("/api/tasks/acknowledge", TaskCount, selection, is_repeatable=True)


# --- queues ----------------------------------------------------------------------------------


def list_queues() -> ApiCall[QueuePage]:
    return get("/api/queues", QueuePage)


def pause_queue(queue: str) -> ApiCall[QueueView]:
    return post(path_at("queues", queue, "pause"), QueueView, is_repeatable=True)


def resume_queue(queue: str) -> ApiCall[QueueView]:
    return post(path_at("queues", queue, "resume"), QueueView, is_repeatable=True)


# --- workers, for operators ------------------------------------------------------------------


def list_workers(
    *,
    capabilities: Sequence[str] = (),
    health: Sequence[Health | str] = (),
    min_available: int | None = None,
    group: str | None = None,
    rank: bool | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> ApiCall[WorkerPage]:
    query: list[tuple[str, Any]] = [("capability", one) for one in capabilities]
    query += [("health", one) for one in health]
    query += [("min_available", min_available), ("group", group), ("rank", rank or None)]
    query += [("limit", limit), ("cursor", cursor)]
    return get("/api/workers", WorkerPage, query)


def get_worker(worker_id: str) -> ApiCall[WorkerView]:
    return get(path_at("workers", worker_id), WorkerView)


def drain_worker(worker_id: str) -> ApiCall[WorkerView]:
    return post(path_at("workers", worker_id, "drain"), WorkerView, is_repeatable=True)


def resume_worker(worker_id: str) -> ApiCall[WorkerView]:
    return post(path_at("workers", worker_id, "resume"), WorkerView, is_repeatable=True)


def quarantine_worker(worker_id: str) -> ApiCall[WorkerView]:
    return post(path_at("workers", worker_id, "quarantine"), WorkerView, is_repeatable=True)


# --- workers, for workers --------------------------------------------------------------------


def register_worker(registration: WorkerRegistration) -> ApiCall[WorkerView]:
    return post("/api/workers", WorkerView, registration)


def leave_worker(worker_id: str, *, incarnation: int | None = None) -> ApiCall[Nothing]:
    """Remove a worker from the registry; with `incarnation` only if that one is registered."""
    return delete(path_at("workers", worker_id, incarnation=incarnation))


def heartbeat(worker_id: str, beat: HeartbeatRequest) -> ApiCall[HeartbeatAnswer]:
    path = path_at("workers", worker_id, "heartbeat")
    return post(path, HeartbeatAnswer, beat, is_repeatable=True)


def lease(worker_id: str, request: LeaseRequest) -> ApiCall[LeaseAnswer]:
    path = path_at("workers", worker_id, "lease")
    return post(path, LeaseAnswer, request, wait_ms=request.wait_ms)


def report_results(
    worker_id: str, *, incarnation: int, results: list[ResultItem]
) -> ApiCall[ResultAnswer]:
    """Report results; the coordinator detects repeated ones, so repeating is safe."""
    report = ResultReport(incarnation=incarnation, results=results)
    path = path_at("workers", worker_id, "results")
    return post(path, ResultAnswer, report, is_repeatable=True)


def report_progress(
    worker_id: str, *, incarnation: int | None = None, items: list[ProgressItem]
) -> ApiCall[ResultAnswer]:
    report = ProgressReport(incarnation=incarnation, items=items)
    path = path_at("workers", worker_id, "progress")
    return post(path, ResultAnswer, report, is_repeatable=True)


def report_logs(
    worker_id: str, *, incarnation: int | None = None, items: list[AttemptLogItem]
) -> ApiCall[ResultAnswer]:
    """Report log lines; repeated lines with the same numbers are kept once."""
    report = LogReport(incarnation=incarnation, items=items)
    path = path_at("workers", worker_id, "logs")
    return post(path, ResultAnswer, report, is_repeatable=True)


# --- events ----------------------------------------------------------------------------------


def list_events(
    *,
    after: int | None = None,
    last: int | None = None,
    types: Sequence[str] = (),
    subject: str | None = None,
    prefix: str | None = None,
    limit: int | None = None,
    wait_ms: int = 0,
) -> ApiCall[EventPage]:
    """The events after a sequence number, or the last ones; `wait_ms` waits for the first."""
    query: list[tuple[str, Any]] = [("after", after), ("last", last), ("limit", limit)]
    query += [("type", one) for one in types]
    query += [("subject", subject), ("prefix", prefix)]
    return get("/api/events", EventPage, query, wait_ms=wait_ms)


# --- operations ------------------------------------------------------------------------------


def health() -> ApiCall[HealthAnswer]:
    """The coordinator's health; an unhealthy coordinator answers too, with 503."""
    return replace(get("/health", HealthAnswer), answers=frozenset({503}))


def system() -> ApiCall[SystemView]:
    """The coordinator's version, store and settings, and the other coordinators on its store."""
    return get("/api/system", SystemView)


def get_overview() -> ApiCall[Overview]:
    """Counts of tasks and runs by state, of workers by health, and of shards."""
    return get("/api/overview", Overview)


def get_backlog() -> ApiCall[BacklogPage]:
    """The tasks that wait and their reasons; the stuck ones first."""
    return get("/api/backlog", BacklogPage)


def get_scale(
    *,
    queues: Sequence[str] = (),
    tasks: Sequence[str] = (),
    target_ms: int | None = None,
    concurrency: int | None = None,
) -> ApiCall[ScalePage]:
    """How many workers the work needs; of these queues and task names, or of all."""
    query: list[tuple[str, Any]] = [("queue", one) for one in queues]
    query += [("task", one) for one in tasks]
    query += [("target_ms", target_ms), ("concurrency", concurrency)]
    return get("/api/scale", ScalePage, query)


def create_token(request: TokenRequest) -> ApiCall[NewTokenAnswer]:
    return post("/api/tokens", NewTokenAnswer, request)


def list_tokens() -> ApiCall[TokenPage]:
    return get("/api/tokens", TokenPage)


def revoke_token(token_id: str) -> ApiCall[Nothing]:
    return delete(path_at("tokens", token_id))
