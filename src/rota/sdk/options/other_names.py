"""Options and methods that programs know from Celery and similar systems, by Rota's names.

An unknown option is an error that names the option meant, and so is an unknown attribute of an app,
a task or a handle. `apply_async` is translated, because programs that move to Rota are full of it.
"""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from rota.errors import Invalid, did_you_mean

# What is said instead of "did you mean". Names of options are in backticks.
KNOWN_ELSEWHERE: dict[str, str] = {
    "countdown": 'it is called `delay`, as in delay="10s"',
    "eta": "it is called `run_at`, and takes a datetime",
    "expires": 'it is called `start_within`, as in start_within="1h"',
    "time_limit": 'it is called `timeout`, as in timeout="5m"',
    "soft_time_limit": "it is called `timeout`; a handler asks rota.current().check_cancelled()",
    "max_retries": "it is called `max_attempts`, and counts the first attempt, too",
    "retries": "it is called `max_attempts`, and counts the first attempt, too",
    "retry": "it is called `max_attempts`; with max_attempts=1 nothing is retried",
    "autoretry_for": "every exception is retried, up to `max_attempts` times; raise rota.Discard "
    "for those that should not be",
    "dont_autoretry_for": "raise rota.Discard for what should not be retried",
    "retry_backoff": 'it is called `backoff`, as in backoff={"initial_ms": 1000}',
    "retry_backoff_max": 'it is part of `backoff`, as in backoff={"max_ms": 60000}',
    "retry_jitter": 'it is part of `backoff`, as in backoff={"jitter": 0.2}',
    "retry_kwargs": "it is called `max_attempts`",
    "default_retry_delay": 'it is called `backoff`, as in backoff={"initial_ms": 1000}',
    "rate_limit": 'it is called `rate`, as in rate=rota.Rate("api", limit=10)',
    "bind": "a handler gets its context from rota.current()",
    "ignore_result": "results are kept for as long as the coordinator's retention says",
    "acks_late": "a task always counts as done only when its handler has ended",
    "reject_on_worker_lost": "the tasks of a lost worker always run again, up to `max_attempts`",
    "task_id": "it is called `key`: a second task with the same key is the first one",
    "job_id": "it is called `key`: a second task with the same key is the first one",
    "routing_key": "it is called `queue`",
    "exchange": "it is called `queue`",
    "link": "follow-up tasks are made by app.chain(…)",
    "link_error": "follow-up tasks of failures are made by app.group(…, on_failure=…)",
    "serializer": "arguments and results are JSON",
    "unique_for": 'it is part of `unique`, as in unique={"for_ms": 60000}',
}
METHODS_ELSEWHERE: dict[str, str] = {
    "s": "bind(…) makes a call to be enqueued later, partial(…) a link of a chain",
    "si": "bind(…) makes a call to be enqueued later",
    "signature": "bind(…) makes a call to be enqueued later",
    "apply": "call the task itself, or use rota.testing",
    "retry": "a handler raises rota.Retry(…)",
    "request": "a handler gets its context from rota.current()",
    "send": "it is called enqueue(…)",
    "send_with_options": "it is called using(…).enqueue(…)",
    "chunks": "app.enqueue_many([task.bind(…), …]) enqueues many calls",
}

HANDLE_ELSEWHERE: dict[str, str] = {
    "get": "it is called result(timeout=…)",
    "wait": "it is called result(timeout=…)",
    "ready": "status() returns the state of the task",
    "successful": "status() returns the state of the task",
    "failed": "status() returns the state of the task",
    "state": "it is called status()",
    "task_id": "it is called id",
    "info": "view() has the progress, the result and the error",
    "traceback": "it is the cause of the TaskFailed that result() raises",
    "revoke": "it is called cancel()",
    "abort": "it is called cancel()",
    "forget": "results are kept for as long as the coordinator's retention says",
}
APP_ELSEWHERE: dict[str, str] = {
    "send_task": "it is called enqueue(name, payload)",
    "signature": "task.bind(…) makes a call to be enqueued later",
    "AsyncResult": "it is called handle(task_id)",
    "chord": "group(…, on_success=…) has a callback for the results",
    "conf": "options are given to tasks, and settings to the coordinator",
    "config_from_object": "options are given to tasks, and settings to the coordinator",
    "control": "use `rota tasks cancel`, `rota queues` and `rota workers`",
    "autodiscover_tasks": "import the modules that have tasks where the app is defined",
    "add_periodic_task": "@app.schedule(…) gives a task its times",
    "on_after_configure": "@app.schedule(…) gives a task its times",
    "worker_main": "`rota worker MODULE:APP` starts a worker",
}
APPLY_ASYNC_ELSEWHERE: dict[str, str] = {
    "retry": "a lost submission is sent again in any case",
    "retry_policy": "a lost submission is sent again in any case",
}
APPLY_ASYNC_OPTIONS = frozenset(
    {"countdown", "eta", "expires", "time_limit", "queue", "priority", "task_id"}
)


def missing_attribute(owner: object, noun: str, name: str, elsewhere: Mapping[str, str]) -> Any:
    """Raise the error of an attribute that programs know from Celery, or of no attribute at all."""
    hint = elsewhere.get(name)
    text = f"{noun} has no {name!r}" + ("" if hint is None else f": {hint}")
    raise AttributeError(text, name=name, obj=owner)


def unknown_option(
    name: str, known: Collection[str], known_elsewhere: Mapping[str, str] = KNOWN_ELSEWHERE
) -> str:
    """What is wrong with an option of this name, and what was meant."""
    elsewhere = known_elsewhere.get(name)
    if elsewhere is not None:
        return f"there is no option {name!r}: {elsewhere}"
    return f"there is no option {name!r}{did_you_mean(name, sorted(known))}"


def options_of_apply_async(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a call of Celery's `apply_async`, by Rota's names."""
    ours: dict[str, Any] = {}
    for name, value in options.items():
        match name, value:
            case _, None:
                continue
            case "countdown", int() | float():
                ours["delay"] = timedelta(seconds=value)
            case "eta", datetime():
                ours["run_at"] = value
            case "expires", int() | float():
                ours["start_within"] = timedelta(seconds=value)
            case "expires", datetime():
                ours["start_within"] = _time_left(value)
            case "time_limit", int() | float():
                ours["timeout"] = timedelta(seconds=value)
            case "task_id", str():
                ours["key"] = value
            case (("queue" | "priority"), _):
                ours[name] = value
            case _:
                known = KNOWN_ELSEWHERE | APPLY_ASYNC_ELSEWHERE
                text = unknown_option(name, APPLY_ASYNC_OPTIONS, known)
                raise Invalid(f"apply_async: {text}", field=name)
    return ours


def _time_left(expires: datetime) -> timedelta:
    left = expires - datetime.now(expires.tzinfo and UTC)
    if left <= timedelta(0):
        raise Invalid("apply_async: expires is in the past", field="expires")
    return left
