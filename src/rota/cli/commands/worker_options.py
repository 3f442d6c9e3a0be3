"""Options of a worker, for `rota worker` and `rota dev`, and of a pool, for `rota worker` alone."""

from collections.abc import Callable
from typing import Any

import click
from msgspec import Struct

from rota.cli.inputs import Milliseconds, labels_of
from rota.core import limits
from rota.core.dispatch.autoscaling import DEFAULT_SCALE_POLICY, PoolPolicy
from rota.sdk.logs.task_logger import KEPT_LEVELS
from rota.sdk.worker.poller import LeaseTransport
from rota.sdk.worker.worker import DEFAULT_CONCURRENCY, DRAIN_S


def names(text: str) -> tuple[str, ...]:
    """Split names that have commas between them."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _option(flag: str, **details: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An option that the environment may give as well."""
    variable = "ROTA_" + flag.removeprefix("--").replace("-", "_").upper()
    if "default" in details:
        details["show_default"] = True
    return click.option(flag, envvar=variable, show_envvar=True, **details)


def _names_option(flag: str, text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return _option(flag, type=names, metavar="NAMES", help=text)


_WORKER_OPTIONS = (
    _option(
        "--concurrency",
        type=click.IntRange(1, limits.MAX_CONCURRENT_TASKS),
        default=DEFAULT_CONCURRENCY,
        help="How many tasks run at once.",
    ),
    _option(
        "--transport",
        type=click.Choice([one.value for one in LeaseTransport]),
        default=LeaseTransport.AUTO.value,
        help="How the worker gets tasks: over a WebSocket, by polling over http, or auto: over a "
        "WebSocket if one can be opened, and otherwise by polling.",
    ),
    _names_option("--queues", "Only work on these queues, as a,b.  [default: all queues]"),
    _names_option("--tasks", "Only run these tasks, as a,b.  [default: all tasks of the app]"),
    _names_option("--capabilities", "What tasks may require of this worker, as a,b."),
    _option(
        "--worker-id",
        help="Its id; each running worker needs its own.  [default: the coordinator chooses one]",
    ),
    _option("--group", help="A group to list it under."),
    _names_option("--labels", "Labels to list it with, as KEY=VALUE,… or words."),
    _names_option(
        "--capture-logs",
        "Loggers of Python's logging that are kept with the task that logs to them, as a,b; all: "
        "every logger.",
    ),
    _option(
        "--task-log-level",
        type=click.Choice([*KEPT_LEVELS]),
        default="info",
        help="Lowest level of the log lines that are kept with tasks.",
    ),
    _option(
        "--drain-timeout-ms",
        type=Milliseconds(),
        default=int(DRAIN_S * 1000),
        help="How long running tasks may take to finish after a stop was asked for.",
    ),
    _option(
        "--heartbeat-interval-ms",
        type=Milliseconds(
            min=limits.MIN_HEARTBEAT_INTERVAL_MS, max=limits.MAX_HEARTBEAT_INTERVAL_MS
        ),
        default=5_000,
        help="How often it sends a heartbeat; its lease is three times as long.",
    ),
)

MAX_POOL = 1_000  # worker processes of one pool
_POOL = PoolPolicy()
_POOL_OPTIONS = (
    _option(
        "--min",
        type=click.IntRange(0, MAX_POOL),
        help="Smallest number of worker processes in the pool; with --max.  [default: 1]",
    ),
    _option(
        "--max",
        type=click.IntRange(0, MAX_POOL),
        help="Run a pool of worker processes that grows to this number when tasks wait, and "
        "shrinks again; 0: no pool.",
    ),
    _option(
        "--scale-target-ms",
        type=Milliseconds(min=1, max=limits.MAX_TIMEOUT_MS),
        default=DEFAULT_SCALE_POLICY.target_ms,
        help="How soon a pool should have run all waiting tasks.",
    ),
    _option(
        "--scale-interval-ms",
        type=Milliseconds(min=100, max=3_600_000),
        default=1_000,
        help="How often a pool asks how many workers are wanted.",
    ),
    _option(
        "--shrink-after-ms",
        type=Milliseconds(),
        default=_POOL.shrink_after_ms,
        help="How long fewer workers must have been wanted before a pool stops one.",
    ),
    _option(
        "--cool-down-ms",
        type=Milliseconds(),
        default=_POOL.cool_down_ms,
        help="How long a pool waits after a change before it stops the next worker.",
    ),
)


class PoolSettings(Struct, frozen=True, kw_only=True):
    policy: PoolPolicy
    target_ms: int
    interval_ms: int


def worker_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_WORKER_OPTIONS):
        function = option(function)
    return function


def pool_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_POOL_OPTIONS):
        function = option(function)
    return function


def take_pool_settings(options: dict[str, Any]) -> PoolSettings | None:
    """Take the options of a pool out of the others; None: no pool was asked for."""
    minimum, maximum = options.pop("min"), options.pop("max")
    target_ms, interval_ms = options.pop("scale_target_ms"), options.pop("scale_interval_ms")
    shrink_after_ms, cool_down_ms = options.pop("shrink_after_ms"), options.pop("cool_down_ms")
    if not maximum:
        if minimum is not None and maximum is None:
            raise click.UsageError("--min needs --max, the largest size of the pool")
        return None
    minimum = 1 if minimum is None else minimum
    if minimum > maximum:
        raise click.UsageError(f"--min {minimum} is above --max {maximum}")
    return PoolSettings(
        policy=PoolPolicy(
            minimum=minimum,
            maximum=maximum,
            shrink_after_ms=shrink_after_ms,
            cool_down_ms=cool_down_ms,
        ),
        target_ms=target_ms,
        interval_ms=interval_ms,
    )


def worker_settings(options: dict[str, Any]) -> dict[str, Any]:
    """The options as `Worker` takes them."""
    settings = {name: value for name, value in options.items() if value is not None}
    settings["drain_s"] = settings.pop("drain_timeout_ms") / 1000
    if "labels" in settings:
        settings["labels"] = labels_of(settings["labels"])
    return settings
