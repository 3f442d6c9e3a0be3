"""A disk that is full, or fails: callers get an error, and nothing accepted is lost."""

import asyncio
import random
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import apsw
import pytest
from msgspec import Raw

from rota.core.commands import (
    LeaseWork,
    RegisterWorker,
    ReportResults,
    Result,
    SubmitTasks,
    TaskFilter,
)
from rota.core.ids import TaskId
from rota.core.replies import Granted, Outcomes, Registered, Submitted
from rota.core.tasks.model import NewTask, TaskState
from rota.engine.coordinator import Coordinator
from rota.errors import StoreFull, Unavailable
from rota.settings import Settings
from rota.store.sqlite.database import SqliteDatabase
from tests.faults.broken import BrokenDisk
from tests.faults.driving import Crowd, TurnedClock
from tests.faults.ledger import Ledger

FULL = apsw.FullError("the disk is full")
BROKEN = apsw.IOError("the disk does not answer")


@pytest.fixture
def disk() -> Iterator[BrokenDisk]:
    disk = BrokenDisk()
    yield disk
    disk.unregister()


@asynccontextmanager
async def running(
    path: Path, *, vfs: str | None = None, checkpoint_pages: int = 1_000
) -> AsyncIterator[Coordinator]:
    """A coordinator without threads, whose duties run when they are told to."""
    database = SqliteDatabase(str(path), vfs=vfs)
    database._writer.pragma("wal_autocheckpoint", checkpoint_pages)
    coordinator = Coordinator(database, Settings(), clock=TurnedClock(), inline=True)
    await coordinator.start()
    await coordinator.leading.duties.stop()
    yield coordinator
    await coordinator.stop()
    database.close()


async def known(coordinator: Coordinator) -> list[TaskId]:
    return await coordinator.queries.tasks.ids(TaskFilter(), limit=9_999, before=None)


def new_task(name: str = "resize", *, key: str | None = None, size: int = 0) -> NewTask:
    return NewTask(name=name, key=key, payload=Raw(b'"%s"' % (b"x" * size)))


async def submit(coordinator: Coordinator, *tasks: NewTask) -> list[TaskId]:
    reply = await coordinator.execute(SubmitTasks(list(tasks)))
    assert isinstance(reply, Submitted)
    return [item.id for item in reply.items]


async def register(coordinator: Coordinator) -> int:
    reply = await coordinator.execute(RegisterWorker(worker_id="w", node_id="here"))
    assert isinstance(reply, Registered)
    return reply.worker.incarnation


async def lease(coordinator: Coordinator, incarnation: int) -> Granted:
    reply = await coordinator.execute(LeaseWork(worker_id="w", incarnation=incarnation, most=1))
    assert isinstance(reply, Granted)
    return reply


@pytest.mark.parametrize("broken", [{"on_write": FULL}, {"on_write": BROKEN}, {"on_sync": BROKEN}])
async def test_a_caller_is_told_that_nothing_was_changed_and_all_is_well_when_the_disk_is(
    tmp_path: Path, disk: BrokenDisk, broken: dict[str, apsw.Error]
) -> None:
    async with running(tmp_path / "rota.db", vfs=disk.vfs_name) as coordinator:
        (before,) = await submit(coordinator, new_task())
        vars(disk).update(broken)

        with pytest.raises(Unavailable, match="nothing was changed"):
            await submit(coordinator, new_task())

        (error,) = broken.values()
        problem = str(StoreFull()) if error is FULL else str(error)
        assert problem in str(coordinator.store_problem)
        assert await known(coordinator) == [before]

        disk.mend()
        await coordinator.tick()
        assert not coordinator.store_problem
        (after,) = await submit(coordinator, new_task())
        assert await known(coordinator) == [after, before]

    async with running(tmp_path / "rota.db") as again:
        assert await known(again) == [after, before]


async def test_a_batch_that_the_disk_refused_once_is_carried_out_once(
    tmp_path: Path, disk: BrokenDisk
) -> None:
    async with running(tmp_path / "rota.db", vfs=disk.vfs_name) as coordinator:
        disk.on_sync, disk.times = BROKEN, 1

        answers = await asyncio.gather(
            *(submit(coordinator, new_task(key=f"k{number}"), new_task()) for number in range(5))
        )

        assert disk.refused == 1
        ids = [task_id for answer in answers for task_id in answer]
        found = await known(coordinator)
        assert sorted(ids) == sorted(found)
        assert coordinator.metrics().submitted["default"] == len(ids) == 10


