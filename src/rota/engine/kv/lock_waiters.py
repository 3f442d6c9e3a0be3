"""Callers that wait for a lock, resumed by the commit that grants it.

The store has the queue of each lock. This module has the calls to resume. A call that ends without
a reply gives back the lock that it may have been granted meanwhile.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from rota.core.locks import AcquireLock, LeaveLockQueue, LockAnswer, LockCommand, LockState, answer
from rota.errors import Unavailable

Enter = Callable[[LockCommand], "asyncio.Future[LockAnswer]"]


class LockWait:
    """One call that waits until its owner has the lock."""

    def __init__(self) -> None:
        self._answer: LockAnswer | None = None
        self._is_over = False
        self._news = asyncio.Event()

    def call(self, given: LockAnswer) -> None:
        self._answer = given
        self._news.set()

    def close(self) -> None:
        self._is_over = True
        self._news.set()

    async def wait(self, *, asked: int, wait_ms: int) -> LockAnswer | None:
        """Return the lock that was granted to this call, or None when the time is over."""
        try:
            async with asyncio.timeout(wait_ms / 1000):
                while self._given(asked) is None and not self._is_over:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            pass
        return self._given(asked)

    def _given(self, asked: int) -> LockAnswer | None:
        # An older grant to the same owner does not count: the owner may have released it since.
        given = self._answer
        return given if given is not None and (given.fence or 0) > asked else None


class LockWaiters:
    def __init__(self) -> None:
        self._standing: dict[tuple[str, str], set[LockWait]] = {}  # by lock and owner
        self._is_closed = False

    @property
    def names(self) -> list[str]:
        """The names of the locks that calls wait for here."""
        return list({name for name, _ in self._standing})

    def look(self, locks: Iterable[LockState]) -> None:
        """Resume the calls that peers have granted these locks to."""
        self.call(answer(one, one.owner) for one in locks if one.owner is not None)

    def call(self, granted: Iterable[LockAnswer]) -> None:
        """Resume the calls that were granted these locks; runs on the loop, after the commit."""
        for one in granted:
            for turn in self._standing.get((one.name, one.owner), ()):
                turn.call(one)

    def close(self) -> None:
        """Resume all calls without a lock."""
        self._is_closed = True
        for turns in self._standing.values():
            for turn in turns:
                turn.close()

    async def acquire(self, event: AcquireLock, enter: Enter) -> LockAnswer:
        """Ask, and wait until the time limit; a cancelled call gives up its lock and its place."""
        with self._turn(event) as turn:
            asking = enter(event)
            try:
                return await _answered(turn, asking, enter, wait_ms=event.wait_ms)
            except asyncio.CancelledError:
                asking.add_done_callback(lambda asked: _give_up(asked, enter))
                raise

    @contextmanager
    def _turn(self, event: AcquireLock) -> Iterator[LockWait]:
        place, turn = (event.name, event.owner), LockWait()
        if self._is_closed:
            turn.close()
        # Before the command is entered: the commit that queues the call may also grant the lock.
        turns = self._standing.setdefault(place, set())
        turns.add(turn)
        try:
            yield turn
        finally:
            turns.discard(turn)
            if not turns:
                self._standing.pop(place, None)


async def _answered(
    turn: LockWait, asking: "asyncio.Future[LockAnswer]", enter: Enter, *, wait_ms: int
) -> LockAnswer:
    told = await asyncio.shield(asking)
    if told.acquired or told.asked is None:
        return told
    given = await turn.wait(asked=told.asked, wait_ms=wait_ms)
    if given is None:
        given = await asyncio.shield(enter(_leave(told, is_gone=False)))
    return given


def _leave(told: LockAnswer, *, is_gone: bool) -> LeaveLockQueue:
    assert told.asked is not None
    return LeaveLockQueue(name=told.name, owner=told.owner, asked=told.asked, is_gone=is_gone)


def _give_up(asked: "asyncio.Future[LockAnswer]", enter: Enter) -> None:
    """Enter the command that gives back the lock of a cancelled call; do not wait for it."""
    if asked.cancelled() or asked.exception() is not None or asked.result().asked is None:
        return
    try:
        leaving = enter(_leave(asked.result(), is_gone=True))
    except Unavailable:
        return  # the coordinator is stopping; the next start drops all waiters
    leaving.add_done_callback(lambda left: left.exception())
