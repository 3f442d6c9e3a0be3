"""`rota queues`: list, pause and resume queues."""

from collections.abc import Callable

import click

from rota.cli.connection import connected
from rota.cli.render.formatting import duration
from rota.cli.render.output import Table, show, table
from rota.errors import QueueNotFound
from rota.messages import QueuePage, QueueView
from rota.sdk.client import calls
from rota.sdk.client.client import Client
from rota.sdk.client.requests import ApiCall


@click.group()
def queues() -> None:
    """List, pause and resume queues."""


@queues.command("ls")
@connected
def ls(client: Client, *, as_json: bool) -> None:
    """List the queues: waiting and running tasks, age of the oldest, and rates."""
    show(client.run(calls.list_queues()), as_json=as_json, render=_table)


@queues.command("show")
@click.argument("name")
@connected
def show_one(client: Client, name: str, *, as_json: bool) -> None:
    """Show one queue."""
    found = [queue for queue in client.run(calls.list_queues()).items if queue.name == name]
    if not found:
        raise QueueNotFound(name)
    show(found[0], as_json=as_json, render=lambda queue: _table(QueuePage(items=[queue])))


def _add_verb(name: str, call: Callable[[str], ApiCall[QueueView]], description: str) -> None:
    @queues.command(name, help=description)
    @click.argument("name")
    @connected
    def verb(client: Client, name: str, *, as_json: bool) -> None:
        show(client.run(call(name)), as_json=as_json, render=_line)


_add_verb(
    "pause",
    calls.pause_queue,
    "Give out no more tasks of a queue; running ones finish, new ones are still accepted.",
)
_add_verb("resume", calls.resume_queue, "Give out the tasks of a paused queue again.")


def _state(queue: QueueView) -> str:
    return "paused" if queue.paused else "open"


def _line(queue: QueueView) -> str:
    return f"queue {queue.name} is {_state(queue)}"


def _table(page: QueuePage) -> Table:
    columns: dict[str, Callable[[QueueView], object]] = {
        "queue": lambda queue: queue.name,
        "state": _state,
        "queued": lambda queue: queue.depth,
        "scheduled": lambda queue: queue.scheduled,
        "running": lambda queue: queue.running,
        "oldest": lambda queue: duration(queue.oldest_age_ms),
        "in/s": lambda queue: f"{queue.submitted_per_s:.1f}",
        "done/s": lambda queue: f"{queue.finished_per_s:.1f}",
        "failed/s": lambda queue: f"{queue.failed_per_s:.1f}",
    }
    return table(page.items, columns, empty="no queues yet")
