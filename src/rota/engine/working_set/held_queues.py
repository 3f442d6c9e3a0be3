"""The queues that have settings, held in memory: their limits, depths, targets and ranks."""

from collections.abc import Iterable

from rota.core.decisions import AddTask
from rota.core.flows.model import Charge, FlowSpec, Slot
from rota.core.flows.queue_settings import (
    DEFAULT_SETTINGS,
    QUEUE_KEY,
    QueueSettings,
    limits_of_queue,
    rank_of,
)
from rota.core.tasks.model import TaskRecord
from rota.engine.working_set.held_limits import HeldLimits
from rota.store.database import Transaction
from rota.store.tasks.flows import FlowStore
from rota.store.tasks.queues import QueueStore


class HeldQueues:
    """The settings of queues as the store has them, and what follows from them."""

    def __init__(self) -> None:
        self.settings: dict[str, QueueSettings] = {}  # of queues that have some
        self.specs: dict[str, FlowSpec] = {}  # limits that all tasks of a queue have
        self.depths: dict[str, int] = {}  # queued tasks of queues with `max_queued`
        self.missed: dict[str, int] = {}  # queues that miss their target, and since when
        self.eras: dict[str, int] = {}  # of queues whose priorities age, or have aged

    def load(self, tx: Transaction, limits: HeldLimits) -> None:
        """Load the settings, and put the limits that they set beside the others."""
        queues = QueueStore(tx)
        for queue, settings in FlowStore(tx).settings().items():
            self._use(queue, settings, limits)
            if settings.max_queued is not None:
                self.depths[queue] = queues.depth(queue)
        self.missed = queues.missed_targets()
        self._drop_old_limits(limits)

    def _use(self, queue: str, settings: QueueSettings, limits: HeldLimits) -> None:
        self.settings[queue] = settings
        if settings.era:
            self.eras[queue] = settings.era
        records = limits_of_queue(queue, settings)
        for record in records:
            known = limits.by_key.get(record.key)
            if known is not None:  # what has started still counts
                record.next_start_us, record.starts_ms = known.next_start_us, known.starts_ms
            limits.by_key[record.key] = record
        if records:
            self.specs[queue] = FlowSpec(
                "",
                tuple(Slot(one.key) for one in records if one.kind == "concurrency"),
                tuple(Charge(one.key) for one in records if one.kind == "rate"),
            )

    def _drop_old_limits(self, limits: HeldLimits) -> None:
        """Drop limits that queues had before their settings were changed."""
        used = {key for spec in self.specs.values() for key in spec.keys}
        for key in [one for one in limits.by_key if one.startswith(QUEUE_KEY)]:
            if key not in used:
                limits.drop(key)

    def settings_of(self, queue: str) -> QueueSettings:
        return self.settings.get(queue, DEFAULT_SETTINGS)

    def whole_spec(self, queue: str, spec: FlowSpec) -> FlowSpec:
        """The limits of a task: those of its flow, and those of its queue."""
        own = self.specs.get(queue)
        if own is None:
            return spec
        return FlowSpec(spec.tenant, (*spec.slots, *own.slots), (*spec.charges, *own.charges))

    # --- depths -----------------------------------------------------------------------------------

    def room_of(self, queue: str) -> int:
        """How many more tasks a queue with `max_queued` takes."""
        most = self.settings[queue].max_queued
        assert most is not None
        return most - self.depths[queue]

    def count_queued(self, queue: str, count: int) -> None:
        """Note that so many tasks have come to a queue, or left it."""
        if queue in self.depths:
            self.depths[queue] += count

    # --- ranks ------------------------------------------------------------------------------------

    def ranks_of_added(self, added: Iterable[AddTask]) -> dict[int, int]:
        """Return the rank of each new task whose priority ages: none without `eras`."""
        return {
            one.id: rank
            for one in added
            if (rank := self._rank(one.task.queue, one.task.priority, one.created_at_ms))
            is not None
        }

    def ranks_of_revived(self, tasks: Iterable[TaskRecord]) -> dict[int, int]:
        """Return the rank of each finished task that is queued again, and whose priority ages."""
        if not self.eras:
            return {}
        return {
            one.id: rank
            for one in tasks
            if (rank := self._rank(one.lane.queue, one.priority, one.created_at_ms)) is not None
        }

    def _rank(self, queue: str, priority: int, created_at_ms: int) -> int | None:
        settings = self.settings_of(queue)
        return rank_of(settings, priority=priority, created_at_ms=created_at_ms)
