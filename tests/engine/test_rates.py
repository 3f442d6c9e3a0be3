"""Limits on how many tasks of a key start in a period, on a running coordinator."""

from typing import Any

import pytest

from rota.core.events import EventFilter, types_of
from rota.core.flows.commands import (
    CloseLimit,
    ConsumeLimit,
    DropLimit,
    PutLimit,
)
from rota.core.flows.model import Concurrency, Rate
from rota.core.tasks.model import TaskRecord
from rota.errors import KeyBusy, LimitNotFound
from tests.conftest import TurnedClock
from tests.engine.limiting import fleet, limit, submit
from tests.engine.running import Engine, done, running


async def test_starts_of_a_rate_are_spaced_evenly(engine: Engine, clock: TurnedClock) -> None:
    worker = await fleet(engine)
    await submit(engine, 6, rate=Rate(key="r", limit=4, per_ms=1_000))

    starts = []
    for _ in range(5):
        starts.append(len(await engine.lease(worker)))
        await engine.turn(125)

    assert starts == [1, 0, 1, 0, 1]


async def test_a_burst_comes_at_once_after_a_quiet_time(engine: Engine) -> None:
    worker = await fleet(engine)
    await submit(engine, 9, rate=Rate(key="r", limit=10, per_ms=1_000, burst=3))

    first = len(await engine.lease(worker))
    await engine.turn(200)

    assert (first, len(await engine.lease(worker))) == (3, 2)


async def test_a_window_counts_the_starts_of_the_last_period(engine: Engine) -> None:
    worker = await fleet(engine)
    await submit(engine, 9, rate=Rate(key="r", limit=3, per_ms=1_000, mode="window"))

    starts = [len(await engine.lease(worker))]
    for by_ms in (999, 1):
        await engine.turn(by_ms)
        starts.append(len(await engine.lease(worker)))

    assert starts == [3, 0, 3]


async def test_a_waiting_call_gets_its_task_when_the_rate_opens(engine: Engine) -> None:
    worker = await fleet(engine)
    await submit(engine, 2, rate=Rate(key="r", limit=1, per_ms=1_000))
    await engine.lease(worker)
    call = await engine.parked(worker)

    await engine.turn(1_000)

    assert len((await call).leases) == 1


async def test_single_tasks_of_many_flows_follow_each_other_at_the_rate(engine: Engine) -> None:
    """Each flow is gone with its task, and must still leave word of when the next may start."""
    worker = await fleet(engine)
    for tenant in "abc":
        await submit(engine, rate=Rate(key="r", limit=1, per_ms=1_000), fair_key=tenant)

    starts: list[TaskRecord] = []
    for _ in range(3):
        starts += await engine.lease(worker)
        assert await engine.lease(worker) == []
        await engine.turn(1_000)

    assert len(starts) == 3


async def test_a_rate_goes_on_after_a_restart(engine: Engine, tmp_path: Any) -> None:
    path = tmp_path / "again.db"
    async with running(path, engine.clock) as first:
        worker = await fleet(first)
        await submit(first, 3, rate=Rate(key="r", limit=1, per_ms=1_000))
        await first.lease(worker)
    async with running(path, engine.clock) as second:
        assert await second.lease(worker) == []
        await second.turn(1_000)

        assert len(await second.lease(worker)) == 1


async def test_uses_outside_tasks_count_for_a_rate(engine: Engine) -> None:
    worker = await fleet(engine)
    await engine.execute(PutLimit(key="r", limit=1, per_ms=1_000))
    free = await engine.execute(ConsumeLimit(key="r"))
    late = await engine.execute(ConsumeLimit(key="r"))
    await submit(engine, rate=Rate(key="r", limit=9))

    assert (free.opens_at_ms, late.opens_at_ms) == (None, engine.clock.now_ms() + 1_000)
    assert await engine.lease(worker) == []


async def test_a_closed_rate_lets_nothing_start(engine: Engine) -> None:
    worker = await fleet(engine)
    await submit(engine, 2, rate=Rate(key="r", limit=1_000))

    await engine.execute(CloseLimit(key="r", for_ms=5_000))
    assert await engine.lease(worker) == []
    await engine.turn(5_000)

    assert len(await engine.lease(worker)) >= 1


