"""Handlers run beside each other without seeing each other."""

import asyncio
import threading
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from typing import Any

from msgspec import Raw

from rota import Rota, current
from rota.core.tasks.logs import LogLine
from rota.messages import LeaseView, ResultItem
from rota.sdk.task import Task
from rota.sdk.worker.runners.in_process import THREADS_AT_ONCE, Attempt, LoopRunner, ThreadRunner

PATIENCE_S = 30.0


class Ends:
    """Collects how attempts ended, until all have."""

    def __init__(self) -> None:
        self.items: dict[str, ResultItem] = {}
        self._changed = asyncio.Event()

    def note(self, attempt: Attempt, item: ResultItem) -> None:
        self.items[attempt.lease.task_id] = item
        self._changed.set()

    async def all_of(self, attempts: list[Attempt]) -> list[ResultItem]:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.items) < len(attempts):
                self._changed.clear()
                await self._changed.wait()
        return [self.items[attempt.lease.task_id] for attempt in attempts]


class NoLogs:
    """Takes no log lines."""

    level = 0
    captured: Sequence[str] = ()

    def keep(self, attempt: Attempt, line: LogLine) -> None:
        raise AssertionError(f"{attempt.lease.name} has logged {line.message!r}")

    def note_left_out(self, attempt: Attempt, count: int) -> None:
        raise AssertionError(f"{attempt.lease.name} has left out {count} lines")


def attempts_of(task: Task[..., Any], payloads: Iterable[bytes]) -> list[Attempt]:
    return [
        Attempt(
            LeaseView(
                task_id=f"{number:016x}",
                fence=1,
                name=task.name,
                payload=Raw(payload),
                attempt=1,
                max_attempts=1,
            ),
            task,
            lambda *_: None,
            NoLogs(),
            0.0,
        )
        for number, payload in enumerate(payloads)
    ]


async def on_loop(task: Task[..., Any], payloads: Iterable[bytes]) -> list[ResultItem]:
    ends = Ends()
    attempts = attempts_of(task, payloads)
    LoopRunner(ends.note).begin(attempts)
    return await ends.all_of(attempts)


def numbered(count: int) -> list[bytes]:
    return [b'{"number":%d}' % number for number in range(count)]


app = Rota("http://127.0.0.1:1")
leaky: ContextVar[str] = ContextVar("leaky", default="clean")


async def test_each_handler_has_a_task_of_its_own() -> None:
    tasks: list[Any] = []

    @app.task(name="own")
    async def own(number: int) -> int:
        tasks.append(asyncio.current_task())
        for _ in range(number % 2):
            await asyncio.sleep(0)
        return number

    items = await on_loop(own, numbered(1_000))

    assert [item.result for item in items] == [Raw(b"%d" % number) for number in range(1_000)]
    assert len(set(tasks)) == 1_000


async def test_the_loop_is_served_between_many_handlers() -> None:
    served_after: list[int] = []
    begun = 0

    @app.task(name="many")
    async def many(number: int) -> None:
        nonlocal begun
        begun += 1

    asyncio.get_running_loop().call_soon(lambda: served_after.append(begun))
    await on_loop(many, numbered(5_000))

    assert begun == 5_000
    assert served_after[0] < 5_000


async def test_a_handler_that_is_stopped_before_it_began_is_not_run() -> None:
    ran: list[int] = []

    @app.task(name="stopped")
    async def stopped(number: int) -> None:
        ran.append(number)

    ends = Ends()
    attempts = attempts_of(stopped, numbered(1_000))
    runner = LoopRunner(ends.note)
    runner.begin(attempts)
    for attempt in attempts[::2]:
        attempt.is_settled = True
        runner.stop(attempt)
    await ends.all_of(attempts)

    assert ran == list(range(1, 1_000, 2))


async def test_handlers_that_wait_run_beside_each_other() -> None:
    everybody = asyncio.Barrier(100)

    @app.task(name="together")
    async def together(number: int) -> None:
        async with asyncio.timeout(PATIENCE_S):  # needs the current task, from the first step on
            await everybody.wait()

    items = await on_loop(together, numbered(100))

    assert all(item.ok for item in items)


async def test_context_variables_do_not_leak_into_the_next_handler() -> None:
    seen: list[str] = []

    @app.task(name="leaking")
    async def leaking(number: int) -> str:
        seen.append(leaky.get())
        leaky.set(f"dirty {number}")
        return current().task_id

    items = await on_loop(leaking, numbered(20))

    assert seen == ["clean"] * 20
    assert [item.result for item in items] == [Raw(b'"%016x"' % number) for number in range(20)]


async def test_a_handler_that_cancels_its_own_task_cancels_no_other() -> None:
    @app.task(name="selfish")
    async def selfish(number: int) -> int:
        task = asyncio.current_task()
        if number % 2 == 0 and task is not None:
            task.cancel()
        else:
            await asyncio.sleep(0)
        return number

    items = await on_loop(selfish, numbered(20))

    assert all(item.ok for item in items)


async def test_quick_and_waiting_handlers_mix() -> None:
    @app.task(name="mixed")
    async def mixed(number: int) -> int:
        for _ in range(number % 3):
            await asyncio.sleep(0)
        return number

    items = await on_loop(mixed, numbered(1_000))

    assert [item.result for item in items] == [Raw(b"%d" % number) for number in range(1_000)]


async def test_threads_are_added_for_handlers_that_block() -> None:
    everybody = threading.Barrier(50)

    @app.task(name="blocking")
    def blocking(number: int) -> int:
        return everybody.wait(PATIENCE_S)

    ends = Ends()
    attempts = attempts_of(blocking, numbered(50))
    runner = ThreadRunner(ends.note, limit=50)
    runner.begin(attempts)
    items = await ends.all_of(attempts)
    await runner.close()

    assert all(item.ok for item in items)


async def test_quick_handlers_are_served_by_a_few_threads() -> None:
    names: set[str] = set()

    @app.task(name="brisk")
    def brisk(number: int) -> None:
        names.add(threading.current_thread().name)

    ends = Ends()
    attempts = attempts_of(brisk, numbered(5_000))
    runner = ThreadRunner(ends.note, limit=1_000)
    runner.begin(attempts)
    await ends.all_of(attempts)
    await runner.close()

    assert len(names) <= 8 * THREADS_AT_ONCE


async def test_context_variables_do_not_leak_between_handlers_in_threads() -> None:
    seen: list[str] = []

    @app.task(name="leaking_thread")
    def leaking_thread(number: int) -> str:
        seen.append(leaky.get())
        leaky.set("dirty")
        return current().task_id

    ends = Ends()
    attempts = attempts_of(leaking_thread, numbered(20))
    runner = ThreadRunner(ends.note, limit=1)
    runner.begin(attempts)
    items = await ends.all_of(attempts)
    await runner.close()

    assert seen == ["clean"] * 20
    assert [item.result for item in items] == [Raw(b'"%016x"' % number) for number in range(20)]
