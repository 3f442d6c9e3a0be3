"""How do async handlers run? On the event loop, the quick ones many to a turn.

Theory of operation. A turn is one asyncio task that carries out waiting attempts one after the
other. As long as handlers finish without waiting for anything, one turn serves them all, which
spares a task and a trip round the loop for each. When a handler does wait, the turn becomes that
handler's own task: the pump, which is queued behind every turn, begins another turn for the rest,
and the first ends with its handler. So a task is shared only by handlers that never waited. A turn
also ends when a handler leaves context variables behind or cancels its own task, for neither may
reach the next handler. Where handlers do wait, the pump begins several turns in one go, as many
more as the last ones were all needed.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import copy_context

from rota.messages import ResultItem
from rota.sdk.attempts import Attempt, acarry_out
from rota.sdk.context import EXECUTION

ATTEMPTS_A_TURN = 250  # then sockets and timers are served
MOST_TURNS_AT_ONCE = 64


class LoopRunner:
    """Runs handlers on the loop it was made on."""

    def __init__(self, on_end: Callable[[Attempt, ResultItem], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        self._on_end = on_end
        self._waiting: deque[Attempt] = deque()
        self._turns: set[asyncio.Task[None]] = set()
        self._latest: list[asyncio.Task[None]] = []  # turns begun by the pump's last stroke
        self._current: object = None
        self._is_pumping = False

    def begin(self, attempts: Iterable[Attempt]) -> None:
        self._waiting.extend(attempts)
        if not self._is_pumping:
            self._is_pumping = True
            self._context.run(self._pump)

    def stop(self, attempt: Attempt) -> None:
        if attempt.carrier is not None:
            attempt.carrier.cancel(attempt.stop_reason)

    async def close(self, *, is_hurried: bool = False) -> None:
        """Nothing to let go of: turns end with their handlers."""

    def _pump(self) -> None:
        self._current = None  # whoever held the turn has let the loop go on, so it waits
        if not self._waiting:
            self._is_pumping = False
            self._latest = []
            return
        count = min(self._turns_wanted(), len(self._waiting))
        self._latest = [self._loop.create_task(self._take_turn()) for _ in range(count)]
        for turn in self._latest:
            self._turns.add(turn)
            turn.add_done_callback(self._turns.discard)
        self._loop.call_soon(self._pump)

    def _turns_wanted(self) -> int:
        waiting = sum(not turn.done() for turn in self._latest)
        if waiting == len(self._latest):
            waiting *= 2
        return min(max(waiting, 1), MOST_TURNS_AT_ONCE)

    async def _take_turn(self) -> None:
        current = self._current = object()
        task = asyncio.current_task()
        assert task is not None
        for _ in range(ATTEMPTS_A_TURN):
            if not self._waiting:
                return
            attempt = self._waiting.popleft()
            EXECUTION.set(attempt)
            context = copy_context()
            attempt.carrier = task
            item = await acarry_out(attempt)
            attempt.carrier = None
            self._on_end(attempt, item)
            if self._current is not current or task.cancelling() or copy_context() != context:
                return
