"""Output of commands for people, programs and shells, and their exit codes.

People get tables, programs one JSON document on stdout (`--json`), shells an exit code. Errors are
one line on stderr, `error: TEXT (code)`. Control characters in values from the wire are escaped, so
that a task's name cannot write to the terminal.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import IO, Any, NamedTuple, Protocol, TypeVar

import click
import msgspec

from rota.errors import Conflict, NotFound, RotaError

SHORT_JSON = 80  # characters up to which JSON stays on one line


class Page(Protocol):
    @property
    def next_cursor(self) -> str | None: ...


T = TypeVar("T")
PageT = TypeVar("PageT", bound=Page)


class ExitCode(IntEnum):
    OK = 0
    FAILED = 1
    UNUSABLE = 2
    CANCELLED = 3
    TIMED_OUT = 4
    INTERRUPTED = 130


# The reference page of exit codes is made from this table.
EXIT_CODES: dict[ExitCode, str] = {
    ExitCode.OK: "Done; the task succeeded; the run completed; the coordinator is healthy; a clean "
    "shutdown.",
    ExitCode.FAILED: "The object of the command failed: the task or run failed, was not found or "
    "was in the wrong state, a definition has problems, a replay or a `diff` found a difference, a "
    "check of `rota doctor` failed, the coordinator is unhealthy, a question was answered with no.",
    ExitCode.UNUSABLE: "Wrong usage, not allowed, or not startable: the store is locked or too "
    "new, the port is taken, the coordinator cannot be reached.",
    ExitCode.CANCELLED: "The task or run that was waited for was cancelled.",
    ExitCode.TIMED_OUT: "The wait for a task or run timed out; the task or run continues.",
    ExitCode.INTERRUPTED: "Ended at once by Ctrl-C, or by a second signal during a shutdown.",
}

# One colour per state, the same in every table.
STATE_STYLES: dict[str, str] = {
    "scheduled": "blue",
    "queued": "yellow",
    "running": "cyan",
    "succeeded": "green",
    "failed": "red",
    "cancelled": "magenta",
    "completed": "green",
    "timed_out": "red",
    "executing": "cyan",
    "dispatched": "yellow",
    "pending": "yellow",
    "waiting_for_siblings": "blue",
    "waiting_for_subworkflow": "blue",
    "waiting_for_event": "blue",
    "healthy": "green",
    "degraded": "yellow",
    "unhealthy": "red",
    "active": "green",
    "draining": "yellow",
    "quarantined": "red",
    "paused": "yellow",
    "open": "green",
    "ok": "green",
    "warn": "yellow",
    "fail": "red",
}


class Table(NamedTuple):
    """Rows under headings; `empty` is printed when there are none."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[object]]
    empty: str = "nothing"


def table(
    items: Iterable[T], columns: Mapping[str, Callable[[T], object]], *, empty: str = "nothing"
) -> Table:
    """A row for each item; each column has a heading and the function that reads its value."""
    rows = [[value(item) for value in columns.values()] for item in items]
    return Table(tuple(columns), rows, empty)


class Facts(NamedTuple):
    """One object in detail: a name and a value per line, without the values that are None."""

    pairs: Sequence[tuple[str, object]]


def show(value: T, *, as_json: bool, render: Callable[[T], Table | Facts | str]) -> None:
    """Print a value: the JSON document itself, or what `render` makes of it."""
    if as_json:
        click.echo(msgspec.json.encode(value).decode())
        return
    rendered = render(value)
    if isinstance(rendered, str):
        click.echo(rendered)
    elif isinstance(rendered, Facts):
        _print_rows([(name, item) for name, item in rendered.pairs if item is not None])
    elif rendered.rows:
        _print_rows(rendered.rows, columns=rendered.columns)
    else:
        click.echo(rendered.empty)


def show_page(page: PageT, *, as_json: bool, render: Callable[[PageT], Table]) -> None:
    """Print a page of a list, and on stderr how to get the next one."""
    show(page, as_json=as_json, render=render)
    if page.next_cursor is not None and not as_json:
        note(f"there is more: continue with --cursor {page.next_cursor}")


def note(text: str) -> None:
    """Print something beside the answer, on stderr, so that pipes stay clean."""
    click.echo(visible(text), err=True)


def confirm(question: str) -> None:
    """Ask a person before a change; without a terminal, `--yes` is required."""
    if not is_terminal(sys.stdin):
        raise click.UsageError("this needs a confirmation; give --yes")
    if not click.confirm(visible(question), err=True):
        raise Refusal("nothing was changed", code="declined", exit_code=ExitCode.FAILED)


def visible(value: object) -> str:
    """The text of a value, its control characters escaped (line breaks stay)."""
    text = "-" if value is None else str(value)
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or character == "\n"
        else character.encode("unicode_escape").decode()
        for character in text
    )


def json_text(value: object) -> str:
    """A value as JSON for people: indented when it is long."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= SHORT_JSON else msgspec.json.format(text, indent=2)


def is_terminal(stream: IO[Any]) -> bool:
    return stream.isatty()


def _print_rows(rows: Iterable[Sequence[object]], *, columns: tuple[str, ...] = ()) -> None:
    cells = [[visible(cell) for cell in row] for row in rows]
    if is_terminal(sys.stdout):
        _print_rich(cells, columns)
    else:
        _print_plain(cells, columns)


def _print_plain(cells: list[list[str]], columns: tuple[str, ...]) -> None:
    """Print columns aligned by spaces, with nothing cut: made for grep, awk and log files."""
    lines = [[column.upper() for column in columns], *cells] if columns else cells
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    for line in lines:
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join(padded).rstrip())


def _print_rich(cells: list[list[str]], columns: tuple[str, ...]) -> None:
    from rich import box  # noqa: PLC0415 - rich costs 60 ms, and pipes never need it
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table as RichTable  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = RichTable(box=box.SIMPLE_HEAD if columns else None, show_header=bool(columns))
    for place, column in enumerate(columns or ("name", "value")):
        # The first column is what people copy; the others may wrap on a narrow screen.
        table.add_column(column, no_wrap=place == 0, overflow="fold")
    for row in cells:
        table.add_row(*(Text(cell, style=STATE_STYLES.get(cell, "")) for cell in row))
    Console().print(table)


class Refusal(click.ClickException):
    """An error as the command line prints it: one line, one exit code."""

    def __init__(self, text: str, *, code: str, exit_code: ExitCode = ExitCode.UNUSABLE) -> None:
        super().__init__(text)
        self.code = code
        self.exits_with = exit_code

    def show(self, file: IO[Any] | None = None) -> None:
        line = " ".join(visible(self.message).split())
        click.echo(f"error: {line} ({self.code})", err=True, file=file)


def refusal_of(error: RotaError) -> Refusal:
    """Convert an error of the coordinator or the store; its kind decides the exit code."""
    exit_code = ExitCode.FAILED if isinstance(error, NotFound | Conflict) else ExitCode.UNUSABLE
    return Refusal(error.detail, code=error.code, exit_code=exit_code)


def refusal_of_usage(error: click.ClickException) -> Refusal:
    text = error.format_message().rstrip(".")
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None:
        text = f"{text}; see {context.command_path} --help"
    return Refusal(text, code="usage")
