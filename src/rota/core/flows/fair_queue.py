"""A set of flows in the order in which they are served.

Theory of operation. The flow with the highest priority comes first. Where priorities age, there is
one level for all: a rank orders the tasks of one tenant. Within one level, the tenant
with the lowest virtual time comes first, and within one tenant the flow with the oldest task. Each
start moves the virtual time of its tenant on by its cost over the tenant's weight. So every tenant
that has work gets its share of the starts, within one start (start-time fair queueing).

The order is kept by two levels of heaps: tenants, and the flows of each tenant. A virtual time
changes for all flows of a tenant at once, and only rises. So an entry of the heap of tenants is
brought up to date when it reaches the top, and each operation costs O(log n).
"""

import heapq
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from rota.core.flows.model import FlowSpec
from rota.core.ids import TaskId

Place = tuple[int, TaskId]  # rank and id of a queued task: what comes first is lower
Order = tuple[int, float, Place]  # of flows of a queue: level, virtual time, place
FIRST: Place = (-(2**63), TaskId(0))  # before every task
ERA = 2**64  # between the levels of two eras; a rank is far less
LEARNING_RATE = 0.2  # weight of the newest attempt in the expected time of the next one


class Tenant:
    """The tasks of one `fair_key` in one queue."""

    __slots__ = (
        "credit",
        "expected_ms",
        "flows",
        "key",
        "picked",
        "queue",
        "queued",
        "running",
        "virtual_time",
        "weight",
    )

    def __init__(self, queue: str, key: str, weight: float = 1.0) -> None:
        self.queue = queue
        self.key = key
        self.weight = weight
        self.virtual_time = 0.0
        self.flows = 0  # with queued tasks
        self.queued = 0  # tasks
        self.running = 0
        self.picked = 0  # tasks that are charged, and not leased yet
        # Of a queue that is divided by time:
        self.expected_ms: float | None = None  # of an attempt; None: none has ended yet
        self.credit = 0.0  # milliseconds that were charged and not used

    def charge(self, cost: float = 1.0) -> None:
        """Charge a start; what was charged too much before is taken off."""
        used = min(self.credit, cost)
        self.credit -= used
        self.virtual_time += (cost - used) / self.weight

    def settle(self, *, charged_ms: float, took_ms: float) -> None:
        """Charge what an attempt took beyond what its start was charged.

        The virtual time never falls, because the order of flows relies on it. So what was charged
        too much is a credit for the next start.
        """
        if took_ms >= charged_ms:
            self.charge(took_ms - charged_ms)
        else:
            self.credit += charged_ms - took_ms
        known = took_ms if self.expected_ms is None else self.expected_ms
        self.expected_ms = known + (took_ms - known) * LEARNING_RATE


class Flow:
    """A flow with queued tasks."""

    __slots__ = (
        "blocked_by",
        "bound",
        "holders",
        "lane",
        "number",
        "place",
        "queued",
        "spec",
        "tenant",
        "woken_by",
    )

    def __init__(self, number: int, lane: int, spec: FlowSpec, tenant: Tenant) -> None:
        self.number = number
        self.lane = lane
        self.spec = spec
        self.tenant = tenant
        self.queued = 0  # tasks
        self.place: Place | None = None  # of its next task; None: not known yet
        self.bound: Place = FIRST  # its next task is not before this one
        self.blocked_by: str | None = None  # the key that refused it; None: it may run
        self.woken_by: str | None = None  # the key that had room for it, until it has started
        self.holders: dict[TaskId, Place] = {}  # queued tasks that have kept their slot


def level_of(flow: Flow, place: Place) -> int:
    """The level of a flow: what has a lower one comes first, whosever it is.

    What was submitted before ageing was begun or ended comes before what was submitted since.
    """
    era = flow.spec.era
    if era == 0:
        return place[0]
    return era * ERA if era % 2 else era * ERA + place[0]


