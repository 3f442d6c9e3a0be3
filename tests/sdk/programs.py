"""Programs that do something in PostgreSQL, and enqueue tasks in the same transaction.

One for each kind of connection, all in the same words. Each writes a row of its own beside the
task, so that it can be seen that both come and go together.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

import asyncpg  # type: ignore[import-untyped]  # has no types of its own
import django  # type: ignore[import-untyped]  # as above
import django.conf  # type: ignore[import-untyped]  # as above
import psycopg
import sqlalchemy
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from rota import PendingHandle
from rota.sdk.task import Task

Note = Task[[int], None]
Handle = PendingHandle[None]


class Program(Protocol):
    def transact(self, task: Note, *steps: int | None, commits: bool = True) -> list[Handle]:
        """Enqueue numbers in one transaction; None undoes what came since the None before it."""
        ...

    def enqueue_many(self, task: Note, *numbers: int) -> list[Handle]: ...


INSERT = "INSERT INTO program_rows VALUES ({})"


class Undone(Exception):  # noqa: N818
    """The transaction is to be rolled back."""


def facts_of(url: str) -> dict[str, Any]:
    """How to connect, by libpq's names."""
    return {name: value for name, value in conninfo_to_dict(url).items() if value is not None}


def asyncpg_facts(url: str) -> dict[str, Any]:
    facts = facts_of(url)
    facts["database"] = facts.pop("dbname")
    return facts


# --- psycopg ------------------------------------------------------------------------------------


class Psycopg:
    def __init__(self, url: str) -> None:
        self._url = url

    def transact(self, task: Note, *steps: int | None, commits: bool = True) -> list[Handle]:
        handles: list[Handle] = []
        with psycopg.connect(self._url) as connection, undoing(), connection.transaction():
            for part in parts(steps):
                with undoing(), connection.transaction():
                    for number in part:
                        connection.execute(INSERT.format(number))
                        handles.append(task.enqueue(number, conn=connection))
                    undo(part)
            if not commits:
                raise Undone
        return handles

    def enqueue_many(self, task: Note, *numbers: int) -> list[Handle]:
        with psycopg.connect(self._url) as connection:
            return task.app.enqueue_many(map(task.bind, numbers), conn=connection)


class AsyncPsycopg:
    def __init__(self, url: str) -> None:
        self._url = url

    def transact(self, task: Note, *steps: int | None, commits: bool = True) -> list[Handle]:
        return asyncio.run(self._transact(task, steps, commits=commits))

    async def _transact(
        self, task: Note, steps: tuple[int | None, ...], *, commits: bool
    ) -> list[Handle]:
        handles: list[Handle] = []
        async with await psycopg.AsyncConnection.connect(self._url) as connection:
            with undoing():
                async with connection.transaction():
                    for part in parts(steps):
                        with undoing():
                            async with connection.transaction():
                                for number in part:
                                    await connection.execute(INSERT.format(number))
                                    handles.append(await task.aenqueue(number, conn=connection))
                                undo(part)
                    if not commits:
                        raise Undone
        return handles

    def enqueue_many(self, task: Note, *numbers: int) -> list[Handle]:
        async def enqueue() -> list[Handle]:
            async with await psycopg.AsyncConnection.connect(self._url) as connection:
                return await task.app.aenqueue_many(map(task.bind, numbers), conn=connection)

        return asyncio.run(enqueue())


# --- asyncpg ------------------------------------------------------------------------------------


class Asyncpg:
    def __init__(self, url: str) -> None:
        self._facts = asyncpg_facts(url)

    def transact(self, task: Note, *steps: int | None, commits: bool = True) -> list[Handle]:
        async def work(connection: Any) -> list[Handle]:
            handles: list[Handle] = []
            with undoing():
                async with connection.transaction():
                    for part in parts(steps):
                        with undoing():
                            async with connection.transaction():
                                for number in part:
                                    await connection.execute(INSERT.format(number))
                                    handles.append(await task.aenqueue(number, conn=connection))
                                undo(part)
                    if not commits:
                        raise Undone
            return handles

        return asyncio.run(self._with_connection(work))

    def enqueue_many(self, task: Note, *numbers: int) -> list[Handle]:
        async def work(connection: Any) -> list[Handle]:
            many = map(task.bind, numbers)
            handles: list[Handle] = await task.app.aenqueue_many(many, conn=connection)
            return handles

        return asyncio.run(self._with_connection(work))

    async def _with_connection(
        self, work: Callable[[Any], Awaitable[list[Handle]]]
    ) -> list[Handle]:
        connection = await asyncpg.connect(**self._facts)
        try:
            return await work(connection)
        finally:
            await connection.close()


class AsyncpgPool(Asyncpg):
    async def _with_connection(
        self, work: Callable[[Any], Awaitable[list[Handle]]]
    ) -> list[Handle]:
        async with (
            asyncpg.create_pool(**self._facts, min_size=1, max_size=1) as pool,
            pool.acquire() as connection,
        ):
            handles: list[Handle] = await work(connection)
            return handles


# --- SQLAlchemy ---------------------------------------------------------------------------------


