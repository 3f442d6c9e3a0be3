"""Queues: which are paused, and how much waits in each."""

from typing import NamedTuple

from rota.store.database import Transaction


class LaneFigures(NamedTuple):
    queued: int = 0
    oldest_since_ms: int | None = None
    running: int = 0
    scheduled: int = 0


class Queues:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def paused(self) -> set[str]:
        return {name for (name,) in self._tx.rows("queues.paused")}

    def known(self) -> set[str]:
        return {name for (name,) in self._tx.rows("queues.known")}

    def change(self, queue: str, *, paused: bool, at_ms: int) -> None:
        self._tx.run("queues.change", queue, int(paused), at_ms)

    def figures(self) -> dict[int, LaneFigures]:
        """What stands in each lane."""
        found: dict[int, LaneFigures] = {}
        for lane, count, since_ms in self._tx.rows("queues.depth_by_lane"):
            found[lane] = LaneFigures(count, since_ms)
        for lane, count in self._tx.rows("queues.running_by_lane"):
            found[lane] = found.get(lane, LaneFigures())._replace(running=count)
        for lane, count in self._tx.rows("queues.scheduled_by_lane"):
            found[lane] = found.get(lane, LaneFigures())._replace(scheduled=count)
        return found
