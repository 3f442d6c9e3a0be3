"""What is going on, right now? The whole coordinator on one screen, drawn anew all the time."""

import shutil
import sys
import time

import click

from rota.cli.connection import connected
from rota.cli.glances import (
    HEADINGS,
    Glance,
    glance,
    queue_rows,
    summary,
    waiting_rows,
    worker_rows,
)
from rota.cli.options import json_flag
from rota.cli.output import Facts, Table, is_terminal, show
from rota.errors import Unavailable
from rota.sdk.client import Client

LEAST_S, MOST_S = 0.2, 60.0


@click.command()
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(LEAST_S, MOST_S),
    default=1.0,
    show_default=True,
    help="Seconds between two looks.",
)
@click.option("--once", is_flag=True, help="Look once, print it, and end.")
@connected
@json_flag
def top(client: Client, *, interval_s: float, once: bool, as_json: bool) -> None:
    """Show what is going on, live.

    What waits and why, queues, workers, runs and shards, until Ctrl-C. Where there is no terminal,
    and with --json, it is shown once.
    """
    seen = glance(client)
    if as_json or once or not is_terminal(sys.stdout):
        show_once(seen, as_json=as_json)
    else:
        watch(client, seen, interval_s=interval_s)


def show_once(seen: Glance, *, as_json: bool) -> None:
    if as_json:
        show(seen, as_json=True, render=lambda _: "")
        return
    show(summary(seen), as_json=False, render=Facts)
    tables = {
        "waiting": waiting_rows(seen),
        "queues": queue_rows(seen),
        "workers": worker_rows(seen),
    }
    for name, rows in tables.items():
        if rows:
            click.echo()
            table = Table(HEADINGS[name], rows)
            show(table, as_json=False, render=lambda one: one)


def watch(client: Client, seen: Glance, *, interval_s: float) -> None:
    """Draw on a screen of its own, which is gone afterwards with the shell as it was."""
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
    from rich.live import Live  # noqa: PLC0415

    from rota.cli.top_drawing import drawn  # noqa: PLC0415

    console = Console()
    problem: str | None = None
    with Live(console=console, auto_refresh=False, screen=True) as live:
        while True:
            width, height = shutil.get_terminal_size()
            picture = drawn(seen, width=width, height=height, problem=problem)
            live.update(picture, refresh=True)
            time.sleep(interval_s)
            try:
                seen, problem = glance(client), None
            except Unavailable as error:
                # It may be back in a moment; until then the last look stays, and says so.
                problem = f"no answer: {error.detail}"
