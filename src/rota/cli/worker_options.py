"""How is a worker to work? The options that `rota worker` and `rota dev` share."""

from collections.abc import Callable
from typing import Any

import click

from rota.cli.options import labels_of
from rota.core import limits
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


def worker_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for flag, details in reversed(_OPTIONS):
        variable = "ROTA_" + flag.removeprefix("--").replace("-", "_").upper()
        function = click.option(flag, envvar=variable, show_envvar=True, **details)(function)
    return function


def worker_settings(options: dict[str, Any]) -> dict[str, Any]:
    """The options as `Worker` takes them."""
    settings = {name: value for name, value in options.items() if value is not None}
    settings["drain_s"] = settings.pop("drain_timeout_ms") / 1000
    if "labels" in settings:
        settings["labels"] = labels_of(settings["labels"])
    return settings
