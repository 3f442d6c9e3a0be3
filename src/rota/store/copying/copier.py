"""Copies a store table by table, then compares both."""

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from rota.addresses import without_password
from rota.errors import Invalid, StoreError
from rota.store.copying.sqlite_side import SqliteSide
from rota.store.copying.tables import (
    PREPARED,
    CopyProgress,
    Key,
    Side,
    StoreTable,
    TableDigest,
    common_tables,
)
from rota.store.opening import is_postgres, naming_the_extra

CHUNK_ROWS = 2_000
CHUNK_BYTES = 16 * 1024 * 1024

Progress = Callable[[str, int, int], None]  # what is done, with how many rows, and of how many


class TableComparison(Struct, frozen=True, kw_only=True):
    """A table of both stores."""

    table: str
    rows: int
    copied_rows: int
    is_same: bool


class CopyReport(Struct, frozen=True, kw_only=True):
    source: str
    target: str
    resumed: bool
    rows: int
    tables: list[TableComparison]

    @property
    def is_same(self) -> bool:
        return all(one.is_same for one in self.tables)


def open_side(url: str, *, must_exist: bool = False) -> Side:
    """Open one of the two stores of a copy."""
    if not is_postgres(url):
        if not url.startswith("sqlite:"):
            shown = without_password(url)
            raise Invalid(f"{shown!r} is neither a sqlite:/// nor a postgresql:// URL", field="url")
        return SqliteSide(url, must_exist=must_exist)
    with naming_the_extra():
        from rota.store.copying.postgres_side import PostgresSide  # noqa: PLC0415 - an extra

    return PostgresSide(url)


def copy(
    source: Side, target: Side, on_progress: Progress, *, chunk_rows: int = CHUNK_ROWS
) -> CopyReport:
    """Copy every table, from where an earlier attempt has stopped."""
    source.check_unused()
    target.check_unused()
    if source.notes() is not None:
        raise StoreError(f"{source.shown} is itself an unfinished copy")
    tables = common_tables(source, target)
    notes = target.notes()
    if notes is None:
        _check_empty(target, tables)
        target.begin(tables)
    else:
        _check_same_source(source, target, notes.values())
    for table in tables:
        noted = (notes or {}).get(table.name)
        if noted is None or not noted.is_done:
            _copy_table(
                source, target, table, noted, on_progress=on_progress, chunk_rows=chunk_rows
            )
    compared = [_compare(source, target, table, on_progress) for table in tables]
    if all(one.is_same for one in compared):
        target.finish(tables)
    return CopyReport(
        source=source.shown,
        target=target.shown,
        resumed=notes is not None,
        rows=sum(one.copied_rows for one in compared),
        tables=compared,
    )


def _check_empty(target: Side, tables: Sequence[StoreTable]) -> None:
    used = [one.name for one in tables if one.name not in PREPARED and target.count(one)]
    if used:
        raise StoreError(
            f"{target.shown} is not empty ({', '.join(used)}): a copy needs a store of its own"
        )


def _check_same_source(source: Side, target: Side, notes: Iterable[CopyProgress]) -> None:
    others = {one.source for one in notes if one.source != source.shown}
    if others:
        raise StoreError(
            f"{target.shown} holds the beginning of a copy of {', '.join(sorted(others))}, "
            f"not of {source.shown}"
        )


def _copy_table(
    source: Side,
    target: Side,
    table: StoreTable,
    noted: CopyProgress | None,
    *,
    on_progress: Progress,
    chunk_rows: int,
) -> None:
    done = noted.rows if noted is not None else 0
    last: Key | None = noted.last_key if noted is not None else None
    total = source.count(table)
    while True:
        on_progress(f"copying {table.name}", done, total)
        rows = source.page(table, last, most=chunk_rows, most_bytes=CHUNK_BYTES)
        done += len(rows)
        last = table.key_of(rows[-1]) if rows else last
        notes = CopyProgress(
            table=table.name, source=source.shown, rows=done, last_key=last, is_done=not rows
        )
        target.write(table, rows, notes)
        if not rows:
            return


def _compare(
    source: Side, target: Side, table: StoreTable, on_progress: Progress
) -> TableComparison:
    ours = _sum(source, table, on_progress)
    theirs = _sum(target, table, on_progress)
    return TableComparison(
        table=table.name, rows=ours.rows, copied_rows=theirs.rows, is_same=ours == theirs
    )


def _sum(side: Side, table: StoreTable, on_progress: Progress) -> TableDigest:
    total, last, found = side.count(table), None, TableDigest()
    while True:
        on_progress(f"comparing {table.name}", found.rows, total)
        rows = side.page(table, last, most=CHUNK_ROWS, most_bytes=CHUNK_BYTES)
        if not rows:
            return found
        found = found.with_rows(rows)
        last = table.key_of(rows[-1])
