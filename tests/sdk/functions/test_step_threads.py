"""The threads of steps that are plain functions."""

import asyncio
import threading

import pytest

from rota.sdk.functions.execution.step_threads import StepThreads

PATIENCE_S = 30.0


async def test_steps_that_follow_each_other_share_one_thread() -> None:
    threads = StepThreads(limit=8)

    names = [await threads.run(lambda: threading.current_thread().name) for _ in range(200)]

    assert set(names) == {"rota-step-1"}


async def test_steps_that_block_get_a_thread_each_up_to_the_limit() -> None:
    threads = StepThreads(limit=2)
    both, last = threading.Barrier(3), threading.Event()

    blocked = [threads.run(lambda: both.wait(PATIENCE_S)) for _ in range(2)]
    waiting = threads.run(last.set)
    early = last.is_set()
    await asyncio.to_thread(both.wait, PATIENCE_S)
    await asyncio.gather(*blocked, waiting)

    assert (early, last.is_set()) == (False, True)


async def test_a_step_that_was_cancelled_before_a_thread_was_free_never_runs() -> None:
    threads = StepThreads(limit=1)
    begin, ran = threading.Event(), list[str]()

    first = threads.run(lambda: begin.wait(PATIENCE_S))
    second = threads.run(lambda: ran.append("second"))
    third = threads.run(lambda: ran.append("third"))
    second.cancel()
    begin.set()
    await asyncio.gather(first, third)

    assert ran == ["third"]


async def test_errors_of_steps_are_raised_where_they_are_awaited() -> None:
    threads = StepThreads(limit=1)

    def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(ZeroDivisionError):
        await threads.run(lambda: 1 // 0)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await threads.run(lambda: next(iter([])))
    with pytest.raises(SystemExit):
        await asyncio.gather(threads.run(leave))

    assert await threads.run(lambda: "still there") == "still there"
