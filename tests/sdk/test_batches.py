"""Handlers that get the items of several tasks, each of which keeps its lease and its result."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from rota import Batch, Discard, Retry, Rota, Snooze
from rota.core.tasks.model import TaskError
from rota.errors import Invalid
from rota.messages import LeaseView, ResultItem
from rota.sdk.task import Task
from rota.sdk.worker.executor import Executor
from rota.sdk.worker.runners.in_process import CANCELLED
from rota.testing import TestCoordinator, perform
from tests.sdk.serving import PATIENCE_S, Server, working
from tests.sdk.test_runners import NoLogs

LONG_MS = 60_000  # long enough that only a full batch begins


class Page(msgspec.Struct):
    id: int


class Reports:
    """What an executor reports, and a way to wait for it."""

    def __init__(self) -> None:
        self.items: dict[str, ResultItem] = {}
        self._changed = asyncio.Event()

    def note(self, lease: LeaseView, item: ResultItem) -> None:
        assert lease.task_id == item.task_id
        assert lease.task_id not in self.items, "an attempt is reported once"
        self.items[lease.task_id] = item
        self._changed.set()

    async def of(self, count: int) -> dict[str, ResultItem]:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.items) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.items


@asynccontextmanager
async def executing(task: Task[..., Any]) -> AsyncIterator[tuple[Executor, Reports]]:
    reports = Reports()
    executor = Executor(
        {task.name: task},
        concurrency=100,
        report=reports.note,
        on_progress=lambda *_: None,
        log_sink=NoLogs(),
        on_free_slot=lambda: None,
    )
    yield executor, reports
    assert executor.is_idle
    assert executor.free_slots == 100
    await executor.close()


def lease(task: Task[..., Any], number: int, payload: Any = None, **more: Any) -> LeaseView:
    content = {"items": number} if payload is None else payload
    return LeaseView(
        task_id=f"{number:016x}",
        fence=number + 1,
        name=task.name,
        payload=Raw(msgspec.json.encode(content)),
        attempt=1,
        max_attempts=3,
        **more,
    )


def error_of(item: ResultItem) -> TaskError:
    assert isinstance(item.error, TaskError)
    return item.error


def task_of(size: int, wait_ms: int = LONG_MS) -> tuple[Task[..., Any], list[list[int]]]:
    app, calls = Rota("http://127.0.0.1:1"), []

    @app.task(batch=Batch(size=size, wait_ms=wait_ms))
    def handle(items: list[int]) -> list[Any]:
        calls.append(items)
        return [_outcome(item) for item in items]

    return handle, calls


def _outcome(item: int) -> Any:
    match item % 5:
        case 1:
            return ValueError(f"not {item}")
        case 2:
            return Retry(in_ms=5)
        case 3:
            return Snooze(7)
        case 4:
            return Discard("no")
        case _:
            return item


# --- one call for many tasks --------------------------------------------------------------------


async def test_a_full_batch_is_one_call_and_each_task_has_its_own_outcome() -> None:
    task, calls = task_of(5)
    async with executing(task) as (executor, reports):
        executor.begin([lease(task, number) for number in range(3)])
        assert calls == []
        executor.begin([lease(task, number) for number in range(3, 5)])
        items = [*(await reports.of(5)).values()]

    assert calls == [[0, 1, 2, 3, 4]]
    assert [item.fence for item in items] == [1, 2, 3, 4, 5]
    assert (items[0].ok, items[0].result) == (True, Raw(b"0"))
    assert (items[1].ok, error_of(items[1]).message) == (False, "not 1")
    assert error_of(items[1]).type == "ValueError"
    assert (items[2].ok, items[2].retry_in_ms) == (False, 5)
    assert items[3].snooze_ms == 7
    assert not error_of(items[4]).retryable


async def test_a_batch_that_is_not_full_begins_when_its_time_is_over() -> None:
    task, calls = task_of(100, wait_ms=1)
    async with executing(task) as (executor, reports):
        executor.begin([lease(task, 0), lease(task, 5)])
        await reports.of(2)

    assert calls == [[0, 5]]


@given(st.lists(st.integers(1, 7), max_size=8), st.integers(1, 6))
def test_every_task_is_in_one_batch_however_leases_arrive(shares: list[int], size: int) -> None:
    task, calls = task_of(size, wait_ms=0)

    async def run() -> dict[str, ResultItem]:
        async with executing(task) as (executor, reports):
            number = 0
            for share in shares:
                executor.begin([lease(task, 5 * (number + one)) for one in range(share)])
                number += share
            return await reports.of(number)

    items = asyncio.run(run())

    handled = sorted(item for call in calls for item in call)
    assert handled == [5 * number for number in range(sum(shares))]
    assert all(1 <= len(call) <= size for call in calls)
    assert all(item.ok for item in items.values())


async def test_an_error_fails_every_task_of_the_batch() -> None:
    app = Rota("http://127.0.0.1:1")

    @app.task(batch=Batch(size=2, wait_ms=LONG_MS))
    async def handle(items: list[int]) -> None:
        await asyncio.sleep(0)
        raise RuntimeError(f"{len(items)} items")

    async with executing(handle) as (executor, reports):
        executor.begin([lease(handle, 1), lease(handle, 2)])
        items = await reports.of(2)

    assert [error_of(item).message for item in items.values()] == ["2 items"] * 2


@pytest.mark.parametrize("results", [[1], [1, 2, 3], 7, {"a": 1}])
async def test_results_that_do_not_fit_the_items_fail_them(results: Any) -> None:
    app = Rota("http://127.0.0.1:1")

    @app.task(batch=Batch(size=2, wait_ms=LONG_MS))
    def handle(items: list[int]) -> list[Any]:
        return results  # type: ignore[no-any-return]  # what this test is about

    async with executing(handle) as (executor, reports):
        executor.begin([lease(handle, 1), lease(handle, 2)])
        items = await reports.of(2)

    assert [error_of(item).type for item in items.values()] == ["unreadable_result"] * 2


async def test_an_item_that_cannot_be_read_fails_alone() -> None:
    task, calls = task_of(2)
    async with executing(task) as (executor, reports):
        executor.begin([lease(task, 1, {"items": "text"}), lease(task, 5)])
        items = [*(await reports.of(2)).values()]

    assert calls == [[5]]
    assert error_of(items[0]).type == "invalid_arguments"
    assert items[1].ok


# --- stopping -----------------------------------------------------------------------------------


async def test_a_task_that_is_stopped_while_it_waits_is_not_in_the_batch() -> None:
    task, calls = task_of(2)
    async with executing(task) as (executor, reports):
        executor.begin([lease(task, 0)])
        executor.stop(executor.running[f"{0:016x}"], CANCELLED)
        assert executor.free_slots == 100
        executor.begin([lease(task, 5), lease(task, 10)])
        items = await reports.of(2)

    assert calls == [[5, 10]]
    assert f"{0:016x}" not in items


async def test_a_task_that_is_stopped_while_it_runs_is_not_reported() -> None:
    app = Rota("http://127.0.0.1:1")
    began, may_end = threading.Event(), threading.Event()

    @app.task(batch=Batch(size=2, wait_ms=LONG_MS))
    def handle(items: list[int]) -> None:
        began.set()
        may_end.wait(PATIENCE_S)

    async with executing(handle) as (executor, reports):
        executor.begin([lease(handle, 1), lease(handle, 2)])
        await asyncio.to_thread(began.wait, PATIENCE_S)
        executor.stop(executor.running[f"{1:016x}"], CANCELLED)
        assert executor.free_slots == 98, "its handler still runs"
        may_end.set()
        items = await reports.of(1)

    assert [*items] == [f"{2:016x}"]


async def test_an_async_batch_is_cancelled_when_all_its_tasks_are() -> None:
    app = Rota("http://127.0.0.1:1")
    began, ended = asyncio.Event(), asyncio.Event()

    @app.task(batch=Batch(size=2, wait_ms=LONG_MS))
    async def handle(items: list[int]) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with executing(handle) as (executor, reports):
        executor.begin([lease(handle, 1), lease(handle, 2)])
        async with asyncio.timeout(PATIENCE_S):
            await began.wait()
            executor.stop(executor.running[f"{1:016x}"], CANCELLED)
            assert not ended.is_set()
            executor.stop(executor.running[f"{2:016x}"], CANCELLED)
            await ended.wait()
            while not executor.is_idle:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0)

    assert reports.items == {}


# --- definition, tests, and a real worker -------------------------------------------------------


def test_a_handler_that_cannot_get_a_batch_is_refused() -> None:
    app = Rota("http://127.0.0.1:1")

    def two(items: list[int], more: int) -> None: ...
    def one(items: list[int]) -> None: ...

    decorate: Any = app.task(batch=Batch(size=2))
    with pytest.raises(Invalid, match="takes one argument"):
        decorate(two)
    with pytest.raises(Invalid, match="process"):
        app.task(batch=Batch(size=2), run_in="process")(one)
    with pytest.raises(Invalid, match="batch"):
        app.task(batch=Batch(size=0))(one)


def test_a_batch_task_is_tested_as_any_other() -> None:
    app = Rota("http://127.0.0.1:1")

    @app.task(batch=Batch(size=10, wait_ms=5))
    def number(pages: list[Page]) -> list[int]:
        return [page.id for page in pages]

    assert perform(number, Page(7)).result == 7
    with TestCoordinator() as coordinator:
        coordinator.attach(app)
        handles = [number.enqueue(Page(one)) for one in range(3)]
        coordinator.drain()
        assert [handle.result() for handle in handles] == [0, 1, 2]


def test_a_real_worker_gathers_the_tasks_of_a_batch(server: Server, transport: str) -> None:
    assert transport
    calls: list[int] = []
    with Rota(server.url) as app:

        @app.task(batch=Batch(size=20, wait_ms=LONG_MS))
        async def double(pages: list[Page]) -> list[int]:
            calls.append(len(pages))
            return [2 * page.id for page in pages]

        with working(app, concurrency=20):
            handles = app.enqueue_many([double.bind(Page(number)) for number in range(40)])
            results = [handle.result(PATIENCE_S) for handle in handles]

    assert results == [2 * number for number in range(40)]
    assert calls == [20, 20]
