"""`rota tasks logs`: what the handler of a task has logged, so far or as it comes."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from rota.cli.connection import connected
from rota.cli.render.output import note, show, visible
from rota.core import limits
from rota.core.tasks.logs import LEVELS, LogLevel
from rota.core.tasks.model import FINISHED
from rota.messages import AttemptLogView, LogLineView, LogPage
from rota.sdk.client import calls
from rota.sdk.client.client import Client

WAIT_MS = 20_000  # of one call of --follow
INDENT = "    "  # of the further lines of a message, so that none of them looks like a line
LEVEL_WIDTH = 8
LEVEL_STYLES: dict[LogLevel, dict[str, Any]] = {
    "debug": {"dim": True},
    "info": {"fg": "cyan"},
    "warning": {"fg": "yellow"},
    "error": {"fg": "red"},
    "critical": {"fg": "red", "bold": True},
}

_encode = msgspec.json.Encoder().encode


@click.command("logs")
@click.argument("task_id")
@click.option("--follow", "-f", is_flag=True, help="Print new lines until the task has ended.")
@click.option(
    "--attempt",
    type=click.IntRange(1, limits.MAX_ATTEMPTS),
    help="Only lines of attempts with this number.  [default: all attempts]",
)
@click.option(
    "--level",
    type=click.Choice(LEVELS),
    default="debug",
    show_default=True,
    help="Only lines of this level and above.",
)
@connected
def logs(
    client: Client,
    task_id: str,
    attempt: int | None,
    level: LogLevel,
    *,
    follow: bool,
    as_json: bool,
) -> None:
    """Print what the handler of a task has logged, the oldest line first.

    With --json it is one document, or with --follow a JSON document on each line.
    """
    printer = _LinePrinter()
    whole: LogPage | None = None
    pages = _pages(client, task_id, attempt=attempt, level=level, is_following=follow)
    for page in pages:
        if not as_json:
            printer.print(page)
        elif follow:
            for line in page.items:
                click.echo(_encode(line).decode())
        else:
            before = [] if whole is None else whole.items
            whole = msgspec.structs.replace(page, items=before + page.items)
    if whole is not None:
        show(whole, as_json=True, render=str)
    elif not as_json:
        printer.end(attempt)


def _pages(
    client: Client,
    task_id: str,
    *,
    attempt: int | None,
    level: LogLevel,
    is_following: bool,
) -> Iterator[LogPage]:
    """Yield pages until the last one, or until the task has ended and all of its lines are read."""
    after, wait_ms = 0, 0
    while True:
        call = calls.get_logs(
            task_id,
            attempt=attempt,
            level=level,
            after=after,
            limit=limits.MAX_PAGE,
            wait_ms=wait_ms,
        )
        page = client.run(call)
        yield page
        after = page.next_after
        if page.has_more:
            continue
        if not is_following or page.state in FINISHED:
            return
        wait_ms = WAIT_MS


class _LinePrinter:
    """Prints lines, and a heading wherever another attempt begins."""

    def __init__(self) -> None:
        self._fence: int | None = None
        self._attempts: list[AttemptLogView] = []
        self._count = 0

    def print(self, page: LogPage) -> None:
        self._attempts = page.attempts
        for line in page.items:
            if line.fence != self._fence and (self._fence is not None or len(self._attempts) > 1):
                click.secho(f"--- attempt {line.attempt}", dim=True)
            self._fence = line.fence
            self._count += 1
            click.echo(_text_of(line))

    def end(self, attempt: int | None) -> None:
        """Say what is not there: lines that were dropped, or any at all."""
        for one in self._attempts:
            if one.dropped and attempt in {None, one.attempt}:
                note(f"{one.dropped} lines of attempt {one.attempt} were dropped")
        if not self._count:
            note("no log lines")


def _text_of(line: LogLineView) -> str:
    moment = datetime.fromtimestamp(line.at_ms / 1000, tz=UTC).astimezone()
    clock = moment.isoformat(sep=" ", timespec="milliseconds")[:23]
    level = click.style(f"{line.level:<{LEVEL_WIDTH}}", **LEVEL_STYLES[line.level])
    message = visible(line.message).replace("\n", f"\n{INDENT}")
    fields = _fields_of(line)
    return f"{clock}  {level}  {message}" + (f"  {click.style(fields, dim=True)}" if fields else "")


def _fields_of(line: LogLineView) -> str:
    if line.fields is None:
        return ""
    given = msgspec.json.decode(line.fields)
    if not isinstance(given, dict):
        return ""
    texts = [
        f"{name}={value if isinstance(value, str) else _encode(value).decode()}"
        for name, value in given.items()
    ]
    return visible(" ".join(texts)).replace("\n", " ")
