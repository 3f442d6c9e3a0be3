"""The store cannot be written: callers are told, nothing is half done, and it goes on after."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import apsw
import psycopg
import pytest

from rota.core.commands import CancelTasks, TaskFilter
from rota.core.tasks.model import NewTask, TaskState
from rota.errors import StoreFull, Unavailable
from tests.conftest import TurnedClock
from tests.databases.schemas import url
from tests.engine.running import Engine, WatchedDatabase, done, running, soon

Break = Callable[[WatchedDatabase, Exception | None], None]


def before_the_body(database: WatchedDatabase, problem: Exception | None) -> None:
    database.write_problem = problem


def at_the_commit(database: WatchedDatabase, problem: Exception | None) -> None:
    database.commit_problem = problem


def is_full(engine: Engine) -> bool:
    return engine.coordinator.is_store_full


EITHER = pytest.mark.parametrize("break_off", [before_the_body, at_the_commit])


@EITHER
async def test_a_disk_that_fails_is_answered_as_unavailable_and_shown(
    engine: Engine, break_off: Break
) -> None:
    break_off(engine.database, apsw.IOError("disk I/O error"))

    with pytest.raises(Unavailable, match="nothing was changed") as refusal:
        await engine.submit()

    assert refusal.value.retry_after_s >= 1
    problem = "IOError: disk I/O error"
    assert engine.coordinator.store_problem == problem
    assert [line.get("problem") for line in engine.log] == [problem]


@EITHER
async def test_a_full_disk_is_answered_as_such_logged_once_and_over_when_there_is_space(
    engine: Engine, break_off: Break
) -> None:
    (before,) = await engine.submit()
    break_off(engine.database, StoreFull())

    answers = await asyncio.gather(*(engine.submit() for _ in range(5)), return_exceptions=True)
    with pytest.raises(StoreFull, match="free space on that disk"):
        await engine.submit()

    assert {type(answer) for answer in answers} == {StoreFull}
    assert is_full(engine)
    assert [line["event"] for line in engine.log] == ["store_full"]
    break_off(engine.database, None)
    (after,) = await engine.submit()
    assert not is_full(engine)
    assert engine.coordinator.store_problem is None
    assert engine.log[-1]["event"] == "store_has_space_again"
    assert await engine.coordinator.queries.tasks.ids(TaskFilter(), limit=9, before=None) == [
        after,
        before,
    ]


async def test_a_full_disk_stays_full_while_only_small_changes_fit_into_it(
    engine: Engine,
) -> None:
    engine.database.write_problem = StoreFull()
    with pytest.raises(StoreFull):
        await engine.submit()
    engine.database.write_problem, engine.database.disk_free = None, 0

    await engine.submit()

    assert is_full(engine)
    assert [line["event"] for line in engine.log] == ["store_full"]
    engine.database.disk_free = 2**30
    await engine.submit()
    assert not is_full(engine)
    assert engine.log[-1]["event"] == "store_has_space_again"


@pytest.mark.only("postgres")
async def test_postgresql_without_space_is_a_full_store(engine: Engine) -> None:
    (before,) = await engine.submit()
    schema = engine.database._inner.address.schema  # type: ignore[attr-defined]  # of PostgreSQL
    with psycopg.connect(url(), autocommit=True) as server:
        server.execute(
            f"""
            CREATE FUNCTION {schema}.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
              RAISE EXCEPTION 'could not extend file: No space left on device'
                USING ERRCODE = 'disk_full';
            END $$;
            CREATE TRIGGER full_disk BEFORE INSERT ON {schema}.task
              FOR EACH ROW EXECUTE FUNCTION {schema}.refuse();
            """
        )
        with pytest.raises(StoreFull):
            await engine.submit()
        assert is_full(engine)
        server.execute(f"DROP TRIGGER full_disk ON {schema}.task")

    (after,) = await engine.submit()

    assert not is_full(engine)
    assert (await engine.task(before)).id == before
    assert (await engine.task(after)).id == after


@EITHER
async def test_it_goes_on_when_the_store_is_back(engine: Engine, break_off: Break) -> None:
    worker = await engine.register()
    (kept,) = await engine.submit("kept")
    break_off(engine.database, apsw.IOError("disk I/O error"))
    for _ in range(3):
        with pytest.raises(Unavailable):
            await engine.submit("lost lane", key="k")

    break_off(engine.database, None)
    (new,) = await engine.submit("new lane", key="k")

    assert engine.coordinator.store_problem is None
    assert [task.id for task in await engine.lease(worker)] == [kept, new]
    assert (await engine.task(new)).lane.name == "new lane"


async def test_nothing_of_a_commit_that_failed_is_remembered(engine: Engine) -> None:
    worker = await engine.register()
    (task_id,) = await engine.submit()
    (task,) = await engine.lease(worker)
    at_the_commit(engine.database, apsw.FullError("full"))
    for call in (engine.report(worker, done(task)), engine.execute(CancelTasks((task_id,)))):
        with pytest.raises(Unavailable):
            await call

    at_the_commit(engine.database, None)

    assert (await engine.task(task_id)).state is TaskState.RUNNING
    assert await engine.report(worker, done(task)) == ["accepted"]


async def test_a_whole_batch_is_answered_without_trying_each_of_its_events(
    engine: Engine,
) -> None:
    before_the_body(engine.database, apsw.BusyError("locked"))

    answers = await asyncio.gather(*(engine.submit() for _ in range(50)), return_exceptions=True)

    assert {type(answer) for answer in answers} == {Unavailable}
    assert engine.database.tries == 2


async def test_parked_calls_wait_through_the_trouble(engine: Engine) -> None:
    worker = await engine.register()
    call = await engine.parked(worker)
    at_the_commit(engine.database, apsw.FullError("full"))
    with pytest.raises(Unavailable):
        await engine.submit()
    assert not call.done()

    at_the_commit(engine.database, None)
    (task_id,) = await engine.submit()

    assert [task.id for task in (await soon(call)).leases] == [task_id]


async def test_the_book_of_lanes_cannot_be_read_either_and_still_nothing_is_lost(
    engine: Engine,
) -> None:
    engine.database.read_problem = apsw.IOError("read")
    at_the_commit(engine.database, apsw.IOError("write"))
    with pytest.raises(Unavailable):
        await engine.submit("never written")
    engine.database.read_problem = None
    with pytest.raises(Unavailable):
        await engine.submit("never written")

    at_the_commit(engine.database, None)
    (task_id,) = await engine.submit("written")

    assert (await engine.task(task_id)).lane.name == "written"


async def test_a_file_locked_by_another_program_is_waited_for(
    tmp_path: Path, clock: TurnedClock
) -> None:
    path = tmp_path / "rota.db"
    async with running(path, clock, inline=False) as engine:
        other = apsw.Connection(str(path))
        other.execute("BEGIN IMMEDIATE")
        call = asyncio.create_task(engine.submit_all([NewTask(name="work")] * 50))
        await asyncio.sleep(0)
        other.execute("ROLLBACK")
        other.close()

        ids = await soon(call)
        assert len(ids) == 50
