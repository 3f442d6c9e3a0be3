"""Fairness between the tenants of a queue, on a running coordinator."""

from collections import Counter
from typing import Any
from unittest.mock import patch

import pytest

from rota.core.flows.commands import ChangeSettings, LookAtTenants, QueueChange
from rota.core.workers.model import WorkerRecord
from rota.engine.working_set import held_tenants
from tests.conftest import TurnedClock
from tests.engine.limiting import change, fleet, submit
from tests.engine.running import Engine, done


async def order(engine: Engine, worker: WorkerRecord, count: int) -> list[str | None]:
    tasks = []
    for _ in range(count):
        tasks += await engine.lease(worker, 1)
    return [task.options.fair_key for task in tasks]


async def test_tenants_take_turns_however_much_one_of_them_has(engine: Engine) -> None:
    worker = await fleet(engine)
    await submit(engine, 50, fair_key="big")
    await submit(engine, 3, fair_key="small")
    await submit(engine, 2)

    first = await order(engine, worker, 6)

    assert {first.count("big"), first.count("small"), first.count(None)} == {2}


async def test_a_batch_is_shared_between_tenants_too(engine: Engine) -> None:
    worker = await fleet(engine)
    await submit(engine, 50, fair_key="a")
    await submit(engine, 50, fair_key="b")

    leased = await engine.lease(worker, 20)

    assert sum(task.options.fair_key == "a" for task in leased) == 10


async def test_weights_divide_the_starts(engine: Engine) -> None:
    worker = await fleet(engine)
    await submit(engine, 60, fair_key="a")
    await submit(engine, 60, fair_key="b")
    await engine.execute(
        ChangeSettings(queue="default", change=QueueChange(weights={"a": 3.0, "b": 1.0}))
    )

    served = await order(engine, worker, 40)

    assert abs(served.count("a") - 30) <= 1


async def test_a_higher_priority_comes_before_fairness(engine: Engine) -> None:
    worker = await fleet(engine)
    await submit(engine, 2, fair_key="a")
    await submit(engine, 2, fair_key="b", priority=5)

    assert await order(engine, worker, 4) == ["b", "b", "a", "a"]


async def test_a_tenant_saves_up_no_time_while_it_has_no_work(engine: Engine) -> None:
    worker = await fleet(engine)
    await submit(engine, 30, fair_key="a")
    await order(engine, worker, 20)
    await submit(engine, 20, fair_key="b")

    served = await order(engine, worker, 10)

    assert abs(served.count("a") - 5) <= 1


async def test_tenants_are_shown_with_what_waits_runs_and_was_started(engine: Engine) -> None:
    worker = await fleet(engine)
    await change(engine, weights={"b": 3.0})
    await submit(engine, 5, fair_key="a")
    await submit(engine, 9, fair_key="b")
    await submit(engine, 2)
    await submit(engine, 4, fair_key="elsewhere", queue="mail")
    leased = [task for _ in range(4) for task in await engine.lease(worker, 1)]
    await engine.report(worker, done(leased[0]))

    found = await engine.execute(LookAtTenants(queue="default", most=10))

    ended = leased[0].options.fair_key
    starts = Counter(task.options.fair_key for task in leased)
    assert found.total == 2
    assert [(one.key, one.weight) for one in found.items] == [("b", 3.0), ("a", 1.0)]
    for one, count in zip(found.items, (9, 5), strict=True):
        assert one.waiting == count - starts[one.key]
        assert one.running == starts[one.key] - (one.key == ended)
        assert one.share == pytest.approx(starts[one.key] / (starts["a"] + starts["b"]))


async def test_the_tenants_with_the_most_tasks_are_shown(engine: Engine) -> None:
    for number in range(30):
        await submit(engine, number // 5 + 1, fair_key=f"t{number}")
    await submit(engine, 40, fair_key="big")

    found = await engine.execute(LookAtTenants(queue="default", most=4))

    assert found.total == 31
    assert [one.waiting for one in found.items] == [40, 6, 6, 6]


async def test_shares_outlive_a_change_of_settings_and_fade(
    engine: Engine, clock: TurnedClock
) -> None:
    worker = await fleet(engine)
    await submit(engine, 8, fair_key="a")
    await submit(engine, 8, fair_key="b")
    await engine.lease(worker, 4)
    await change(engine, max_queued=100)
    clock.turn(600_000)
    await change(engine, weights={"a": 100.0, "b": 0.01})
    starts = Counter(task.options.fair_key for task in await engine.lease(worker, 4))

    shares = {
        one.key: one.share
        for one in (await engine.execute(LookAtTenants(queue="default", most=4))).items
    }

    assert starts["a"] != starts["b"]
    assert shares == {key: pytest.approx(starts[key] / 4, abs=0.01) for key in ("a", "b")}


async def test_tenants_without_tasks_are_forgotten_beyond_a_number(engine: Engine) -> None:
    worker = await fleet(engine)
    with patch.object(held_tenants, "MOST_IDLE", 3):
        for number in range(10):
            await submit(engine, fair_key=f"t{number}")
            (task,) = await engine.lease(worker)
            await engine.report(worker, done(task))

    tenants = engine.coordinator.leading.pipeline._held.flows.tenants
    assert {one.key for one in tenants} <= {"", "t7", "t8", "t9"}


# --- by time --------------------------------------------------------------------------------------


async def used(engine: Engine, worker: WorkerRecord, times: dict[str | None, int]) -> Counter[Any]:
    """Run 200 tasks one after the other, each for the time of its tenant."""
    total: Counter[Any] = Counter()
    for _ in range(200):
        (task,) = await engine.lease(worker, 1)
        took_ms = times[task.options.fair_key]
        engine.clock.turn(took_ms)
        await engine.report(worker, done(task))
        total[task.options.fair_key] += took_ms
    return total


async def test_tenants_can_share_the_time_of_workers(engine: Engine) -> None:
    worker = await fleet(engine)
    await change(engine, fairness="time", weights={"c": 2.0})
    for key in ("a", "b", "c", None):
        await submit(engine, 200, fair_key=key)

    total = await used(engine, worker, {"a": 900, "b": 100, "c": 300, None: 200})

    assert abs(total["a"] - total["b"]) <= 1_800
    assert abs(total[None] - total["b"]) <= 1_800
    assert abs(total["c"] - 2 * total["b"]) <= 1_800
    shares = (await engine.execute(LookAtTenants(queue="default", most=1))).items
    assert shares[0].share is not None


async def test_a_claim_of_many_tasks_is_divided_by_the_time_that_they_are_expected_to_take(
    engine: Engine,
) -> None:
    worker = await fleet(engine)
    await change(engine, fairness="time")
    for key in ("slow", "fast"):
        await submit(engine, 400, fair_key=key)
    await used(engine, worker, {"slow": 900, "fast": 100})

    leased = await engine.lease(worker, 100)

    slow = sum(task.options.fair_key == "slow" for task in leased)
    assert 8 <= slow <= 12


async def test_time_of_what_runs_over_a_restart_is_charged_when_it_ends(engine: Engine) -> None:
    worker = await fleet(engine)
    await change(engine, fairness="time")
    await submit(engine, 50, fair_key="a")
    (long,) = await engine.lease(worker, 1)
    await submit(engine, 50, fair_key="b")
    engine.coordinator.leading.pipeline._held._is_certain = False
    engine.clock.turn(10_000)
    await engine.report(worker, done(long))

    assert await order(engine, worker, 20) == ["b"] * 20
