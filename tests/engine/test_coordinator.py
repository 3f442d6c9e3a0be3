import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from rota.core.commands import CancelTasks, PauseQueue, RegisterWorker, SubmitTasks
from rota.core.ids import COUNTER_BITS
from rota.core.replies import Registered, Submitted
from rota.core.tasks.model import NewTask, TaskState
from rota.engine.coordinator import Coordinator
from rota.engine.policies import policies_of
from rota.errors import StoreLocked, Unavailable
from rota.settings import Settings
from tests.conftest import TurnedClock
from tests.databases.schemas import open_store
from tests.engine.running import Engine, done, running, soon

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
BOTH = pytest.mark.parametrize("inline", [True, False], ids=["inline", "thread"])


@contextmanager
def fresh(path: Path, *, inline: bool) -> Iterator[Coordinator]:
    with closing(open_store(path)) as database:
        yield Coordinator(database, Settings(), inline=inline)


# --- starting and stopping ----------------------------------------------------------------------


@BOTH
async def test_a_coordinator_serves_from_its_start_to_its_stop(
    tmp_path: Path,
    inline: bool,  # noqa: FBT001 - a parameter of a test
) -> None:
    event = SubmitTasks([NewTask(name="work")])

    with fresh(tmp_path / "rota.db", inline=inline) as coordinator:
        readiness = [coordinator.is_ready]
        with pytest.raises(Unavailable, match="not running"):
            await coordinator.execute(event)
        await coordinator.start()
        readiness.append(coordinator.is_ready)
        assert isinstance(await coordinator.execute(event), Submitted)
        await coordinator.stop()
        readiness.append(coordinator.is_ready)
        with pytest.raises(Unavailable, match="not running"):
            await coordinator.execute(event)

    assert readiness == [False, True, False]


@BOTH
async def test_a_stop_answers_everything_that_was_accepted(
    tmp_path: Path,
    inline: bool,  # noqa: FBT001 - a parameter of a test
) -> None:
    path = tmp_path / "rota.db"
    async with running(path, inline=inline) as engine:
        sizes = [1, 30, 1, 2_000, 1]
        calls = [
            asyncio.create_task(engine.submit_all([NewTask(name="work")] * size)) for size in sizes
        ]
        await asyncio.sleep(0)
        await engine.coordinator.stop()
        answers = await soon(asyncio.gather(*calls))

    assert [len(ids) for ids in answers] == sizes
    async with running(path) as engine:
        for ids in answers:
            assert (await engine.task(ids[-1])).state is TaskState.QUEUED


@BOTH
async def test_stopping_twice_or_before_the_start_does_no_harm(
    tmp_path: Path,
    inline: bool,  # noqa: FBT001 - a parameter of a test
) -> None:
    with fresh(tmp_path / "rota.db", inline=inline) as coordinator:
        await coordinator.stop()
    with fresh(tmp_path / "other.db", inline=inline) as started:
        await started.start()
        await started.stop()
        await started.stop()

    assert not started.is_ready


@pytest.mark.only("sqlite")
async def test_a_second_coordinator_on_the_file_is_refused(engine: Engine, tmp_path: Path) -> None:
    with (
        pytest.raises(StoreLocked, match="another coordinator"),
        fresh(tmp_path / "rota.db", inline=True),
    ):
        pass

    assert await engine.submit()


def test_settings_become_rules() -> None:
    rules = policies_of(
        Settings(
            degraded_after=4.0,
            unhealthy_after=5.0,
            scoring="lifetime",
            strategy="power-of-two",
            job_lease_ms=700,
            unclaimed_lease_ms=8_000,
        )
    )

    assert (rules.health.degraded_after, rules.health.unhealthy_after) == (4.0, 5.0)
    assert (rules.scoring.lifetime, rules.strategy) == (True, "power-of-two")
    assert (rules.job_lease_ms, rules.unclaimed_lease_ms) == (700, 8_000)


# --- starting again -----------------------------------------------------------------------------


async def test_a_restart_on_the_same_file_keeps_everything(
    tmp_path: Path, clock: TurnedClock
) -> None:
    path = tmp_path / "rota.db"
    async with running(path, clock) as engine:
        worker = await engine.register(max_concurrent_tasks=2, capabilities=("gpu",))
        ids = await engine.submit("done", "held", "waiting")
        (later,) = await engine.submit("later", delay_ms=HOUR_MS, key="k", labels=["l"])
        (paused,) = await engine.submit("paused", queue="quiet")
        await engine.execute(PauseQueue("quiet", paused=True))
        first, held = await engine.lease(worker, 2)
        await engine.report(worker, done(first))
        before = [await engine.task(task_id) for task_id in (*ids, later, paused)]

    async with running(path, clock) as engine:
        after = [await engine.task(task_id) for task_id in (*ids, later, paused)]

        assert after == before
        assert await engine.submit(key="k") == [later]
        assert await engine.report(worker, done(first), done(held)) == ["duplicate", "accepted"]
        assert [task.lane.name for task in await engine.lease(worker)] == ["waiting"]
        reply = await engine.execute(RegisterWorker(worker_id="w2", node_id="n"))
        assert isinstance(reply, Registered)
        assert reply.worker.incarnation > worker.incarnation


async def test_ids_rise_over_restarts_and_backward_jumps_of_the_clock(
    tmp_path: Path, clock: TurnedClock
) -> None:
    ids = []
    for _ in range(3):
        async with running(tmp_path / "rota.db", clock) as engine:
            ids += await engine.submit("a", "b")
            clock.turn(-DAY_MS)
            ids += await engine.submit("c")

    assert ids == sorted(set(ids))


async def test_ids_rise_even_after_the_clock_went_back_and_all_history_was_forgotten(
    tmp_path: Path, clock: TurnedClock
) -> None:
    path = tmp_path / "rota.db"
    async with running(path, clock, history_keep_ms=0) as engine:
        (before,) = await engine.submit()
        await engine.execute(CancelTasks((before,)))
        await engine.turn(1)
        assert await engine.coordinator.queries.tasks.by_id(before) is None
    clock.turn(-DAY_MS)

    async with running(path, clock) as engine:
        (after,) = await engine.submit()

    assert after > before
    assert before >> COUNTER_BITS > clock.now_ms()


async def test_a_task_of_before_the_clock_went_back_is_served_first(
    engine: Engine, clock: TurnedClock
) -> None:
    worker = await engine.register()
    first = await engine.submit()
    clock.turn(-DAY_MS)
    second = await engine.submit()

    assert [task.id for task in await engine.lease(worker)] == first + second
