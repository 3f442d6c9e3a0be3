"""How is a worker to work? The options that `rota worker` and `rota dev` share.

Those of a pool of workers, which `rota worker` alone can keep, are here as well.
"""

from collections.abc import Callable
from typing import Any

import click
from msgspec import Struct

from rota.cli.options import labels_of
from rota.core import limits
from rota.core.scaling import DEFAULT_SCALE_POLICY, PoolPolicy
from rota.sdk.leasing import Line
from rota.sdk.worker import DEFAULT_CONCURRENCY, DRAIN_S


def names(text: str) -> tuple[str, ...]:
    """Names with commas between them."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


_NAMES: dict[str, Any] = {"type": names, "metavar": "NAMES"}

_OPTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    (
        "--concurrency",
        {
            "type": click.IntRange(1, limits.MAX_CONCURRENT_TASKS),
            "default": DEFAULT_CONCURRENCY,
            "show_default": True,
            "help": "How many tasks run at once.",
        },
    ),
    (
        "--transport",
        {
            "type": click.Choice([one.value for one in Line]),
            "default": Line.AUTO.value,
            "show_default": True,
            "help": "How it gets its work: over a WebSocket, by polling over http, or auto: over "
            "a WebSocket if there can be one, and otherwise by polling.",
        },
    ),
    (
        "--queues",
        {**_NAMES, "help": "Only work from these, as a,b.  [default: all queues]"},
    ),
    (
        "--tasks",
        {**_NAMES, "help": "Only run these, as a,b.  [default: all of the app's]"},
    ),
    (
        "--capabilities",
        {**_NAMES, "help": "What tasks may require of this worker, as a,b."},
    ),
    ("--worker-id", {"help": "Its id; each running worker needs its own.  [default: given]"}),
    ("--group", {"help": "A group to list it under."}),
    (
        "--labels",
        {**_NAMES, "help": "Labels to list it with, as KEY=VALUE,… or words."},
    ),
    (
        "--drain-timeout-ms",
        {
            "type": click.IntRange(min=0),
            "default": int(DRAIN_S * 1000),
            "show_default": True,
            "help": "What running tasks get to finish once a stop is asked for.",
        },
    ),
    (
        "--heartbeat-interval-ms",
        {
            "type": click.IntRange(
                limits.MIN_HEARTBEAT_INTERVAL_MS, limits.MAX_HEARTBEAT_INTERVAL_MS
            ),
            "default": 5_000,
            "show_default": True,
            "help": "How often it says that it is alive; three times that is its lease.",
        },
    ),
)

MAX_POOL = 1_000  # worker processes of one pool
_POOL = PoolPolicy()
_POOL_OPTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    (
        "--min",
        {
            "type": click.IntRange(0, MAX_POOL),
            "help": "Keep at least so many worker processes; with --max.  [default: 1]",
        },
    ),
    (
        "--max",
        {
            "type": click.IntRange(0, MAX_POOL),
            "help": "Keep a pool of worker processes that grows to so many when work waits, and "
            "shrinks again; 0: no pool.",
        },
    ),
    (
        "--scale-target-ms",
        {
            "type": click.IntRange(1, limits.MAX_TIMEOUT_MS),
            "default": DEFAULT_SCALE_POLICY.target_ms,
            "show_default": True,
            "help": "How soon a pool should have worked off what waits.",
        },
    ),
    (
        "--scale-interval-ms",
        {
            "type": click.IntRange(100, 3_600_000),
            "default": 1_000,
            "show_default": True,
            "help": "How often a pool asks how many workers are wanted.",
        },
    ),
    (
        "--shrink-after-ms",
        {
            "type": click.IntRange(min=0),
            "default": _POOL.shrink_after_ms,
            "show_default": True,
            "help": "How long fewer must have been wanted before a pool lets go of one.",
        },
    ),
    (
        "--cool-down-ms",
        {
            "type": click.IntRange(min=0),
            "default": _POOL.cool_down_ms,
            "show_default": True,
            "help": "How long a pool waits from a change until it lets go of the next.",
        },
    ),
)


class PoolSettings(Struct, frozen=True, kw_only=True):
    policy: PoolPolicy
    target_ms: int
    interval_ms: int


def worker_options(function: Callable[..., Any]) -> Callable[..., Any]:
    return _with(_OPTIONS, function)


def pool_options(function: Callable[..., Any]) -> Callable[..., Any]:
    return _with(_POOL_OPTIONS, function)


def _with(
    options: tuple[tuple[str, dict[str, Any]], ...], function: Callable[..., Any]
) -> Callable[..., Any]:
    for flag, details in reversed(options):
        variable = "ROTA_" + flag.removeprefix("--").replace("-", "_").upper()
        function = click.option(flag, envvar=variable, show_envvar=True, **details)(function)
    return function


def take_pool_settings(options: dict[str, Any]) -> PoolSettings | None:
    """Take the options of a pool out of the others; None: there is to be none."""
    minimum, maximum = options.pop("min"), options.pop("max")
    target_ms, interval_ms = options.pop("scale_target_ms"), options.pop("scale_interval_ms")
    shrink_after_ms, cool_down_ms = options.pop("shrink_after_ms"), options.pop("cool_down_ms")
    if not maximum:
        if minimum is not None and maximum is None:
            raise click.UsageError("--min needs --max: how far may the pool grow?")
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
