"""Enqueues tasks inside the program's own transaction, as rows of Rota's inbox.

The program's connection writes the row, so the row is committed with the rest of the transaction or
not at all. The coordinator that leads looks for committed rows every `inbox_interval_ms`, and
accepts them as tasks. The transaction takes no lock of Rota, however long it lasts.

A connection is recognised by the module of its class; none of the libraries is imported here.
Connections that SQLAlchemy and Django wrap are used through them, so that their own bookkeeping of
transactions stays right.
"""

import os
import re
import secrets
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from rota.core.tasks.model import NewTask
from rota.errors import Invalid

ROWS_PER_STATEMENT = 1_000
DEFAULT_SCHEMA = "rota"
PERCENT = "%s"  # the placeholder of psycopg and of libraries like it
DOLLAR = "${}"  # the placeholder of asyncpg
POSTGRES = "postgresql"
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,39}")


class Statement(NamedTuple):
    """A statement with its values; its text depends on the library's placeholders."""

    text: Callable[[Callable[[int], str]], str]
    values: Sequence[object]

    def sql(self, placeholder: str) -> str:
        return self.text(placeholder.format)


class UserConnection(NamedTuple):
    """How to run a statement on a connection: blocking, or on an event loop."""

    run: Callable[[Statement], object] | None = None
    arun: Callable[[Statement], Awaitable[object]] | None = None


class TransactionalInbox(Struct, frozen=True):
    """The inbox table of one schema."""

    schema: str

    def put(self, conn: Any, tasks: Sequence[NewTask]) -> None:
        connection = connection_of(conn)
        if connection.run is None:
            raise Invalid("conn is async: await `aenqueue`, or `aenqueue_many`", field="conn")
        for statement in self._statements(tasks):
            connection.run(statement)

    async def aput(self, conn: Any, tasks: Sequence[NewTask]) -> None:
        connection = connection_of(conn)
        if connection.arun is None:
            raise Invalid("conn is not async: call `enqueue`, or `enqueue_many`", field="conn")
        for statement in self._statements(tasks):
            await connection.arun(statement)

    def _statements(self, tasks: Sequence[NewTask]) -> Iterator[Statement]:
        for start in range(0, len(tasks), ROWS_PER_STATEMENT):
            part = tasks[start : start + ROWS_PER_STATEMENT]
            values = [value for task in part for value in (task.key, msgspec.json.encode(task))]
            yield Statement(partial(self._text, len(part)), values)

    def _text(self, rows: int, place: Callable[[int], str]) -> str:
        pairs = ", ".join(
            f"({place(2 * row + 1)}::text, {place(2 * row + 2)}::bytea)" for row in range(rows)
        )
        return f'INSERT INTO "{self.schema}".inbox (key, task) VALUES {pairs}'  # noqa: S608 - a checked name


def inbox_of(schema: str | None) -> TransactionalInbox:
    name = schema or os.environ.get("ROTA_SCHEMA") or DEFAULT_SCHEMA
    if not _SCHEMA.fullmatch(name):
        raise Invalid(
            f"{name!r} cannot be the name of a schema here: lower-case letters, digits and "
            "underscores, no more than 40",
            field="schema",
        )
    return TransactionalInbox(name)


def with_key(task: NewTask) -> NewTask:
    """The task with a key; its pending handle finds it by nothing else."""
    return task if task.key else msgspec.structs.replace(task, key=secrets.token_hex(16))


# --- connections of database libraries ----------------------------------------------------------


def connection_of(given: Any) -> UserConnection:
    for kind in type(given).__mro__:
        library, _, rest = kind.__module__.partition(".")
        adapt = ADAPTERS.get(library)
        if adapt is not None:
            return adapt(given, kind.__name__, rest)
    name = f"{type(given).__module__}.{type(given).__qualname__}"
    raise Invalid(
        f"conn is a {name}; it has to be a connection of psycopg, asyncpg, SQLAlchemy or Django",
        field="conn",
    )


def _psycopg(given: Any, name: str, _module: str) -> UserConnection:
    if not name.endswith("Connection"):
        raise Invalid(f"conn is a {name} of psycopg; give the connection", field="conn")

    def run(statement: Statement) -> Any:
        return given.execute(statement.sql(PERCENT), statement.values)

    return UserConnection(arun=run) if name.startswith("Async") else UserConnection(run=run)


def _asyncpg(given: Any, name: str, _module: str) -> UserConnection:
    if not hasattr(given, "fetchval") or name == "Pool":
        raise Invalid(f"conn is a {name} of asyncpg; give the connection", field="conn")
    return UserConnection(arun=lambda one: given.execute(one.sql(DOLLAR), *one.values))


def _sqlalchemy(given: Any, name: str, module: str) -> UserConnection:
    if name not in {"Connection", "Session", "scoped_session", "AsyncConnection", "AsyncSession"}:
        raise Invalid(
            f"conn is a {name} of SQLAlchemy; give the connection or the session", field="conn"
        )
    is_session = name.lower().endswith("session")

    def run(statement: Statement) -> None:
        _on_sqlalchemy(given.connection() if is_session else given, statement)

    async def arun(statement: Statement) -> None:
        await _on_sqlalchemy(await given.connection() if is_session else given, statement)

    return UserConnection(arun=arun) if "asyncio" in module else UserConnection(run=run)


def _on_sqlalchemy(connection: Any, statement: Statement) -> Any:
    dialect = connection.dialect
    _check_postgres(dialect.name)
    placeholder = DOLLAR if dialect.paramstyle == "numeric_dollar" else PERCENT
    return connection.exec_driver_sql(statement.sql(placeholder), tuple(statement.values))


def _django(given: Any, name: str, _module: str) -> UserConnection:
    if not hasattr(given, "vendor"):
        raise Invalid(
            f"conn is a {name} of Django; give django.db.connection, or one of its connections",
            field="conn",
        )
    _check_postgres(given.vendor)

    def run(statement: Statement) -> None:
        with given.cursor() as cursor:
            cursor.execute(statement.sql(PERCENT), statement.values)

    return UserConnection(run=run)


ADAPTERS: dict[str, Callable[[Any, str, str], UserConnection]] = {
    "psycopg": _psycopg,
    "asyncpg": _asyncpg,
    "sqlalchemy": _sqlalchemy,
    "django": _django,
}


def _check_postgres(name: str) -> None:
    if name != POSTGRES:
        raise Invalid(
            f"conn is a connection to {name}: tasks need a transaction of PostgreSQL",
            field="conn",
        )
