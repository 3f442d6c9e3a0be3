"""Runs async handlers on the event loop, each in a task of its own.

A thousand attempts may begin at once. The runner starts them in portions and serves sockets and
timers in between, so that neither a result nor a heartbeat waits for all of them.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import copy_context
from inspect import CORO_CREATED, getcoroutinestate
from typing import Any

from rota.messages import ResultItem
from rota.sdk.context import EXECUTION
from rota.sdk.outcomes import item_of_error
from rota.sdk.worker.attempt import Attempt, arun_handler

ATTEMPTS_PER_PORTION = 250


class LoopRunner:
    """Runs handlers on the loop it is made on; the caller keeps each attempt until it ends."""

    def __init__(self, on_end: Callable[[Attempt, ResultItem], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()  # each handler gets a copy
        self._on_end = on_end
        self._waiting: deque[Attempt] = deque()
        self._is_starting = False

    def begin(self, attempts: Iterable[Attempt]) -> None:
        self._waiting.extend(attempts)
        if not self._is_starting:
            self._context.run(self._start)

    def stop(self, attempt: Attempt) -> None:
        task: asyncio.Task[None] | None = attempt.carrier
        if task is None:
            return
        coroutine: Any = task.get_coro()
        # A task that has not started would end unreported; `_run` sees that it was stopped.
        if getcoroutinestate(coroutine) != CORO_CREATED:
            task.cancel(attempt.stop_reason)

    async def close(self, *, is_hurried: bool = False) -> None:
        """Do nothing: tasks end with their handlers."""

    def _start(self) -> None:
        waiting, create_task = self._waiting, self._loop.create_task
        for _ in range(min(len(waiting), ATTEMPTS_PER_PORTION)):
            attempt = waiting.popleft()
            attempt.carrier = create_task(self._run(attempt))
        self._is_starting = bool(waiting)
        if waiting:
            self._loop.call_soon(self._start)

    async def _run(self, attempt: Attempt) -> None:
        if attempt.is_settled:  # stopped before it began
            self._on_end(attempt, item_of_error(attempt.lease, asyncio.CancelledError()))
            return
        EXECUTION.set(attempt)
        item = await arun_handler(attempt)
        attempt.carrier = None  # breaks a reference cycle
        self._on_end(attempt, item)
