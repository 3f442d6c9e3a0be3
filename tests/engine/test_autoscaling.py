import asyncio
from pathlib import Path

import pytest

from rota.core.commands import PauseQueue, SetWorkerState
from rota.core.dispatch.autoscaling import Demand
from rota.core.tasks.model import NewTask
from rota.core.workers.model import WorkerState
from rota.core.workers.statistics import EMPTY, Outcome, record
from rota.engine.queries import autoscaling
from rota.engine.queries.autoscaling import GroupDemand, WorkSelection
from rota.engine.queries.autoscaling_inputs import (
    ScaleInputs,
    mean_durations,
    read_inputs,
)
from rota.store import scaling
from rota.store.database import Transaction
from rota.store.scaling import RecentStatistics
from rota.store.tasks.lanes import Lanes
from tests.conftest import TurnedClock
from tests.engine.running import Engine, done, running

NOW_MS = 1_800_000_000_000


async def groups(engine: Engine, **selection: frozenset[str]) -> list[GroupDemand]:
    return await engine.coordinator.queries.autoscaling.demands(WorkSelection(**selection))


async def only(engine: Engine, **selection: frozenset[str]) -> Demand:
    (group,) = await groups(engine, **selection)
    return group.demand


async def test_work_is_told_by_queue_and_capability_set(engine: Engine) -> None:
    await engine.submit("a", "b")
    await engine.submit("a", requires=("gpu",))
    await engine.submit("a", queue="mail")

    told = [(one.queue, one.requires, one.demand.depth) for one in await groups(engine)]

    assert told == [("default", (), 2), ("default", ("gpu",), 1), ("mail", (), 1)]


async def test_a_group_has_all_its_figures(engine: Engine, clock: TurnedClock) -> None:
    worker = await engine.register(max_concurrent_tasks=3, heartbeat_interval_ms=60_000)
    await engine.submit(*["work"] * 6)
    first, *_ = await engine.lease(worker)
    clock.turn(2_000)
    await engine.report(worker, done(first))
    clock.turn(1_000)

    assert await only(engine) == Demand(
        depth=3,
        oldest_age_ms=3_000,
        running=2,
        running_for_ms=3_000.0,
        submitted_per_s=6 / 60,
        finished_per_s=1 / 60,
        duration_ms=2_000.0,
        workers=1,
        capacity=3,
        free=1,
    )


async def test_only_what_is_asked_for_is_told(engine: Engine) -> None:
    await engine.submit("a", "a", "b")
    await engine.submit("a", queue="mail")

    default = frozenset({"default"})
    assert (await only(engine, queues=default)).depth == 3
    assert (await only(engine, queues=default, names=frozenset({"a"}))).depth == 2
    assert await groups(engine, queues=frozenset({"nowhere"})) == []


async def test_workers_count_for_what_they_can_serve_and_only_while_they_take_work(
    engine: Engine, clock: TurnedClock
) -> None:
    await engine.submit("a", requires=("gpu",))
    await engine.register("plain")
    await engine.register("fit", capabilities=("gpu",), max_concurrent_tasks=4)
    await engine.register("other", capabilities=("gpu",), tasks=("b",))
    await engine.register("draining", capabilities=("gpu",))
    await engine.execute(SetWorkerState(worker_id="draining", state=WorkerState.DRAINING))
    await engine.register("silent", capabilities=("gpu",), heartbeat_interval_ms=100)
    clock.turn(250)

    demand = await only(engine)

    assert (demand.workers, demand.capacity, demand.free) == (1, 4, 4)


async def test_a_paused_queue_says_so(engine: Engine) -> None:
    await engine.submit()
    await engine.execute(PauseQueue("default", paused=True))

    assert (await only(engine)).is_paused


