"""The limits that the writer holds in memory: every key, with the slots that are taken.

How many tasks of a key run follows from the leases, and from the few slots that outlive one: those
of cancelled attempts whose worker has not let go, and those of tasks that keep a slot between two
attempts. It is counted when the working set is loaded, and never stored.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice
from types import MappingProxyType

import msgspec

from rota.core import limits as core_limits
from rota.core.flows import rates
from rota.core.flows.model import FlowSpec, LimitRecord
from rota.core.ids import TaskId
from rota.store.database import Transaction
from rota.store.tasks.flows import FlowStore, KeptSlot

NO_SPEC = FlowSpec()
MOST_SEARCHED = 1_000  # slots that are searched for the holder of a key


class HeldLimits:
    """The limits as the store has them, or as `flush` will write them."""

    def __init__(self) -> None:
        self.by_key: dict[str, LimitRecord] = {}
        self.owned: Counter[str] = Counter()  # keys, by the binding that has named them first
        self.running: dict[str, int] = {}  # slots that are taken, by key
        self.waiting: dict[str, int] = {}  # queued tasks, by key
        self.slots: dict[TaskId, FlowSpec] = {}  # by the task that has taken them
        self.kept: dict[TaskId, int | None] = {}  # slots without a lease, with the incarnation
        self.ended: dict[TaskId, FlowSpec] = {}  # slots that this batch has freed
        self.closed: dict[str, int] = {}  # rates that this batch has closed, and until when before
        self.changed: set[str] = set()  # keys to write
        self.dropped: set[str] = set()  # keys to delete
        self._changed_slots: dict[TaskId, KeptSlot | None] = {}  # to write, or to delete

    def load(self, tx: Transaction) -> None:
        self.by_key = FlowStore(tx).limits()
        self.owned = Counter(one.owner for one in self.by_key.values() if one.owner)

    # --- asking -----------------------------------------------------------------------------------

    def refusal(
        self,
        spec: FlowSpec,
        holder: TaskId | None,
        pending: "PendingStarts",
        *,
        now_ms: int,
    ) -> str | None:
        """The key of the first limit that does not let a task start; None: it may start.

        Holder: the task, if it has kept its slot. Pending: starts that are picked already.
        """
        for slot in spec.slots:
            if holder is not None and slot.hold == "task":
                continue
            record = self.by_key[slot.key]
            taken = self.running.get(slot.key, 0) + pending.slots.get(slot.key, 0)
            if taken >= record.limit:
                return slot.key
        for charge in spec.charges:
            record = pending.rates.get(charge.key) or self.by_key[charge.key]
            if rates.opens_at_ms(record, charge.cost, now_ms=now_ms) is not None:
                return charge.key
        return None

    def room(self, key: str) -> int:
        """How many more tasks of a concurrency limit may run."""
        record = self.by_key.get(key)
        return 0 if record is None else max(0, record.limit - self.running.get(key, 0))

    def holder_of(self, key: str) -> TaskId | None:
        """A task that has a slot of this key, if one can be named cheaply."""
        if not self.running.get(key) or len(self.slots) > MOST_SEARCHED:
            return None
        return next(
            (one for one, spec in self.slots.items() if any(s.key == key for s in spec.slots)), None
        )

    def holders(self, key: str, most: int) -> list[TaskId]:
        """Tasks that have a slot of this key, but for attempts that are cancelled already."""
        found = (
            one
            for one, spec in self.slots.items()
            if self.kept.get(one) is None and any(slot.key == key for slot in spec.slots)
        )
        return [*islice(found, most)]

    def opens_at_ms(self, key: str, cost: int = 1, *, now_ms: int) -> int | None:
        """When a rate lets the next start through; None: now, or it is no rate."""
        record = self.by_key[key]
        return None if record.kind != "rate" else rates.opens_at_ms(record, cost, now_ms=now_ms)

    def free_starts(self, key: str, most: int, *, now_ms: int) -> int:
        """How many starts a rate lets through now, counted up to a number."""
        record = msgspec.structs.replace(self.by_key[key])
        for count in range(most):
            if rates.opens_at_ms(record, 1, now_ms=now_ms) is not None:
                return count
            rates.start(record, 1, now_ms=now_ms)
        return most

    # --- starts and ends --------------------------------------------------------------------------

    def note_started(self, task_id: TaskId, spec: FlowSpec, *, now_ms: int) -> None:
        """Take the slots of a task that is leased, but for those that it has kept."""
        held = self.slots.get(task_id, NO_SPEC)
        kept = {one.key for one in held.slots}
        for slot in spec.slots:
            if slot.key not in kept:
                self.running[slot.key] = self.running.get(slot.key, 0) + 1
        if self.kept.pop(task_id, 0) is None:
            self._changed_slots[task_id] = None
        if spec.slots:
            self.slots[task_id] = spec
        for charge in spec.charges:
            rates.start(self.by_key[charge.key], charge.cost, now_ms=now_ms)
            self.changed.add(charge.key)

    def note_waiting(self, task_id: TaskId) -> list[str]:
        """Free the slots of an attempt that ended, but for those that its task keeps.

        Return the keys that have more room.
        """
        spec = self.slots.pop(task_id, None)
        if spec is None:
            return []
        kept = tuple(one for one in spec.slots if one.hold == "task")
        if kept:
            left = msgspec.structs.replace(spec, slots=kept)
            self._keep(task_id, left, None)
        return self._free(one.key for one in spec.slots if one.hold != "task")

    def note_finished(self, task_id: TaskId) -> list[str]:
        """Free all slots of a task that has finished; return the keys that have more room."""
        spec = self.slots.pop(task_id, None)
        if spec is None:
            return []
        if task_id in self.kept:
            del self.kept[task_id]
            self._changed_slots[task_id] = None
        self.ended[task_id] = spec
        return self._free(one.key for one in spec.slots)

    def note_lingering(self, task_id: TaskId, spec: FlowSpec, incarnation: int) -> None:
        """Keep the slots of a cancelled attempt until its worker has let go of it."""
        for slot in spec.slots:
            self.running[slot.key] = self.running.get(slot.key, 0) + 1
        self._keep(task_id, spec, incarnation)

    def lingering_of(self, incarnation: int) -> list[TaskId]:
        """The cancelled attempts that a worker has not let go of."""
        return [task_id for task_id, one in self.kept.items() if one == incarnation]

    def _keep(self, task_id: TaskId, spec: FlowSpec, incarnation: int | None) -> None:
        self.slots[task_id] = spec
        self.kept[task_id] = incarnation
        self._changed_slots[task_id] = KeptSlot(task_id, incarnation, spec)

    def _free(self, keys: Iterable[str]) -> list[str]:
        freed = [*keys]
        for key in freed:
            left = self.running[key] - 1
            assert left >= 0, "a slot is freed once"
            if left:
                self.running[key] = left
            else:
                del self.running[key]
        return freed

    # --- changes ----------------------------------------------------------------------------------

    def put(self, record: LimitRecord) -> None:
        if record.owner and record.key not in self.by_key:
            self.owned[record.owner] += 1
        self.by_key[record.key] = record
        self.changed.add(record.key)
        self.dropped.discard(record.key)

    def drop(self, key: str) -> None:
        owner = self.by_key.pop(key).owner
        if owner:
            self.owned[owner] -= 1
        self.changed.discard(key)
        self.dropped.add(key)

    def close_rates(self, keys: Iterable[str], *, until_ms: int) -> None:
        """Let no task of these rates start before a moment."""
        for key in keys:
            record = self.by_key.get(key)
            if record is not None and record.kind == "rate":
                self.close(record, until_ms=until_ms)

    def close(self, record: LimitRecord, *, until_ms: int) -> LimitRecord:
        """Close a rate, and remember since when it was not closed before."""
        closed = rates.closed(record, until_ms=until_ms)
        self.closed.setdefault(record.key, record.closed_until_ms)
        self.put(closed)
        return closed

    def has_room_for_key(self) -> bool:
        return len(self.by_key) < core_limits.MAX_LIMIT_KEYS

    def flush(self, tx: Transaction) -> None:
        """Write what the batch has changed."""
        self.ended, self.closed = {}, {}
        store = FlowStore(tx)
        if self.changed:
            store.put_limits(self.by_key[key] for key in sorted(self.changed))
            self.changed = set()
        if self.dropped:
            store.drop_limits(sorted(self.dropped))
            self.dropped = set()
        if self._changed_slots:
            kept = [one for one in self._changed_slots.values() if one is not None]
            gone = [key for key, one in self._changed_slots.items() if one is None]
            if kept:
                store.keep_slots(kept)
            if gone:
                store.drop_slots(gone)
            self._changed_slots = {}


class PendingStarts:
    """Starts that are picked and not leased yet."""

    def __init__(self, by_key: Mapping[str, LimitRecord] = MappingProxyType({})) -> None:
        self.slots: dict[str, int] = {}
        self.rates: dict[str, LimitRecord] = {}
        self._by_key = by_key

    def add(self, spec: FlowSpec, *, now_ms: int, is_holder: bool) -> None:
        for slot in spec.slots:
            if not (is_holder and slot.hold == "task"):
                self.slots[slot.key] = self.slots.get(slot.key, 0) + 1
        for charge in spec.charges:
            record = self.rates.get(charge.key)
            if record is None:
                record = msgspec.structs.replace(self._by_key[charge.key])
                self.rates[charge.key] = record
            rates.start(record, charge.cost, now_ms=now_ms)


class Openings:
    """When the rates that refused a flow open, the earliest first."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []
        self._at_ms: dict[str, int] = {}

    def add(self, key: str, at_ms: int) -> None:
        if self._at_ms.get(key) != at_ms:
            self._at_ms[key] = at_ms
            heapq.heappush(self._heap, (at_ms, key))

    def next_ms(self) -> int | None:
        self._clean()
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> list[str]:
        """Take out the keys that open now."""
        found = []
        self._clean()
        while self._heap and self._heap[0][0] <= now_ms:
            _, key = heapq.heappop(self._heap)
            del self._at_ms[key]
            found.append(key)
            self._clean()
        return found

    def _clean(self) -> None:
        while self._heap and self._at_ms.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
