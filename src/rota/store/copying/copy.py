"""How is a store copied? Table by table, piece by piece, and then compared."""

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from rota.errors import StoreError
from rota.store.copying.tables import PREPARED, Key, Notes, Side, Sum, Table, common_tables

CHUNK_ROWS = 2_000
CHUNK_BYTES = 16 * 1024 * 1024

Progress = Callable[[str, int, int], None]  # what is done, with how many rows, and of how many


class Compared(Struct, frozen=True, kw_only=True):
    """A table on both sides."""

    table: str
    rows: int
    copied_rows: int
    is_same: bool


class Report(Struct, frozen=True, kw_only=True):
    source: str
    target: str
    resumed: bool
    rows: int
    tables: list[Compared]

    @property
    def is_same(self) -> bool:
        return all(one.is_same for one in self.tables)


def copy(
    source: Side, target: Side, on_progress: Progress, *, chunk_rows: int = CHUNK_ROWS
) -> Report:
    """Carry everything over, from where an earlier try has stopped."""
    source.check_unused()
    target.check_unused()
    if source.notes() is not None:
        raise StoreError(f"{source.shown} is itself a copy that was not finished")
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
            _carry(source, target, table, noted, on_progress=on_progress, chunk_rows=chunk_rows)
    compared = [_compare(source, target, table, on_progress) for table in tables]
    if all(one.is_same for one in compared):
        target.finish(tables)
    return Report(
        source=source.shown,
        target=target.shown,
        resumed=notes is not None,
        rows=sum(one.copied_rows for one in compared),
        tables=compared,
    )


def _check_empty(target: Side, tables: Sequence[Table]) -> None:
    used = [one.name for one in tables if one.name not in PREPARED and target.count(one)]
    if used:
        raise StoreError(
            f"{target.shown} is not empty ({', '.join(used)}): a copy needs a store of its own"
        )


def _check_same_source(source: Side, target: Side, notes: Iterable[Notes]) -> None:
    others = {one.source for one in notes if one.source != source.shown}
    if others:
        raise StoreError(
            f"{target.shown} holds the beginning of a copy of {', '.join(sorted(others))}, "
            f"not of {source.shown}"
        )


def _carry(
    source: Side,
    target: Side,
    table: Table,
    noted: Notes | None,
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
        notes = Notes(
            table=table.name, source=source.shown, rows=done, last_key=last, is_done=not rows
        )
        target.write(table, rows, notes)
        if not rows:
            return


def _compare(source: Side, target: Side, table: Table, on_progress: Progress) -> Compared:
    ours = _sum(source, table, on_progress)
    theirs = _sum(target, table, on_progress)
    return Compared(
        table=table.name, rows=ours.rows, copied_rows=theirs.rows, is_same=ours == theirs
    )


def _sum(side: Side, table: Table, on_progress: Progress) -> Sum:
    total, last, found = side.count(table), None, Sum()
    while True:
        on_progress(f"comparing {table.name}", found.rows, total)
        rows = side.page(table, last, most=CHUNK_ROWS, most_bytes=CHUNK_BYTES)
        if not rows:
            return found
        found = found.with_rows(rows)
        last = table.key_of(rows[-1])
