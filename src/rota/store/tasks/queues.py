"""Queues and the inbox: paused queues, tasks in each lane, and tasks that wait for acceptance."""

from typing import NamedTuple

from rota.store.database import Transaction


class LaneCounts(NamedTuple):
    queued: int = 0
    oldest_since_ms: int | None = None
    running: int = 0
    scheduled: int = 0


class InboxTask(NamedTuple):
    """A task that another program has put into the inbox, in a transaction of its own."""

    id: int
    key: str
    task: bytes


class QueueStore:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def paused(self) -> set[str]:
        return set(self._tx.column("queues.paused"))

    def known(self) -> set[str]:
        return set(self._tx.column("queues.known"))

    def depth(self, queue: str) -> int:
        """The number of queued tasks of a queue."""
        return int(self._tx.value("queues.depth", queue=queue))

    def missed_targets(self) -> dict[str, int]:
        """The queues that miss their target, and since when."""
        return dict(self._tx.rows("queues.missed_targets"))

    def set_target_missed(self, queue: str, since_ms: int | None) -> None:
        self._tx.pipeline("queues.set_target_missed", name=queue, since_ms=since_ms)

    def has_waited(self, queue: str, *, before_ms: int) -> bool:
        """Whether a task of a queue has been queued since before a moment."""
        return bool(self._tx.value("queues.has_waited", queue=queue, before_ms=before_ms))

    def set_paused(self, queue: str, *, paused: bool, at_ms: int) -> None:
        self._tx.pipeline("queues.set_paused", name=queue, paused=int(paused), changed_at_ms=at_ms)

    def lane_counts(self) -> dict[int, LaneCounts]:
        found: dict[int, LaneCounts] = {}
        for lane, count, since_ms in self._tx.rows("queues.queued_by_lane"):
            found[lane] = LaneCounts(count, since_ms)
        for lane, count in self._tx.rows("queues.running_by_lane"):
            found[lane] = found.get(lane, LaneCounts())._replace(running=count)
        for lane, count in self._tx.rows("queues.scheduled_by_lane"):
            found[lane] = found.get(lane, LaneCounts())._replace(scheduled=count)
        return found

    # --- stuck queues -----------------------------------------------------------------------------

    def stuck(self) -> dict[str, int]:
        """The queues that are known to be stuck, and since when."""
        return dict(self._tx.rows("queues.stuck"))

    def set_stuck(self, queue: str, since_ms: int | None) -> None:
        """Note since when a queue is stuck; None: it is not."""
        if since_ms is None:
            self._tx.pipeline("queues.drop_stuck", queue=queue)
        else:
            self._tx.pipeline("queues.add_stuck", queue=queue, since_ms=since_ms)


class InboxStore:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def is_empty(self) -> bool:
        return not self._tx.value("inbox.has_any")

    def put(self, key: str, task: bytes, *, at_ms: int) -> None:
        """Insert a task, as a program does that shares the database with the coordinator."""
        self._tx.pipeline("inbox.put", key=key, task=task, created_at_ms=at_ms)

    def take(self, limit: int, *, most_bytes: int) -> list[InboxTask]:
        """Delete and return the oldest tasks; at least one, if there is any."""
        found = self._tx.records(InboxTask, "inbox.take", limit=limit, max_bytes=most_bytes)
        return sorted(one._replace(task=bytes(one.task)) for one in found)
