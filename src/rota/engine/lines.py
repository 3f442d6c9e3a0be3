"""Who stands in line for a lock? Called by the commit that gives it to them.

That somebody stands in line, and where, is in the store. Here is only who is to be told, and that a
call which ends in vain gives up what it may have got unheard.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from rota.core.locks import AcquireLock, LeaveLine, Lock, LockAnswer, LockEvent, answer
from rota.errors import Unavailable

Enter = Callable[[LockEvent], "asyncio.Future[LockAnswer]"]


class Turn:
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
        """The lock that was given to whoever asked; None: nothing came of it in time."""
        try:
            async with asyncio.timeout(wait_ms / 1000):
                while self._given(asked) is None and not self._is_over:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            pass
        return self._given(asked)

    def _given(self, asked: int) -> LockAnswer | None:
        # What the same owner was given before it asked, it may have let go of since.
        given = self._answer
        return given if given is not None and (given.fence or 0) > asked else None


class Lines:
    def __init__(self) -> None:
        self._standing: dict[tuple[str, str], set[Turn]] = {}  # by lock and owner
        self._is_closed = False

    @property
    def names(self) -> list[str]:
        """Of the locks that somebody waits for here."""
        return list({name for name, _ in self._standing})

    def look(self, locks: Iterable[Lock]) -> None:
        """Others may have given these to somebody who waits here."""
        self.call(answer(one, one.owner) for one in locks if one.owner is not None)

    def call(self, granted: Iterable[LockAnswer]) -> None:
        """On the loop, after the commit."""
        for one in granted:
            for turn in self._standing.get((one.name, one.owner), ()):
                turn.call(one)

    def close(self) -> None:
        """Nobody is to wait any more."""
        self._is_closed = True
        for turns in self._standing.values():
            for turn in turns:
                turn.close()

    async def acquire(self, event: AcquireLock, enter: Enter) -> LockAnswer:
        """Ask, and wait for as long as the caller wants to; whoever is cancelled gives all up."""
        with self._turn(event) as turn:
            asking = enter(event)
            try:
                return await _answered(turn, asking, enter, wait_ms=event.wait_ms)
            except asyncio.CancelledError:
                asking.add_done_callback(lambda asked: _give_up(asked, enter))
                raise

    @contextmanager
    def _turn(self, event: AcquireLock) -> Iterator[Turn]:
        place, turn = (event.name, event.owner), Turn()
        if self._is_closed:
            turn.close()
        # From before the question on: the commit that puts it in line may give it the lock, too.
        turns = self._standing.setdefault(place, set())
        turns.add(turn)
        try:
            yield turn
        finally:
            turns.discard(turn)
            if not turns:
                self._standing.pop(place, None)


async def _answered(
    turn: Turn, asking: "asyncio.Future[LockAnswer]", enter: Enter, *, wait_ms: int
) -> LockAnswer:
    told = await asyncio.shield(asking)
    if told.acquired or told.asked is None:
        return told
    given = await turn.wait(asked=told.asked, wait_ms=wait_ms)
    if given is None:
        given = await asyncio.shield(enter(_leave(told, is_gone=False)))
    return given


def _leave(told: LockAnswer, *, is_gone: bool) -> LeaveLine:
    assert told.asked is not None
    return LeaveLine(name=told.name, owner=told.owner, asked=told.asked, is_gone=is_gone)


def _give_up(asked: "asyncio.Future[LockAnswer]", enter: Enter) -> None:
    """Nobody hears of the answer: what it gave is given back, without waiting for that."""
    if asked.cancelled() or asked.exception() is not None or asked.result().asked is None:
        return
    try:
        leaving = enter(_leave(asked.result(), is_gone=True))
    except Unavailable:
        return  # about to stop; the next start forgets those who waited
    leaving.add_done_callback(lambda left: left.exception())
