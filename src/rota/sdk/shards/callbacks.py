"""How are a user's callbacks called? Off the loop that beats, so that none can hold up a beat.

Plain functions run in threads; coroutine functions run on the user's own event loop, the one that
`arun` was awaited on. The end of each comes back to the loop that asked. Only so many run at once;
those that tell of a loss go before the others, and past their limit, since they are about stopping.
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
MOST_URGENT = 128  # beyond those

Callback = Callable[[HeldShard], Any]
End = Callable[[BaseException | None], None]


class NotHeld(Exception):  # noqa: N818 - nobody's fault: time ran out before the call began
    """The shard was lost before its callback could begin."""


class Call:
    __slots__ = ("function", "held", "is_urgent", "on_end")

    def __init__(
        self, function: Callback, held: HeldShard, on_end: End, *, is_urgent: bool
    ) -> None:
        self.function = function
        self.held = held
        self.on_end = on_end
        self.is_urgent = is_urgent

    def check(self) -> None:
        """To be asked at the last moment: the process may have been stopped for a while."""
        if not self.is_urgent and not self.held.is_held:
            raise NotHeld


class Callbacks:
    """Calls back for the loop it is made on; coroutines run on `loop`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._own_loop = asyncio.get_running_loop()
        self._loop = loop
        self._numbers = itertools.count()
        self._waiting: list[tuple[bool, int, Call]] = []  # a heap: the urgent, then as they came
        self._running = 0
        self._is_closed = False
        self._threads = Threads()
        self._tasks: set[asyncio.Task[None]] = set()  # of the user's loop, and touched there

    def call(
        self, function: Callback, held: HeldShard, on_end: End, *, is_urgent: bool = False
    ) -> None:
        """Call back; `on_end` gets what was raised. An urgent one tells that all is over."""
        if self._is_closed:
            return
        one = Call(function, held, on_end, is_urgent=is_urgent)
        heapq.heappush(self._waiting, (not is_urgent, next(self._numbers), one))
        self._begin()

    def close(self) -> None:
        """Let idle threads go. What still runs is left to itself, coroutines are cancelled."""
        self._is_closed = True
        self._waiting.clear()
        self._threads.close()
        with contextlib.suppress(RuntimeError):  # the user's loop has ended, and all on it
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

    def _end(self, call: Call, error: BaseException | None) -> None:
        self._running -= 1
        self._begin()
        call.on_end(error)

    def _report(self, call: Call, error: BaseException | None) -> None:
        with contextlib.suppress(RuntimeError):  # the worker has ended meanwhile
            self._own_loop.call_soon_threadsafe(self._end, call, error)

    # --- in a thread ----------------------------------------------------------------------------

    def _run(self, call: Call) -> None:
        try:
            call.check()
            call.function(call.held)
        except BaseException as error:  # noqa: BLE001 - even SystemExit must not go unnoticed
            self._report(call, error)
        else:
            self._report(call, None)

    # --- on the user's loop ---------------------------------------------------------------------

    def _begin_task(self, call: Call) -> None:
        task = self._loop.create_task(self._arun(call))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _arun(self, call: Call) -> None:
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


class Threads:
    """As many threads as there are calls at once; kept for the next ones."""

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
    """Also true of an object whose call is one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - not whether it can be called, but how
    )
