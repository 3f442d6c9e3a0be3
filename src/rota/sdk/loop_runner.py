"""How do async handlers run? On the event loop, each as an asyncio task of its own.

A thousand may be begun at once. They are begun in strokes, between which sockets and timers are
served, so that neither a result nor a heartbeat waits for all of them.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import copy_context
from inspect import CORO_CREATED, getcoroutinestate
from typing import Any

from rota.messages import ResultItem
from rota.sdk.attempts import Attempt, acarry_out
from rota.sdk.context import EXECUTION
from rota.sdk.outcomes import item_of_error

ATTEMPTS_A_STROKE = 250


class LoopRunner:
    """Runs handlers on the loop it was made on. Whoever gives an attempt keeps it until it ends."""

    def __init__(self, on_end: Callable[[Attempt, ResultItem], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()  # of which each handler gets a copy
        self._on_end = on_end
        self._waiting: deque[Attempt] = deque()
        self._is_pumping = False

    def begin(self, attempts: Iterable[Attempt]) -> None:
        self._waiting.extend(attempts)
        if not self._is_pumping:
            self._context.run(self._pump)

    def stop(self, attempt: Attempt) -> None:
        task: asyncio.Task[None] | None = attempt.carrier
        if task is None:
            return
        coroutine: Any = task.get_coro()
        # One that has not begun would be cancelled without a word; it looks for itself.
        if getcoroutinestate(coroutine) != CORO_CREATED:
            task.cancel(attempt.stop_reason)

    async def close(self, *, is_hurried: bool = False) -> None:
        """Nothing to let go of: tasks end with their handlers."""

    def _pump(self) -> None:
        waiting, create_task = self._waiting, self._loop.create_task
        for _ in range(min(len(waiting), ATTEMPTS_A_STROKE)):
            attempt = waiting.popleft()
            attempt.carrier = create_task(self._carry_out(attempt))
        self._is_pumping = bool(waiting)
        if waiting:
            self._loop.call_soon(self._pump)

    async def _carry_out(self, attempt: Attempt) -> None:
        if attempt.is_settled:  # stopped before it began
            self._on_end(attempt, item_of_error(attempt.lease, asyncio.CancelledError()))
            return
        EXECUTION.set(attempt)
        item = await acarry_out(attempt)
        attempt.carrier = None  # a circle of references would be left to the collector
        self._on_end(attempt, item)
