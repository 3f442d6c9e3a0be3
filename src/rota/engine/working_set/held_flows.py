"""The flows that the writer holds in memory, and the tasks that each of them offers next.

Virtual times are not stored. Tenants that have work are within one start of each other, so a start
over costs a tenant at most one start.

Memory. A flow with queued tasks takes about 4 KiB, with its window and a limit of its own: 100,000
keys take 400 MiB. However many tasks a flow has, it holds no more than its window.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from rota.core.decisions import AddTask
from rota.core.dispatch.matching import turn
from rota.core.flows.fair_queue import Flow, Place
from rota.core.flows.model import FlowSpec
from rota.core.flows.queue_settings import QUEUE_KEY
from rota.core.ids import TaskId
from rota.core.snapshot import added_task
from rota.core.tasks.model import TaskRecord, flow_of, of_run
from rota.engine.working_set.flow_admission import FlowAdmission
from rota.engine.working_set.flow_numbers import FlowNumbers
from rota.engine.working_set.held_leases import HeldLeases
from rota.engine.working_set.held_limits import HeldLimits
from rota.engine.working_set.held_queues import HeldQueues
from rota.engine.working_set.held_tenants import HeldTenants
from rota.engine.working_set.lane_windows import LaneWindow, LaneWindows
from rota.store.database import Transaction
from rota.store.tasks.flows import FlowStore
from rota.store.tasks.lanes import Lanes
from rota.store.tasks.row_types import QueuedPlace

MOST_PLACES = 524_288  # of all flows together, at about 120 bytes each
NO_SPEC = FlowSpec()


class HeldFlows:
    """The flows as the store has them. Each decision is noted when it is written."""

    def __init__(self, lanes: Lanes) -> None:
        self.limits = HeldLimits()
        self.queues = HeldQueues()
        self.admission = FlowAdmission(self.limits)
        self.numbers = FlowNumbers(lanes, self.limits, self.queues, self.admission)
        self.tenants = HeldTenants(self.queues.settings_of)
        self.windows = LaneWindows(lanes, most_places=MOST_PLACES)
        self.open: dict[int, Flow] = {}  # flows with queued tasks
        self.flows_of_queue: dict[str, int] = {}  # how many flows have queued tasks
        self._lanes = lanes

    @property
    def is_used(self) -> bool:
        """Whether any task or queue has a limit or a tenant."""
        return bool(self.numbers.specs or self.limits.by_key or self.queues.settings)

    def __len__(self) -> int:
        return len(self.open)

    def managed_lanes(self, lanes: Collection[int]) -> list[int]:
        """Those of these lanes whose queue has limits, or a flow that may run in one of them.

        Flows that are blocked have no part in the order, so a queue that has no others is served
        like one without flows.
        """
        known, active = self._lanes.by_number, self.admission.active
        queues = {known[lane].queue for lane in lanes if active.get(lane)}
        queues.update(self.queues.specs)
        return [lane for lane in lanes if known[lane].queue in queues]

    def is_managed(self, queue: str) -> bool:
        """Whether a new task of a queue has to be queued before it can be leased."""
        queues = self.queues
        return (
            queue in self.flows_of_queue
            or queue in queues.specs
            or queue in queues.depths
            or queue in queues.eras
        )

    def queued_tasks(self, tx: Transaction, key: str, most: int) -> list[TaskId]:
        """Queued tasks that name a limit."""
        found: list[TaskId] = []
        for flow in self.open.values():
            if key in flow.spec.keys:
                found += FlowStore(tx).queued_ids(flow.number, most - len(found))
                if len(found) >= most:
                    break
        return found

    def prune(self, tx: Transaction, *, now_ms: int) -> None:
        """Forget a bounded part of the flows without live tasks, and of the unused limits."""
        self.numbers.prune(tx, queued=self.open, now_ms=now_ms)

    # --- loading ----------------------------------------------------------------------------------

    @classmethod
    def load(cls, tx: Transaction, lanes: Lanes, leases: HeldLeases) -> "HeldFlows":
        held, store = cls(lanes), FlowStore(tx)
        held.limits.load(tx)
        held.queues.load(tx, held.limits)
        held.numbers.load(tx)
        if held.is_used:
            held._count_slots(store, leases)
            held._open_queued(store)
        return held

    def _count_slots(self, store: FlowStore, leases: HeldLeases) -> None:
        specs = {task_id: self.numbers.specs[flow][1] for task_id, flow in store.running()}
        for task_id, lease in leases.by_task.items():
            queue, own = lease.lane.queue, specs.get(task_id)
            if own is not None or self.queues.settings_of(queue).fairness == "time":
                tenant = self.tenants.get(queue, "" if own is None else own.tenant)
                self.tenants.note_running(task_id, tenant, started_at_ms=lease.started_at_ms)
            self._count(task_id, self.queues.whole_spec(queue, own or NO_SPEC))
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
                lane = self._lanes.by_number[self.numbers.specs[number][0]]
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
            self.admission.unblock(flow)
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
            lane, spec = self.numbers.specs[number]
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
        self.admission.put(flow)

    def _close(self, flow: Flow) -> None:
        del self.open[flow.number]
        queue = flow.tenant.queue
        self.tenants.leave(flow.tenant)
        left = self.flows_of_queue[queue] - 1
        if left:
            self.flows_of_queue[queue] = left
        else:
            del self.flows_of_queue[queue]
        self.admission.remove(flow)

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

    # --- leases -----------------------------------------------------------------------------------

    def missing_slots(self, task: TaskRecord) -> tuple[str, ...]:
        """The keys whose slots a waiting task has to take before it can start."""
        spec = self.queues.whole_spec(task.lane.queue, flow_of(task.options) or NO_SPEC)
        kept = {one.key for one in self.limits.slots.get(task.id, NO_SPEC).slots}
        return tuple(one.key for one in spec.slots if one.key not in kept)

    def note_leased(self, tasks: Iterable[TaskRecord], *, now_ms: int) -> None:
        queues, specs = self.queues, self.numbers.specs
        blocked, openings = self.admission.blocked, self.admission.openings
        for task in tasks:
            queue, spec = task.lane.queue, NO_SPEC
            if task.flow is not None:
                spec = specs[task.flow][1]
            settings = queues.settings.get(queue)
            if task.flow is not None or (settings is not None and settings.fairness == "time"):
                tenant = self.tenants.get(queue, spec.tenant)
                self.tenants.note_started(task.id, tenant, now_ms=now_ms)
            spec = queues.whole_spec(queue, spec)
            if spec.slots or spec.charges:
                self.limits.note_started(task.id, spec, now_ms=now_ms)
            for charge in spec.charges:
                if charge.key in blocked or charge.key.startswith(QUEUE_KEY):
                    opens_at_ms = self.limits.opens_at_ms(charge.key, now_ms=now_ms)
                    openings.add(charge.key, now_ms if opens_at_ms is None else opens_at_ms)

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
                self.admission.wake(key, now_ms=now_ms)

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
