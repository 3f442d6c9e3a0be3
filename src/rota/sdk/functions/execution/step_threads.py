"""The threads in which steps run that are plain functions.

A thread is started when a step finds none idle, up to a limit; further steps wait for one. Threads
stay for the steps that follow. They are daemons, as those of tasks: a step that never returns must
not keep a stopped worker from exiting.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, NamedTuple


class ThreadedStep(NamedTuple):
    """A call of a step, and the future that waits for it on an event loop."""

    function: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    ended: "asyncio.Future[Any]"


class StepThreads:
    """Runs plain functions for the event loops of a process."""

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._count = 0
        self._lock = threading.Lock()  # of the count
        self._idle: deque[None] = deque()  # an entry for each thread that no step has reserved
        self._waiting: SimpleQueue[ThreadedStep] = SimpleQueue()

    def run(self, function: Callable[[], Any]) -> "asyncio.Future[Any]":
        """Run a function in a thread; its result is that of the future, on the running loop."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Any] = loop.create_future()
        self._waiting.put(ThreadedStep(function, loop, ended))
        try:
            self._idle.pop()
        except IndexError:
            self._add_thread()
        return ended

    def _add_thread(self) -> None:
        with self._lock:
            if self._count == self._limit:
                return
            self._count += 1
            name = f"rota-step-{self._count}"
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def _work(self) -> None:
        while True:
            self._run(self._waiting.get())

    def _run(self, step: ThreadedStep) -> None:
        if step.ended.cancelled():  # before a thread was free
            self._idle.append(None)
            return
        value, error = _call(step.function)
        # Idle before the caller hears of the end: the step that it runs next finds this thread.
        self._idle.append(None)
        try:
            step.loop.call_soon_threadsafe(_end, step.ended, value, error)
        except RuntimeError:  # the loop has ended, and with it the worker
            return


def _call(function: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    value: Any = None
    error: BaseException | None = None
    try:
        value = function()
    except StopIteration as stopped:  # a future does not take it
        error = RuntimeError(repr(stopped))
    except BaseException as raised:  # noqa: BLE001 - raised again where the step is awaited
        error = raised
    return value, error


def _end(ended: "asyncio.Future[Any]", value: Any, error: BaseException | None) -> None:
    if ended.done():  # its branch was cancelled
        return
    if error is None:
        ended.set_result(value)
    else:
        ended.set_exception(error)
