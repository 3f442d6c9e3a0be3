"""Logs of attempts: kept by the batch, read in pages, followed from any coordinator."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rota.core import limits
from rota.core.commands import AttemptLines, CancelTasks, ReportLogs
from rota.core.ids import TaskId
from rota.core.tasks.logs import LogLine
from rota.core.tasks.model import Backoff, TaskRecord
from rota.core.workers.model import WorkerRecord
from rota.engine.queries.tasks import TaskLog
from rota.engine.topics import NewLines
from tests.conftest import TurnedClock
from tests.engine.running import Engine, done, soon
from tests.engine.sharing import Replica, replicas
from tests.engine.test_statements import reads_of

NOW = Backoff(kind="none")
DAY_MS = 24 * 3600 * 1000


def line(message: str = "m", level: Any = "info") -> LogLine:
    return LogLine(5, level, "shop", message)


async def send(
    engine: Engine, worker: WorkerRecord, task: TaskRecord, *lines: LogLine, **changes: Any
) -> str:
    items = [AttemptLines(task.id, task.fence, [*lines], **changes)]
    command = ReportLogs(worker_id=worker.id, incarnation=worker.incarnation, items=items)
    (outcome,) = (await engine.execute(command)).outcomes
    return outcome


async def read(engine: Engine, task_id: TaskId, after: int = 0, **query: Any) -> TaskLog:
    return await engine.coordinator.queries.tasks.log_after(task_id, after, **query)


def messages(found: TaskLog) -> list[str]:
    return [one.line.message for one in found.lines]


async def test_lines_are_kept_over_attempts_and_after_the_end(engine: Engine) -> None:
    worker = await engine.register()
    (task_id,) = await engine.submit(max_attempts=2, backoff=NOW)
    (first,) = await engine.lease(worker)
    await send(engine, worker, first, line("a"), line("b"))
    await engine.report(worker, done(first, ok=False))
    (second,) = await engine.lease(worker)
    await send(engine, worker, second, line("c"), dropped=4)
    await engine.report(worker, done(second))

    found = await read(engine, task_id)

    assert messages(found) == ["a", "b", "c"]
    assert [one.number for one in found.lines] == [1, 2, 3]
    assert [(one.attempt, one.lines, one.dropped) for one in found.attempts.values()] == [
        (1, 2, 0),
        (2, 1, 4),
    ]
    assert messages(await read(engine, task_id, attempt=1)) == ["a", "b"]


async def test_lines_and_result_may_come_in_one_batch_in_any_order(engine: Engine) -> None:
    worker = await engine.register()
    ids = await engine.submit("a", "b")
    first, second = await engine.lease(worker)

    outcomes = await asyncio.gather(
        send(engine, worker, first, line("before")),
        engine.report(worker, done(first), done(second)),
        send(engine, worker, second, line("after")),
    )

    assert [*outcomes] == ["accepted", ["accepted"] * 2, "accepted"]
    assert [messages(await read(engine, one)) for one in ids] == [["before"], ["after"]]


async def test_the_lines_of_a_lost_worker_stay_and_its_later_ones_are_refused(
    engine: Engine,
) -> None:
    worker = await engine.register()
    (task_id,) = await engine.submit()
    (task,) = await engine.lease(worker)
    await send(engine, worker, task, line("the last that was heard"))
    again = await engine.register()  # a process that replaces the first one
    (second,) = await engine.lease(again)

    assert await send(engine, again, task, line("stale")) == "stale"
    assert await send(engine, again, second, line("the next attempt")) == "accepted"
    assert messages(await read(engine, task_id)) == ["the last that was heard", "the next attempt"]


async def test_a_cancelled_handler_may_say_its_last_words(engine: Engine) -> None:
    worker = await engine.register()
    (task_id,) = await engine.submit()
    (task,) = await engine.lease(worker)
    await engine.execute(CancelTasks((task_id,)))

    soon_after = await send(engine, worker, task, line("cleaning up"))
    engine.clock.turn(limits.MAX_LATE_LOG_MS + 1)
    later = await send(engine, worker, task, line("too late"))

    assert (soon_after, later) == ("accepted", "stale")
    assert messages(await read(engine, task_id)) == ["cleaning up"]


async def test_the_bounds_hold_over_batches(engine: Engine) -> None:
    worker = await engine.register()
    (task_id,) = await engine.submit()
    (task,) = await engine.lease(worker)

    for _ in range(3):
        await send(engine, worker, task, *([line("m", "error")] * 600))

    found = await read(engine, task_id)
    (usage,) = found.attempts.values()
    assert (usage.lines, usage.dropped, usage.sent) == (limits.MAX_LOG_LINES, 800, 1_800)


async def test_pages_follow_each_other_and_are_filtered_by_level(engine: Engine) -> None:
    worker = await engine.register()
    (task_id,) = await engine.submit()
    (task,) = await engine.lease(worker)
    for number in range(4):
        levels = ("info", "warning", "error")
        await send(engine, worker, task, *(line(f"{number}{one}", one) for one in levels))

    pages, after = [], 0
    while True:
        page = await read(engine, task_id, after, limit=5)
        pages.append(len(page.lines))
        after = page.scanned
        if not page.has_more:
            break
    urgent = await read(engine, task_id, level="error")
    few = await read(engine, task_id, level="error", limit=2)

    assert pages == [5, 5, 2]
    assert messages(urgent) == ["0error", "1error", "2error", "3error"]
    assert (len(few.lines), few.has_more) == (2, True)
    rest = await read(engine, task_id, few.scanned, level="error")
    assert messages(few) + messages(rest) == messages(urgent)


async def test_an_attempt_that_only_dropped_lines_has_no_page(engine: Engine) -> None:
    worker = await engine.register()
    (task_id,) = await engine.submit(max_attempts=2, backoff=NOW)
    (first,) = await engine.lease(worker)
    await send(engine, worker, first, line())
    await engine.report(worker, done(first, ok=False))
    (second,) = await engine.lease(worker)
    await send(engine, worker, second, dropped=3)

    found = await read(engine, task_id, attempt=2)

    assert (found.lines, found.has_more) == ([], False)
    assert [one.dropped for one in found.attempts.values()] == [0, 3]


async def test_a_page_has_a_limit_in_bytes_and_at_least_one_line(engine: Engine) -> None:
    worker = await engine.register()
    (task_id,) = await engine.submit(max_attempts=9, backoff=NOW)
    for _ in range(5):
        (task,) = await engine.lease(worker)
        large = line("m" * limits.MAX_LOG_MESSAGE_BYTES)
        await send(engine, worker, task, *([large] * 40))
        await engine.report(worker, done(task, ok=False))

    page = await read(engine, task_id)
    rest = await read(engine, task_id, page.scanned)

    assert page.has_more
    assert sum(len(one.line.message) for one in page.lines) <= limits.MAX_LOG_PAGE_BYTES
    total = sum(one.lines for one in page.attempts.values())
    assert len(page.lines) + len(rest.lines) == total
    assert not rest.has_more


async def test_logs_go_with_the_history_of_their_task(engine: Engine) -> None:
    worker = await engine.register()
    (task_id,) = await engine.submit()
    (task,) = await engine.lease(worker)
    await send(engine, worker, task, line())
    await engine.report(worker, done(task))

    await engine.turn(400 * DAY_MS)

    found = await read(engine, task_id)
    assert (found.lines, found.attempts) == ([], {})


async def test_a_reader_is_woken_by_new_lines_and_by_the_end(engine: Engine) -> None:
    worker = await engine.register()
    (task_id,) = await engine.submit()
    (task,) = await engine.lease(worker)

    with engine.coordinator.subscribe(NewLines(task_id)) as newer:
        waiting = asyncio.ensure_future(newer.wait(600_000))
        await send(engine, worker, task, line())
        assert await soon(waiting) == task_id
    with engine.coordinator.subscribe(NewLines(task_id)) as newer:
        waiting = asyncio.ensure_future(newer.wait(600_000))
        await engine.report(worker, done(task))
        assert await soon(waiting) == task_id


async def test_batches_without_logs_do_not_touch_their_tables(engine: Engine) -> None:
    worker = await engine.register()
    with reads_of() as reads:
        await engine.submit()
        (task,) = await engine.lease(worker)
        await engine.report(worker, done(task))

    assert reads == []


# --- several coordinators -------------------------------------------------------------------------


@pytest.fixture(params=[0, 1], ids=["first-leads", "second-leads"])
async def pair(
    clock: TurnedClock, request: pytest.FixtureRequest
) -> AsyncIterator[tuple[Replica, Replica]]:
    async with replicas(clock, leader=request.param) as engines:
        first, second = engines
        yield first, second


async def test_lines_sent_to_one_coordinator_wake_a_reader_at_another(
    pair: tuple[Replica, Replica],
) -> None:
    writing, reading = pair
    worker = await writing.register()
    (task_id,) = await writing.submit()
    (task,) = await writing.lease(worker)

    with reading.coordinator.subscribe(NewLines(task_id)) as newer:
        waiting = asyncio.ensure_future(newer.wait(600_000))
        await send(writing, worker, task, line("from the other"))
        assert await soon(waiting) == task_id

    assert messages(await read(reading, task_id)) == ["from the other"]
