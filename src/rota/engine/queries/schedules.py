"""Reads of schedules and their history, and when the next one is due."""

from collections.abc import Sequence
from typing import NamedTuple

from rota.core.schedules.model import Firing, ScheduleRecord
from rota.engine.clock import Clock
from rota.engine.metrics.metrics import Metrics
from rota.engine.queries.reader import StoreReader
from rota.store.database import Transaction
from rota.store.schedules import ScheduleStore


class ScheduleFigures(NamedTuple):
    """A schedule with rows of its history, the newest first."""

    record: ScheduleRecord
    firings: list[Firing]


class ScheduleQueries:
    def __init__(self, reader: StoreReader, metrics: Metrics, *, clock: Clock) -> None:
        self._read = reader.read
        self._metrics = metrics
        self._clock = clock

    @property
    def next_firing_ms(self) -> int | None:
        """When the next schedule is due, as the leader knows; None: no schedule is."""
        return self._metrics.next_firing_ms

    async def is_due(self) -> bool:
        """Return whether a schedule is due; only the leader knows."""
        next_ms = self._metrics.next_firing_ms
        return next_ms is not None and next_ms <= self._clock.now_ms()

    async def by_name(self, name: str) -> ScheduleFigures | None:
        """Return a schedule with its whole history."""

        def body(tx: Transaction) -> ScheduleFigures | None:
            store = ScheduleStore(tx)
            record = store.by_names([name]).get(name)
            return None if record is None else ScheduleFigures(record, store.firings(name))

        return await self._read(body)

    async def page(
        self, *, queues: Sequence[str] | None, after: str, limit: int
    ) -> list[ScheduleFigures]:
        """Return the next schedules by name, of these queues or of all, with the last firing."""

        def body(tx: Transaction) -> list[ScheduleFigures]:
            store = ScheduleStore(tx)
            found = store.page(queues=queues, after=after, limit=limit)
            last = store.last_firings([one.name for one in found])
            return [
                ScheduleFigures(one, [last[one.name]] if one.name in last else []) for one in found
            ]

        return await self._read(body)
