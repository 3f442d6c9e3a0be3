"""A schema of PostgreSQL as the source or the target of a copy."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import psycopg
from psycopg import sql

from rota.addresses import without_secrets_of
from rota.core.replicas import SILENT_MS
from rota.errors import StoreError, StoreLocked
from rota.store.copying.tables import (
    LEFT_OUT,
    PREPARED,
    PROGRESS_TABLE,
    CopyProgress,
    Key,
    Kind,
    StoreTable,
)
from rota.store.database import Row
from rota.store.postgres.address import address_of
from rota.store.postgres.database import PostgresDatabase
from rota.store.postgres.parameters import TextLoader, escaped

KINDS: dict[str, Kind] = {"bigint": "number", "text": "text", "bytea": "bytes"}
TYPES: dict[Kind, str] = {"number": "int8", "text": "text", "bytes": "bytea"}
STATEMENT_MS = 600_000  # counting a large table takes long
COLUMNS = """
SELECT c.relname, a.attname, format_type(a.atttypid, NULL),
       array_position(i.indkey::int2[], a.attnum)
  FROM pg_class AS c
  JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
  JOIN pg_index AS i ON i.indrelid = c.oid AND i.indisprimary
 WHERE c.relnamespace = to_regnamespace(%s) AND c.relkind IN ('r', 'p') AND NOT c.relispartition
 ORDER BY c.relname, a.attnum
"""
IDENTITY_COLUMNS = """
SELECT a.attname, pg_get_serial_sequence(%s, a.attname)
  FROM pg_attribute AS a
 WHERE a.attrelid = to_regclass(%s) AND a.attidentity <> ''
