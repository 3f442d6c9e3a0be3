"""Which flows may run, and which of them a limit blocks.

Theory of operation. A flow that has queued tasks is in exactly one place: among the active flows of
its lane, or under the limit that refused it. A flow is refused as a whole, so 10,000 tasks of a key
that is full cost one step. When a limit has room again, as many of its flows become active in each
lane: a lane without workers must not keep the room from the others. To become active reserves
nothing. A flow that another limit then refuses passes the room on to the next.
"""

from collections import Counter
from collections.abc import Iterable

from rota.core.flows.fair_queue import FairQueue, Flow
from rota.engine.working_set.held_limits import HeldLimits, Openings

MOST_WOKEN = 1_000  # flows of a lane that become active at once
MOST_STARTS = 64  # of a rate that are let through at once


class FlowAdmission:
    """The flows with queued tasks: active by lane, or blocked by key and lane."""

    def __init__(self, limits: HeldLimits) -> None:
        self.active: dict[int, FairQueue] = {}  # by lane
        self.blocked: dict[str, dict[int, FairQueue]] = {}  # by key and lane
        self.blocked_count = 0  # flows that a limit refuses
        self.refused: Counter[str] = Counter()  # flows of this batch, by the kind of the limit
        self.openings = Openings()
        self._blocking: dict[int, Counter[str]] = {}  # by lane: the keys that refuse its flows
        self._limits = limits

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

    def misplaced(self, flows: Iterable[Flow]) -> list[Flow]:
        """Those of these flows that are not either active or blocked; there should be none."""
        found = []
        for flow in flows:
            lanes = {} if flow.blocked_by is None else self.blocked.get(flow.blocked_by, {})
            is_active = flow in self.active.get(flow.lane, ())
            if is_active == (flow in lanes.get(flow.lane, ())):
                found.append(flow)
        return found

    # --- one flow ---------------------------------------------------------------------------------

    def put(self, flow: Flow) -> None:
        """Put a flow in its turn, where it is: among the active flows, or under its limit."""
        if flow.blocked_by is None:
            self._active(flow.lane).push(flow)
        else:
            self.blocked[flow.blocked_by][flow.lane].push(flow)

    def remove(self, flow: Flow) -> None:
        """Remove a flow that has no queued tasks left; the room it was woken for is passed on."""
        self._take_out(flow)
        if flow.woken_by is not None:
            self._pass_on(flow.woken_by, flow.lane)

    def block(self, flow: Flow, key: str, *, now_ms: int) -> None:
        """Put a flow, which is in no place, under the limit that refuses it."""
        woken_by, flow.woken_by = flow.woken_by, None
        flow.blocked_by = key
        self.blocked_count += 1
        of_lane = self._blocking.setdefault(flow.lane, Counter())
        of_lane[key] += 1
        record = self._limits.by_key.get(key)
        self.refused["concurrency" if record is None else record.kind] += 1
        self.blocked.setdefault(key, {}).setdefault(flow.lane, FairQueue()).push(flow)
        cost = next((one.cost for one in flow.spec.charges if one.key == key), None)
        if cost is not None:
            opens_at_ms = self._limits.opens_at_ms(key, cost, now_ms=now_ms)
            self.openings.add(key, now_ms if opens_at_ms is None else opens_at_ms)
        if woken_by is not None and woken_by != key:
            self._pass_on(woken_by, flow.lane)

    def unblock(self, flow: Flow) -> None:
        """Make a flow active, unless it is."""
        if flow.blocked_by is not None:
            self._take_out(flow)
            self._active(flow.lane).push(flow)

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
        lanes = self.blocked[key]
        lanes[lane].discard(flow)
        if not lanes[lane]:
            del lanes[lane]
        if not lanes:
            del self.blocked[key]
        flow.blocked_by = None

    def _active(self, lane: int) -> FairQueue:
        active = self.active.get(lane)
        if active is None:
            active = self.active[lane] = FairQueue()
        return active

    # --- the flows of a limit ---------------------------------------------------------------------

    def wake(self, key: str, *, now_ms: int) -> None:
        """Let as many flows as a limit has room for become active in each lane."""
        lanes = self.blocked.get(key)
        if lanes is None:
            return
        if self._limits.by_key[key].kind == "rate":
            # At least one: it may cost more than one start, and knows best when it can be had.
            room = max(1, self._limits.free_starts(key, MOST_STARTS, now_ms=now_ms))
        else:
            room = min(self._limits.room(key), MOST_WOKEN)
        for lane in [*lanes]:
            self._wake_lane(key, lane, room)

    def wake_due(self, now_ms: int) -> None:
        """Wake the flows of rates that are open now."""
        for key in self.openings.due(now_ms):
            if key in self._limits.by_key:
                self.wake(key, now_ms=now_ms)

    def _wake_lane(self, key: str, lane: int, most: int) -> None:
        for _ in range(most):
            blocked = self.blocked.get(key, {}).get(lane)
            flow = None if blocked is None else blocked.first()
            if flow is None:
                return
            self.unblock(flow)
            flow.woken_by = key

    def _pass_on(self, key: str, lane: int) -> None:
        """Let another flow of a lane have the room that a flow could not use."""
        record = self._limits.by_key.get(key)
        if record is not None and (record.kind == "rate" or self._limits.room(key) > 0):
            self._wake_lane(key, lane, 1)
