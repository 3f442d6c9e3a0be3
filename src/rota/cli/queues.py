"""What waits where? List queues, and hold or release them."""

import click

from rota.cli.connection import connected
from rota.cli.options import json_flag
from rota.cli.output import Table, show
from rota.cli.times import duration
from rota.errors import QueueNotFound
from rota.messages import QueuePage, QueueView
from rota.sdk import calls
from rota.sdk.client import Client


@click.group()
def queues() -> None:
    """List, pause and resume queues."""


@queues.command("ls")
@connected
@json_flag
def ls(client: Client, *, as_json: bool) -> None:
    """List the queues: what waits, what runs, how old the oldest is, and the rates."""
    show(client.run(calls.list_queues()), as_json=as_json, render=_table)


@queues.command("show")
@click.argument("name")
@connected
@json_flag
def show_one(client: Client, name: str, *, as_json: bool) -> None:
    """Show one queue."""
    found = [queue for queue in client.run(calls.list_queues()).items if queue.name == name]
    if not found:
        raise QueueNotFound(name)
    show(found[0], as_json=as_json, render=lambda queue: _table(QueuePage(items=[queue])))


@queues.command()
@click.argument("name")
@connected
@json_flag
def pause(client: Client, name: str, *, as_json: bool) -> None:
    """Give out no more tasks of a queue; running ones finish, new ones are still accepted."""
    show(client.run(calls.pause_queue(name)), as_json=as_json, render=_line)


@queues.command()
@click.argument("name")
@connected
@json_flag
def resume(client: Client, name: str, *, as_json: bool) -> None:
    """Give out the tasks of a paused queue again."""
    show(client.run(calls.resume_queue(name)), as_json=as_json, render=_line)


def _state(queue: QueueView) -> str:
    return "paused" if queue.paused else "open"


def _line(queue: QueueView) -> str:
    return f"queue {queue.name} is {_state(queue)}"


def _table(page: QueuePage) -> Table:
    return Table(
        (
            "queue",
            "state",
            "queued",
            "scheduled",
            "running",
            "oldest",
            "in/s",
            "done/s",
            "failed/s",
        ),
        [
            (
                queue.name,
                _state(queue),
                queue.depth,
                queue.scheduled,
                queue.running,
                duration(queue.oldest_age_ms),
                f"{queue.submitted_per_s:.1f}",
                f"{queue.finished_per_s:.1f}",
                f"{queue.failed_per_s:.1f}",
            )
            for queue in page.items
        ],
        empty="no queues yet",
    )
