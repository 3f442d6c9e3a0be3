"""Priorities that age, on a running coordinator."""

from typing import Any

from rota.core.commands import CancelTasks, RetryTasks, SubmitTasks, TaskFilter
from rota.core.tasks.model import NewTask, TaskRecord
from rota.core.tasks.unique import Unique
from tests.engine.limiting import change, failed, fleet, submit
from tests.engine.running import Engine, done

MINUTE_MS = 60_000


async def order(engine: Engine, count: int = 100, **options: Any) -> list[TaskRecord]:
    worker = await fleet(engine, **options)
    found: list[TaskRecord] = []
    for _ in range(count):
        found += await engine.lease(worker, 1)
    return found


def priorities(tasks: list[TaskRecord]) -> list[int]:
    return [task.priority for task in tasks]


async def test_a_point_of_priority_is_worth_so_much_waiting(engine: Engine) -> None:
    await change(engine, aging_ms=MINUTE_MS)
    await submit(engine, priority=0)
    engine.clock.turn(2 * MINUTE_MS)
    await submit(engine, priority=1)
    await submit(engine, priority=3)
    await submit(engine, priority=-1)
    engine.clock.turn(MINUTE_MS + 1)
    await submit(engine, priority=0)

    assert priorities(await order(engine, 5)) == [3, 0, 1, -1, 0]


async def test_without_ageing_a_higher_priority_always_goes_first(engine: Engine) -> None:
    await submit(engine, priority=0)
    engine.clock.turn(100 * MINUTE_MS)
    await submit(engine, priority=1)

    assert priorities(await order(engine, 2)) == [1, 0]


async def test_what_waits_when_ageing_begins_or_ends_goes_first(engine: Engine) -> None:
    await submit(engine, priority=1)
    await submit(engine, priority=2)
    await change(engine, aging_ms=MINUTE_MS)
    await submit(engine, priority=50)
    await submit(engine, priority=51, fair_key="a")
    await change(engine, aging_ms=None)
    await submit(engine, priority=100)
    await submit(engine, priority=101)

    served = priorities(await order(engine, 6))

    assert served[:2] == [2, 1]
    assert {*served[2:4]} == {50, 51}
    assert served[4:] == [101, 100]


async def test_no_priority_is_starved_by_a_stream_of_higher_ones(engine: Engine) -> None:
    await change(engine, aging_ms=1_000)
    (low,) = await submit(engine, priority=0)
    worker = await fleet(engine)
    served = 0
    while served < 30:
        await submit(engine, 2, priority=10)
        (task,) = await engine.lease(worker, 1)
        await engine.report(worker, done(task))
        if task.id == low:
            break
        served += 1
        engine.clock.turn(1_000)

    assert 9 <= served <= 21


async def test_tenants_take_turns_where_priorities_age(engine: Engine) -> None:
    await change(engine, aging_ms=MINUTE_MS)
    await submit(engine, 10, priority=100, fair_key="a")
    await submit(engine, 3, priority=0, fair_key="b")
    await submit(engine, 1, priority=5, fair_key="b")

    first = await order(engine, 8)

    of_b = [task for task in first if task.options.fair_key == "b"]
    assert priorities(of_b) == [5, 0, 0, 0]


async def test_a_queue_that_ages_is_served_beside_one_that_does_not(engine: Engine) -> None:
    await change(engine, aging_ms=MINUTE_MS)
    aged = await submit(engine, 2, priority=-500)
    await submit(engine, 5, queue="other")
    urgent = await submit(engine, queue="other", priority=1)

    first = [task.id for task in await order(engine, 3)]

    assert first == [*urgent, *aged]


async def test_a_task_keeps_its_rank_through_retries_cancellation_and_a_restart(
    engine: Engine,
) -> None:
    await change(engine, aging_ms=MINUTE_MS)
    old = await submit(engine, 2, priority=2)
    later = await submit(engine, priority=2, delay_ms=1)
    engine.clock.turn(MINUTE_MS)
    young = await submit(engine, 2, priority=2)
    worker = await fleet(engine)
    (first,) = await engine.lease(worker, 1)
    await engine.report(worker, failed(first))
    await engine.execute(CancelTasks((young[1],)))
    await engine.execute(RetryTasks((young[1],)))
    engine.coordinator.leading.pipeline._held._is_certain = False
    await engine.turn(MINUTE_MS)

    listed = await engine.coordinator.queries.tasks.page(TaskFilter(), limit=10, before=None)
    served = [task.id for task in await order(engine, 5)]

    assert [task.id for task in listed] == sorted([*old, *later, *young], reverse=True)
    assert served == [*old, *later, *young]


async def test_a_task_that_is_replaced_keeps_its_place(engine: Engine) -> None:
    await change(engine, aging_ms=MINUTE_MS)
    unique = Unique(key="k", on_conflict="replace")
    tasks = [
        NewTask(name="work", unique=unique, fair_key="a"),
        NewTask(name="work", unique=unique, fair_key="b", priority=9),
    ]
    replaced, _ = await engine.submit_all(tasks)
    (other,) = await submit(engine, priority=1)
    await submit(engine, unique=unique, fair_key="c")

    served = await order(engine, 2)

    assert {task.id for task in served} == {replaced, other}
    assert [task.options.fair_key for task in served if task.id != other] == ["c"]


async def test_a_task_that_is_replaced_in_the_batch_that_adds_it_is_not_lost(
    engine: Engine,
) -> None:
    """The flow of a task is known when it is written, and the second task changes it."""
    unique = Unique(key="k", on_conflict="replace")
    tasks = [NewTask(name="work", unique=unique, fair_key=key) for key in ("a", "b")]
    await engine.execute(SubmitTasks(tasks))

    assert [task.options.fair_key for task in await order(engine, 1)] == ["b"]
