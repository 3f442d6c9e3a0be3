"""What can be asked of a coordinator? One function a call of the contract, each giving a value.

Those of workflows and runs are in `run_calls`.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from rota.core.tasks import NewTask, TaskState
from rota.core.workers import Health
from rota.messages import (
    HealthAnswer,
    HeartbeatAnswer,
    HeartbeatRequest,
    LeaseAnswer,
    LeaseRequest,
    NewTokenAnswer,
    ProgressItem,
    ProgressReport,
    QueuePage,
    QueueView,
    ResultAnswer,
    ResultItem,
    ResultReport,
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
from rota.sdk.once import submission_with_keys
from rota.sdk.requests import Call, Nothing, decoder_of, get, path_at, post
from rota.sdk.transport import ANSWER_TIMEOUT_S

__all__ = ["ANSWER_TIMEOUT_S", "Call", "Nothing"]


class Receipt(Struct, frozen=True, kw_only=True):
    """As much of a submitted task as its submitter needs."""

    id: str
    state: TaskState
    duplicate: bool = False


# --- tasks -----------------------------------------------------------------------------------


def submit(tasks: Sequence[NewTask]) -> Call[list[TaskView]]:
    """Submit up to 10,000 tasks; repeatable only if each has its key."""
    return _submission(tasks, list[TaskView])


def submit_for_receipts(tasks: Sequence[NewTask]) -> Call[list[Receipt]]:
    """Submit, and read of the answer only what a handle needs."""
    return _submission(tasks, list[Receipt])


def _submission(tasks: Sequence[NewTask], answer: Any) -> Call[Any]:
    is_repeatable = all(task.key is not None for task in tasks)
    call = post("/api/tasks", answer, tasks, is_repeatable=is_repeatable)
    if is_repeatable:
        return call
    return replace(call, made_repeatable=lambda: submission_with_keys(tasks, answer))


def get_task(task_id: str, *, wait_ms: int = 0) -> Call[TaskView]:
    """One task; with `wait_ms` as soon as it has ended, or as it is when that time is over."""
    call = get(path_at("tasks", task_id), TaskView, [("wait_ms", wait_ms or None)])
    return msgspec.structs.replace(call, timeout_s=ANSWER_TIMEOUT_S + wait_ms / 1000)


def list_tasks(
    *,
    state: TaskState | str | None = None,
    queue: str | None = None,
    name: str | None = None,
    label: str | None = None,
    key: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[TaskPage]:
    wanted = {
        "state": state,
        "queue": queue,
        "name": name,
        "label": label,
        "key": key,
        "limit": limit,
        "cursor": cursor,
    }
    return get("/api/tasks", TaskPage, wanted.items())


def cancel_task(task_id: str) -> Call[TaskView]:
    return post(path_at("tasks", task_id, "cancel"), TaskView)


def retry_task(task_id: str) -> Call[TaskView]:
    return post(path_at("tasks", task_id, "retry"), TaskView)


def cancel_tasks(selection: TaskSelection) -> Call[TaskCount]:
    return post("/api/tasks/cancel", TaskCount, selection, is_repeatable=selection.dry_run)


def retry_tasks(selection: TaskSelection) -> Call[TaskCount]:
    return post("/api/tasks/retry", TaskCount, selection, is_repeatable=selection.dry_run)


# --- queues ----------------------------------------------------------------------------------


def list_queues() -> Call[QueuePage]:
    return get("/api/queues", QueuePage)


def pause_queue(queue: str) -> Call[QueueView]:
    return post(path_at("queues", queue, "pause"), QueueView, is_repeatable=True)


def resume_queue(queue: str) -> Call[QueueView]:
    return post(path_at("queues", queue, "resume"), QueueView, is_repeatable=True)


# --- workers, as operators see them -------------------------------------------------------------


def list_workers(
    *,
    capabilities: Sequence[str] = (),
    health: Sequence[Health | str] = (),
    min_available: int | None = None,
    group: str | None = None,
    rank: bool | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[WorkerPage]:
    query: list[tuple[str, Any]] = [("capability", one) for one in capabilities]
    query += [("health", one) for one in health]
    query += [("min_available", min_available), ("group", group), ("rank", rank or None)]
    query += [("limit", limit), ("cursor", cursor)]
    return get("/api/workers", WorkerPage, query)


def get_worker(worker_id: str) -> Call[WorkerView]:
    return get(path_at("workers", worker_id), WorkerView)


def drain_worker(worker_id: str) -> Call[WorkerView]:
    return post(path_at("workers", worker_id, "drain"), WorkerView, is_repeatable=True)


def resume_worker(worker_id: str) -> Call[WorkerView]:
    return post(path_at("workers", worker_id, "resume"), WorkerView, is_repeatable=True)


def quarantine_worker(worker_id: str) -> Call[WorkerView]:
    return post(path_at("workers", worker_id, "quarantine"), WorkerView, is_repeatable=True)


# --- workers, as they speak for themselves ------------------------------------------------------


def register_worker(registration: WorkerRegistration) -> Call[WorkerView]:
    return post("/api/workers", WorkerView, registration)


def leave_worker(worker_id: str, *, incarnation: int | None = None) -> Call[Nothing]:
    """Take a worker out of the registry: with an incarnation only if it is still that one."""
    path = path_at("workers", worker_id)
    if incarnation is not None:
        path += f"?incarnation={incarnation}"
    return Call(method="DELETE", path=path, decoder=decoder_of(Nothing))


def heartbeat(worker_id: str, beat: HeartbeatRequest) -> Call[HeartbeatAnswer]:
    path = path_at("workers", worker_id, "heartbeat")
    return post(path, HeartbeatAnswer, beat, is_repeatable=True)


def lease(worker_id: str, request: LeaseRequest) -> Call[LeaseAnswer]:
    path = path_at("workers", worker_id, "lease")
    return post(path, LeaseAnswer, request, wait_ms=request.wait_ms)


def report_results(
    worker_id: str, *, incarnation: int, results: list[ResultItem]
) -> Call[ResultAnswer]:
    """Report results; said again they are found to be duplicates, so that is safe."""
    report = ResultReport(incarnation=incarnation, results=results)
    path = path_at("workers", worker_id, "results")
    return post(path, ResultAnswer, report, is_repeatable=True)


def report_progress(
    worker_id: str, *, incarnation: int | None = None, items: list[ProgressItem]
) -> Call[ResultAnswer]:
    report = ProgressReport(incarnation=incarnation, items=items)
    path = path_at("workers", worker_id, "progress")
    return post(path, ResultAnswer, report, is_repeatable=True)


# --- operations ------------------------------------------------------------------------------


def health() -> Call[HealthAnswer]:
    """The coordinator's health; an unhealthy one answers as well, with 503."""
    return msgspec.structs.replace(get("/health", HealthAnswer), answers=frozenset({503}))


def system() -> Call[SystemView]:
    """The coordinator's version, store, settings, and who else is on that store."""
    return get("/api/system", SystemView)


def create_token(request: TokenRequest) -> Call[NewTokenAnswer]:
    return post("/api/tokens", NewTokenAnswer, request)


def list_tokens() -> Call[TokenPage]:
    return get("/api/tokens", TokenPage)


def revoke_token(token_id: str) -> Call[Nothing]:
    return Call(method="DELETE", path=path_at("tokens", token_id), decoder=decoder_of(Nothing))
