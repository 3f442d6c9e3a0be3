"""`rota migrate`, `rota copy` and `rota backup`: the schema of a store, and copies of it."""

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import click

from rota import administration, telemetry
from rota.addresses import without_password
from rota.cli.options import json_flag, load_settings, settings_flags
from rota.cli.render.output import ExitCode, Table, is_terminal, note, show
from rota.store.copying.copier import CHUNK_ROWS, CopyReport, Progress, open_side
from rota.store.copying.copier import copy as copy_store
from rota.store.sqlite.backup import BackupReport


@click.command()
@settings_flags("store", "postgres_schema")
@click.option("--sql", is_flag=True, help="Print the SQL of a new store, and change no store.")
@click.option(
    "--post",
    is_flag=True,
    help="On PostgreSQL, also drop what only the previous version needs. Use it when no "
    "coordinator of that version runs any more.",
)
@json_flag
def migrate(*, sql: bool, post: bool, as_json: bool, **flags: Any) -> None:
    """Bring the store's schema up to date."""
    settings = load_settings(flags)
    if sql:
        click.echo(administration.migration_sql(settings), nl=False)
        return
    store = without_password(settings.store)
    before, after = administration.migrate(settings, post=post)
    answer = {"store": store, "from_version": before, "to_version": after}
    show(answer, as_json=as_json, render=lambda _: _line(store, before, after))


def _line(store: str, before: int, after: int) -> str:
    if before == after:
        return f"{store} is up to date: schema version {after}"
    return f"{store}: schema version {before} -> {after}"


@click.command()
@click.option("--from", "source", required=True, metavar="URL", help="The store to copy from.")
@click.option("--to", "target", required=True, metavar="URL", help="An empty store to copy to.")
@click.option(
    "--chunk-rows",
    type=click.IntRange(1, 100_000),
    default=CHUNK_ROWS,
    show_default=True,
    help="Rows per transaction.",
)
@json_flag
def copy(source: str, target: str, *, chunk_rows: int, as_json: bool) -> None:
    """Copy a store to another one, and compare both.

    From SQLite to PostgreSQL or back, while no coordinator runs on either. After an interruption
    the same command continues where the copy stopped.
    """
    telemetry.set_up(level="warning", log_format="auto")
    with (
        closing(open_side(source, must_exist=True)) as source_store,
        closing(open_side(target)) as target_store,
        _progress(is_shown=not as_json and is_terminal(sys.stderr)) as on_progress,
    ):
        report = copy_store(source_store, target_store, on_progress, chunk_rows=chunk_rows)
    show(report, as_json=as_json, render=_table)
    if not report.is_same:
        note("the copy differs from its source: do not use it; empty the target and copy again")
        sys.exit(ExitCode.FAILED)


@click.command()
@click.argument("file")
@settings_flags("store")
@json_flag
def backup(file: str, *, as_json: bool, **flags: Any) -> None:
    """Back up the store to FILE, while the coordinator runs, and check the copy.

    FILE must not exist. It is a whole store: to restore it, start a coordinator with it. Large
    artifacts are copied to the folder FILE.artifacts.
    """
    report = administration.back_up(load_settings(flags), file)
    show(report, as_json=as_json, render=_backup_line)


def _backup_line(report: BackupReport) -> str:
    files = f" and {report.artifacts} artifacts" if report.artifacts else ""
    return f"{report.file}: {report.bytes} bytes{files}, schema version {report.schema}, checked"


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


def _table(report: CopyReport) -> Table:
    rows = [
        (one.table, one.rows, one.copied_rows, "same" if one.is_same else "DIFFERS")
        for one in report.tables
    ]
    return Table(("table", "rows", "copied", "content"), rows)
