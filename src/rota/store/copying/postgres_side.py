"""A schema of PostgreSQL that is copied from, or to."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import psycopg
from psycopg import sql

from rota.core.replicas import SILENT_MS
from rota.errors import StoreError, StoreLocked
from rota.store.copying.tables import LEFT_OUT, NOTES, PREPARED, Key, Kind, Notes, Table
from rota.store.database import Row
from rota.store.postgres.address import address_of
from rota.store.postgres.database import PostgresDatabase
from rota.store.postgres.parameters import TextLoader, escaped

KINDS: dict[str, Kind] = {"bigint": "number", "text": "text", "bytea": "bytes"}
TYPES: dict[Kind, str] = {"number": "int8", "text": "text", "bytes": "bytea"}
STATEMENT_MS = 600_000  # counting a large table takes its time
COLUMNS = """
SELECT c.relname, a.attname, format_type(a.atttypid, NULL),
       array_position(i.indkey::int2[], a.attnum)
  FROM pg_class AS c
  JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
  JOIN pg_index AS i ON i.indrelid = c.oid AND i.indisprimary
 WHERE c.relnamespace = to_regnamespace(%s) AND c.relkind IN ('r', 'p') AND NOT c.relispartition
 ORDER BY c.relname, a.attnum
"""
GIVEN_NUMBERS = """
SELECT a.attname, pg_get_serial_sequence(%s, a.attname)
  FROM pg_attribute AS a
 WHERE a.attrelid = to_regclass(%s) AND a.attidentity <> ''
"""
LIVING = (
    "SELECT name FROM replica WHERE seen_ms > extract(epoch FROM clock_timestamp()) * 1000 - %s"
)


class PostgresSide:
    def __init__(self, url: str) -> None:
        address = address_of(url)
        self.shown = address.shown
        self._schema = address.schema
        PostgresDatabase(address).close()  # brings the schema to the newest shape
        try:
            self._connection: psycopg.Connection[tuple[Any, ...]] = psycopg.connect(
                address.url, autocommit=True, prepare_threshold=None
            )
        except psycopg.Error as error:
            raise StoreError(f"{self.shown} cannot be reached: {error}") from error
        self._connection.adapters.register_loader("text", TextLoader)

    def _run(self, text: str, *values: object) -> list[Row]:
        """One statement in a transaction of its own; nothing is left behind in the session."""
        with self._transaction():
            cursor = self._connection.execute(text.encode(), values, binary=True)
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            with self._connection.transaction():
                self._settle()
                yield
        except psycopg.Error as error:
            raise StoreError(f"{self.shown}: {error}") from error

    def _settle(self) -> None:
        name = sql.Identifier(self._schema)
        self._connection.execute(sql.SQL("SET LOCAL search_path TO {}").format(name))
        limit = sql.Literal(STATEMENT_MS)
        self._connection.execute(sql.SQL("SET LOCAL statement_timeout TO {}").format(limit))

    def tables(self) -> dict[str, Table]:
        found: dict[str, list[Row]] = {}
        for name, *column in self._run(COLUMNS, f'"{self._schema}"'):
            found.setdefault(name, []).append(tuple(column))
        return {
            name: _table(name, columns) for name, columns in found.items() if name not in LEFT_OUT
        }

    def count(self, table: Table) -> int:
        ((found,),) = self._run(f'SELECT count(*) FROM "{table.name}"')  # noqa: S608 - a known name
        return int(found)

    def page(self, table: Table, after: Key | None, *, most: int, most_bytes: int) -> list[Row]:
        columns, key = _names(table.columns), _names(table.key)
        behind = "" if after is None else f"WHERE ({key}) > ({_places(len(table.key))}) "
        sizes = [
            f'coalesce(octet_length("{name}"), 0)'
            for name, kind in zip(table.columns, table.kinds, strict=True)
            if kind != "number"
        ]
        # Sizes are known without reading what is large, so that a piece is never too large itself.
        query = (
            f"SELECT {columns} FROM (SELECT *, sum(copied_bytes) OVER (ORDER BY {key}) "  # noqa: S608
            f"- copied_bytes AS bytes_before "
            f"FROM (SELECT {columns}, ({' + '.join(sizes) or '0'})::bigint AS copied_bytes "
            f'FROM "{table.name}" {behind}ORDER BY {key} LIMIT %s) AS piece) AS measured '
            f"WHERE bytes_before < %s ORDER BY {key}"
        )
        start = [escaped(one) if isinstance(one, str) else one for one in after or ()]
        return self._run(query, *start, most, most_bytes)

    def check_unused(self) -> None:
        living = [str(name) for (name,) in self._run(LIVING, SILENT_MS)]
        if living:
            raise StoreLocked(
                f"coordinators work on {self.shown} ({', '.join(living)}): stop them, and wait for "
                f"{SILENT_MS // 1000} s if they were killed",
                holder=living[0],
            )

    # --- copied to ------------------------------------------------------------------------------

    def notes(self) -> dict[str, Notes] | None:
        ((there,),) = self._run("SELECT to_regclass(%s)::text", NOTES)
        if there is None:
            return None
        read = (
            msgspec.json.decode(notes, type=Notes)
            for (notes,) in self._run(f"SELECT notes FROM {NOTES}")  # noqa: S608 - our own name
        )
        return {notes.table: notes for notes in read}

    def begin(self, tables: Iterable[Table]) -> None:
        with self._transaction():
            self._connection.execute(
                f"CREATE TABLE {NOTES} (name text PRIMARY KEY, notes bytea NOT NULL)".encode()
            )
            for table in tables:
                if table.name in PREPARED:
                    self._connection.execute(f'DELETE FROM "{table.name}"'.encode())  # noqa: S608

    def write(self, table: Table, rows: list[Row], notes: Notes) -> None:
        with self._transaction(), self._connection.cursor() as cursor:
            copying = f'COPY "{table.name}" ({_names(table.columns)}) FROM STDIN (FORMAT BINARY)'
            with cursor.copy(copying.encode()) as stream:
                stream.set_types([TYPES[kind] for kind in table.kinds])
                for row in rows:
                    stream.write_row([escaped(v) if isinstance(v, str) else v for v in row])
            cursor.execute(
                f"INSERT INTO {NOTES} VALUES (%s, %s) "  # noqa: S608 - our own name
                "ON CONFLICT (name) DO UPDATE SET notes = excluded.notes".encode(),
                (table.name, msgspec.json.encode(notes)),
            )

    def finish(self, tables: Iterable[Table]) -> None:
        with self._transaction():
            for table in tables:
                name = f'"{self._schema}"."{table.name}"'
                for column, sequence in self._connection.execute(
                    GIVEN_NUMBERS.encode(), (name, name)
                ).fetchall():
                    self._connection.execute(
                        f'SELECT setval(%s, coalesce(max("{column}"), 0) + 1, false) '  # noqa: S608
                        f'FROM "{table.name}"'.encode(),
                        (sequence,),
                    )
            self._connection.execute(f"DROP TABLE {NOTES}".encode())

    def close(self) -> None:
        self._connection.close()


def _table(name: str, columns: list[Row]) -> Table:
    keyed = sorted((place, column) for column, _, place in columns if place is not None)
    return Table(
        name,
        tuple(column for column, _, _ in columns),
        tuple(KINDS[kind] for _, kind, _ in columns),
        tuple(column for _, column in keyed),
    )


def _names(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _places(count: int) -> str:
    return ", ".join(["%s"] * count)