async def test_a_completion_that_could_not_be_written_is_accepted_when_it_comes_again(
    tmp_path: Path, disk: BrokenDisk
) -> None:
    async with running(tmp_path / "rota.db", vfs=disk.vfs_name) as coordinator:
        (task_id,) = await submit(coordinator, new_task())
        incarnation = await register(coordinator)
        (leased,) = (await lease(coordinator, incarnation)).leases
        report = ReportResults(
            worker_id="w",
            incarnation=incarnation,
            results=[Result(task_id, leased.fence, result=Raw(b"1"))],
        )
        disk.on_write = FULL

        with pytest.raises(Unavailable):
            await coordinator.execute(report)
        task = await coordinator.queries.tasks.by_id(task_id)
        assert task is not None
        assert task.state is TaskState.RUNNING

        disk.mend()
        assert await coordinator.execute(report) == Outcomes(["accepted"])
        assert await coordinator.execute(report) == Outcomes(["duplicate"])


async def test_a_worker_that_waits_for_work_gets_it_when_the_disk_is_well_again(
    tmp_path: Path, disk: BrokenDisk
) -> None:
    async with running(tmp_path / "rota.db", vfs=disk.vfs_name) as coordinator:
        incarnation = await register(coordinator)
        event = LeaseWork(worker_id="w", incarnation=incarnation, most=1, wait_ms=60_000)
        waiting = asyncio.ensure_future(coordinator.execute(event))
        await coordinator.tick()
        assert coordinator.metrics().waiting_leases == 1
        disk.on_write = FULL
        with pytest.raises(Unavailable):
            await submit(coordinator, new_task())
        assert not waiting.done()

        disk.mend()
        ids = await submit(coordinator, new_task())

        assert [task.id for task in (await waiting).leases] == ids


async def test_a_lane_that_was_never_written_is_not_taken_for_known(
    tmp_path: Path, disk: BrokenDisk
) -> None:
    async with running(tmp_path / "rota.db", vfs=disk.vfs_name) as coordinator:
        # Nor can it be looked up which lanes there are: nothing can be read either.
        disk.on_write = disk.on_read = BROKEN
        with pytest.raises(Unavailable):
            await submit(coordinator, new_task("new"))

        disk.mend()
        (task_id,) = await submit(coordinator, new_task("new"))

    async with running(tmp_path / "rota.db") as again:
        task = await again.queries.tasks.by_id(task_id)
        assert task is not None
        assert task.lane.name == "new"


@pytest.mark.parametrize("seed", range(10))
async def test_nothing_is_lost_on_a_disk_that_fails_now_and_then(
    tmp_path: Path, disk: BrokenDisk, seed: int
) -> None:
    dice = random.Random(seed)
    crowd = Crowd(dice, Ledger())
    crowd.has_answers = lambda: True
    async with running(tmp_path / "rota.db", vfs=disk.vfs_name) as coordinator:
        crowd.coordinator = coordinator
        coordinator.clock = coordinator.leading.pipeline._clock = crowd.clock
        for _ in range(60):
            fault = dice.choice(["on_write", "on_sync", "on_read", "none", "none", "none"])
            disk.mend()
            if fault != "none":
                setattr(disk, fault, dice.choice([FULL, BROKEN]))
                disk.times = dice.choice([1, 2, 3, None])
            await crowd.step()
        disk.mend()
        await crowd.resubmit()
        await crowd.drain()
    assert disk.refused > 10

    database = SqliteDatabase(str(tmp_path / "rota.db"))
    assert crowd.ledger.problems(database) == []
    database.close()


@contextmanager
def no_file_longer_than(size: int) -> Iterator[None]:
    """The system itself refuses, as it would on a full disk: Python ignores its signal."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_database_that_cannot_grow_keeps_all_that_was_accepted(tmp_path: Path) -> None:
    path = tmp_path / "rota.db"
    accepted: list[TaskId] = []
    async with running(path, checkpoint_pages=20) as coordinator:
        for _ in range(10):
            accepted += await submit(coordinator, new_task(size=20_000))

        with no_file_longer_than(path.stat().st_size):
            # The log takes what no longer fits into the database, until that is full as well.
            with suppress(Unavailable):
                while True:
                    accepted += await submit(coordinator, new_task(size=20_000))
            assert coordinator.store_problem
            assert len(await known(coordinator)) == len(accepted)

        accepted += await submit(coordinator, new_task())
        assert not coordinator.store_problem

    async with running(path) as again:
        found = await known(again)
        assert sorted(found) == sorted(accepted)
