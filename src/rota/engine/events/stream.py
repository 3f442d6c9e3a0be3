"""Fan-out of committed events to subscribers; a late subscriber catches up from the log.

Theory of operation. A subscription that is behind reads the log, at its own pace, until it has read
the last number that was published. From then on it is live: each commit adds its events to the
subscription's queue in memory. A subscription is never both. So the stream buffers nothing for a
subscription that still reads, and a subscription gets no event twice. A live subscription whose
queue grows too long is ended. Its client may subscribe again and catch up.

Where peers write to the store, too, the events of a commit may not directly follow the last that
were published here. Then the stream first reads the events between from the log, once for all
subscriptions.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from enum import StrEnum
from itertools import islice
from types import TracebackType
from typing import Self

import structlog

from rota.core.events import EVERYTHING, EventBatch, EventFilter, LoggedEvent, matches
from rota.core.limits import MAX_EVENTS_BEHIND
from rota.engine.events.log import EventLog, Sight

log = structlog.get_logger("rota.notices")

READ_AT_ONCE = 1_000  # events of peers in one read
TROUBLE_PAUSE_S = 1.0  # before a failed read of peers' events is tried again

EventsCallback = Callable[[Sequence[LoggedEvent]], None]


class End(StrEnum):
    """Why a subscription has ended."""

    STOPPING = "stopping"  # the coordinator is about to stop; it will be back
    TOO_SLOW = "too_slow"  # more events waited than the limit allows
    UNAUTHORIZED = "unauthorized"  # the reader's token was revoked or has expired


class EventStream:
    """Hands the events of each commit to all watchers; costs nothing without watchers."""

    def __init__(self, log: EventLog | None = None) -> None:
        """Log: the log of a store that peers write to, too; None where no peer does."""
        self.last_seq = 0
        self.is_closed = False
        self._log = log
        self._newest = 0  # the highest number known to be in the log
        self._filling: asyncio.Task[None] | None = None
        self._watchers: dict[object, tuple[EventsCallback, Callable[[], None]]] = {}

    @property
    def watchers(self) -> int:
        return len(self._watchers)

    def watch(
        self, callback: EventsCallback, on_end: Callable[[], None] = lambda: None
    ) -> Callable[[], None]:
        """Call back with all events of each commit, until the returned function is called."""
        watcher = object()
        if self.is_closed:
            asyncio.get_running_loop().call_soon(on_end)
        else:
            self._watchers[watcher] = callback, on_end

        def unwatch() -> None:
            self._watchers.pop(watcher, None)

        return unwatch

    def publish(self, batches: Sequence[EventBatch]) -> None:
        """Publish the events of commits; runs on the loop, after the commits' callers resolve."""
        if not batches:
            return
        if self._log is not None:
            for one in batches:
                self._publish_next(one)
            return
        self.last_seq = batches[-1].last_seq
        if self._watchers:
            for one in batches:
                self._hand_out(one.logged())

    def _hand_out(self, events: Sequence[LoggedEvent]) -> None:
        loop = asyncio.get_running_loop()
        for callback, _ in list(self._watchers.values()):
            loop.call_soon(callback, events)

    # --- where peers write, too -------------------------------------------------------------------

    def _publish_next(self, batch: EventBatch) -> None:
        if batch.last_seq - len(batch.events) != self.last_seq:
            self.advance(batch.last_seq)
            return
        self.last_seq = batch.last_seq
        if self._watchers:
            self._hand_out(batch.logged())

    def advance(self, last_seq: int) -> None:
        """Note that the log has events up to this number, of this coordinator or of a peer."""
        self._newest = max(self._newest, last_seq)
        if not self._watchers:
            self.last_seq = max(self.last_seq, last_seq)
        elif self.last_seq < self._newest and self._filling is None:
            self._filling = asyncio.create_task(self._fill())

    async def _fill(self) -> None:
        """Publish the events that peers wrote, in order, until the log has no more."""
        assert self._log is not None
        try:
            while self.last_seq < self._newest and self._watchers:
                try:
                    passage = await self._log.after(self.last_seq, EVERYTHING, limit=READ_AT_ONCE)
                except Exception as error:
                    log.warning("peer_events_unreadable", exc_info=error)
                    await asyncio.sleep(TROUBLE_PAUSE_S)
                    continue
                # This coordinator's own commits may have published some of them meanwhile.
                news = [one for one in passage.items if one.seq > self.last_seq]
                self.last_seq = max(self.last_seq, passage.position)
                if news:
                    self._hand_out(news)
        finally:
            self._filling = None
        self.advance(self._newest)

    def close(self) -> None:
        """End the stream, and call `on_end` of every watcher."""
        self.is_closed = True
        if self._filling is not None:
            self._filling.cancel()
        watchers, self._watchers = self._watchers, {}
        for _, on_end in watchers.values():
            on_end()


class EventSubscription:
    """Every matching event after a sequence number, in order, until the reader closes it."""

    def __init__(
        self,
        hub: EventStream,
        log: EventLog,
        wanted: EventFilter,
        *,
        after: int,
        sight: Sight | None = None,
        most_behind: int = MAX_EVENTS_BEHIND,
    ) -> None:
        self.end: End | None = None
        self._hub = hub
        self._log = log
        self._wanted = wanted
        self._sight = sight
        self._most_behind = most_behind
        self._position = after  # every event up to this number was examined, or precedes the start
        self._is_live = False
        self._waiting: deque[LoggedEvent] = deque()
        self._news = asyncio.Event()
        self._unwatch = hub.watch(self._heard, self._stop)

    @property
    def position(self) -> int:
        """The number to subscribe after again: the reader misses no event and gets none twice."""
        return self._waiting[0].seq - 1 if self._waiting else self._position

    async def take(self, most: int) -> list[LoggedEvent]:
        """Wait for the next events and return them; an empty list: the subscription has ended."""
        while not self._waiting:
            if self.end is not None:
                return []
            if self._is_live:
                self._news.clear()
                await self._news.wait()
            elif found := await self._catch_up(most):
                return found
        found = list(islice(self._waiting, most))
        for _ in found:
            self._waiting.popleft()
        return found

    def close(self) -> None:
        self._unwatch()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def _catch_up(self, most: int) -> list[LoggedEvent]:
        passage = await self._log.after(self._position, self._wanted, limit=most, sight=self._sight)
        self._position = max(self._position, passage.position)
        # The log may be ahead of what the stream has published, but not behind it.
        self._is_live = self._position >= self._hub.last_seq
        return passage.items

    def _heard(self, events: Sequence[LoggedEvent]) -> None:
        if not self._is_live or self.end is not None:
            return
        wanted, sight, position = self._wanted, self._sight, self._position
        self._waiting += [
            one
            for one in events
            if one.seq > position and matches(wanted, one) and (sight is None or sight(one))
        ]
        self._position = max(position, events[-1].seq)
        if len(self._waiting) > self._most_behind:
            self._position = self._waiting[0].seq - 1
            self._waiting.clear()
            self._finish(End.TOO_SLOW)
        elif self._waiting:
            self._news.set()

    def _stop(self) -> None:
        self._finish(End.STOPPING)

    def _finish(self, end: End) -> None:
        if self.end is None:
            self.end = end
        self._news.set()
        self._unwatch()
