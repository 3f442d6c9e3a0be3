"""`rota events`: past and live events, as lines or as JSON."""

from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from rota.cli.connection import connected
from rota.cli.render.output import Table, note, show, visible
from rota.core import limits
from rota.messages import EventPage, EventView
from rota.sdk.client.calls import list_events
from rota.sdk.client.client import Client

SHOWN_FIRST = 10  # past events before the new ones of --follow
SEQ_WIDTH = 7  # longer numbers make the line longer
TYPE_WIDTH = 19
SUBJECT_WIDTH = 16

_encode = msgspec.json.Encoder().encode


@click.command()
@click.option("--follow", "-f", is_flag=True, help="Print new events as they happen, until Ctrl-C.")
@click.option(
    "--type",
    "types",
    multiple=True,
    metavar="TYPE",
    help="Only events of this type; repeat for more, and end with a star for several: task-*.",
)
@click.option("--subject", help="Only events of this task, worker, run, queue, …")
@click.option("--prefix", help="Only events whose subject has this prefix.")
@click.option("--after", type=click.IntRange(min=0), help="Start after the event with this number.")
@click.option(
    "--limit",
    type=click.IntRange(1, limits.MAX_PAGE),
    help=f"Largest number of events: the newest, or with --after the next.  [default: "
    f"{limits.DEFAULT_PAGE}; with --follow {SHOWN_FIRST}]",
)
@connected
def events(  # noqa: PLR0917 - click hands over all by name
    client: Client,
    types: tuple[str, ...],
    subject: str | None,
    prefix: str | None,
    after: int | None,
    limit: int | None,
    *,
    follow: bool,
    as_json: bool,
) -> None:
    """List the newest events, or follow new ones.

    With --json --follow each event is a JSON document on its own line.
    """
    wanted: dict[str, Any] = {"types": types, "subject": subject, "prefix": prefix}
    if follow and after is not None:
        _follow(client, after, wanted, as_json=as_json)
        return
    most = limit or (SHOWN_FIRST if follow else limits.DEFAULT_PAGE)
    page = client.run(
        list_events(last=most, **wanted)
        if after is None
        else list_events(after=after, limit=most, **wanted)
    )
    if follow:
        for event in page.items:
            _print(event, as_json=as_json)
        _follow(client, page.next_after, wanted, as_json=as_json)
        return
    show(page, as_json=as_json, render=_table)
    if page.next_cursor is not None and not as_json:
        note(f"there is more: continue with --after {page.next_after}")


def _follow(client: Client, after: int, wanted: dict[str, Any], *, as_json: bool) -> None:
    for event in client.events(after=after, **wanted):
        _print(event, as_json=as_json)


def _print(event: EventView, *, as_json: bool) -> None:
    click.echo(_encode(event).decode() if as_json else _line(event))


def _line(event: EventView) -> str:
    seq, moment, kind, subject, details = _cells(event)
    head = f"{seq:>{SEQ_WIDTH}}  {moment}  {kind:<{TYPE_WIDTH}}  {subject:<{SUBJECT_WIDTH}}"
    return visible(f"{head}  {details}".rstrip())


def _table(page: EventPage) -> Table:
    return Table(
        ("event", "time", "type", "subject", "details"),
        [_cells(event) for event in page.items],
        empty="no events",
    )


def _cells(event: EventView) -> tuple[str, str, str, str, str]:
    moment = datetime.fromtimestamp(event.at_ms / 1000, tz=UTC).astimezone()
    return (
        str(event.seq),
        moment.isoformat(sep=" ", timespec="milliseconds")[:23],
        event.type,
        event.subject,
        ", ".join(f"{name} {_text(value)}" for name, value in event.data.items()),
    )


def _text(value: Any) -> str:
    match value:
        case {"type": kind, "message": message}:
            return f"{kind}: {message}"
        case list():
            return "/".join(map(str, value))
        case _:
            return str(value)
