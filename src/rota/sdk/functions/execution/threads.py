"""Plain functions: each runs in a thread, and waits there for operations of the event loop.

A thread cannot stay in memory while its function is suspended. So a suspension unwinds it, by
`Suspended` at the operation that it waits for, and the function is replayed later.
"""

import asyncio
import concurrent.futures
import threading
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import Any

from rota.sdk.functions.execution.branches import BRANCH, FunctionBranch
from rota.sdk.outcomes import Cancelled


async def run_in_thread(function: Callable[[], Any]) -> Any:
    """Run a function as the current branch, in a thread of its own."""
    branch = BRANCH.get()
    branch.is_thread = True
    ended = _start(function)
    while True:
        try:
            return await asyncio.shield(ended)
        except Cancelled as cancelled:
            raise asyncio.CancelledError(cancelled.reason) from None
        except asyncio.CancelledError:
            if ended.done():
                raise
            for call in [*branch.calls]:  # the thread sees it where it waits
                call.cancel()


def _start(function: Callable[[], Any]) -> "asyncio.Future[Any]":
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Any] = loop.create_future()
    context = copy_context()

    def end(value: Any, error: BaseException | None) -> None:
        if not ended.done():
            ended.set_result(value) if error is None else ended.set_exception(error)

    def work() -> None:
        value: Any = None
        error: BaseException | None = None
        try:
            value = context.run(function)
        except StopIteration as stopped:  # a future does not take it
            error = RuntimeError(repr(stopped))
        except BaseException as raised:  # noqa: BLE001 - raised again where it is awaited
            error = raised
        try:
            loop.call_soon_threadsafe(end, value, error)
        except RuntimeError:  # the loop has ended, and with it the worker
            return

    threading.Thread(target=work, name="rota-function", daemon=True).start()
    return ended


def block(loop: asyncio.AbstractEventLoop, call: Awaitable[Any]) -> Any:
    """Wait in the thread of a function for an operation."""
    branch = BRANCH.get()
    future = asyncio.run_coroutine_threadsafe(_awaited(branch, call), loop)
    try:
        return future.result()
    except concurrent.futures.CancelledError:
        raise Cancelled("the run was cancelled") from None


async def _awaited(branch: FunctionBranch, call: Awaitable[Any]) -> Any:
    task = asyncio.current_task()
    assert task is not None
    branch.calls.add(task)
    try:
        return await call
    finally:
        branch.calls.discard(task)
