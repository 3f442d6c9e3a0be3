"""Runs plain handlers in persistent threads, as few as the handlers allow.

The runner adds threads while attempts wait and the existing threads make no headway: a few threads
serve quick handlers, and handlers that block get a thread each, up to the limit.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from queue import SimpleQueue

from rota.messages import ResultItem
from rota.sdk.outcomes import item_of_value
from rota.sdk.worker.attempt import Attempt, run_handler

THREADS_AT_ONCE = 8  # started when work arrives; more follow only when these block
GROW_AFTER_S = 0.01


class ThreadRunner:
    """Runs handlers in threads and reports their ends on the loop it is made on."""

    def __init__(self, on_end: Callable[[Attempt, ResultItem], None], *, limit: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        self._on_end = on_end
        self._limit = limit
        self._waiting: SimpleQueue[Attempt | None] = SimpleQueue()
        self._ended: deque[tuple[Attempt, ResultItem]] = deque()
        self._busy: set[int] = set()  # numbers of busy threads; set operations are atomic
        self._count = 0
        self._headway = 0  # attempts ended since the last check
        self._is_woken = False
        self._is_watching = False

    def begin(self, attempts: Iterable[Attempt]) -> None:
        for attempt in attempts:
            self._waiting.put(attempt)
        idle = self._count - len(self._busy)
        self._add_threads(min(self._waiting.qsize() - idle, THREADS_AT_ONCE))
        self._watch()

    def stop(self, attempt: Attempt) -> None:
        """Do nothing: a thread cannot be stopped; its handler sees `stop_reason`."""

    async def close(self, *, is_hurried: bool = False) -> None:  # noqa: ARG002 - a runner's
        """End the idle threads now, and the others when their handlers return."""
        for _ in range(self._count):
            self._waiting.put(None)

    def _watch(self) -> None:
        if not self._is_watching and self._count < self._limit:
            self._is_watching = True
            self._headway = 0
            self._loop.call_later(GROW_AFTER_S, self._grow)

    def _grow(self) -> None:
        self._is_watching = False
        waiting = self._waiting.qsize()
        if waiting == 0:
            return
        if self._headway < self._count:
            self._add_threads(min(waiting, max(self._count, 1)))
        self._watch()

    def _add_threads(self, wanted: int) -> None:
        for _ in range(min(wanted, self._limit - self._count)):
            # Daemons: a handler that never returns must not keep a stopped worker from exiting.
            name = f"rota-handler-{self._count}"
            threading.Thread(target=self._work, args=(self._count,), name=name, daemon=True).start()
            self._count += 1

    def _work(self, number: int) -> None:
        while (attempt := self._waiting.get()) is not None:
            self._busy.add(number)
            self._ended.append((attempt, self._run(attempt, self._context.copy())))
            self._busy.discard(number)
            del attempt
            if not self._is_woken:
                self._is_woken = True
                try:
                    self._loop.call_soon_threadsafe(self._collect)
                except RuntimeError:  # the loop has ended, and with it the worker
                    return

    def _run(self, attempt: Attempt, context: Context) -> ResultItem:
        if attempt.is_settled:  # stopped before it began; this is not reported
            return item_of_value(attempt.lease, None)
        return context.run(run_handler, attempt)

    def _collect(self) -> None:
        # First the flag, then the ends: one that is added in between schedules another call.
        self._is_woken = False
        while self._ended:
            attempt, item = self._ended.popleft()
            self._headway += 1
            self._on_end(attempt, item)
