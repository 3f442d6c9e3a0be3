"""Which database does a test run on? SQLite on a file, or a schema of PostgreSQL that is clean.

Making a schema costs more than most tests do. So schemas are lent: one that comes back is emptied,
which is quick, since a test leaves little behind.
"""

import atexit
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Literal

import psycopg

from rota.store.database import Database, Transaction
from rota.store.postgres.address import Address, PostgresOptions, address_of
from rota.store.postgres.database import PostgresDatabase
from rota.store.postgres.transaction import PostgresTransaction
from rota.store.sqlite.database import MEMORY, SqliteDatabase, SqliteTransaction
from tests.databases.empty import begin_empty
from tests.databases.server import Server, given_url

Store = Literal["sqlite", "postgres"]
STORES: tuple[Store, ...] = ("sqlite", "postgres")
OPTIONS = PostgresOptions(readers=4)
KEPT = ("schema_version", "counter", "leadership", "leader_lease", "peer_secret")
SEQUENCES = ("artifact_id_seq", "service_number_seq", "member_number_seq")
USES_UNTIL_VACUUM = 40


@cache
def url() -> str:
    """A PostgreSQL for this process; of our own, it ends with it."""
    if (given := given_url()) is not None:
        return given
    server = Server()
    atexit.register(server.close)
    return server.start().url


class Schemas:
    """Schemas that are lent and come back. One name gets one schema, until all are given back."""

    def __init__(self) -> None:
        self._free: list[str] = []
        self._lent: dict[str, str] = {}
        self._uses: Counter[str] = Counter()
        self._numbers = count(1)
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None

    def lend(self, name: str) -> str:
        if name not in self._lent:
            self._lent[name] = self._free.pop() if self._free else self._make()
        return self._lent[name]

    def take_back(self) -> None:
        for schema in self._lent.values():
            if self._is_used(schema):
                self._empty(schema)
            self._rows(
                f"UPDATE {schema}.leadership SET epoch = 0, session = 0, leader = NULL "
                f"WHERE epoch <> 0; UPDATE {schema}.leader_lease "
                "SET epoch = 0, backend = NULL, expires_at_ms = 0 WHERE epoch <> 0"
            )
            self._free.append(schema)
        self._lent.clear()

    def _make(self) -> str:
        schema = f"rota_test_{os.getpid()}_{next(self._numbers)}"
        PostgresDatabase(address_of(url(), schema), OPTIONS).close()
        return schema

    def _is_used(self, schema: str) -> bool:
        """Has anything been committed?"""
        rows = [f"EXISTS (SELECT 1 FROM {schema}.{one})" for one in self._tables(schema)]
        rows.append(f"EXISTS (SELECT 1 FROM {schema}.counter WHERE value <> 0)")
        return bool(self._rows(f"SELECT {' OR '.join(rows)}")[0][0])

    def _empty(self, schema: str) -> None:
        self._uses[schema] += 1
        if self._uses[schema] % USES_UNTIL_VACUUM == 0:
            self._rows("VACUUM " + ", ".join(f"{schema}.{one}" for one in self._tables(schema)))
        statements = [f"DELETE FROM {schema}.{one}" for one in self._tables(schema)]
        for (first,) in self._rows(f"SELECT first_id FROM {schema}.history_stretch"):
            statements.append(f"DROP TABLE {schema}.history_{first}")
        statements.append(f"UPDATE {schema}.counter SET value = 0")
        statements += [f"SELECT setval('{schema}.{one}', 1, false)" for one in SEQUENCES]
        self._rows("; ".join(statements))

    def _tables(self, schema: str) -> list[str]:
        found = self._rows(
            "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition "
            f"AND relnamespace = '{schema}'::regnamespace"
        )
        return [name for (name,) in found if name not in KEPT]

    def _rows(self, text: str) -> list[tuple[Any, ...]]:
        if self._connection is None:
            self._connection = psycopg.connect(url(), autocommit=True)
            atexit.register(self._end)
        cursor = self._connection.execute(text.encode())
        return cursor.fetchall() if cursor.description else []

    def _end(self) -> None:
        """A server that was given to us is left as it was."""
        assert self._connection is not None
        if given_url() is not None:
            for schema in (*self._free, *self._lent.values()):
                self._rows(f"DROP SCHEMA {schema} CASCADE")
        self._connection.close()


schemas = Schemas()
kind: Store = "sqlite"  # that the test which runs is meant for


def run_on(store: Store) -> None:
    """From now on stores are opened there."""
    global kind  # noqa: PLW0603 - a test is told once where it runs, not at each of its steps
    kind = store


def open_store(path: Path | str) -> Database:
    """The store of this name: the same one again until the test is over."""
    if kind == "sqlite":
        if str(path) != MEMORY:
            begin_empty(Path(path))
        return SqliteDatabase(str(path))
    return open_leading(address_of(url(), schemas.lend(str(path))))


def open_leading(address: Address, options: PostgresOptions = OPTIONS) -> PostgresDatabase:
    """A handle that writes until the next one is opened: its lease is over at once."""
    database = PostgresDatabase(address, options)
    lead(database)
    return database


def lead(database: PostgresDatabase, *, name: str = "test", lease_ms: int = 0) -> int:
    leader = database.elections.look().leader
    epoch = database.elections.take_over(
        name, "test", seen_epoch=0 if leader is None else leader.epoch, lease_ms=lease_ms
    )
    assert epoch is not None, f"{leader} leads"
    return epoch


# --- past the store -----------------------------------------------------------------------------


@contextmanager
def open_transaction(database: Database) -> Iterator[Transaction]:
    """A write that nobody commits."""
    if isinstance(database, SqliteDatabase):
        database._writer.execute("BEGIN IMMEDIATE")
        try:
            yield database._transaction
        finally:
            database._writer.execute("ROLLBACK")
    else:
        assert isinstance(database, PostgresDatabase)
        connection = database._begin_write()
        try:
            yield PostgresTransaction(connection, database._queries)
        finally:
            database._roll_back(connection)


def seen(tx: Transaction, sql: str) -> list[tuple[Any, ...]]:
    """What stands in the tables, seen past the queries of the store."""
    if isinstance(tx, SqliteTransaction):
        return tx._connection.execute(sql).fetchall()
    assert isinstance(tx, PostgresTransaction)
    return tx._connection.rows(tx._connection.run(sql.encode(), [], []))
