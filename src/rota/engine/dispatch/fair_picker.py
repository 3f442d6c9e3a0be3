"""Picks the next tasks of queues that have flows, or limits of their own.

Within such a queue the tasks without a `fair_key` are one more tenant, and the queued tasks of a
lane that have no flow at all are like one flow without limits. Between queues, the order is that of
all tasks: higher priority first, then the oldest. A task whose priority ages counts as one of
priority 0 there, because its rank means nothing in another queue.
"""

from collections.abc import Iterator, Sequence

from rota.core.dispatch.matching import turn
from rota.core.flows.fair_queue import FairQueue, Flow, Place
from rota.core.flows.model import FlowSpec
from rota.core.flows.picking import Picked, QueuePicker
from rota.core.ids import TaskId
from rota.core.tasks.model import TaskRecord
from rota.engine.working_set.held_limits import PendingStarts
from rota.engine.working_set.working_set import WorkingSet
from rota.store.database import Transaction
from rota.store.tasks.lanes import Lanes
from rota.store.tasks.row_types import FIRST_FLOW

PLAIN = FlowSpec()
LEAST_READ = 2  # tasks of a flow that are read at once
MOST_AHEAD = 1_024  # flows whose windows are filled by one read, unless more tasks are asked for


class FairPicker:
    """Picks once. All tasks that it returns have to be leased."""

    def __init__(self, tx: Transaction, lanes: Lanes, held: WorkingSet, *, now_ms: int) -> None:
        self._tx = tx
        self._lanes = lanes
        self._windows = held.windows
        self._flows = held.flows
        self._admission = held.flows.admission
        self._queues = held.flows.queues
        self._limits = held.flows.limits
        self._pending = PendingStarts(held.flows.limits.by_key)
        self._now_ms = now_ms
        self._most = 1
        self._most_ahead = 1
        self._asked: Sequence[int] = ()  # lanes

    def pick(
        self, lanes: Sequence[int], others: Sequence[TaskRecord], most: int
    ) -> list[TaskRecord]:
        """Return the next tasks of these lanes, merged with the next ones of other queues."""
        self._most = self._most_ahead = most
        self._asked = lanes
        queues: dict[str, list[int]] = {}
        for lane in lanes:
            queues.setdefault(self._lanes.by_number[lane].queue, []).append(lane)
        pickers = {queue: self._picker(queue, numbers) for queue, numbers in queues.items()}
        chosen: list[TaskRecord | tuple[int, Place]] = []
        passed = 0
        while len(chosen) < most:
            best = self._best(pickers)
            other = others[passed] if passed < len(others) else None
            if other is not None and (best is None or turn(other) < _between_queues(best[1])):
                chosen.append(other)
                passed += 1
            elif best is not None:
                queue, picked = best
                self._take(queue, pickers[queue], picked)
                chosen.append((picked[0].number, picked[1]))
            else:
                break
        return self._records(chosen)

    def _picker(self, queue: str, lanes: Sequence[int]) -> QueuePicker:
        active = self._admission.active
        sources = [active[lane] for lane in lanes if lane in active]
        tenants = self._flows.tenants
        tenant = tenants.get(queue, "")
        for lane in lanes:
            if lane in self._windows.by_lane:
                flow = Flow(lane, lane, PLAIN, tenant)
                first, bound = self._windows.first(lane)
                flow.place = first
                if bound is not None:
                    flow.bound = bound
                plain = FairQueue()
                plain.push(flow)
                sources.append(plain)
        if tenant.flows == 0:
            tenants.join(tenant)
            tenants.leave(tenant)
        return QueuePicker(
            sources,
            admit=self._admit,
            next_place=self._next_place,
            block=lambda flow, key: self._admission.block(flow, key, now_ms=self._now_ms),
            on_pick=self._flows.charge,
        )

    def _best(self, pickers: dict[str, QueuePicker]) -> tuple[str, Picked] | None:
        """The queue whose next task comes first, and that task."""
        best: tuple[str, Picked] | None = None
        for queue, picker in pickers.items():
            if self._is_closed(queue):
                continue
            picked = picker.first()
            if picked is None:
                continue
            if best is None or _between_queues(picked) < _between_queues(best[1]):
                best = queue, picked
        return best

    def _is_closed(self, queue: str) -> bool:
        """Whether a limit of the queue itself lets no task start."""
        spec = self._queues.specs.get(queue)
        if spec is None:
            return False
        key = self._limits.refusal(spec, None, self._pending, now_ms=self._now_ms)
        if key is None:
            return False
        opens_at_ms = self._limits.opens_at_ms(key, now_ms=self._now_ms)
        if opens_at_ms is not None:
            self._admission.openings.add(key, opens_at_ms)
        return True

    def _admit(self, flow: Flow, holder: TaskId | None) -> str | None:
        if flow.spec is PLAIN:
            return None
        return self._limits.refusal(flow.spec, holder, self._pending, now_ms=self._now_ms)

    def _next_place(self, flow: Flow, index: int) -> Place | None:
        if flow.number < FIRST_FLOW:
            return self._windows.place(self._tx, flow.number, index, wanted=self._most)
        # Many flows give a task or two each: what is read ahead of them would be dropped again.
        share = 2 * self._most // max(1, len(self._admission.active[flow.lane]))
        wanted = max(LEAST_READ, min(self._most, share))
        windows = self._flows.windows
        if windows.is_dry(flow.number, index):
            windows.read_ahead(self._tx, {flow.number, *self._ahead()}, wanted=wanted)
        # A flow that gives more than its share is read on in growing steps.
        return windows.place(self._tx, flow.number, index, wanted=max(wanted, index))

    def _ahead(self) -> Iterator[int]:
        """The flows that are likely to be asked next: one read fills their windows.

        Each time there are twice as many, because flows that limits refuse are passed over.
        """
        by_lane = self._admission.active
        active = [by_lane[lane] for lane in self._asked if by_lane.get(lane)]
        most = self._most_ahead
        self._most_ahead = min(2 * most, max(most, MOST_AHEAD))
        for flows in active:
            yield from (one.number for one in flows.ahead(-(-most // len(active))))

    def _take(self, queue: str, picker: QueuePicker, picked: Picked) -> None:
        flow, place = picked
        is_holder = place[1] in flow.holders
        spec = self._queues.whole_spec(queue, flow.spec)
        self._pending.add(spec, now_ms=self._now_ms, is_holder=is_holder)
        picker.take(picked)

    def _records(self, chosen: Sequence[TaskRecord | tuple[int, Place]]) -> list[TaskRecord]:
        places = [one for one in chosen if isinstance(one, tuple)]
        plain = [one for one in places if one[0] < FIRST_FLOW]
        flowing = [one for one in places if one[0] >= FIRST_FLOW]
        found = self._windows.tasks(self._tx, plain) | self._flows.windows.tasks(self._tx, flowing)
        return [one if isinstance(one, TaskRecord) else found[one[1][1]] for one in chosen]


def _between_queues(picked: Picked) -> Place:
    flow, place = picked
    return (0, place[1]) if flow.spec.era % 2 else place
