"""What stands in the log of notices? Read on from a number, or back from the newest.

Only numbers are indexed: a filter is held against row after row. So that a wish that hardly
anything fits does not keep a reader for long, the log is looked through in steps, and others get
their turns between them.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

from rota.core.notices import Noted, NoticeFilter
from rota.store.database import Transaction
from rota.store.notices import Bounds, Notices

NOTICES_PER_STEP = 50_000  # looked at in one go

Reader = Callable[[Callable[[Transaction], Any]], Awaitable[Any]]
Sight = Callable[[Noted], bool]  # whether somebody may see it


class Passage(NamedTuple):
    """A piece of the log as somebody wanted it."""

    items: list[Noted]
    position: int  # everything up to here has been looked at
    oldest_seq: int  # that is kept
    last_seq: int


class NoticeLog:
    def __init__(self, read: Reader) -> None:
        self._read = read

    async def bounds(self) -> Bounds:
        bounds: Bounds = await self._read(lambda tx: Notices(tx).bounds())
        return bounds

    async def after(
        self, position: int, wanted: NoticeFilter, *, limit: int, sight: Sight | None = None
    ) -> Passage:
        """The next that match after a number, the oldest first."""
        found: list[Noted] = []
        while True:
            step = partial(_step_up, after=position, wanted=wanted, limit=limit - len(found))
            rows, position, bounds = await self._read(step)
            found += [one for one in rows if sight is None or sight(one)]
            if len(found) == limit or position >= bounds.last_seq:
                return Passage(found, position, *bounds)

    async def newest(
        self, wanted: NoticeFilter, *, limit: int, sight: Sight | None = None
    ) -> Passage:
        """The newest that match, in their order."""
        bounds = await self.bounds()
        found: list[Noted] = []
        until = bounds.last_seq
        while until >= bounds.oldest_seq and len(found) < limit:
            step = partial(_step_down, until=until, wanted=wanted, limit=limit - len(found))
            rows, until = await self._read(step)
            found += [one for one in rows if sight is None or sight(one)]
        return Passage(found[::-1], bounds.last_seq, *bounds)


def _step_up(
    tx: Transaction, *, after: int, wanted: NoticeFilter, limit: int
) -> tuple[list[Noted], int, Bounds]:
    """What was found, and up to where was looked."""
    notices = Notices(tx)
    bounds = notices.bounds()
    after = max(after, bounds.oldest_seq - 1)
    until = max(after, min(bounds.last_seq, after + NOTICES_PER_STEP))
    rows = notices.after(wanted, after=after, until=until, limit=limit)
    return rows, rows[-1].seq if len(rows) == limit else until, bounds


def _step_down(
    tx: Transaction, *, until: int, wanted: NoticeFilter, limit: int
) -> tuple[list[Noted], int]:
    down_to = max(0, until - NOTICES_PER_STEP)
    rows = Notices(tx).newest(wanted, after=down_to, until=until, limit=limit)
    return rows, rows[-1].seq - 1 if len(rows) == limit else down_to
