"""How does a coordinator learn what others on its store have done?

Theory of operation. Everything that matters is in the store, and each batch decides on what is
there by then; so nothing here is needed for anything to be right. But callers wait: for work, for
the end of a task, for a lock, for news. Each is told by the commit that brings it, if that is one
of the coordinator they wait with. For the others the store has a number that rises with every
write. It is asked for all the time, and at once when somebody gives a hint; when it has risen, one
read finds out what has come for those who wait here. Hints may all be lost: then it takes one
interval longer.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import structlog

from rota.core.locks import Lock
from rota.engine.audience import Audience
from rota.engine.queries import Queries
from rota.errors import RotaError
from rota.store.database import Database, Transaction
from rota.store.locks import Locks
from rota.store.replicas import Facts, Replicas

log = structlog.get_logger("rota.replicas")

MOST_CANCELLED = 10_000  # looked at in one go; workers hear of the others with their next beats
LEAST_PAUSE_S = 0.002  # between two looks, however many hints there are


class Interests(NamedTuple):
    """What somebody waits for here."""

    waited_for: Sequence[int]  # tasks and runs
    locks: Sequence[str]  # by name
    has_parked: bool  # calls for work
    sessions: Sequence[str]  # that are open
    has_streams: bool  # workers that are told of cancellations at once
    has_members: bool  # of services
    has_watchers: bool  # of events

    @property
    def are_none(self) -> bool:
        return not any(self)


class News(NamedTuple):
    """What others have done about that."""

    facts: Facts
    ended: set[int]
    locks: Sequence[Lock]
    has_ready: bool
    cancelled: Sequence[tuple[int, int]]
    sessions: AbstractSet[str]


class CatchingUp:
    def __init__(
        self,
        database: Database,
        queries: Queries,
        audience: Audience,
        *,
        interval_ms: int,
        has_parked: Callable[[], bool],
        run_batch: Callable[[], "asyncio.Future[object]"],
    ) -> None:
        """`has_parked`: whether calls for work wait; `run_batch` looks for some for them."""
        self._database = database
        self._queries = queries
        self._audience = audience
        self._interval_s = interval_ms / 1000
        self._has_parked = has_parked
        self._run_batch = run_batch
        self._turn: int | None = None
        self._facts: Facts | None = None
        self._is_hinted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stop_listening: Callable[[], None] = lambda: None

    def start(self) -> None:
        loop = asyncio.get_running_loop()

        def hinted() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._is_hinted.set)

        self._stop_listening = self._database.listen(hinted)
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        self._stop_listening()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def look(self) -> bool:
        """See whether anybody has written, and if so what it means here."""
        turn = await self._queries.turn()
        if turn == self._turn:
            return False
        await self._catch_up()
        # Only now: what could not be told is found again.
        self._turn = turn
        return True

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._interval_s):
                    await self._is_hinted.wait()
            except TimeoutError:
                pass
            self._is_hinted.clear()
            try:
                await self.look()
            except Exception as error:
                expected = isinstance(error, RotaError)
                log.warning("cannot catch up with others", exc_info=None if expected else error)
                await asyncio.sleep(self._interval_s)
            await asyncio.sleep(LEAST_PAUSE_S)

    def _interests(self) -> Interests:
        audience = self._audience
        return Interests(
            waited_for=audience.waiters.waited_for,
            locks=audience.lines.names,
            has_parked=self._has_parked(),
            sessions=audience.sessions,
            has_streams=audience.has_streams,
            has_members=audience.assignments.has_listeners,
            has_watchers=audience.notices.watchers > 0,
        )

    async def _catch_up(self) -> None:
        audience, interests = self._audience, self._interests()
        if interests.are_none:
            return  # whoever comes to wait looks first
        last_news = 0 if self._facts is None else self._facts.last_news
        news = await self._queries.read(lambda tx: _read(tx, interests, last_news))
        audience.wake(news.ended)
        audience.call(news.locks)
        if news.sessions:
            audience.tell_sessions(news.sessions)
        audience.tell_cancelled(news.cancelled)
        audience.notices.advance(news.facts.last_seq)
        if self._needs_batch(interests, news):
            await self._run_batch()
        self._facts = news.facts

    def _needs_batch(self, interests: Interests, news: News) -> bool:
        """Whether there may be something to deal out, or to push, that only a batch can."""
        before, facts = self._facts, news.facts
        if interests.has_parked and (
            news.has_ready or before is None or before.workers != facts.workers
        ):
            return True
        return interests.has_members and (before is None or before.services != facts.services)


def _read(tx: Transaction, interests: Interests, last_news: int) -> News:
    replicas = Replicas(tx)
    facts = replicas.facts()
    ended: set[int] = set()
    if interests.waited_for:
        ended = set(interests.waited_for) - replicas.live([*interests.waited_for])
    sessions = [*interests.sessions] if facts.last_news > last_news else []
    return News(
        facts=facts,
        ended=ended,
        locks=Locks(tx).held([*interests.locks]) if interests.locks else (),
        has_ready=interests.has_parked and replicas.has_ready(),
        cancelled=(
            replicas.cancelled(MOST_CANCELLED)
            if interests.has_streams and facts.has_cancelled
            else ()
        ),
        sessions=replicas.sessions_with_news(sessions, after=last_news) if sessions else set(),
    )
