"""What became of the requests of this coordinator: deliveries of webhooks, and pushed tasks."""

import asyncio
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

OutboundKind = Literal["webhook", "push"]
# `delivered`: answered with success. `refused`: answered with an error. `busy`: the server asks to
# come back later. `failed`: not answered, or not sent, because the address is not allowed.
OutboundOutcome = Literal["delivered", "refused", "busy", "failed"]

# Upper bounds of the classes of durations; the last class has none.
LATENCY_BOUNDS_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


@dataclass
class LatencyHistogram:
    """Durations by class, and their sum."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BOUNDS_S) + 1))
    sum_s: float = 0.0

    def note(self, seconds: float) -> None:
        self.counts[bisect_left(LATENCY_BOUNDS_S, seconds)] += 1
        self.sum_s += seconds


@dataclass
class OutboundMetrics:
    """Counters since the start of this process. They belong to the event loop."""

    requests: Counter[tuple[OutboundKind, OutboundOutcome]] = field(default_factory=Counter)
    given_up: Counter[OutboundKind] = field(default_factory=Counter)  # deliveries, or tasks
    in_flight: Counter[OutboundKind] = field(default_factory=Counter)  # requests, now
    latency: dict[OutboundKind, LatencyHistogram] = field(default_factory=dict)

    @contextmanager
    def measure(self, kind: OutboundKind) -> Iterator[None]:
        """Measure one request, whether it is answered or not; one that is cancelled is left out."""
        started_s = time.monotonic()
        is_cancelled = False
        self.in_flight[kind] += 1
        try:
            yield
        except asyncio.CancelledError:
            is_cancelled = True
            raise
        finally:
            self.in_flight[kind] -= 1
            if not is_cancelled:
                took_s = time.monotonic() - started_s
                self.latency.setdefault(kind, LatencyHistogram()).note(took_s)

    def note(self, kind: OutboundKind, outcome: OutboundOutcome, *, is_last: bool) -> None:
        """Count the end of a request; `is_last`: it has failed, and is not made again."""
        self.requests[kind, outcome] += 1
        self.given_up[kind] += is_last

    def copy(self) -> "OutboundMetrics":
        """A copy of this moment."""
        return OutboundMetrics(
            requests=Counter(self.requests),
            given_up=Counter(self.given_up),
            in_flight=Counter(self.in_flight),
            latency={
                kind: LatencyHistogram([*one.counts], one.sum_s)
                for kind, one in self.latency.items()
            },
        )
