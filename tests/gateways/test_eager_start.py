"""Work that is begun before it has a task."""

import asyncio

import pytest

from rota.gateways.http.server.scheduling import start_eagerly
from tests.engine.running import soon

PATIENCE_S = 30.0


async def test_work_that_waits_for_nothing_is_done_at_once_and_needs_no_task() -> None:
    done: list[str] = []

    async def work() -> None:
        done.append("first")
        await answered()
        done.append("last")

    async def answered() -> None:
        future = asyncio.get_running_loop().create_future()
        future.set_result(None)
        await future

    assert start_eagerly(work(), asyncio.get_running_loop()) is None
    assert done == ["first", "last"]


async def test_work_that_waits_goes_on_in_a_task_with_what_it_waited_for() -> None:
    loop = asyncio.get_running_loop()
    first: asyncio.Future[int] = loop.create_future()
    second: asyncio.Future[int] = loop.create_future()
    got: list[object] = []

    async def work() -> None:
        got.append(await first)
        got.append(asyncio.current_task())
        try:
            await second
        except KeyError as error:
            got.append(str(error))
        await asyncio.sleep(0)
        async with asyncio.timeout(PATIENCE_S):
            got.append("end")
            await asyncio.sleep(0)

    task = start_eagerly(work(), loop)
    assert task is not None
    assert got == []
    first.set_result(1)
    second.set_exception(KeyError("k"))
    await soon(task)

    assert got == [1, task, "'k'", "end"]


async def test_what_goes_wrong_at_once_is_raised_and_later_is_the_tasks() -> None:
    loop = asyncio.get_running_loop()

    async def wrong(*, later: bool) -> None:
        if later:
            await asyncio.sleep(0)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        start_eagerly(wrong(later=False), loop)
    task = start_eagerly(wrong(later=True), loop)
    assert task is not None
    with pytest.raises(ZeroDivisionError):
        await soon(task)


async def test_work_that_waits_can_be_cancelled_and_may_tidy_up() -> None:
    tidied: list[str] = []

    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(0)
            tidied.append("tidy")

    task = start_eagerly(work(), asyncio.get_running_loop())
    assert task is not None
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(task)

    assert tidied == ["tidy"]
