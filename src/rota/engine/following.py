"""Who follows what happens? Told after each commit; whoever comes late catches up from the log.

Theory of operation. A follower that is behind reads the log, at its own pace, until it has read the
last number that was told. From then on it is live: what a commit tells is put before it in memory.
It is never both, so nothing has to be held back for one that reads, and none is told of anything
twice. One that is live and lets too much wait is ended: it may come again, and catch up.

Where others write, too, a commit's notices may not follow upon the last that were told here. Then
what lies between is read from the log first, once for all who follow.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from enum import StrEnum
from itertools import islice
from types import TracebackType
from typing import Self

import structlog

from rota.core.limits import MAX_EVENTS_BEHIND
from rota.core.notices import EVERYTHING, Noted, NoticeFilter, matches
from rota.engine.notice_log import NoticeLog, Sight
from rota.engine.notices import Told

log = structlog.get_logger("rota.notices")

READ_AT_ONCE = 1_000  # notices of others, for those who follow
TROUBLE_PAUSE_S = 1.0  # before they are tried to be read again

NoticesCallback = Callable[[Sequence[Noted]], None]


class End(StrEnum):
    """Why nothing more comes."""

    STOPPING = "stopping"  # the coordinator is about to stop; it will be back
    TOO_SLOW = "too_slow"  # more waited than may


class NoticeHub:
    """Hands the notices of each commit to those who watch; costs nothing when nobody does."""

    def __init__(self, log: NoticeLog | None = None) -> None:
        """The log is that of a store to which others write, too."""
        self.last_seq = 0
        self.is_closed = False
        self._log = log
        self._newest = 0  # that there is
        self._filling: asyncio.Task[None] | None = None
        self._watchers: dict[object, tuple[NoticesCallback, Callable[[], None]]] = {}

    @property
    def watchers(self) -> int:
        return len(self._watchers)

    def watch(
        self, callback: NoticesCallback, on_end: Callable[[], None] = lambda: None
    ) -> Callable[[], None]:
        """Call back with all notices of each commit, until what this gives back is called."""
        watcher = object()
        if self.is_closed:
            asyncio.get_running_loop().call_soon(on_end)
        else:
            self._watchers[watcher] = callback, on_end

        def unwatch() -> None:
            self._watchers.pop(watcher, None)

        return unwatch

    def tell(self, told: Sequence[Told]) -> None:
        """On the loop, after the answers of the same commits were handed over."""
        if not told:
            return
        if self._log is not None:
            for one in told:
                self._tell_next(one)
            return
        self.last_seq = told[-1].last_seq
        if self._watchers:
            for one in told:
                self._hand_out(one.noted())

    def _hand_out(self, notices: Sequence[Noted]) -> None:
        loop = asyncio.get_running_loop()
        for callback, _ in list(self._watchers.values()):
            loop.call_soon(callback, notices)

    # --- where others write, too ------------------------------------------------------------------

    def _tell_next(self, told: Told) -> None:
        if told.last_seq - len(told.notices) != self.last_seq:
            self.advance(told.last_seq)
            return
        self.last_seq = told.last_seq
        if self._watchers:
            self._hand_out(told.noted())

    def advance(self, last_seq: int) -> None:
        """There are notices up to this number, whoever wrote them."""
        self._newest = max(self._newest, last_seq)
        if not self._watchers:
            self.last_seq = max(self.last_seq, last_seq)
        elif self.last_seq < self._newest and self._filling is None:
            self._filling = asyncio.create_task(self._fill())

    async def _fill(self) -> None:
        """Tell what others wrote, in its order, until there is no more."""
        assert self._log is not None
        try:
            while self.last_seq < self._newest and self._watchers:
                try:
                    passage = await self._log.after(self.last_seq, EVERYTHING, limit=READ_AT_ONCE)
                except Exception as error:
                    log.warning("what others wrote cannot be read", exc_info=error)
                    await asyncio.sleep(TROUBLE_PAUSE_S)
                    continue
                # Some of it may have been told by our own commits meanwhile.
                news = [one for one in passage.items if one.seq > self.last_seq]
                self.last_seq = max(self.last_seq, passage.position)
                if news:
                    self._hand_out(news)
        finally:
            self._filling = None
        self.advance(self._newest)

    def close(self) -> None:
        """Nothing more will come."""
        self.is_closed = True
        if self._filling is not None:
            self._filling.cancel()
        watchers, self._watchers = self._watchers, {}
        for _, on_end in watchers.values():
            on_end()


class Follower:
    """Everything in the log after a number, in order, for as long as somebody takes it."""

    def __init__(
        self,
        hub: NoticeHub,
        log: NoticeLog,
        wanted: NoticeFilter,
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
        self._position = after  # what it has seen, or need not see
        self._is_live = False
        self._waiting: deque[Noted] = deque()
        self._news = asyncio.Event()
        self._unwatch = hub.watch(self._heard, self._stop)

    @property
    def position(self) -> int:
        """Whoever comes again with this number misses nothing, and hears nothing twice."""
        return self._waiting[0].seq - 1 if self._waiting else self._position

    async def take(self, most: int) -> list[Noted]:
        """What comes next, as soon as there is some; nothing: this has ended."""
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

    async def _catch_up(self, most: int) -> list[Noted]:
        passage = await self._log.after(self._position, self._wanted, limit=most, sight=self._sight)
        self._position = max(self._position, passage.position)
        # The log may be ahead of what was told, but not behind it.
        self._is_live = self._position >= self._hub.last_seq
        return passage.items

    def _heard(self, notices: Sequence[Noted]) -> None:
        if not self._is_live or self.end is not None:
            return
        wanted, sight, position = self._wanted, self._sight, self._position
        self._waiting += [
            one
            for one in notices
            if one.seq > position and matches(wanted, one) and (sight is None or sight(one))
        ]
        self._position = max(position, notices[-1].seq)
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
