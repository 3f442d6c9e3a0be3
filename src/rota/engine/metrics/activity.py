"""How many tasks are submitted and finished over time: rates by queue, and charts.

A commit is noted as it is. Commits are added to rates and charts many at once, or before these are
read: one after the other would cost each commit of a single task several per cent.
"""

from collections import deque
from threading import Lock

from rota.engine.commit.request import BatchCounts
from rota.engine.metrics.rates import QueueRates
from rota.engine.metrics.time_series import TimeSeries

MOST_LATER = 64  # commits that are added up together


class Activity:
    def __init__(self) -> None:
        self._later: deque[tuple[BatchCounts, int]] = deque()  # with the time of the commit
        self._adding = Lock()
        self._rates: dict[str, QueueRates] = {}
        self._series = TimeSeries()

    @property
    def rates(self) -> dict[str, QueueRates]:
        """The rates by queue, with every commit that was noted. Any thread may ask."""
        self._add_up()
        return self._rates

    @property
    def series(self) -> TimeSeries:
        """The charts, with every commit that was noted. Any thread may ask."""
        self._add_up()
        return self._series

    def note(self, counts: BatchCounts, now_ms: int) -> None:
        """Note what a commit submitted and finished."""
        self._later.append((counts, now_ms))
        if len(self._later) >= MOST_LATER:
            self._add_up()

    def _add_up(self) -> None:
        """Add what was noted to rates and charts; another thread may note more meanwhile."""
        with self._adding:
            while self._later:
                self._add(*self._later.popleft())

    def _add(self, counts: BatchCounts, now_ms: int) -> None:
        series = self._series
        for queue, count in counts.submitted.items():
            self._rates_of(queue).submitted.add(count, now_ms)
            series.add(queue, "submitted", count, now_ms)
        for (queue, state), count in counts.finished.items():
            rates = self._rates_of(queue)
            rates.finished.add(count, now_ms)
            series.add(queue, "finished", count, now_ms)
            if state == "failed":
                rates.failed.add(count, now_ms)
                series.add(queue, "failed", count, now_ms)

    def _rates_of(self, queue: str) -> QueueRates:
        known = self._rates.get(queue)
        if known is None:
            known = self._rates[queue] = QueueRates()
        return known
