"""Reads of the event log: forward from a sequence number, or back from the newest.

Only sequence numbers are indexed, so a filter is tested on each row. A filter that matches few
events could occupy a database reader for long. So the log is scanned in steps, and other reads run
between them.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from rota.core.events import EventFilter, LoggedEvent
from rota.engine.queries.reader import StoreReader
from rota.store.database import Transaction
from rota.store.events import Bounds, EventStore

EVENTS_PER_STEP = 50_000  # events scanned in one read

Sight = Callable[[LoggedEvent], bool]  # whether the caller may see an event


class Passage(NamedTuple):
    """The events of a part of the log that match a filter, and how far the log was scanned."""

    items: list[LoggedEvent]
    position: int  # every event up to this number has been scanned
    oldest_seq: int  # of the events that the log still has
    last_seq: int


class EventLog:
    def __init__(self, reader: StoreReader) -> None:
        self._read = reader.read

    async def bounds(self) -> Bounds:
        return await self._read(lambda tx: EventStore(tx).bounds())

    async def after(
        self, position: int, wanted: EventFilter, *, limit: int, sight: Sight | None = None
    ) -> Passage:
        """Return the next matching events after a sequence number, the oldest first."""
        found: list[LoggedEvent] = []
        while True:
            step = partial(_step_up, after=position, wanted=wanted, limit=limit - len(found))
            rows, position, bounds = await self._read(step)
            found += [one for one in rows if sight is None or sight(one)]
            if len(found) == limit or position >= bounds.last_seq:
                return Passage(found, position, *bounds)

    async def newest(
        self, wanted: EventFilter, *, limit: int, sight: Sight | None = None
    ) -> Passage:
        """Return the newest matching events, the oldest of them first."""
        bounds = await self.bounds()
        found: list[LoggedEvent] = []
        until = bounds.last_seq
        while until >= bounds.oldest_seq and len(found) < limit:
            step = partial(_step_down, until=until, wanted=wanted, limit=limit - len(found))
            rows, until = await self._read(step)
            found += [one for one in rows if sight is None or sight(one)]
        return Passage(found[::-1], bounds.last_seq, *bounds)


def _step_up(
    tx: Transaction, *, after: int, wanted: EventFilter, limit: int
) -> tuple[list[LoggedEvent], int, Bounds]:
    """Return the matching events of one step, the last number scanned, and the log's bounds."""
    store = EventStore(tx)
    bounds = store.bounds()
    after = max(after, bounds.oldest_seq - 1)
    until = max(after, min(bounds.last_seq, after + EVENTS_PER_STEP))
    rows = store.after(wanted, after=after, until=until, limit=limit)
    return rows, rows[-1].seq if len(rows) == limit else until, bounds


def _step_down(
    tx: Transaction, *, until: int, wanted: EventFilter, limit: int
) -> tuple[list[LoggedEvent], int]:
    down_to = max(0, until - EVENTS_PER_STEP)
    rows = EventStore(tx).newest(wanted, after=down_to, until=until, limit=limit)
    return rows, rows[-1].seq - 1 if len(rows) == limit else down_to
