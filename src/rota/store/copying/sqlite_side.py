"""A SQLite file as the source or the target of a copy."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import apsw
import msgspec

from rota.errors import StoreError
from rota.store.copying.tables import (
    CONTENT,
    FILE,
    LEFT_OUT,
    PREPARED,
    PROGRESS_TABLE,
    CopyProgress,
    Key,
    Kind,
    StoreTable,
)
from rota.store.database import Row
from rota.store.sqlite.database import BUSY_MS, MEMORY, SqliteDatabase, path_of
from rota.store.workflow.blobs import Blobs

KINDS: dict[str, Kind] = {"INTEGER": "number", "TEXT": "text", "BLOB": "bytes"}


class SqliteSide:
    def __init__(self, url: str, *, must_exist: bool) -> None:
        path = path_of(url)
        if path == MEMORY:
            raise StoreError("a store in memory cannot be copied: it belongs to its process")
        if must_exist and not Path(path).is_file():
            raise StoreError(f"there is no store at {path}")
        self.shown = url
        # Holds the lock while this is open, and migrates the file.
        self._database = SqliteDatabase(path)
        self._connection = apsw.Connection(path)
        self._connection.set_busy_timeout(BUSY_MS)
        self._connection.execute("PRAGMA synchronous = FULL")
        self._blobs = Blobs.beside(path)

    def tables(self) -> dict[str, StoreTable]:
        names: list[Row] = self._connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        ).fetchall()
        return {name: self._table(name) for (name,) in names if name not in LEFT_OUT}

    def _table(self, name: str) -> StoreTable:
        found: list[Row] = self._connection.execute(
            "SELECT name, type, pk FROM pragma_table_info(?)", (name,)
        ).fetchall()
        keyed = sorted((place, column) for column, _, place in found if place)
        return StoreTable(
            name,
            tuple(column for column, _, _ in found),
            tuple(KINDS[kind] for _, kind, _ in found),
            tuple(column for _, column in keyed),
        )

    def count(self, table: StoreTable) -> int:
        ((found,),) = self._connection.execute(f"SELECT count(*) FROM {_name(table.name)}")  # noqa: S608
        return int(found)

    def page(
        self, table: StoreTable, after: Key | None, *, most: int, most_bytes: int
    ) -> list[Row]:
        columns, key = _names(table.columns), _names(table.key)
        after_key = "" if after is None else f"WHERE ({key}) > ({_places(len(table.key))}) "
        query = f"SELECT {columns} FROM {_name(table.name)} {after_key}ORDER BY {key} LIMIT ?"  # noqa: S608
        rows, size = [], 0
        for row in self._connection.execute(query, (*(after or ()), most)):
            whole = self._whole(table, row)
            rows.append(whole)
            size += sum(len(one) for one in whole if isinstance(one, str | bytes))
            if size >= most_bytes:
                break
        return rows

    def _whole(self, table: StoreTable, row: Row) -> Row:
        """The row with the content of its file, as a store without files has it."""
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
        """The lock ensures it."""

    # --- copied to ------------------------------------------------------------------------------

    def notes(self) -> dict[str, CopyProgress] | None:
        is_there = self._connection.execute(
            "SELECT 1 FROM sqlite_schema WHERE name = ?", (PROGRESS_TABLE,)
        ).fetchall()
        if not is_there:
            return None
        found = self._connection.execute(f"SELECT notes FROM {PROGRESS_TABLE}")  # noqa: S608 - our own name
        read = (msgspec.json.decode(notes, type=CopyProgress) for (notes,) in found)
        return {notes.table: notes for notes in read}

    def begin(self, tables: Iterable[StoreTable]) -> None:
        with self._connection:
            self._connection.execute(
                f"CREATE TABLE {PROGRESS_TABLE} (name TEXT PRIMARY KEY, notes BLOB)"
            )
            for table in tables:
                if table.name in PREPARED:
                    self._connection.execute(f"DELETE FROM {_name(table.name)}")  # noqa: S608

    def write(self, table: StoreTable, rows: list[Row], notes: CopyProgress) -> None:
        insert = (
            f"INSERT INTO {_name(table.name)} ({_names(table.columns)}) "  # noqa: S608
            f"VALUES ({_places(len(table.columns))})"
        )
        with self._connection:
            self._connection.executemany(insert, rows)
            self._connection.execute(
                f"INSERT OR REPLACE INTO {PROGRESS_TABLE} VALUES (?, ?)",  # noqa: S608 - our own name
                (table.name, msgspec.json.encode(notes)),
            )

    def finish(self, tables: Iterable[StoreTable]) -> None:
        """SQLite continues numbers by itself: a row gets one more than the highest."""
        del tables
        self._connection.execute(f"DROP TABLE {PROGRESS_TABLE}")

    def close(self) -> None:
        self._connection.close()
        self._database.close()


def _name(name: str) -> str:
    return f'"{name}"'


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(_name, names))


def _places(count: int) -> str:
    return ", ".join("?" * count)
