"""Counters and gauges of the last hour in slots of ten seconds, for charts.

The store also keeps each minute, as one row for each queue, so the charts survive a restart.

The slots are a ring of fixed size, so one thread may count while others read. The first
`MOST_QUEUES` queues have a chart each. The sum of all queues always has one.
"""

from array import array
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from rota.core.commands import KeptMinute

SLOT_MS = 10_000
SLOTS = 360  # an hour
HOUR_MS = SLOTS * SLOT_MS
MOST_QUEUES = 100  # with a chart each
UNKNOWN = -1  # the value of a gauge that was not sampled in a slot
MINUTE_MS = 60_000
SLOTS_PER_MINUTE = MINUTE_MS // SLOT_MS
ALL = ""  # the queue name of the sum of all queues


class Gauges(NamedTuple):
    """The gauges of a queue at one moment."""

    depth: int
    running: int
    oldest_age_ms: int


class Span(NamedTuple):
    """Consecutive slots, the oldest first; None where a slot has no sample."""

    submitted: list[int | None]
    finished: list[int | None]
    failed: list[int | None]
    depth: list[int | None]
    running: list[int | None]
    oldest_age_ms: list[int | None]


COUNTS = ("submitted", "finished", "failed")
GAUGES = Gauges._fields


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Span).decode


class Track:
    """The slots of one queue, or of all together."""

    def __init__(self) -> None:
        self._numbers = array("q", [UNKNOWN]) * SLOTS  # the number of each slot since the epoch
        self._counts = {name: array("q", [0]) * SLOTS for name in COUNTS}
        self._gauges = {name: array("q", [UNKNOWN]) * SLOTS for name in GAUGES}

    def add(self, name: str, count: int, now_ms: int) -> None:
        number = now_ms // SLOT_MS
        place = number % SLOTS
        if self._numbers[place] != number:
            self._begin_slot(place, number)
        self._counts[name][place] += count

    def look(self, gauges: Gauges, now_ms: int) -> None:
        place = self._place(now_ms)
        for name, value in zip(GAUGES, gauges, strict=True):
            self._gauges[name][place] = value

    def span(self, first: int, count: int) -> Span:
        """Return `count` slots, starting with number `first`."""
        wanted = [(number, number % SLOTS) for number in range(first, first + count)]
        known = [place if self._numbers[place] == number else None for number, place in wanted]
        submitted, finished, failed = (
            [None if place is None else self._counts[name][place] for place in known]
            for name in COUNTS
        )
        depth, running, oldest_age_ms = (
            [None if place is None else _seen(self._gauges[name][place]) for place in known]
            for name in GAUGES
        )
        return Span(submitted, finished, failed, depth, running, oldest_age_ms)

    def put(self, first: int, span: Span) -> None:
        """Restore slots from a span; slots that the span does not know stay unchanged."""
        for offset in range(len(span.submitted)):
            if span.submitted[offset] is None:
                continue
            place = self._place((first + offset) * SLOT_MS)
            for name, counts in self._counts.items():
                counts[place] = getattr(span, name)[offset] or 0
            for name, gauges in self._gauges.items():
                value = getattr(span, name)[offset]
                gauges[place] = UNKNOWN if value is None else value

    def total(self, name: str) -> int:
        """Sum all slots, even outdated ones: enough to tell a busy queue from an idle one."""
        return sum(self._counts[name])

    def _place(self, now_ms: int) -> int:
        number = now_ms // SLOT_MS
        place = number % SLOTS
        if self._numbers[place] != number:
            self._begin_slot(place, number)
        return place

    def _begin_slot(self, place: int, number: int) -> None:
        for counts in self._counts.values():
            counts[place] = 0
        for gauges in self._gauges.values():
            gauges[place] = UNKNOWN
        self._numbers[place] = number


def _seen(value: int) -> int | None:
    return None if value == UNKNOWN else value


class TimeSeries:
    def __init__(self) -> None:
        self.all = Track()
        self.queues: dict[str, Track] = {}

    def add(self, queue: str, name: str, count: int, now_ms: int) -> None:
        self.all.add(name, count, now_ms)
        track = self.queues.get(queue)
        if track is None and queue != ALL:
            track = self._track(queue)
        if track is not None:
            track.add(name, count, now_ms)

    def look(self, queues: Iterable[tuple[str, Gauges]], now_ms: int) -> None:
        """Record the gauges of all queues, and their sum."""
        depth = running = oldest_age_ms = 0
        for queue, gauges in queues:
            depth += gauges.depth
            running += gauges.running
            oldest_age_ms = max(oldest_age_ms, gauges.oldest_age_ms)
            track = self._track(queue)
            if track is not None:
                track.look(gauges, now_ms)
        self.all.look(Gauges(depth, running, oldest_age_ms), now_ms)

    def minute(self, started_at_ms: int) -> tuple[KeptMinute, ...]:
        """Return the rows to store for one minute, of each queue with a value that is not zero."""
        first = started_at_ms // SLOT_MS
        tracks = [(ALL, self.all), *self.queues.items()]
        spans = [(queue, track.span(first, SLOTS_PER_MINUTE)) for queue, track in tracks]
        return tuple(
            KeptMinute(started_at_ms=started_at_ms, queue=queue, slots=_encode(span))
            for queue, span in spans
            if any(value for values in span for value in values)
        )

    def fill(self, minutes: Iterable[KeptMinute]) -> None:
        """Restore the minutes that another process has stored."""
        for one in minutes:
            track = self.all if one.queue == ALL else self._track(one.queue)
            if track is not None:
                track.put(one.started_at_ms // SLOT_MS, _decode(one.slots))

    def busiest(self, most: int) -> list[str]:
        """Return the queues with the most submitted and finished tasks, the busiest first."""
        tracks = list(self.queues.items())
        weights = {name: one.total("submitted") + one.total("finished") for name, one in tracks}
        return sorted(weights, key=lambda name: (-weights[name], name))[:most]

    def _track(self, queue: str) -> Track | None:
        known = self.queues.get(queue)
        if known is None and len(self.queues) < MOST_QUEUES:
            known = self.queues[queue] = Track()
        return known
