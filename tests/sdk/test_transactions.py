"""Does a task exist if and only if its transaction was committed? With every kind of connection."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

from rota import EnqueuedCall, Invalid, Middleware, Rota, TaskFailed, TaskState
from rota.sdk.client import calls
from tests.databases.schemas import url
from tests.sdk.programs import PROGRAMS, Note, Program
from tests.sdk.serving import Server, working

PATIENCE_S = 60.0
numbers = count(1)

pytestmark = pytest.mark.slow


class World:
    """A coordinator on PostgreSQL, a worker, and a table of the program's own."""

    def __init__(self, app: Rota, schema: str) -> None:
        self.app = app
        self.schema = schema
        self.ran: list[int] = []
        self._lock = threading.Lock()

        @app.task
        def note(number: int) -> None:
            with self._lock:
                self.ran.append(number)

        self.note: Note = note

    def rows(self, number: int) -> int:
        (found,) = self.sql("SELECT count(*) FROM program_rows WHERE number = %s", number)
        return int(found[0])

    def sql(self, text: str, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(url()) as connection:
            cursor = connection.execute(text.encode(), values)
            return cursor.fetchall() if cursor.description else []

    def catch_up(self, program: Program) -> None:
        """Everything that was committed before this has been taken over when it returns."""
        (last,) = program.transact(self.note, next(numbers))
        last.result(PATIENCE_S)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    schema = f"rota_transactions_{os.getpid()}"
    folder: Path = tmp_path_factory.mktemp("transactions")
    with psycopg.connect(url()) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS program_rows (number bigint)")
    store = f"{url()}{'&' if '?' in url() else '?'}schema={schema}"
    with Server(folder, store=store) as server, Rota(server.url, schema=schema) as app:
        staged = World(app, schema)
        with working(app):
            yield staged
    staged.sql(f'DROP SCHEMA "{schema}" CASCADE')


@pytest.fixture(params=PROGRAMS)
def program(request: pytest.FixtureRequest, world: World) -> Program:
    make: Callable[[str], Program] = PROGRAMS[request.param]
    return make(url())


def test_what_is_committed_runs_once(world: World, program: Program) -> None:
    number = next(numbers)

    (handle,) = program.transact(world.note, number)

    handle.result(PATIENCE_S)
    assert handle.status() is TaskState.SUCCEEDED
    assert (world.ran.count(number), world.rows(number)) == (1, 1)


def test_middleware_adds_headers_to_a_task_of_a_transaction(world: World) -> None:
    class Tagging(Middleware):
        def on_enqueue(self, calls: Sequence[EnqueuedCall]) -> None:
            for one in calls:
                one.headers["transaction"] = one.key or "none"

    tagging = Tagging()
    world.app.use_middleware(tagging)
    try:
        with psycopg.connect(url()) as connection:
            handle = world.note.enqueue(next(numbers), conn=connection)
    finally:
        world.app.remove_middleware(tagging)
    handle.result(PATIENCE_S)

    found = handle.find()
    assert found is not None
    task = world.app.client.run(calls.get_task(found.id))
    assert task.headers == {"transaction": task.key}


def test_what_is_rolled_back_never_exists(world: World, program: Program) -> None:
    number = next(numbers)

    (handle,) = program.transact(world.note, number, commits=False)

    world.catch_up(program)
    assert (handle.find(), handle.status()) == (None, None)
    assert (world.ran.count(number), world.rows(number)) == (0, 0)


def test_what_is_undone_to_a_savepoint_never_exists(world: World, program: Program) -> None:
    before, undone, after = next(numbers), next(numbers), next(numbers)

    program.transact(world.note, before)
    first, second = program.transact(world.note, undone, None, after)

    second.result(PATIENCE_S)
    world.catch_up(program)
    assert first.find() is None
    assert [world.ran.count(one) for one in (before, undone, after)] == [1, 0, 1]
    assert [world.rows(one) for one in (before, undone, after)] == [1, 0, 1]


def test_a_transaction_that_is_made_again_with_the_same_key_makes_one_task(
    world: World, program: Program
) -> None:
    number = next(numbers)
    keyed = world.note.using(key=f"order-{number}")

    handles = [program.transact(keyed, number)[0] for _ in range(3)]
    for handle in handles:
        handle.result(PATIENCE_S)

    world.catch_up(program)
    assert world.ran.count(number) == 1
    assert {handle.key for handle in handles} == {f"order-{number}"}


def test_many_tasks_go_into_one_transaction(world: World, program: Program) -> None:
    some = [next(numbers) for _ in range(50)]

    for handle in program.enqueue_many(world.note, *some):
        handle.result(PATIENCE_S)

    assert [world.ran.count(one) for one in some] == [1] * len(some)


# --- what does not depend on the kind of connection ---------------------------------------------


@pytest.fixture
def psycopg_program(world: World) -> Program:
    return PROGRAMS["psycopg"](url())


def test_nobody_sees_a_task_before_its_commit_and_a_long_transaction_holds_nobody_up(
    world: World, psycopg_program: Program
) -> None:
    number = next(numbers)
    with psycopg.connect(url()) as connection:
        handle = world.note.enqueue(number, conn=connection)

        world.catch_up(psycopg_program)  # others go on, over it
        assert handle.status() is None

    handle.result(PATIENCE_S)
    assert world.ran.count(number) == 1


def test_two_open_transactions_with_one_key_do_not_wait_for_each_other(world: World) -> None:
    number = next(numbers)
    keyed = world.note.using(key=f"both-{number}")
    with psycopg.connect(url()) as one, psycopg.connect(url()) as other:
        keyed.enqueue(number, conn=one)
        handle = keyed.enqueue(number, conn=other)

    handle.result(PATIENCE_S)
    assert world.ran.count(number) == 1


def test_a_task_that_cannot_be_accepted_fails_under_its_key_and_holds_nobody_up(
    world: World, psycopg_program: Program
) -> None:
    key = f"bad-{next(numbers)}"
    world.sql(f'INSERT INTO "{world.schema}".inbox (key, task) VALUES (%s, %s)', key, b"{")
    with psycopg.connect(url()) as connection:
        missing = world.app.enqueue("work", conn=connection, key=key)

    with pytest.raises(TaskFailed, match="malformed"):
        missing.result(PATIENCE_S)
    world.catch_up(psycopg_program)


def test_a_transaction_notifies_nobody(world: World) -> None:
    number = next(numbers)
    with psycopg.connect(url(), autocommit=True) as listening:
        listening.execute(f"LISTEN rota_{world.schema}".encode())
        with psycopg.connect(url()) as connection:
            handle = world.note.enqueue(number, conn=connection)
        handle.result(PATIENCE_S)

        assert list(listening.notifies(timeout=0)) == []


@pytest.mark.parametrize("notify", [True, False])
def test_the_argument_notify_is_warned_of_and_changes_nothing(*, notify: bool) -> None:
    with pytest.warns(DeprecationWarning, match="inbox_interval_ms"):
        app = Rota("http://127.0.0.1:1", notify=notify)

    assert app._submitter.inbox == Rota("http://127.0.0.1:1")._submitter.inbox


def test_a_role_that_may_only_insert_is_enough(world: World) -> None:
    number = next(numbers)
    role = f"rota_program_{number}"
    world.sql(f"CREATE ROLE {role}")
    try:
        world.sql(f'GRANT USAGE ON SCHEMA "{world.schema}" TO {role}')
        world.sql(f'GRANT INSERT ON "{world.schema}".inbox TO {role}')
        with psycopg.connect(url()) as connection:
            connection.execute(f"SET LOCAL ROLE {role}".encode())
            handle = world.note.enqueue(number, conn=connection)

        handle.result(PATIENCE_S)
    finally:
        world.sql(f"DROP OWNED BY {role}")
        world.sql(f"DROP ROLE {role}")


async def test_the_wrong_way_for_a_connection_is_named(world: World) -> None:
    with psycopg.connect(url()) as connection, pytest.raises(Invalid, match="not async"):
        await world.note.aenqueue(1, conn=connection)
    async with await psycopg.AsyncConnection.connect(url()) as other:
        with pytest.raises(Invalid, match="await `aenqueue`"):
            world.note.enqueue(1, conn=other)
