"""The flows that the writer holds in memory, and the tasks that each of them offers next.

Theory of operation. A flow that has queued tasks is in exactly one place: among the active flows of
its lane, or under the limit that refused it. A flow is refused as a whole, so 10,000 tasks of a key
that is full cost one step. When a limit has room again, as many of its flows become active in each
lane: a lane without workers must not keep the room from the others. To become active reserves
nothing. A flow that another limit then refuses passes the room on to the next.

Virtual times are not stored. Tenants that have work are within one start of each other, so a start
over costs a tenant at most one start.

Memory. A flow with queued tasks takes about 4 KiB, with its window and a limit of its own: 100,000
keys take 400 MiB. However many tasks a flow has, it holds no more than its window.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice

import msgspec

from rota.core import limits as core_limits
from rota.core.decisions import AddTask, ReplaceTask
from rota.core.dispatch.matching import turn
from rota.core.flows.declaring import declare, is_forgettable
from rota.core.flows.fair_queue import FairQueue, Flow, Place
from rota.core.flows.model import Charge, FlowSpec, Slot, named_limits
from rota.core.flows.queue_settings import (
    DEFAULT_SETTINGS,
    QUEUE_KEY,
    QueueSettings,
    limits_of_queue,
    rank_of,
)
from rota.core.ids import TaskId
from rota.core.snapshot import added_task
from rota.core.tasks.model import (
    Lane,
    NewTask,
    TaskOptions,
    TaskRecord,
    flow_of,
    lane_of,
    of_run,
)
from rota.engine.working_set.held_leases import HeldLeases
from rota.engine.working_set.held_limits import HeldLimits, Openings
from rota.engine.working_set.held_tenants import HeldTenants
from rota.engine.working_set.lane_windows import LaneWindow, LaneWindows
from rota.store.database import Transaction
from rota.store.tasks.flows import FlowStore, StoredFlow
from rota.store.tasks.lanes import Lanes
from rota.store.tasks.queues import QueueStore
from rota.store.tasks.row_types import FIRST_FLOW, QueuedPlace

MOST_PLACES = 524_288  # of all flows together, at about 120 bytes each
MOST_WOKEN = 1_000  # flows of a lane that become active at once
MOST_STARTS = 64  # of a rate that are let through at once
CHECKED_AT_ONCE = 5_000  # flows, and limits, that are looked at for being forgotten
NO_SPEC = FlowSpec()


class HeldFlows:
    """The flows as the store has them. Each decision is noted when it is written."""

    def __init__(self, lanes: Lanes) -> None:
        self.limits = HeldLimits()
        self.openings = Openings()
        self.tenants = HeldTenants(self.settings_of)
        self.settings: dict[str, QueueSettings] = {}  # of queues that have some
        self.queue_specs: dict[str, FlowSpec] = {}  # limits that all tasks of a queue have
        self.depths: dict[str, int] = {}  # queued tasks of queues with `max_queued`
        self.missed: dict[str, int] = {}  # queues that miss their target, and since when
        self.open: dict[int, Flow] = {}  # flows with queued tasks
        self.active: dict[int, FairQueue] = {}  # by lane
        self.windows = LaneWindows(lanes, most_places=MOST_PLACES)
        self.flows_of_queue: dict[str, int] = {}  # how many flows have queued tasks
        self.blocked_count = 0  # flows that a limit refuses
        self._blocking: dict[int, Counter[str]] = {}  # by lane: the keys that refuse its flows
        self.refused: Counter[str] = Counter()  # flows of this batch, by the kind of the limit
        self._blocked: dict[str, dict[int, FairQueue]] = {}  # by key and lane
        self._numbers: dict[tuple[int, FlowSpec], int] = {}
        self._specs: dict[int, tuple[int, FlowSpec]] = {}
        self._named: dict[str, int] = {}  # by key: the flows that name it
        self._eras: dict[str, int] = {}  # of queues whose priorities age, or have aged
        self._unnamed: set[str] = set()  # keys of limits that no flow names
        self._to_check: list[int] = []  # flows that may be unused
        self._last = FIRST_FLOW
        self._lanes = lanes

    @property
    def is_used(self) -> bool:
        """Whether any task or queue has a limit or a tenant."""
        return bool(self._specs or self.limits.by_key or self.settings)

    def __len__(self) -> int:
        return len(self.open)

    def active_lanes(self) -> list[int]:
        """The lanes with a flow that may run."""
        return [lane for lane, flows in self.active.items() if flows]

    def blocked_lanes(self) -> list[tuple[int, str, int]]:
        """The lanes whose flows are all blocked, each with one of the keys, and how many they are.

        A lane may have tasks without a flow beside them.
        """
        return [
            (lane, next(iter(keys)), len(keys))
            for lane, keys in self._blocking.items()
            if not self.active.get(lane)
        ]

    def misplaced(self) -> list[Flow]:
        """Flows with queued tasks that are not either active or blocked; there should be none."""
        found = []
        for flow in self.open.values():
            lanes = {} if flow.blocked_by is None else self._blocked.get(flow.blocked_by, {})
            is_active = flow in self.active.get(flow.lane, ())
            if is_active == (flow in lanes.get(flow.lane, ())):
                found.append(flow)
        return found

    def managed_lanes(self, lanes: Collection[int]) -> list[int]:
        """Those of these lanes whose queue has limits, or a flow that may run in one of them.

        Flows that are blocked have no part in the order, so a queue that has no others is served
        like one without flows.
        """
        known = self._lanes.by_number
        queues = {known[lane].queue for lane in lanes if self.active.get(lane)}
        queues.update(self.queue_specs)
        return [lane for lane in lanes if known[lane].queue in queues]

    def is_managed(self, queue: str) -> bool:
        """Whether a new task of a queue has to be queued before it can be leased."""
        return (
            queue in self.flows_of_queue
            or queue in self.queue_specs
            or queue in self.depths
            or queue in self._eras
        )

    def settings_of(self, queue: str) -> QueueSettings:
        return self.settings.get(queue, DEFAULT_SETTINGS)

    def queue_room(self, queue: str) -> int:
        """How many more tasks a queue with `max_queued` takes."""
        most = self.settings[queue].max_queued
        assert most is not None
        return most - self.depths[queue]

    def count_queued(self, queue: str, count: int) -> None:
        """Note that so many tasks have come to a queue, or left it."""
        if queue in self.depths:
            self.depths[queue] += count

    # --- loading ----------------------------------------------------------------------------------

    @classmethod
    def load(cls, tx: Transaction, lanes: Lanes, leases: HeldLeases) -> "HeldFlows":
        held, store = cls(lanes), FlowStore(tx)
        held.limits.load(tx)
        for queue, settings in store.settings().items():
            held._use_settings(queue, settings)
            if settings.max_queued is not None:
                held.depths[queue] = QueueStore(tx).depth(queue)
        held.missed = QueueStore(tx).missed_targets()
        for one in store.all():
            held._intern(one)
        held._forget_old_settings()
        held._unnamed = {
            key
            for key in held.limits.by_key
            if key not in held._named and not key.startswith(QUEUE_KEY)
        }
        if held.is_used:
            held._count_slots(store, leases)
            held._open_queued(store)
        return held

    def _forget_old_settings(self) -> None:
        """Forget limits that queues have had before their settings were changed."""
        used = {key for spec in self.queue_specs.values() for key in spec.keys}
        for key in [one for one in self.limits.by_key if one.startswith(QUEUE_KEY)]:
            if key not in used:
                self.limits.drop(key)

    def _count_slots(self, store: FlowStore, leases: HeldLeases) -> None:
        specs = {task_id: self._specs[flow][1] for task_id, flow in store.running()}
        for task_id, lease in leases.by_task.items():
            queue, own = lease.lane.queue, specs.get(task_id)
            if own is not None or self.settings_of(queue).fairness == "time":
                tenant = self.tenants.get(queue, "" if own is None else own.tenant)
                self.tenants.note_running(task_id, tenant, started_at_ms=lease.started_at_ms)
            self._count(task_id, self.whole_spec(queue, own or NO_SPEC))
        for kept in store.kept_slots():
            self._count(kept.id, kept.spec)
            self.limits.kept[kept.id] = kept.incarnation

    def _count(self, task_id: TaskId, spec: FlowSpec) -> None:
        limits = self.limits
        if spec.slots:
            limits.slots[task_id] = spec
        for slot in spec.slots:
            limits.running[slot.key] = limits.running.get(slot.key, 0) + 1

    def _open_queued(self, store: FlowStore) -> None:
        for number, count, (rank, task_id) in store.queued():
            flow = self._opened(number)
            flow.queued = count
            self._count_waiting(flow, count)
            # Empty, up to just before the first task: so the flow is in its turn from the start.
            self.windows.by_lane[number] = LaneWindow(bound=(rank, TaskId(task_id - 1)))
        for place in store.queued_holders():
            self.open[place.lane].holders[place.id] = place.rank, place.id
        for flow in [*self.open.values()]:
            self._place(flow)

    # --- numbers ----------------------------------------------------------------------------------

    def lane_of(self, number: int) -> int:
        """The lane of a flow, or the lane itself."""
        return number if number < FIRST_FLOW else self._specs[number][0]

    def queue_of(self, number: int) -> str:
        """The queue of a lane or a flow."""
        return self._lanes.by_number[self.lane_of(number)].queue

    def numbers_for(
        self, tx: Transaction, added: Sequence[AddTask], *, now_ms: int
    ) -> dict[int, int]:
        """Return the flow of each new task that has one; its limits are declared."""
        # Not by `flow_of`: this is asked for every task, and nearly none has a flow.
        tasks = [
            one
            for one in added
            if one.task.fair_key is not None
            or one.task.concurrency is not None
            or one.task.rate is not None
            or one.task.queue in self._eras
        ]
        return self._numbers_of(tx, tasks, now_ms=now_ms) if tasks else {}

    def numbers_instead(
        self, tx: Transaction, replaced: Sequence[ReplaceTask], *, now_ms: int
    ) -> dict[int, int]:
        """Return the flow of each waiting task that has new contents, and has one.

        Its rank stays, so its era does, too.
        """
        tasks = []
        for one in replaced:
            era = 0 if one.before.flow is None else self._specs[one.before.flow][1].era
            if era or flow_of(one.task) is not None:
                tasks.append((AddTask(one.id, one.task, one.at_ms), era))
        return self._numbers_in(tx, tasks, now_ms=now_ms) if tasks else {}

    def ranks_for(self, added: Iterable[AddTask]) -> dict[int, int]:
        """Return the rank of each new task whose priority ages."""
        if not self._eras:
            return {}
        return {
            one.id: rank
            for one in added
            if (rank := self._rank(one.task.queue, one.task.priority, one.created_at_ms))
            is not None
        }

    def ranks_again(self, tasks: Iterable[TaskRecord]) -> dict[int, int]:
        """Return the rank of each finished task that is queued again, and whose priority ages."""
        if not self._eras:
            return {}
        return {
            one.id: rank
            for one in tasks
            if (rank := self._rank(one.lane.queue, one.priority, one.created_at_ms)) is not None
        }

    def _rank(self, queue: str, priority: int, created_at_ms: int) -> int | None:
        settings = self.settings_of(queue)
        return rank_of(settings, priority=priority, created_at_ms=created_at_ms)

    def numbers_again(
        self, tx: Transaction, tasks: Iterable[TaskRecord], *, now_ms: int
    ) -> dict[int, int]:
        """Return the flow of each finished task that is queued again and has one."""
        again = [
            AddTask(task.id, _as_new(task), task.created_at_ms)
            for task in tasks
            if flow_of(task.options) is not None or task.lane.queue in self._eras
        ]
        return self._numbers_of(tx, again, now_ms=now_ms) if again else {}

    def _numbers_of(
        self, tx: Transaction, added: Sequence[AddTask], *, now_ms: int
    ) -> dict[int, int]:
        eras = self._eras
        tasks = [(one, eras.get(one.task.queue, 0)) for one in added]
        return self._numbers_in(tx, tasks, now_ms=now_ms)

    def _numbers_in(
        self, tx: Transaction, added: Sequence[tuple[AddTask, int]], *, now_ms: int
    ) -> dict[int, int]:
        """Return the flow of each task, which has limits or a tenant, or an era."""
        numbers: dict[int, int] = {}
        new: list[StoredFlow] = []
        for one, era in added:
            task = one.task
            spec = flow_of(task) or NO_SPEC
            if era:
                spec = msgspec.structs.replace(spec, era=era)
            lane = self._lanes.number(tx, task.queue, task.name, task.requires)
            number = self._numbers.get((lane, spec))
            if number is None:
                flow = StoredFlow(self._last + 1, lane, spec)
                self._intern(flow)
                new.append(flow)
                number = flow.number
            self._declare(task, owner=one.owner, now_ms=now_ms)
            numbers[one.id] = number
        if new:
            FlowStore(tx).add(new)
        return numbers

    def _intern(self, flow: StoredFlow) -> None:
        self._numbers[flow.lane, flow.spec] = flow.number
        self._specs[flow.number] = flow.lane, flow.spec
        self._last = max(self._last, flow.number)
        for key in flow.spec.keys:
            self._named[key] = self._named.get(key, 0) + 1

    def _declare(self, task: NewTask, *, owner: str, now_ms: int) -> None:
        for wanted in named_limits(task.concurrency, task.rate):
            before = self.limits.by_key.get(wanted.key)
            after = declare(before, wanted, task.name, owner=owner, now_ms=now_ms)
            if after is not None:
                self.limits.put(after)
                if before is not None and after.limit != before.limit:
                    self.wake(wanted.key, now_ms=now_ms)

    def room_for(self, count: int) -> int | None:
        """How many flows submissions may add; None: as many as they like, of so many tasks.

        Tasks of runs are not refused: they would refuse the report that led to them.
        """
        room = core_limits.MAX_FLOWS - len(self._specs)
        return max(0, room) if room < count else None

    def known_among(self, tasks: Iterable[NewTask]) -> set[tuple[Lane, FlowSpec]]:
        """The flows of these tasks that are known, but for the era of their queue."""
        found: set[tuple[Lane, FlowSpec]] = set()
        for task in tasks:
            spec, lane = flow_of(task), lane_of(task)
            if spec is None or not self._lanes.has(lane):
                continue
            era = self._eras.get(task.queue, 0)
            in_era = msgspec.structs.replace(spec, era=era)
            if (self._lanes.number_of(lane), in_era) in self._numbers:
                found.add((lane, spec))
        return found

    def queued_tasks(self, tx: Transaction, key: str, most: int) -> list[TaskId]:
        """Queued tasks that name a limit."""
        found: list[TaskId] = []
        for flow in self.open.values():
            if key in flow.spec.keys:
                found += FlowStore(tx).queued_ids(flow.number, most - len(found))
                if len(found) >= most:
                    break
        return found

    def is_named(self, key: str) -> bool:
        """Whether a live task names a limit, or an attempt still has a slot of it."""
        return key in self.limits.running or key in self._named

    def note_put(self, key: str) -> None:
        """Note a limit that an operator has set; it is forgotten once it says nothing."""
        if key not in self._named:
            self._unnamed.add(key)

    def prune(self, tx: Transaction, *, now_ms: int) -> None:
        """Forget flows without live tasks, and limits that say nothing; a bounded part at a time.

        A flow that is not looked at now comes up within a few calls: each call goes on where the
        last one has stopped.
        """
        if not self._to_check:
            self._to_check = [*self._specs]
        step, self._to_check = self._to_check[:CHECKED_AT_ONCE], self._to_check[CHECKED_AT_ONCE:]
        idle = [number for number in step if number in self._specs and number not in self.open]
        unused = {*idle} - FlowStore(tx).live(idle) if idle else set()
        for number in unused:
            lane, spec = self._specs.pop(number)
            del self._numbers[lane, spec]
            for key in spec.keys:
                self._named[key] -= 1
                if not self._named[key]:
                    del self._named[key]
                    self._unnamed.add(key)
        if unused:
            FlowStore(tx).drop(sorted(unused))
        self._forget_limits(now_ms)

    def _forget_limits(self, now_ms: int) -> None:
        by_key, running = self.limits.by_key, self.limits.running
        for key in [*islice(self._unnamed, CHECKED_AT_ONCE)]:
            record = by_key.get(key)
            if record is None or key in self._named or record.is_pinned:
                self._unnamed.discard(key)
            elif key not in running and is_forgettable(record, now_ms=now_ms):
                self._unnamed.discard(key)
                self.limits.drop(key)

    # --- queued tasks -----------------------------------------------------------------------------

    def note_added(
        self,
        added: Iterable[AddTask],
        numbers: Mapping[int, int],
        run_tokens: Mapping[TaskId, tuple[int, int]],
        ranks: Mapping[int, int],
    ) -> None:
        """Note new tasks that are queued; `numbers` has the flow of each that has one."""
        for one in added:
            number = numbers.get(one.id)
            if number is not None and one.due_at_ms is None:
                lane = self._lanes.by_number[self._specs[number][0]]
                task = msgspec.structs.replace(
                    added_task(one, lane), flow=number, rank=ranks.get(one.id)
                )
                self._enter(number, turn(task), of_run(task, run_tokens.get(one.id)))

    def note_queued(self, places: Iterable[QueuedPlace]) -> None:
        """Note tasks that have come back to the queue."""
        for number, rank, task_id in places:
            self._enter(number, (rank, task_id), None)

    def _enter(self, number: int, place: Place, task: TaskRecord | None) -> None:
        flow = self._opened(number)
        flow.queued += 1
        self._count_waiting(flow, 1)
        self.windows.enter(number, place, task)
        if self.limits.kept.get(place[1], 0) is None:
            flow.holders[place[1]] = place
            self._unblock(flow)
        self._place(flow)

    def note_left(self, task: TaskRecord) -> None:
        """Note that a task of a flow has left the queue."""
        assert task.flow is not None
        flow = self.open[task.flow]
        flow.queued -= 1
        flow.holders.pop(task.id, None)
        self._count_waiting(flow, -1)
        self.windows.leave(flow.number, turn(task))
        self._place(flow)

    def _opened(self, number: int) -> Flow:
        flow = self.open.get(number)
        if flow is None:
            lane, spec = self._specs[number]
            queue = self._lanes.by_number[lane].queue
            tenant = self.tenants.get(queue, spec.tenant)
            self.tenants.join(tenant)
            flow = self.open[number] = Flow(number, lane, spec, tenant)
            self.flows_of_queue[queue] = self.flows_of_queue.get(queue, 0) + 1
        return flow

    def _place(self, flow: Flow) -> None:
        """Put a flow where it belongs after its queued tasks have changed."""
        if flow.queued == 0:
            self._close(flow)
            return
        first, bound = self.windows.first(flow.number)
        flow.place = first
        if first is None and bound is not None:
            flow.bound = bound[0], TaskId(bound[1] + 1)
        if flow.blocked_by is None:
            self._active(flow.lane).push(flow)
        else:
            self._blocked[flow.blocked_by][flow.lane].push(flow)

    def _close(self, flow: Flow) -> None:
        del self.open[flow.number]
        queue = flow.tenant.queue
        self.tenants.leave(flow.tenant)
        left = self.flows_of_queue[queue] - 1
        if left:
            self.flows_of_queue[queue] = left
        else:
            del self.flows_of_queue[queue]
        self._take_out(flow)
        if flow.woken_by is not None:
            self._pass_on(flow.woken_by, flow.lane)

    def _take_out(self, flow: Flow) -> None:
        key, lane = flow.blocked_by, flow.lane
        if key is None:
            self._active(lane).discard(flow)
            return
        self.blocked_count -= 1
        of_lane = self._blocking[lane]
        of_lane[key] -= 1
        if not of_lane[key]:
            del of_lane[key]
        if not of_lane:
            del self._blocking[lane]
        lanes = self._blocked[key]
        lanes[lane].discard(flow)
        if not lanes[lane]:
            del lanes[lane]
        if not lanes:
            del self._blocked[key]
        flow.blocked_by = None

    def _active(self, lane: int) -> FairQueue:
        active = self.active.get(lane)
        if active is None:
            active = self.active[lane] = FairQueue()
        return active

    def _count_waiting(self, flow: Flow, count: int) -> None:
        self.tenants.note_waiting(flow.tenant, count)
        waiting = self.limits.waiting
        for key in flow.spec.keys:
            left = waiting.get(key, 0) + count
            if left:
                waiting[key] = left
            else:
                del waiting[key]

    def charge(self, flow: Flow) -> None:
        """Charge the tenant of a flow for one start."""
        self.tenants.charge(flow.tenant)
        flow.woken_by = None

    # --- blocking ---------------------------------------------------------------------------------

    def block(self, flow: Flow, key: str, *, now_ms: int) -> None:
        """Put a flow, which is in no place, under the limit that refuses it."""
        woken_by, flow.woken_by = flow.woken_by, None
        flow.blocked_by = key
        self.blocked_count += 1
        of_lane = self._blocking.setdefault(flow.lane, Counter())
        of_lane[key] += 1
        record = self.limits.by_key.get(key)
        self.refused["concurrency" if record is None else record.kind] += 1
        self._blocked.setdefault(key, {}).setdefault(flow.lane, FairQueue()).push(flow)
        cost = next((one.cost for one in flow.spec.charges if one.key == key), None)
        if cost is not None:
            opens_at_ms = self.limits.opens_at_ms(key, cost, now_ms=now_ms)
            self.openings.add(key, now_ms if opens_at_ms is None else opens_at_ms)
        if woken_by is not None and woken_by != key:
            self._pass_on(woken_by, flow.lane)

    def _pass_on(self, key: str, lane: int) -> None:
        """Let another flow of a lane have the room that a flow could not use."""
        record = self.limits.by_key.get(key)
        if record is not None and (record.kind == "rate" or self.limits.room(key) > 0):
            self._wake_lane(key, lane, 1)

    def wake(self, key: str, *, now_ms: int) -> None:
        """Let as many flows as a limit has room for become active in each lane."""
        lanes = self._blocked.get(key)
        if lanes is None:
            return
        if self.limits.by_key[key].kind == "rate":
            # At least one: it may cost more than one start, and knows best when it can be had.
            room = max(1, self.limits.free_starts(key, MOST_STARTS, now_ms=now_ms))
        else:
            room = min(self.limits.room(key), MOST_WOKEN)
        for lane in [*lanes]:
            self._wake_lane(key, lane, room)

    def _wake_lane(self, key: str, lane: int, most: int) -> None:
        for _ in range(most):
            blocked = self._blocked.get(key, {}).get(lane)
            flow = None if blocked is None else blocked.first()
            if flow is None:
                return
            self._unblock(flow)
            flow.woken_by = key

    def _unblock(self, flow: Flow) -> None:
        if flow.blocked_by is not None:
            self._take_out(flow)
            self._active(flow.lane).push(flow)

    def open_due(self, now_ms: int) -> None:
        """Wake the flows of rates that are open now."""
        for key in self.openings.due(now_ms):
            if key in self.limits.by_key:
                self.wake(key, now_ms=now_ms)

    # --- leases -----------------------------------------------------------------------------------

    def whole_spec(self, queue: str, spec: FlowSpec) -> FlowSpec:
        """The limits of a task: those of its flow, and those of its queue."""
        own = self.queue_specs.get(queue)
        if own is None:
            return spec
        return FlowSpec(spec.tenant, (*spec.slots, *own.slots), (*spec.charges, *own.charges))

    def missing_slots(self, task: TaskRecord) -> tuple[str, ...]:
        """The keys whose slots a waiting task has to take before it can start."""
        spec = self.whole_spec(task.lane.queue, flow_of(task.options) or NO_SPEC)
        kept = {one.key for one in self.limits.slots.get(task.id, NO_SPEC).slots}
        return tuple(one.key for one in spec.slots if one.key not in kept)

    def note_leased(self, tasks: Iterable[TaskRecord], *, now_ms: int) -> None:
        for task in tasks:
            queue, spec = task.lane.queue, NO_SPEC
            if task.flow is not None:
                spec = self._specs[task.flow][1]
            settings = self.settings.get(queue)
            if task.flow is not None or (settings is not None and settings.fairness == "time"):
                tenant = self.tenants.get(queue, spec.tenant)
                self.tenants.note_started(task.id, tenant, now_ms=now_ms)
            spec = self.whole_spec(queue, spec)
            if spec.slots or spec.charges:
                self.limits.note_started(task.id, spec, now_ms=now_ms)
            for charge in spec.charges:
                if charge.key in self._blocked or charge.key.startswith(QUEUE_KEY):
                    opens_at_ms = self.limits.opens_at_ms(charge.key, now_ms=now_ms)
                    self.openings.add(charge.key, now_ms if opens_at_ms is None else opens_at_ms)

    def note_requeued(self, ids: Iterable[TaskId], *, now_ms: int) -> None:
        """Note attempts that ended without finishing their tasks."""
        self._free(ids, self.limits.note_waiting, now_ms=now_ms)

    def note_finished(self, ids: Iterable[TaskId], *, now_ms: int) -> None:
        self._free(ids, self.limits.note_finished, now_ms=now_ms)

    def _free(
        self, ids: Iterable[TaskId], free: Callable[[TaskId], list[str]], *, now_ms: int
    ) -> None:
        if self.tenants.running:
            ids = [*ids]
            self.tenants.note_ended(ids, now_ms=now_ms)
        if self.limits.slots:
            freed = {key for task_id in ids for key in free(task_id)}
            for key in freed:
                self.wake(key, now_ms=now_ms)

    def note_lingering(self, cancelled: Iterable[tuple[int, TaskId]]) -> None:
        """Keep the slots of cancelled attempts, which have just been freed.

        Each is given by its worker's incarnation and its task. The slots stay taken until the
        worker lets go of the attempt.
        """
        ended = self.limits.ended
        for incarnation, task_id in cancelled if ended else ():
            if task_id in ended:
                self.limits.note_lingering(task_id, ended[task_id], incarnation)

    def note_let_go(self, ids: Iterable[TaskId], *, now_ms: int) -> None:
        """Free the slots of cancelled attempts that their workers have let go of."""
        kept = self.limits.kept
        self.note_finished([one for one in ids if kept.get(one) is not None], now_ms=now_ms)

    def note_worker_gone(self, incarnation: int, *, now_ms: int) -> None:
        if self.limits.kept:
            self.note_finished(self.limits.lingering_of(incarnation), now_ms=now_ms)

    # --- settings of queues -----------------------------------------------------------------------

    def _use_settings(self, queue: str, settings: QueueSettings) -> None:
        self.settings[queue] = settings
        if settings.era:
            self._eras[queue] = settings.era
        records = limits_of_queue(queue, settings)
        for record in records:
            known = self.limits.by_key.get(record.key)
            if known is not None:  # what has started still counts
                record.next_start_us, record.starts_ms = known.next_start_us, known.starts_ms
            self.limits.by_key[record.key] = record
        if records:
            self.queue_specs[queue] = FlowSpec(
                "",
                tuple(Slot(one.key) for one in records if one.kind == "concurrency"),
                tuple(Charge(one.key) for one in records if one.kind == "rate"),
            )


def _as_new(task: TaskRecord) -> NewTask:
    """A task as it was submitted, as far as its flow is concerned."""
    options: TaskOptions = task.options
    return NewTask(
        name=task.lane.name,
        queue=task.lane.queue,
        requires=task.lane.requires,
        concurrency=options.concurrency,
        rate=options.rate,
        fair_key=options.fair_key,
    )