class FairQueue:
    def __init__(self) -> None:
        self._flows: dict[int, tuple[Place, Flow]] = {}  # by number, with the current entry
        self._of_tenant: dict[Tenant, list[tuple[int, Place, int]]] = {}  # heaps, by level
        self._tenants: list[tuple[int, float, str, Tenant]] = []  # a heap, by level
        self._entries: dict[Tenant, tuple[int, float]] = {}  # the entry of each that counts

    def __len__(self) -> int:
        return len(self._flows)

    def __contains__(self, flow: Flow) -> bool:
        return flow.number in self._flows

    def __iter__(self) -> Iterator[Flow]:
        return (flow for _, flow in self._flows.values())

    def push(self, flow: Flow) -> None:
        """Add a flow, or give it the place that its next task has now."""
        place = flow.bound if flow.place is None else flow.place
        known = self._flows.get(flow.number)
        if known is not None and known[0] == place:
            return
        self._flows[flow.number] = place, flow
        entry = level_of(flow, place), place, flow.number
        heapq.heappush(self._of_tenant.setdefault(flow.tenant, []), entry)
        self._enter(flow.tenant)

    def discard(self, flow: Flow) -> None:
        self._flows.pop(flow.number, None)

    def first(self) -> Flow | None:
        """The flow that is served next."""
        while self._tenants:
            level, virtual_time, _, tenant = self._tenants[0]
            if self._entries.get(tenant) != (level, virtual_time):
                heapq.heappop(self._tenants)  # a newer entry counts
                continue
            flow = self._first_of(tenant)
            if flow is None:
                heapq.heappop(self._tenants)
                del self._entries[tenant], self._of_tenant[tenant]
                continue
            now = level_of(flow, self._flows[flow.number][0]), tenant.virtual_time
            if now == (level, virtual_time):
                return flow
            self._entries[tenant] = now
            heapq.heapreplace(self._tenants, (*now, tenant.key, tenant))
        return None

    def head(self) -> tuple[Order, Flow] | None:
        """The flow that is served next, and what it is compared by with those of other lanes."""
        flow = self.first()
        if flow is None:
            return None
        place = self._flows[flow.number][0]
        return (level_of(flow, place), flow.tenant.virtual_time, place), flow

    def ahead(self, most: int) -> list[Flow]:
        """About so many of the flows that are served next, to read their tasks together.

        The first flows of the tenants that come first, in equal parts.
        """
        tenants = [
            tenant
            for level, virtual_time, _, tenant in islice(_in_order(self._tenants), 2 * most)
            if self._entries.get(tenant) == (level, virtual_time)
        ][:most]
        found: list[Flow] = []
        part = -(-most // max(1, len(tenants)))
        for tenant in tenants:
            entries = islice(_in_order(self._of_tenant[tenant]), 2 * part)
            found += [
                self._flows[number][1]
                for _, place, number in entries
                if number in self._flows and self._flows[number][0] == place
            ][:part]
        return found

    def _enter(self, tenant: Tenant) -> None:
        """Enter a tenant, or enter it again when it comes earlier than its entry says."""
        flow = self._first_of(tenant)
        assert flow is not None
        now = level_of(flow, self._flows[flow.number][0]), tenant.virtual_time
        known = self._entries.get(tenant)
        if known is None or now < known:
            self._entries[tenant] = now
            heapq.heappush(self._tenants, (*now, tenant.key, tenant))

    def _first_of(self, tenant: Tenant) -> Flow | None:
        """The first flow of a tenant; entries that no longer count are dropped."""
        heap = self._of_tenant[tenant]
        while heap:
            _, place, number = heap[0]
            known = self._flows.get(number)
            if known is not None and known[0] == place:
                return known[1]
            heapq.heappop(heap)
        return None


def _in_order(heap: Sequence[Any]) -> Iterator[Any]:
    """Yield the entries of a heap from the lowest on, without a change to it."""
    ahead = [(heap[0], 0)] if heap else []
    while ahead:
        entry, index = heapq.heappop(ahead)
        yield entry
        for child in (2 * index + 1, 2 * index + 2):
            if child < len(heap):
                heapq.heappush(ahead, (heap[child], child))
