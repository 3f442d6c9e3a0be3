"""`rota top`: the whole coordinator on one live screen."""

import os
import select
import shutil
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from rota.cli.connection import connected
from rota.cli.render.output import Facts, Table, is_terminal, show
from rota.cli.render.overview import (
    HEADINGS,
    TopView,
    load_top_view,
    summary,
    tables,
)
from rota.errors import Unavailable
from rota.sdk.client.client import Client

MIN_INTERVAL_S, MAX_INTERVAL_S = 0.2, 60.0
QUIT = {"q", "Q", "\x1b"}  # the last one is Escape


@click.command()
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(MIN_INTERVAL_S, MAX_INTERVAL_S),
    default=1.0,
    show_default=True,
    help="Seconds between two refreshes.",
)
@click.option("--once", is_flag=True, help="Print the overview once, and exit.")
@connected
def top(client: Client, *, interval_s: float, once: bool, as_json: bool) -> None:
    """Show tasks, queues, workers and runs, live.

    What needs an answer, waiting tasks with the reason, queues, workers, runs and shards, until q
    or Ctrl-C. Without a terminal, and with --json, the overview is printed once.
    """
    view = load_top_view(client)
    if as_json or once or not is_terminal(sys.stdout):
        show_once(view, as_json=as_json)
    else:
        watch(client, view, interval_s=interval_s)


def show_once(view: TopView, *, as_json: bool) -> None:
    if as_json:
        show(view, as_json=True, render=lambda _: "")
        return
    show(summary(view), as_json=False, render=Facts)
    for name, rows in tables(view).items():
        click.echo()
        table = Table(HEADINGS[name], rows)
        show(table, as_json=False, render=lambda one: one)


def watch(client: Client, view: TopView, *, interval_s: float) -> None:
    """Redraw the overview on the alternate screen of the terminal, until q or Ctrl-C."""
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
    from rich.live import Live  # noqa: PLC0415

    from rota.cli.render.top import draw_top  # noqa: PLC0415

    console = Console()
    problem: str | None = None
    with read_keys() as key, Live(console=console, auto_refresh=False, screen=True) as live:
        while True:
            width, height = shutil.get_terminal_size()
            drawing = draw_top(view, width=width, height=height, problem=problem)
            live.update(drawing, refresh=True)
            if key(interval_s) in QUIT:
                return
            try:
                view, problem = load_top_view(client), None
            except Unavailable as error:
                # The coordinator may be restarting; the last overview stays, with this message.
                problem = f"no answer: {error.detail}"


@contextmanager
def read_keys() -> Iterator[Callable[[float], str]]:
    """Yield a function that waits for a key, and returns it, or nothing after the time given."""
    if not is_terminal(sys.stdin):
        yield _sleep
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)

    def key(wait_s: float) -> str:
        ready, _, _ = select.select([descriptor], [], [], wait_s)
        return os.read(descriptor, 1).decode(errors="replace") if ready else ""

    try:
        yield key
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _sleep(wait_s: float) -> str:
    time.sleep(wait_s)
    return ""