class Sqlalchemy:
    """By connections, or by sessions."""

    def __init__(self, url: str, *, by_session: bool) -> None:
        self._facts = facts_of(url)
        self._by_session = by_session

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        engine = sqlalchemy.create_engine("postgresql+psycopg://", connect_args=self._facts)
        try:
            with Session(engine) if self._by_session else engine.connect() as one:
                yield one
        finally:
            engine.dispose()

    def transact(self, task: Note, *steps: int | None, commits: bool = True) -> list[Handle]:
        handles: list[Handle] = []
        with self._opened() as one:
            for part in parts(steps):
                with undoing(), one.begin_nested():
                    for number in part:
                        one.execute(sqlalchemy.text(INSERT.format(number)))
                        handles.append(task.enqueue(number, conn=one))
                    undo(part)
            one.commit() if commits else one.rollback()
        return handles

    def enqueue_many(self, task: Note, *numbers: int) -> list[Handle]:
        with self._opened() as one:
            handles = task.app.enqueue_many(map(task.bind, numbers), conn=one)
            one.commit()
        return handles


class AsyncSqlalchemy:
    """By connections, or by sessions; over asyncpg, or over psycopg."""

    def __init__(self, url: str, *, by_session: bool, driver: str = "asyncpg") -> None:
        self._facts = asyncpg_facts(url) if driver == "asyncpg" else facts_of(url)
        self._by_session = by_session
        self._driver = driver

    def transact(self, task: Note, *steps: int | None, commits: bool = True) -> list[Handle]:
        async def work(one: AsyncConnection | AsyncSession) -> list[Handle]:
            handles: list[Handle] = []
            for part in parts(steps):
                with undoing():
                    async with one.begin_nested():
                        for number in part:
                            await one.execute(sqlalchemy.text(INSERT.format(number)))
                            handles.append(await task.aenqueue(number, conn=one))
                        undo(part)
            await (one.commit() if commits else one.rollback())
            return handles

        return asyncio.run(self._with_connection(work))

    def enqueue_many(self, task: Note, *numbers: int) -> list[Handle]:
        async def work(one: AsyncConnection | AsyncSession) -> list[Handle]:
            handles = await task.app.aenqueue_many(map(task.bind, numbers), conn=one)
            await one.commit()
            return handles

        return asyncio.run(self._with_connection(work))

    async def _with_connection(
        self, work: Callable[[AsyncConnection | AsyncSession], Awaitable[list[Handle]]]
    ) -> list[Handle]:
        engine = create_async_engine(f"postgresql+{self._driver}://", connect_args=self._facts)
        try:
            async with AsyncSession(engine) if self._by_session else engine.connect() as one:
                return await work(one)
        finally:
            await engine.dispose()


# --- Django -------------------------------------------------------------------------------------


class Django:
    """By `django.db.connection`, or by the connection behind that."""

    def __init__(self, url: str, *, by_proxy: bool) -> None:
        self._by_proxy = by_proxy
        if not django.conf.settings.configured:
            names = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST"}
            facts = {**names, "port": "PORT"}
            given = {facts[name]: value for name, value in facts_of(url).items() if name in facts}
            engine = {"ENGINE": "django.db.backends.postgresql", **given}
            django.conf.settings.configure(DATABASES={"default": engine}, USE_TZ=True)
            django.setup()

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        # Wants to be configured, and has no types of its own.
        from django.db import connection, connections  # type: ignore[import-untyped]  # noqa: PLC0415

        try:
            yield connection if self._by_proxy else connections["default"]
        finally:
            connections.close_all()

    def transact(self, task: Note, *steps: int | None, commits: bool = True) -> list[Handle]:
        from django.db import transaction  # noqa: PLC0415 - as above

        handles: list[Handle] = []
        with self._opened() as connection, undoing(), transaction.atomic():
            for part in parts(steps):
                with undoing(), transaction.atomic():
                    for number in part:
                        with connection.cursor() as cursor:
                            cursor.execute(INSERT.format(number))
                        handles.append(task.enqueue(number, conn=connection))
                    undo(part)
            if not commits:
                raise Undone
        return handles

    def enqueue_many(self, task: Note, *numbers: int) -> list[Handle]:
        with self._opened() as connection:
            return task.app.enqueue_many(map(task.bind, numbers), conn=connection)


# --- steps --------------------------------------------------------------------------------------


class Part(list[int]):
    """What happens under one savepoint."""

    is_undone = False


def parts(steps: tuple[int | None, ...]) -> list[Part]:
    found = [Part()]
    for step in steps:
        if step is None:
            found[-1].is_undone = True
            found.append(Part())
        else:
            found[-1].append(step)
    return [part for part in found if part]


def undo(part: Part) -> None:
    if part.is_undone:
        raise Undone


def undoing() -> suppress:
    return suppress(Undone)


PROGRAMS: dict[str, Callable[[str], Program]] = {
    "psycopg": Psycopg,
    "psycopg-async": AsyncPsycopg,
    "asyncpg": Asyncpg,
    "asyncpg-pool": AsyncpgPool,
    "sqlalchemy-connection": lambda url: Sqlalchemy(url, by_session=False),
    "sqlalchemy-session": lambda url: Sqlalchemy(url, by_session=True),
    "sqlalchemy-async-connection": lambda url: AsyncSqlalchemy(url, by_session=False),
    "sqlalchemy-async-session": lambda url: AsyncSqlalchemy(url, by_session=True),
    "sqlalchemy-async-psycopg": lambda url: AsyncSqlalchemy(url, by_session=True, driver="psycopg"),
    "django": lambda url: Django(url, by_proxy=True),
    "django-connections": lambda url: Django(url, by_proxy=False),
}