async def test_the_rates_of_a_queue_divide_over_its_lanes_as_its_tasks_did(
    engine: Engine,
) -> None:
    worker = await engine.register(max_concurrent_tasks=100)
    plain = [NewTask(name="a")] * 30
    await engine.submit_all([*plain, *[NewTask(name="a", requires=("gpu",))] * 10])
    await engine.report(worker, *[done(task) for task in await engine.lease(worker)])

    free, fit = [group.demand for group in await groups(engine)]

    assert (free.submitted_per_s, fit.submitted_per_s) == (30 / 60, 10 / 60)
    assert (free.finished_per_s, fit.finished_per_s) == (30 / 60, 0.0)


async def test_a_queue_that_no_sample_shows_divides_by_what_is_there(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaling, "MOST_SAMPLED", 0)
    await engine.submit(*["a"] * 3)
    await engine.submit("a", requires=("gpu",))

    rates = [group.demand.submitted_per_s for group in await groups(engine)]

    assert rates == [3 / 60, 1 / 60]


async def test_durations_of_a_group_are_those_of_the_tasks_that_are_there(
    engine: Engine, clock: TurnedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autoscaling, "KEPT_COSTS", 0)  # however slow the machine is
    worker = await engine.register(heartbeat_interval_ms=60_000)
    await engine.submit("quick", "slow")
    quick, slow = await engine.lease(worker)
    clock.turn(100)
    await engine.report(worker, done(quick))
    clock.turn(900)
    await engine.report(worker, done(slow))

    idle = (await only(engine)).duration_ms
    await engine.submit("slow")
    clock.turn(1_000)
    waiting = (await only(engine)).duration_ms

    assert idle == pytest.approx(550.0, rel=0.01)
    assert waiting == 1_000.0


@pytest.mark.only("sqlite")  # time goes back with a write only where the store has the clock
async def test_a_reading_is_kept_for_a_second(engine: Engine, clock: TurnedClock) -> None:
    await engine.submit()

    depths = [(await only(engine)).depth]
    await engine.submit()
    for by_ms in (999, 1, -5_000):
        clock.turn(by_ms)
        depths.append((await only(engine)).depth)
        await engine.submit()

    assert depths == [1, 1, 3, 4]


async def test_many_that_ask_at_once_share_one_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autoscaling, "KEPT_MS", 600_000)  # however slow the machine is
    async with running(tmp_path / "rota.db", inline=False) as engine:
        await engine.submit()
        reads: list[int] = []

        # Not every read of the store: a coordinator that begins to lead reads counters beside it.
        def counted(tx: Transaction, lanes: Lanes, *, now_ms: int) -> ScaleInputs:
            reads.append(now_ms)
            return read_inputs(tx, lanes, now_ms=now_ms)

        monkeypatch.setattr(autoscaling, "read_inputs", counted)

        answers = await asyncio.gather(*[only(engine) for _ in range(50)])

        assert {answer.depth for answer in answers} == {1}
        assert len(reads) == 1


def recent(*durations_ms: float, at_ms: int = NOW_MS) -> RecentStatistics:
    known = record(EMPTY, [Outcome(ok=True, duration_ms=one) for one in durations_ms], now_ms=at_ms)
    return RecentStatistics(*[getattr(known, name) for name in known.__struct_fields__])


def test_durations_of_all_workers_count_the_recent_ones_more() -> None:
    old = recent(1_000.0, at_ms=NOW_MS - 300_000)

    means = mean_durations([("a", old), ("a", recent(100.0)), ("b", recent(7.0))], now_ms=NOW_MS)

    assert means["a"].mean_ms == pytest.approx((500 + 100) / 1.5)
    assert means["b"].mean_ms == 7.0


def test_what_is_long_forgotten_is_better_than_nothing() -> None:
    ancient = recent(40.0, 60.0, at_ms=NOW_MS - 10**12)

    assert mean_durations([("a", ancient)], now_ms=NOW_MS)["a"].mean_ms == pytest.approx(50.0)
    both = mean_durations([("a", ancient), ("a", recent(7.0))], now_ms=NOW_MS)
    assert both["a"].mean_ms == pytest.approx(7.0, rel=0.001)
