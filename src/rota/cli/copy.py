"""How does a store move? Everything in it is copied to another one, and compared."""

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager

import click

from rota import telemetry
from rota.cli.options import json_flag
from rota.cli.output import ExitCode, Table, is_terminal, note, show
from rota.store.copying.copy import CHUNK_ROWS, Progress, Report
from rota.store.copying.copy import copy as carry_over
from rota.store.copying.opening import open_side


@click.command()
@click.option("--from", "source", required=True, metavar="URL", help="The store to copy from.")
@click.option("--to", "target", required=True, metavar="URL", help="An empty store to copy to.")
@click.option(
    "--chunk-rows",
    type=click.IntRange(1, 100_000),
    default=CHUNK_ROWS,
    show_default=True,
    help="Rows that are written in one transaction.",
)
@json_flag
def copy(source: str, target: str, *, chunk_rows: int, as_json: bool) -> None:
    """Copy everything in a store to another one, and compare both.

    From SQLite to PostgreSQL or back, while no coordinator runs on either. A copy that was
    interrupted goes on where it stopped when the same command is given again.
    """
    telemetry.set_up(level="warning", log_format="auto")
    with (
        closing(open_side(source, must_exist=True)) as ours,
        closing(open_side(target)) as theirs,
        _progress(is_shown=not as_json and is_terminal(sys.stderr)) as on_progress,
    ):
        report = carry_over(ours, theirs, on_progress, chunk_rows=chunk_rows)
    show(report, as_json=as_json, render=_table)
    if not report.is_same:
        note("the copy differs from what it was made of: do not use it")
        sys.exit(ExitCode.FAILED)


@contextmanager
def _progress(*, is_shown: bool) -> Iterator[Progress]:
    if not is_shown:
        yield lambda _what, _done, _total: None
        return
    from rich.console import Console  # noqa: PLC0415 - slow to load, and rarely wanted
    from rich.progress import Progress as Bar  # noqa: PLC0415

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("copying", total=None)

        def on_progress(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=max(total, done, 1))

        yield on_progress


def _table(report: Report) -> Table:
    rows = [
        (one.table, one.rows, one.copied_rows, "same" if one.is_same else "DIFFERS")
        for one in report.tables
    ]
    return Table(("table", "rows", "copied", "content"), rows)
