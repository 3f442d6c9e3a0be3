"""The public event log: events are appended at one end, and pruned at the other."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from rota.core.events import EVERYTHING, Event, EventFilter, LoggedEvent, PruneEvents
from rota.store.database import Transaction, decoding

_encode = msgspec.json.Encoder().encode
_logged_event = decoding(LoggedEvent, data=msgspec.json.Decoder(dict[str, Any]).decode)


class Bounds(NamedTuple):
    oldest_seq: int  # of the stored events; one past the last when there are none
    last_seq: int  # that was given, stored or not


class EventStore:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def bounds(self) -> Bounds:
        oldest, last = self._tx.rows("events.bounds")[0]
        return Bounds(last + 1 if oldest is None else oldest, last)

    def after(
        self, wanted: EventFilter, *, after: int, until: int, limit: int
    ) -> list[LoggedEvent]:
        """Events above one number and up to another, the oldest first."""
        bounds = {"after": after, "until": until, "limit": limit}
        if wanted == EVERYTHING:
            return self._tx.records(_logged_event, "events.all", **bounds)
        return self._tx.records(_logged_event, "events.matching", **bounds, **_parameters(wanted))

    def newest(
        self, wanted: EventFilter, *, after: int, until: int, limit: int
    ) -> list[LoggedEvent]:
        """Events above one number and up to another, the newest first."""
        return self._tx.records(
            _logged_event,
            "events.newest_matching",
            after=after,
            until=until,
            limit=limit,
            **_parameters(wanted),
        )

    def add(self, events: Sequence[Event], *, after: int, at_ms: int) -> None:
        """Append events under the numbers that follow `after`; the caller owns those numbers."""
        self._tx.pipeline_many(
            "events.add",
            ("seq", "at_ms", "type", "subject", "data"),
            [
                (seq, at_ms, one.type, one.subject, _encode(one.data))
                for seq, one in enumerate(events, after + 1)
            ],
        )

    def prune(self, event: PruneEvents, *, step: int) -> int:
        """Delete what is due among the `step` oldest events; returns how many."""
        bounds = self.bounds()
        deleted = self._tx.execute(
            "events.prune",
            below_seq=bounds.oldest_seq + step,
            before_ms=event.before_ms,
            last_excess_seq=bounds.last_seq - event.most,
        )
        if deleted:
            self._tx.pipeline("events.raise_last_seq", seq=bounds.last_seq)
        return deleted


def _parameters(wanted: EventFilter) -> dict[str, object]:
    return {
        "any_type": wanted.types is None,
        "types": sorted(wanted.types or ()),
        "any_subject": wanted.subject is None,
        "subject": wanted.subject,
        "prefix": wanted.prefix,
    }
