"""Polls a shared store for the changes of other coordinators.

Theory of operation. All durable state is in the store, and each batch decides on the stored state
of its time. So correctness does not depend on the poller. But callers wait: for work, for the end
of a task, for a lock, for notifications. When the coordinator that they wait at commits the change,
that commit notifies them. For the commits of peers the store has a change counter, which rises with
every write. The poller reads it at an interval, and at once when a peer sends a hint. When the
counter has risen, one read finds the changes that the callers here wait for. If a hint is lost,
they wait up to one interval longer.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import structlog

from rota.core.locks import LockState
from rota.engine.commit.notifier import Notifier
from rota.engine.queries.reader import StoreReader
from rota.errors import RotaError
from rota.store.database import Transaction
from rota.store.locks import LockStore
from rota.store.replicas import ReplicaStore, SharedFacts

log = structlog.get_logger("rota.replicas")

MOST_CANCELLED = 10_000  # in one read; workers learn of the others with their next heartbeats
LEAST_PAUSE_S = 0.002  # between two polls, however many hints arrive


class Interests(NamedTuple):
    """The changes that callers of this coordinator wait for."""

    waited_for: Sequence[int]  # tasks and runs
    locks: Sequence[str]  # by name
    has_waiting_leases: bool  # lease calls wait
    sessions: Sequence[str]  # connected sessions
    has_streams: bool  # streaming workers wait for cancellations
    has_members: bool  # members of services wait for assignments
    has_watchers: bool  # subscribers wait for events

    @property
    def are_none(self) -> bool:
        return not any(self)


class PeerChanges(NamedTuple):
    """The changes by peers that match the interests."""

    facts: SharedFacts
    ended: set[int]
    locks: Sequence[LockState]
    has_ready: bool
    cancelled: Sequence[tuple[int, int]]
    sessions: AbstractSet[str]


class ChangePoller:
    def __init__(
        self,
        reader: StoreReader,
        notifier: Notifier,
        *,
        interval_ms: int,
        has_waiting_leases: Callable[[], bool],
        run_batch: Callable[[], "asyncio.Future[object]"],
    ) -> None:
        """`run_batch` runs a batch that serves the waiting lease calls."""
        self._reader = reader
        self._notifier = notifier
        self._interval_s = interval_ms / 1000
        self._has_waiting_leases = has_waiting_leases
        self._run_batch = run_batch
        self._turn: int | None = None
        self._facts: SharedFacts | None = None
        self._is_hinted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stop_listening: Callable[[], None] = lambda: None

    def start(self) -> None:
        loop = asyncio.get_running_loop()

        def hinted() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._is_hinted.set)

        self._stop_listening = self._reader.listen(hinted)
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        self._stop_listening()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def look(self) -> bool:
        """Catch up if the store has changed; return whether it has."""
        turn = await self._reader.change_counter()
        if turn == self._turn:
            return False
        await self._catch_up()
        # Only now, so that the next poll repeats a notification that failed.
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
                log.warning("change_poll_failed", exc_info=None if expected else error)
                await asyncio.sleep(self._interval_s)
            await asyncio.sleep(LEAST_PAUSE_S)

    def _interests(self) -> Interests:
        notifier = self._notifier
        return Interests(
            waited_for=notifier.ends.keys,
            locks=notifier.lock_waiters.names,
            has_waiting_leases=self._has_waiting_leases(),
            sessions=notifier.sessions,
            has_streams=notifier.has_streams,
            has_members=notifier.assignments.has_listeners,
            has_watchers=notifier.events.watchers > 0,
        )

    async def _catch_up(self) -> None:
        notifier, interests = self._notifier, self._interests()
        if interests.are_none:
            return  # a caller reads the store before it waits
        last_notification = 0 if self._facts is None else self._facts.last_notification
        news = await self._reader.read(lambda tx: _read(tx, interests, last_notification))
        notifier.wake(news.ended)
        notifier.call(news.locks)
        if news.sessions:
            notifier.tell_sessions(news.sessions)
        notifier.tell_cancelled(news.cancelled)
        notifier.events.advance(news.facts.last_seq)
        if self._needs_batch(interests, news):
            await self._run_batch()
        self._facts = news.facts

    def _needs_batch(self, interests: Interests, news: PeerChanges) -> bool:
        """Whether only a batch can serve the change: by granting leases or pushing assignments."""
        before, facts = self._facts, news.facts
        if interests.has_waiting_leases and (
            news.has_ready or before is None or before.workers != facts.workers
        ):
            return True
        return interests.has_members and (before is None or before.services != facts.services)


def _read(tx: Transaction, interests: Interests, last_notification: int) -> PeerChanges:
    replicas = ReplicaStore(tx)
    facts = replicas.facts()
    ended: set[int] = set()
    if interests.waited_for:
        ended = set(interests.waited_for) - replicas.live([*interests.waited_for])
    sessions = [*interests.sessions] if facts.last_notification > last_notification else []
    return PeerChanges(
        facts=facts,
        ended=ended,
        locks=LockStore(tx).held([*interests.locks]) if interests.locks else (),
        has_ready=interests.has_waiting_leases and replicas.has_ready(),
        cancelled=(
            replicas.cancelled(MOST_CANCELLED)
            if interests.has_streams and facts.has_cancelled
            else ()
        ),
        sessions=replicas.notified_sessions(sessions, after=last_notification)
        if sessions
        else set(),
    )
