"""Picks the next tasks of a queue: fair between tenants, within the limits of every flow."""

import heapq
from collections.abc import Callable, Iterable

from rota.core.flows.fair_queue import FairQueue, Flow, Order, Place
from rota.core.ids import TaskId

# Returns the key of the limit that refuses a task of the flow, or None. The task is given when it
# has kept its slot; otherwise it is the next of the flow.
Admit = Callable[[Flow, TaskId | None], str | None]
NextPlace = Callable[[Flow, int], Place | None]  # the place of the nth queued task of a flow
Block = Callable[[Flow, str], None]
Picked = tuple[Flow, Place]


class QueuePicker:
    """The flows of one queue in the lanes that are asked for, in the order they are served.

    A task that is picked stays in its flow. The caller leases it, or begins again.
    """

    def __init__(
        self,
        lanes: Iterable[FairQueue],
        *,
        admit: Admit,
        next_place: NextPlace,
        block: Block,
        on_pick: Callable[[Flow], None] = lambda _: None,
    ) -> None:
        self._admit = admit
        self._next_place = next_place
        self._block = block
        self._on_pick = on_pick
        self._passed: dict[int, int] = {}  # queued tasks of each flow that are behind us
        self._early: set[TaskId] = set()  # picked before their turn, because they keep a slot
        self._lanes = [*lanes]
        self._heap: list[tuple[Order, int]] = []
        for number, lane in enumerate(self._lanes):
            self._enter(number, lane)

    def _enter(self, number: int, lane: FairQueue) -> None:
        head = lane.head()
        if head is not None:
            heapq.heappush(self._heap, (head[0], number))

    def first(self) -> Picked | None:
        """The next task that the limits let start; flows that they refuse are blocked."""
        while self._heap:
            order, number = self._heap[0]
            lane = self._lanes[number]
            head = lane.head()
            if head is None:
                heapq.heappop(self._heap)
                continue
            now, flow = head
            if now != order:
                heapq.heapreplace(self._heap, (now, number))
                continue
            if flow.place is None:
                self._look_up(lane, flow)
                continue
            holder = next(iter(flow.holders), None)
            refusal = self._admit(flow, holder)
            if refusal is None:
                return flow, flow.place if holder is None else flow.holders[holder]
            lane.discard(flow)
            self._block(flow, refusal)
        return None

    def take(self, picked: Picked) -> None:
        """Take the task that `first` has returned."""
        flow, place = picked
        self._on_pick(flow)
        flow.holders.pop(place[1], None)
        if place == flow.place:
            self._passed[flow.number] = self._passed.get(flow.number, 0) + 1
            self._look_up(self._lanes[self._heap[0][1]], flow)
        else:
            self._early.add(place[1])

    def _look_up(self, lane: FairQueue, flow: Flow) -> None:
        """Give a flow the place of its next task, or drop it when it has none."""
        passed = self._passed.get(flow.number, 0)
        place = self._next_place(flow, passed)
        while place is not None and place[1] in self._early:
            passed += 1
            place = self._next_place(flow, passed)
        self._passed[flow.number] = passed
        flow.place = place
        if place is None:
            lane.discard(flow)
        else:
            lane.push(flow)
