"""Runs user callbacks off the loop that sends heartbeats.

Plain functions run in threads, coroutine functions on the user's event loop, on which `arun` was
awaited. The end of each callback is reported to the loop that started it. The number of callbacks
at once is limited. Those that report a loss go first, and have places of their own.
"""

import asyncio
import contextlib
import heapq
import inspect
import itertools
import threading
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any, cast

from rota.sdk.shards.held import HeldShard

MOST_AT_ONCE = 128
MOST_URGENT = 128  # in addition

Callback = Callable[[HeldShard], Any]
OnEnd = Callable[[BaseException | None], None]


class NotHeld(Exception):  # noqa: N818 - not an error of the callback
    """The shard was lost before its callback could begin."""


class CallbackCall:
    __slots__ = ("function", "held", "is_urgent", "on_end")

    def __init__(
        self, function: Callback, held: HeldShard, on_end: OnEnd, *, is_urgent: bool
    ) -> None:
        self.function = function
        self.held = held
        self.on_end = on_end
        self.is_urgent = is_urgent

    def check(self) -> None:
        """Raise `NotHeld` at the last moment: the process may have been suspended."""
        if not self.is_urgent and not self.held.is_held:
            raise NotHeld


class CallbackRunner:
    """Runs callbacks for the loop it is made on; coroutines run on `loop`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._own_loop = asyncio.get_running_loop()
        self._loop = loop
        self._numbers = itertools.count()
        self._waiting: list[tuple[bool, int, CallbackCall]] = []  # a heap, the urgent first
        self._running = 0
        self._is_closed = False
        self._threads = CallbackThreads()
        self._tasks: set[asyncio.Task[None]] = set()  # of the user's loop, used only there

    def call(
        self, function: Callback, held: HeldShard, on_end: OnEnd, *, is_urgent: bool = False
    ) -> None:
        """Run a callback; `on_end` gets the exception. Urgent callbacks report a loss."""
        if self._is_closed:
            return
        one = CallbackCall(function, held, on_end, is_urgent=is_urgent)
        heapq.heappush(self._waiting, (not is_urgent, next(self._numbers), one))
        self._begin()

    def close(self) -> None:
        """End idle threads and cancel coroutines; running threads end by themselves."""
        self._is_closed = True
        self._waiting.clear()
        self._threads.close()
        with contextlib.suppress(RuntimeError):  # the user's loop has ended
            self._loop.call_soon_threadsafe(self._cancel_tasks)

    def _begin(self) -> None:
        while self._waiting:
            most = MOST_AT_ONCE + (MOST_URGENT if self._waiting[0][2].is_urgent else 0)
            if self._running >= most:
                return
            call = heapq.heappop(self._waiting)[2]
            self._running += 1
            if not is_coroutine_function(call.function):
                self._threads.run(partial(self._run, call))
                continue
            try:
                self._loop.call_soon_threadsafe(self._begin_task, call)
            except RuntimeError as error:  # the user's loop has ended
                self._own_loop.call_soon(self._end, call, error)

    def _end(self, call: CallbackCall, error: BaseException | None) -> None:
        self._running -= 1
        self._begin()
        call.on_end(error)

    def _report(self, call: CallbackCall, error: BaseException | None) -> None:
        with contextlib.suppress(RuntimeError):  # the worker has ended
            self._own_loop.call_soon_threadsafe(self._end, call, error)

    def _run(self, call: CallbackCall) -> None:
        """Run a plain callback in a thread."""
        try:
            call.check()
            call.function(call.held)
        except BaseException as error:  # noqa: BLE001 - SystemExit is reported too
            self._report(call, error)
        else:
            self._report(call, None)

    def _begin_task(self, call: CallbackCall) -> None:
        task = self._loop.create_task(self._arun(call))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _arun(self, call: CallbackCall) -> None:
        """Run a coroutine callback on the user's loop."""
        try:
            call.check()
            await cast("Awaitable[object]", call.function(call.held))
        except BaseException as error:
            self._report(call, error)
            if not isinstance(error, Exception):
                raise
        else:
            self._report(call, None)

    def _cancel_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()


class CallbackThreads:
    """Reusable threads, as many as there are calls at once."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._count = 0
        self._context = copy_context()

    def run(self, job: Callable[[], None]) -> None:
        with self._lock:
            if self._idle:
                self._idle -= 1
            else:
                self._count += 1
                # A daemon: a callback that never returns must not keep the program from ending.
                threading.Thread(
                    target=self._work, name=f"rota-shards-{self._count}", daemon=True
                ).start()
        self._jobs.put(job)

    def close(self) -> None:
        for _ in range(self._count):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._context.copy().run(job)
            del job
            with self._lock:
                self._idle += 1


def is_coroutine_function(function: Callback) -> bool:
    """Whether a callback is a coroutine function, or an object whose call is one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - its kind matters, not its existence
    )
