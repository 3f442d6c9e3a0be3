"""A coordinator whose store is a server: a lone caller is served on the loop, which never hangs."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

from rota.core.commands import SubmitTasks
from rota.core.tasks.model import NewTask
from rota.engine.commit import writer
from rota.engine.commit.writer import ALONE_AFTER
from rota.engine.coordinator import Coordinator
from rota.settings import Settings
from rota.store.database import StoreIsSlow
from rota.store.postgres.address import Address, address_of
from rota.store.postgres.database import PostgresDatabase
from tests.databases.schemas import OPTIONS, schemas, url
from tests.engine.running import soon, standing_still

pytestmark = pytest.mark.only("postgres")


@pytest.fixture
def address(tmp_path: Path) -> Address:
    return address_of(url(), schemas.lend(str(tmp_path)))


@pytest.fixture
async def coordinator(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Coordinator]:
    monkeypatch.setattr(writer, "REMOTE_QUICK_S", 60.0)  # also on a busy machine
    monkeypatch.setattr(writer, "REMOTE_WAIT_S", 5.0)
    with closing(PostgresDatabase(address, OPTIONS)) as database:
        one = Coordinator(database, Settings())
        with standing_still():
            await one.start()
        for _ in range(ALONE_AFTER):
            await soon(submit(one))
        yield one
        await one.stop()


@contextmanager
def locked(address: Address) -> Iterator[None]:
    """Another program holds the table of tasks; writes of it wait."""
    with psycopg.connect(url()) as other:
        other.execute(f"LOCK TABLE {address.schema}.task IN ACCESS EXCLUSIVE MODE".encode())
        yield


def submit(coordinator: Coordinator) -> "asyncio.Future[object]":
    command = SubmitTasks([NewTask(name="work")])
    return asyncio.ensure_future(coordinator.execute(command, is_alone=True))


def count_tasks(address: Address) -> int:
    with psycopg.connect(url()) as other:
        row = other.execute(f"SELECT count(*) FROM {address.schema}.task".encode()).fetchone()
        assert row is not None
        return int(row[0])


async def test_a_lone_caller_is_answered_before_it_could_wait(
    coordinator: Coordinator, address: Address
) -> None:
    for number in range(1, 4):
        assert submit(coordinator).done()
        assert count_tasks(address) == ALONE_AFTER + number
        await asyncio.sleep(0)


async def test_a_store_that_hangs_in_a_commit_does_not_stop_the_loop(
    coordinator: Coordinator, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "REMOTE_WAIT_S", 0.01)
    with locked(address):
        first = submit(coordinator)
        await asyncio.sleep(0)
        others = [submit(coordinator) for _ in range(3)]
        await asyncio.sleep(0)
        assert not any(one.done() for one in (first, *others))

    await soon(asyncio.gather(first, *others))

    assert count_tasks(address) == ALONE_AFTER + 4


async def test_a_batch_whose_reads_take_too_long_is_executed_again_by_the_thread(
    coordinator: Coordinator, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    plainly = PostgresDatabase._execute
    slow: list[object] = []

    def too_slow(database: PostgresDatabase, connection: object, body: object) -> object:
        answer = plainly(database, connection, body)  # type: ignore[arg-type,var-annotated]
        if not slow:
            slow.append(answer)
            database._roll_back(connection)  # type: ignore[arg-type]
            raise StoreIsSlow
        return answer

    monkeypatch.setattr(PostgresDatabase, "_execute", too_slow)

    one = submit(coordinator)
    assert not one.done()
    await soon(one)

    assert slow
    assert count_tasks(address) == ALONE_AFTER + 1


async def test_a_refused_command_is_answered_and_work_goes_on(
    coordinator: Coordinator, address: Address
) -> None:
    with psycopg.connect(url(), autocommit=True) as other:
        name = f"{address.schema}.task"
        other.execute(f"ALTER TABLE {name} ADD CONSTRAINT stop CHECK (id < 0) NOT VALID".encode())
        refused = submit(coordinator)
        with pytest.raises(AssertionError, match="constraint"):
            await soon(refused)
        other.execute(f"ALTER TABLE {name} DROP CONSTRAINT stop".encode())

    await soon(submit(coordinator))

    assert count_tasks(address) == ALONE_AFTER + 1