"""
LIVE_REPLICAS = (
    "SELECT name FROM replica WHERE seen_ms > extract(epoch FROM clock_timestamp()) * 1000 - %s"
)


class PostgresSide:
    def __init__(self, url: str) -> None:
        address = address_of(url)
        self.shown = address.shown
        self._schema = address.schema
        PostgresDatabase(address).close()  # migrates the schema
        try:
            self._connection: psycopg.Connection[tuple[Any, ...]] = psycopg.connect(
                address.url, autocommit=True, prepare_threshold=None
            )
        except psycopg.Error as error:
            reason = without_secrets_of(url, str(error))
            raise StoreError(f"{self.shown} cannot be reached: {reason}") from None
        self._connection.adapters.register_loader("text", TextLoader)

    def _run(self, text: str, *values: object) -> list[Row]:
        """Run one statement in its own transaction; the session keeps no state."""
        with self._transaction():
            cursor = self._connection.execute(text.encode(), values, binary=True)
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            with self._connection.transaction():
                self._configure()
                yield
        except psycopg.Error as error:
            raise StoreError(f"{self.shown}: {error}") from error

    def _configure(self) -> None:
        name = sql.Identifier(self._schema)
        self._connection.execute(sql.SQL("SET LOCAL search_path TO {}").format(name))
        limit = sql.Literal(STATEMENT_MS)
        self._connection.execute(sql.SQL("SET LOCAL statement_timeout TO {}").format(limit))

    def tables(self) -> dict[str, StoreTable]:
        found: dict[str, list[Row]] = {}
        for name, *column in self._run(COLUMNS, f'"{self._schema}"'):
            found.setdefault(name, []).append(tuple(column))
        return {
            name: _table(name, columns) for name, columns in found.items() if name not in LEFT_OUT
        }

    def count(self, table: StoreTable) -> int:
        ((found,),) = self._run(f'SELECT count(*) FROM "{table.name}"')  # noqa: S608 - a known name
        return int(found)

    def page(
        self, table: StoreTable, after: Key | None, *, most: int, most_bytes: int
    ) -> list[Row]:
        columns, key = _names(table.columns), _names(table.key)
        after_key = "" if after is None else f"WHERE ({key}) > ({_places(len(table.key))}) "
        sizes = [
            f'coalesce(octet_length("{name}"), 0)'
            for name, kind in zip(table.columns, table.kinds, strict=True)
            if kind != "number"
        ]
        # Sizes are known without reading large values, so that a chunk is never too large.
        query = (
            f"SELECT {columns} FROM (SELECT *, sum(copied_bytes) OVER (ORDER BY {key}) "  # noqa: S608
            f"- copied_bytes AS bytes_before "
            f"FROM (SELECT {columns}, ({' + '.join(sizes) or '0'})::bigint AS copied_bytes "
            f'FROM "{table.name}" {after_key}ORDER BY {key} LIMIT %s) AS piece) AS measured '
            f"WHERE bytes_before < %s ORDER BY {key}"
        )
        start = [escaped(one) if isinstance(one, str) else one for one in after or ()]
        return self._run(query, *start, most, most_bytes)

    def check_unused(self) -> None:
        live = [str(name) for (name,) in self._run(LIVE_REPLICAS, SILENT_MS)]
        if live:
            raise StoreLocked(
                f"coordinators work on {self.shown} ({', '.join(live)}): stop them, and wait for "
                f"{SILENT_MS // 1000} s if they were killed",
                holder=live[0],
            )

    # --- copied to ------------------------------------------------------------------------------

    def notes(self) -> dict[str, CopyProgress] | None:
        ((there,),) = self._run("SELECT to_regclass(%s)::text", PROGRESS_TABLE)
        if there is None:
            return None
        read = (
            msgspec.json.decode(notes, type=CopyProgress)
            for (notes,) in self._run(f"SELECT notes FROM {PROGRESS_TABLE}")  # noqa: S608 - our own name
        )
        return {notes.table: notes for notes in read}

    def begin(self, tables: Iterable[StoreTable]) -> None:
        with self._transaction():
            self._connection.execute(
                f"CREATE TABLE {PROGRESS_TABLE} "
                "(name text PRIMARY KEY, notes bytea NOT NULL)".encode()
            )
            for table in tables:
                if table.name in PREPARED:
                    self._connection.execute(f'DELETE FROM "{table.name}"'.encode())  # noqa: S608

    def write(self, table: StoreTable, rows: list[Row], notes: CopyProgress) -> None:
        with self._transaction(), self._connection.cursor() as cursor:
            copying = f'COPY "{table.name}" ({_names(table.columns)}) FROM STDIN (FORMAT BINARY)'
            with cursor.copy(copying.encode()) as stream:
                stream.set_types([TYPES[kind] for kind in table.kinds])
                for row in rows:
                    stream.write_row([escaped(v) if isinstance(v, str) else v for v in row])
            cursor.execute(
                f"INSERT INTO {PROGRESS_TABLE} VALUES (%s, %s) "  # noqa: S608 - our own name
                "ON CONFLICT (name) DO UPDATE SET notes = excluded.notes".encode(),
                (table.name, msgspec.json.encode(notes)),
            )

    def finish(self, tables: Iterable[StoreTable]) -> None:
        with self._transaction():
            for table in tables:
                name = f'"{self._schema}"."{table.name}"'
                for column, sequence in self._connection.execute(
                    IDENTITY_COLUMNS.encode(), (name, name)
                ).fetchall():
                    self._connection.execute(
                        f'SELECT setval(%s, coalesce(max("{column}"), 0) + 1, false) '  # noqa: S608
                        f'FROM "{table.name}"'.encode(),
                        (sequence,),
                    )
            self._connection.execute(f"DROP TABLE {PROGRESS_TABLE}".encode())

    def close(self) -> None:
        self._connection.close()


def _table(name: str, columns: list[Row]) -> StoreTable:
    keyed = sorted((place, column) for column, _, place in columns if place is not None)
    return StoreTable(
        name,
        tuple(column for column, _, _ in columns),
        tuple(KINDS[kind] for _, kind, _ in columns),
        tuple(column for _, column in keyed),
    )


def _names(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _places(count: int) -> str:
    return ", ".join(["%s"] * count)