async def test_a_rate_limited_task_closes_its_rates_for_every_task(engine: Engine) -> None:
    worker = await fleet(engine)
    shared = Rate("s", limit=1_000, burst=2)
    await submit(engine, 1, max_attempts=1, rate=[Rate("r", limit=1_000), shared])
    (task,) = await engine.lease(worker)
    (other,) = await submit(engine, 1, name="other", rate=shared)
    (free,) = await submit(engine, 1, rate=Rate("t", limit=1_000))

    await engine.report(worker, done(task, ok=False, snooze_ms=5_000, rate_limited=True))
    started = await engine.lease(worker)
    await engine.turn(4_999)
    assert await engine.lease(worker) == []
    opens_at_ms = (await limit(engine, "r")).opens_at_ms
    await engine.turn(1)
    later = await engine.lease(worker)

    assert [one.id for one in started] == [free]
    assert opens_at_ms == engine.clock.now_ms()
    assert {one.id for one in later} == {task.id, other}
    assert {one.attempt for one in later} == {1}


async def test_a_closed_rate_stays_closed_over_a_restart(engine: Engine) -> None:
    worker = await fleet(engine)
    await submit(engine, 2, rate=Rate("r", limit=1_000, burst=9))
    task, other = await engine.lease(worker)

    await engine.report(
        worker, done(task, ok=False, snooze_ms=5_000, rate_limited=True), done(other, snooze_ms=1)
    )
    engine.coordinator.leading.pipeline._held._is_certain = False
    await engine.turn(1)

    assert await engine.lease(worker) == []
    await engine.turn(4_999)
    assert len(await engine.lease(worker)) == 2


async def test_an_operator_opens_a_closed_rate_by_setting_it(engine: Engine) -> None:
    worker = await fleet(engine)
    await submit(engine, 1, rate=Rate("r", limit=1_000))
    await engine.execute(CloseLimit(key="r", for_ms=5_000))

    await engine.execute(PutLimit(key="r"))
    assert await engine.lease(worker) == []
    await engine.execute(PutLimit(key="r", limit=10))

    assert len(await engine.lease(worker)) == 1


async def test_only_known_limits_can_be_used(engine: Engine) -> None:
    for command in (ConsumeLimit(key="r"), CloseLimit(key="r", for_ms=1), DropLimit(key="r")):
        with pytest.raises(LimitNotFound):
            await engine.execute(command)


# --- events and metrics ---------------------------------------------------------------------------


async def told(engine: Engine, kind: str) -> list[tuple[str, str, Any]]:
    found = await engine.coordinator.queries.events.after(
        0, EventFilter(types=types_of([kind])), limit=100
    )
    return [(one.type, one.subject, one.data) for one in found.items]


async def test_a_closed_rate_is_told_once_while_it_is_closed(engine: Engine) -> None:
    worker = await fleet(engine)
    await submit(engine, 3, rate=Rate(key="api", limit=1_000, burst=10))
    tasks = await engine.lease(worker)
    until_ms = engine.clock.now_ms() + 10_000
    for task in tasks:
        await engine.report(worker, done(task, snooze_ms=10_000, rate_limited=True))
    await engine.turn(10_000)
    await engine.execute(CloseLimit(key="api", for_ms=5_000))

    assert await told(engine, "limit-closed") == [
        ("limit-closed", "api", {"until_ms": until_ms}),
        ("limit-closed", "api", {"until_ms": until_ms + 5_000}),
    ]


async def test_what_operators_do_to_limits_is_told_and_what_tasks_declare_is_not(
    engine: Engine,
) -> None:
    await submit(engine, concurrency=Concurrency(key="a", limit=2))
    await submit(engine, concurrency=Concurrency(key="a", limit=3))
    await engine.execute(PutLimit(key="a", limit=5))
    await engine.execute(PutLimit(key="r", limit=10, per_ms=1_000))
    await engine.execute(DropLimit(key="a"))
    await engine.execute(DropLimit(key="r"))

    changed = {"kind": "concurrency", "limit": 5, "was": 3, "pinned": True}
    assert await told(engine, "limit-*") == [
        ("limit-changed", "a", changed),
        (
            "limit-changed",
            "r",
            {"kind": "rate", "limit": 10, "per_ms": 1_000, "burst": 1, "pinned": True},
        ),
        ("limit-changed", "a", {"kind": "concurrency", "limit": 3, "was": 5, "pinned": False}),
        ("limit-deleted", "r", {}),
    ]


async def test_flows_that_limits_make_wait_are_counted_by_kind(engine: Engine) -> None:
    worker = await fleet(engine)
    await submit(engine, 50, concurrency=Concurrency(key="a"))
    await submit(engine, 50, rate=Rate(key="r", limit=1, per_ms=60_000))
    await engine.lease(worker)
    await engine.lease(worker)
    with pytest.raises(KeyBusy):
        await submit(engine, concurrency=Concurrency(key="a", on_full="reject"))

    metrics = engine.coordinator.metrics()
    assert metrics.refusals == {"concurrency": 1, "rate": 1, "key_busy": 1}
    assert metrics.working_set.flows.admission.blocked_count == 2
