"""How does a task get into a transaction of the program's own? As a row of Rota's `inbox`.

The row is written by the program's connection, so it is committed with whatever else the
transaction does, or not at all. A coordinator takes committed rows out and accepts them as tasks.
Nothing is locked meanwhile, however long the transaction lasts.
"""

import os
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from rota.core.tasks import NewTask
from rota.errors import Invalid
from rota.sdk.connections import Statement, connection_of

ROWS_PER_STATEMENT = 1_000
DEFAULT_SCHEMA = "rota"
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,39}")


class Inbox(Struct, frozen=True):
    """Where tasks are put, and whether coordinators are told as soon as they are there."""

    schema: str
    is_told: bool = True  # by NOTIFY, which makes commits of different transactions queue up

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
        insert = f'INSERT INTO "{self.schema}".inbox (key, task) VALUES {pairs}'  # noqa: S608 - a checked name
        if not self.is_told:
            return insert
        return f"WITH put AS ({insert}) SELECT pg_notify('rota_{self.schema}', '')"


def inbox_of(schema: str | None, *, is_told: bool) -> Inbox:
    name = schema or os.environ.get("ROTA_SCHEMA") or DEFAULT_SCHEMA
    if not _SCHEMA.fullmatch(name):
        raise Invalid(
            f"{name!r} cannot be the name of a schema here: lower-case letters, digits and "
            "underscores, no more than 40",
            field="schema",
        )
    return Inbox(name, is_told)


def with_key(task: NewTask) -> NewTask:
    """A task by itself is found by its key alone, so each has one."""
    return task if task.key else msgspec.structs.replace(task, key=secrets.token_hex(16))
