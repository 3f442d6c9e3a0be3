"""A SQLite file that is copied from, or to."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import apsw
import msgspec

from rota.errors import StoreError
from rota.store.blobs import Blobs
from rota.store.copying.tables import (
    CONTENT,
    FILE,
    LEFT_OUT,
    NOTES,
    PREPARED,
    Key,
    Kind,
    Notes,
    Table,
)
from rota.store.database import Row
from rota.store.sqlite import BUSY_MS, MEMORY, SqliteDatabase, path_of

KINDS: dict[str, Kind] = {"INTEGER": "number", "TEXT": "text", "BLOB": "bytes"}


class SqliteSide:
    def __init__(self, url: str, *, must_exist: bool) -> None:
        path = path_of(url)
        if path == MEMORY:
            raise StoreError("a store in memory cannot be copied: it belongs to its process")
        if must_exist and not Path(path).is_file():
            raise StoreError(f"there is no store at {path}")
        self.shown = url
        # Has the lock for as long as this is open, and brings the file to the newest shape.
        self._database = SqliteDatabase(path)
        self._connection = apsw.Connection(path)
        self._connection.set_busy_timeout(BUSY_MS)
        self._connection.execute("PRAGMA synchronous = FULL")
        self._blobs = Blobs.beside(path)

    def tables(self) -> dict[str, Table]:
        names: list[Row] = self._connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        ).fetchall()
        return {name: self._table(name) for (name,) in names if name not in LEFT_OUT}

    def _table(self, name: str) -> Table:
        found: list[Row] = self._connection.execute(
            "SELECT name, type, pk FROM pragma_table_info(?)", (name,)
        ).fetchall()
        keyed = sorted((place, column) for column, _, place in found if place)
        return Table(
            name,
            tuple(column for column, _, _ in found),
            tuple(KINDS[kind] for _, kind, _ in found),
            tuple(column for _, column in keyed),
        )

    def count(self, table: Table) -> int:
        ((found,),) = self._connection.execute(f"SELECT count(*) FROM {_name(table.name)}")  # noqa: S608
        return int(found)

    def page(self, table: Table, after: Key | None, *, most: int, most_bytes: int) -> list[Row]:
        columns, key = _names(table.columns), _names(table.key)
        behind = "" if after is None else f"WHERE ({key}) > ({_places(len(table.key))}) "
        query = f"SELECT {columns} FROM {_name(table.name)} {behind}ORDER BY {key} LIMIT ?"  # noqa: S608
        rows, size = [], 0
        for row in self._connection.execute(query, (*(after or ()), most)):
            whole = self._whole(table, row)
            rows.append(whole)
            size += sum(len(one) for one in whole if isinstance(one, str | bytes))
            if size >= most_bytes:
                break
        return rows

    def _whole(self, table: Table, row: Row) -> Row:
        """The row with what lies beside the database, as it is where there are no files."""
        values: list[Any] = [
            one.encode() if kind == "bytes" and isinstance(one, str) else one
            for one, kind in zip(row, table.kinds, strict=True)
        ]
        if table.has_files and (file := values[table.columns.index(FILE)]) is not None:
            content = self._blobs.open(file)
            if content is None:
                raise StoreError(f"{self.shown}: the file {file} of an artifact is missing")
            with content:
                values[table.columns.index(CONTENT)] = content.read()
            values[table.columns.index(FILE)] = None
        return tuple(values)

    def check_unused(self) -> None:
        """The lock has seen to it."""

    # --- copied to ------------------------------------------------------------------------------

    def notes(self) -> dict[str, Notes] | None:
        is_there = self._connection.execute(
            "SELECT 1 FROM sqlite_schema WHERE name = ?", (NOTES,)
        ).fetchall()
        if not is_there:
            return None
        found = self._connection.execute(f"SELECT notes FROM {NOTES}")  # noqa: S608 - our own name
        read = (msgspec.json.decode(notes, type=Notes) for (notes,) in found)
        return {notes.table: notes for notes in read}

    def begin(self, tables: Iterable[Table]) -> None:
        with self._connection:
            self._connection.execute(f"CREATE TABLE {NOTES} (name TEXT PRIMARY KEY, notes BLOB)")
            for table in tables:
                if table.name in PREPARED:
                    self._connection.execute(f"DELETE FROM {_name(table.name)}")  # noqa: S608

    def write(self, table: Table, rows: list[Row], notes: Notes) -> None:
        insert = (
            f"INSERT INTO {_name(table.name)} ({_names(table.columns)}) "  # noqa: S608
            f"VALUES ({_places(len(table.columns))})"
        )
        with self._connection:
            self._connection.executemany(insert, rows)
            self._connection.execute(
                f"INSERT OR REPLACE INTO {NOTES} VALUES (?, ?)",  # noqa: S608 - our own name
                (table.name, msgspec.json.encode(notes)),
            )

    def finish(self, tables: Iterable[Table]) -> None:
        """Numbers go on by themselves: a row gets one more than the highest there is."""
        del tables
        self._connection.execute(f"DROP TABLE {NOTES}")

    def close(self) -> None:
        self._connection.close()
        self._database.close()


def _name(name: str) -> str:
    return f'"{name}"'


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(_name, names))


def _places(count: int) -> str:
    return ", ".join("?" * count)
