"""Windows over the heads of the lanes: the queued tasks that are next, held in memory.

Theory of operation. The window of a lane has every queued task of the lane up to its bound, in the
order in which they are leased. A window without a bound has all of them. A lane without a window
has no queued task. So the lanes that have work are known without a read, and so are the next tasks
of a lane, until its window is empty. Then it is filled again with the tasks after its bound. That
read never begins at the start of the lane, where a database may have to step over deleted rows.

A task that is queued enters the window if its place is within the bound, and otherwise stays in the
store alone. A window that is full takes no task after its last place: it gets a bound instead. One
that grows to twice that length, by tasks of a higher priority, is cut.

Where each read takes a round trip, a batch that leases many tasks asks for the next ones in the
round trip of its commit: as many as lately left the lane in one batch. They enter the window once
the batch has committed. So a steady drain never waits for a read.

A task that is submitted alone enters its window a little later, together with others, since that
costs a fraction. It does so before anything is asked of the windows.

Limits. A place takes about 120 bytes. All windows together have about `MOST_PLACES` places, a few
for each lane when there are many lanes, and no more than `MOST_PER_LANE` when there are few: tasks
that wait for long are cheaper to read later than to hold. So a million queued tasks take no more
memory than some thousand. Beside its place, a task is held whole as long as all held tasks have no
more than `MOST_BYTES`. Any other task is read by its id when it is leased. Tasks that have come
back to the queue, as those of a worker that has gone, are read together with the first of them.
"""

import heapq
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from operator import attrgetter
from types import MappingProxyType
from typing import NamedTuple

from rota.core.decisions import AddTask
from rota.core.dispatch.matching import turn
from rota.core.ids import TaskId
from rota.core.snapshot import added_task
from rota.core.tasks.model import TaskRecord, of_run
from rota.store.database import Transaction
from rota.store.tasks.bulk import MANY
from rota.store.tasks.lanes import Lanes
from rota.store.tasks.row_types import FIRST_FLOW, FIRST_PLACE, Place, QueuedPlace
from rota.store.tasks.tasks import TaskStore
from rota.store.workflow.runs import RunStore

MOST_PLACES = 16_384  # of all windows, to which they are cut
MOST_PER_LANE = 4_096  # of one window
MOST_PER_READ = 512  # tasks by which a window grows at a time, unless more are asked for
MOST_BYTES = 32 * 1024 * 1024  # of all tasks that are held whole
MOST_PAYLOAD_BYTES = 64 * 1024  # of a task that is held whole
RECORD_BYTES = 600  # of a task that is held whole, beside its payload
MOST_AHEAD = 4  # windows for which the next tasks travel with a commit
RECENT_BATCHES = 4  # that took tasks from a lane: the next one may take as many as any of them
MOST_LATER = 32  # tasks that enter their windows later
MOST_LATER_BYTES = 4_096  # of the payload of such a task


class LaneWindow:
    """The queued tasks of one lane, up to a bound."""

    def __init__(self, bound: Place | None = None) -> None:
        self.places: deque[Place] = deque()  # in the order of the queue
        self.tasks: dict[TaskId, TaskRecord] = {}  # those that are held whole
        self.unread: set[TaskId] = set()  # those that have come back, and may be small enough
        self.bound = bound  # the last place that the window covers; None: it covers the lane
        self.taken: tuple[int, ...] = ()  # tasks that left in each of the last batches

    def covers(self, place: Place) -> bool:
        return self.bound is None or place <= self.bound

    def remove_first(self, ids: list[TaskId]) -> bool:
        """Remove the first places, if they are those of these tasks: nearly always."""
        held = self.places
        if [task_id for _, task_id in islice(held, len(ids))] != ids:
            return False
        if len(ids) == len(held):
            held.clear()
        else:
            for _ in ids:
                held.popleft()
        return True

    def remove(self, places: Iterable[Place]) -> None:
        """Remove places that the window covers, and has."""
        held = self.places
        for place in places:
            if held and held[0] == place:
                held.popleft()
                continue
            index = bisect_left(held, place)
            assert index < len(held) and held[index] == place, "a queued task was in its window"  # noqa: PT018
            del held[index]

    def cut(self, length: int) -> list[Place]:
        """Keep so many places, at least one; return those that are cut off."""
        gone = [self.places.pop() for _ in range(len(self.places) - length)]
        self.bound = self.places[-1]
        return gone


class _Ahead(NamedTuple):
    """The tasks after the bound of a window, as a batch that may not be committed has read them."""

    window: LaneWindow
    lane: int
    found: Sequence[tuple[Place, TaskRecord | None]]
    asked: int  # so many


class LaneWindows:
    """The windows of all lanes. Each decision is noted when it is written."""

    def __init__(self, lanes: Lanes, *, most_places: int | None = None) -> None:
        """Most places: of all windows together; None: `MOST_PLACES`."""
        self._by_lane: dict[int, LaneWindow] = {}
        self._later: list[AddTask] = []  # tasks that were noted and have not entered their windows
        self._left: dict[int, int] = {}  # tasks that left each lane in this batch
        self._ahead: list[_Ahead] = []  # what this batch has read for the next one
        self._most_places = most_places
        self.place_count = 0
        self.held_bytes = 0  # of the tasks that are held whole
        self.has_run_tasks = True  # False: no task works for a run, so a read need not look for it
        self._lanes = lanes

    @classmethod
    def load(cls, tx: Transaction, lanes: Lanes) -> "LaneWindows":
        """Load which lanes have queued tasks; the windows are filled at their first use."""
        windows = cls(lanes)
        for number in TaskStore(tx, lanes).open_lanes():
            windows._by_lane[number] = LaneWindow(bound=FIRST_PLACE)
        windows.has_run_tasks = RunStore(tx).has_tasks()
        return windows

    @property
    def by_lane(self) -> dict[int, LaneWindow]:
        """The windows by lane, with every task that was noted."""
        if self._later:
            later, self._later = self._later, []
            self._enter_new(later)
        return self._by_lane

    @property
    def task_count(self) -> int:
        """The number of queued tasks that are held, for any thread that asks."""
        return self.place_count + len(self._later)

    def open_lanes(self) -> list[int]:
        """Return the lanes that may have queued tasks."""
        return sorted(self.by_lane)

    # --- the next tasks -------------------------------------------------------------------------

    def head(self, tx: Transaction, lanes: Collection[int], most: int) -> list[TaskRecord]:
        """Return the next tasks of all these lanes: higher priority first, then the oldest."""
        open_lanes = [lane for lane in lanes if lane in self.by_lane]
        if not open_lanes:
            return []
        if len(open_lanes) == 1:
            ids, held = self._next_of_lane(tx, open_lanes[0], most)
        else:
            ids, held = self._next_of_lanes(tx, open_lanes, most)
        if missing := [one for one in ids if one not in held]:
            held = {**held, **self._read(tx, missing, open_lanes)}
        for lane in open_lanes:
            self._drop_if_empty(lane)
        return [held[one] for one in ids]

    def _next_of_lane(
        self, tx: Transaction, lane: int, most: int
    ) -> tuple[list[TaskId], Mapping[TaskId, TaskRecord]]:
        """Return the next tasks of a lane, and those of its tasks that are held whole."""
        window = self.by_lane[lane]
        while window.bound is not None and len(window.places) < most:
            self._fill(tx, lane, window, most - len(window.places))
        return [task_id for _, task_id in islice(window.places, most)], window.tasks

    def _next_of_lanes(
        self, tx: Transaction, lanes: Sequence[int], most: int
    ) -> tuple[list[TaskId], Mapping[TaskId, TaskRecord]]:
        """Return the next tasks of several lanes, and those of them that are held whole."""
        step = max(1, min(most, 2 * most // len(lanes)))
        in_order = [self._in_order(tx, lane, step) for lane in lanes]
        found = [*islice(heapq.merge(*in_order), most)]
        by_lane = self.by_lane
        return [task_id for (_, task_id), _ in found], {
            task_id: task
            for (_, task_id), lane in found
            if (task := by_lane[lane].tasks.get(task_id)) is not None
        }

    def _in_order(self, tx: Transaction, lane: int, step: int) -> Iterator[tuple[Place, int]]:
        """Yield the places of a lane, and read more of them when the window ends."""
        window, seen = self.by_lane[lane], 0
        while True:
            for place in islice(window.places, seen, None):
                yield place, lane
            seen = len(window.places)
            if window.bound is None:
                return
            self._fill(tx, lane, window, step)

    def _fill(self, tx: Transaction, lane: int, window: LaneWindow, wanted: int) -> None:
        """Read the tasks after the bound of a window."""
        assert window.bound is not None
        count = max(wanted, min(MOST_PER_READ, self._part()))
        found = TaskStore(tx, self._lanes).queued_after(
            lane,
            window.bound,
            limit=count,
            most_bytes=self._room(count),
            are_plain=self._are_plain(lane),
        )
        self._extend(window, found, count)

    def _read(
        self, tx: Transaction, missing: list[TaskId], lanes: Sequence[int]
    ) -> dict[TaskId, TaskRecord]:
        """Read tasks by their ids, and hold the next tasks of the lanes that have come back."""
        ahead = self._unread(lanes, {*missing})
        room = (MOST_BYTES - self.held_bytes) // max(1, len(ahead)) - RECORD_BYTES
        if room <= 0:
            ahead = {}
        found = TaskStore(tx, self._lanes).queued(
            [*missing], ahead=[*ahead], most_bytes=min(room, MOST_PAYLOAD_BYTES)
        )
        for task in found:
            if (window := ahead.get(task.id)) is not None:
                self._hold(window, task)
        for task_id, window in ahead.items():
            window.unread.discard(task_id)
        return {task.id: task for task in found}

    def _unread(
        self, lanes: Sequence[int], missing: Collection[TaskId]
    ) -> dict[TaskId, LaneWindow]:
        """Return the next tasks of lanes that have come back and are not to be read anyway."""
        most = max(1, MOST_PER_READ // len(lanes))
        return {
            task_id: window
            for window in [self.by_lane[lane] for lane in lanes]
            if window.unread
            for _, task_id in islice(window.places, most)
            if task_id in window.unread and task_id not in missing
        }

    def read_ahead(self, tx: Transaction, flows: Iterable[int], *, wanted: int) -> None:
        """Fill the windows of those of these flows that have fewer places than wanted, at once."""
        short: dict[int, Place] = {}
        for number in flows:
            window = self.by_lane.get(number)
            if window is not None and window.bound is not None and len(window.places) < wanted:
                short[number] = window.bound
        if not short:
            return
        count = max(wanted, min(MOST_PER_READ // len(short), self._part()))
        found = TaskStore(tx, self._lanes).queued_after_each(
            short, limit=count, most_bytes=self._room(count * len(short))
        )
        for number, of_flow in found.items():
            self._extend(self.by_lane[number], of_flow, count)

    def read_ahead_of_commit(self, tx: Transaction) -> None:
        """Ask for what the next batch may lease. Called after all writes of a batch."""
        left, self._left = self._left, {}
        if not tx.can_read_ahead or len(left) > MOST_AHEAD:
            return
        short: dict[int, int] = {}  # how many tasks to ask for, by lane
        for lane, count in left.items():
            window = self.by_lane.get(lane)
            if window is not None:
                window.taken = (count, *window.taken)[:RECENT_BATCHES]
                wanted = min(max(window.taken), self._part())
                if window.bound is not None and len(window.places) < wanted:
                    short[lane] = max(wanted, min(MOST_PER_READ, self._part()))
        for lane, count in short.items():
            self._ask(tx, lane, count, most_bytes=self._room(sum(short.values())))

    def _ask(self, tx: Transaction, lane: int, count: int, *, most_bytes: int) -> None:
        """Read so many tasks after the bound of a window with the commit."""
        window = self.by_lane[lane]
        assert window.bound is not None
        TaskStore(tx, self._lanes).read_queued_ahead(
            lambda found: self._ahead.append(_Ahead(window, lane, found, count)),
            lane,
            window.bound,
            limit=count,
            most_bytes=most_bytes,
            are_plain=self._are_plain(lane),
        )

    def commit(self) -> None:
        """Take over what the batch has read ahead: its writes are what the store has now."""
        ahead, self._ahead = self._ahead, []
        for one in ahead:
            self._extend(one.window, one.found, one.asked)
            self._drop_if_empty(one.lane)

    def _room(self, count: int) -> int:
        """Return the most bytes that each of so many tasks may have to be held whole."""
        room = max(0, MOST_BYTES - self.held_bytes) // count - RECORD_BYTES
        return min(room, MOST_PAYLOAD_BYTES)

    def _are_plain(self, lane: int) -> bool:
        """Whether no task of a lane belongs to a flow or works for a run."""
        return lane < FIRST_FLOW and not self.has_run_tasks

    def _extend(
        self, window: LaneWindow, found: Sequence[tuple[Place, TaskRecord | None]], count: int
    ) -> None:
        """Add the tasks after the bound of a window, of which so many were asked for."""
        window.places.extend([place for place, _ in found])
        self.place_count += len(found)
        window.bound = None if len(found) < count else window.places[-1]
        whole = [task for _, task in found if task is not None]
        window.tasks |= {task.id: task for task in whole}
        self.held_bytes += sum([RECORD_BYTES + len(task.payload) for task in whole])

    # --- decisions ------------------------------------------------------------------------------

    def may_cover(self, lanes: Collection[int], added: Sequence[AddTask]) -> bool:
        """Whether the windows of these lanes may cover one of many new tasks; their ids rise.

        Behind a long queue none is covered, and each need not be looked at.
        """
        if len(added) < MANY:
            return True
        first = -max(one.task.priority for one in added), added[0].id
        windows = [self.by_lane.get(lane) for lane in lanes]
        return any(window is None or window.covers(first) for window in windows)

    def note_added(
        self,
        decisions: Sequence[AddTask],
        run_tokens: Mapping[TaskId, tuple[int, int]] = MappingProxyType({}),
    ) -> None:
        """Note new tasks that are queued, unless they are scheduled.

        Run tokens: the run and the token of those that work for one.
        """
        if len(decisions) == 1 and not run_tokens:
            if len(decisions[0].task.payload) <= MOST_LATER_BYTES:
                self._later.append(decisions[0])
                if len(self._later) < MOST_LATER:
                    return
                decisions, self._later = self._later, []
        elif self._later:
            decisions, self._later = [*self._later, *decisions], []
        self._enter_new(decisions, run_tokens)

    def _enter_new(
        self,
        decisions: Iterable[AddTask],
        run_tokens: Mapping[TaskId, tuple[int, int]] = MappingProxyType({}),
    ) -> None:
        lanes = self._lanes
        for one in decisions:
            if one.due_at_ms is None:
                lane = lanes.number_for(one.task)
                window = self._window(lane)
                place = (-one.task.priority, one.id)
                bound = window.bound
                if bound is None or place <= bound:
                    task = added_task(one, lanes.by_number[lane])
                    if run_tokens:
                        task = of_run(task, run_tokens.get(one.id))
                    self._enter(window, place, task)

    def note_queued(self, places: Iterable[QueuedPlace]) -> None:
        """Note tasks that have come back to the queue; they are read when they are leased."""
        for lane, rank, task_id in places:
            self.enter(lane, (rank, task_id), None)
            window = self.by_lane[lane]
            if window.covers((rank, task_id)):
                window.unread.add(task_id)

    def place(self, tx: Transaction, lane: int, index: int, *, wanted: int) -> Place | None:
        """Return the place of the nth task of a lane; None: it has no more tasks.

        Wanted: the tasks to read at least when the window ends before.
        """
        window = self.by_lane.get(lane)
        if window is None:
            return None
        if index >= len(window.places) and window.bound is not None:
            self._fill(tx, lane, window, wanted)
        if index < len(window.places):
            return window.places[index]
        self._drop_if_empty(lane)
        return None

    def is_dry(self, lane: int, index: int) -> bool:
        """Whether the place of the nth task of a lane can be known only by a read."""
        window = self.by_lane.get(lane)
        return window is not None and window.bound is not None and index >= len(window.places)

    def first(self, lane: int) -> tuple[Place | None, Place | None]:
        """Return the first place of a lane that is known, and the bound of its window."""
        window = self.by_lane.get(lane)
        if window is None:
            return None, None
        return window.places[0] if window.places else None, window.bound

    def tasks(
        self, tx: Transaction, picked: Sequence[tuple[int, Place]]
    ) -> dict[TaskId, TaskRecord]:
        """Return queued tasks, each given by its lane and its place."""
        held: dict[TaskId, TaskRecord] = {}
        missing: list[int] = []
        for lane, (_, task_id) in picked:
            task = self.by_lane[lane].tasks.get(task_id)
            if task is None:
                missing.append(task_id)
            else:
                held[task_id] = task
        if missing:
            held |= {task.id: task for task in TaskStore(tx, self._lanes).queued(missing)}
        return held

    def leave(self, lane: int, place: Place) -> None:
        """Note that the task at this place has left the queue."""
        self._leave(lane, [place])

    def enter(self, lane: int, place: Place, task: TaskRecord | None) -> None:
        """Note that a task is queued at this place; without it, it is read when it is leased."""
        window = self.by_lane.get(lane) or self._window(lane)
        if window.covers(place):
            self._enter(window, place, task)

    def note_unclaimed(self, tasks: Iterable[tuple[int, TaskRecord]]) -> None:
        """Note new tasks, each with its lane, that were offered first and are queued now."""
        for lane, task in tasks:
            self.enter(lane, turn(task), task)

    def note_left(self, tasks: Iterable[TaskRecord]) -> None:
        """Note that these tasks have left the queue."""
        by_lane: dict[int, list[TaskRecord]] = {}
        for lane, group in groupby(tasks, key=attrgetter("lane")):
            by_lane.setdefault(self._lanes.number_of(lane), []).extend(group)
        for number, left in by_lane.items():
            self._left[number] = self._left.get(number, 0) + len(left)
            window = self.by_lane.get(number)
            ids = [one.id for one in left]
            if window is not None and window.remove_first(ids):
                self._forget(window, ids)
                self._drop_if_empty(number)
            else:
                self._leave(number, [(-one.priority, one.id) for one in left])

    def _window(self, lane: int) -> LaneWindow:
        """Return the window of a lane in which a task is queued; a new one covers the lane."""
        window = self._by_lane.get(lane)
        if window is None:
            window = self._by_lane[lane] = LaneWindow()
        return window

    def _enter(self, window: LaneWindow, place: Place, task: TaskRecord | None) -> None:
        """Enter a task that the window covers, unless the window is full and the task its last."""
        places, part = window.places, self._part()
        if not places or place > places[-1]:  # nearly always
            if len(places) >= part:
                window.bound = places[-1]
                return
            places.append(place)
        else:
            insort(places, place)
        self.place_count += 1
        if task is not None:
            self._hold(window, task)
        if len(places) > 2 * part or self.place_count > 2 * self._most:
            self._shorten(window)

    def _leave(self, lane: int, places: list[Place]) -> None:
        window = self.by_lane.get(lane)
        assert window is not None, "a lane with queued tasks has a window"
        places = [place for place in places if window.covers(place)]
        window.remove(places)
        self._forget(window, [task_id for _, task_id in places])
        self._drop_if_empty(lane)

    # --- limits ---------------------------------------------------------------------------------

    @property
    def _most(self) -> int:
        return MOST_PLACES if self._most_places is None else self._most_places

    def _part(self) -> int:
        """Return the number of places that each window may keep."""
        return max(1, min(MOST_PER_LANE, self._most // max(1, len(self._by_lane))))

    def _hold(self, window: LaneWindow, task: TaskRecord) -> None:
        """Hold a task whole, if there is room for it."""
        payload_bytes = len(task.payload)
        held_bytes = self.held_bytes + RECORD_BYTES + payload_bytes
        if payload_bytes <= MOST_PAYLOAD_BYTES and held_bytes <= MOST_BYTES:
            window.tasks[task.id] = task
            self.held_bytes = held_bytes

    def _shorten(self, grown: LaneWindow) -> None:
        """Cut a window that has grown beyond twice its part, or all if they are too long."""
        part = self._part()
        if len(grown.places) > 2 * part:
            self._cut(grown, part)
        if self.place_count > 2 * self._most + len(self._by_lane):
            for window in self._by_lane.values():
                if len(window.places) > part:
                    self._cut(window, part)

    def _cut(self, window: LaneWindow, length: int) -> None:
        self._forget(window, [task_id for _, task_id in window.cut(length)])

    def _forget(self, window: LaneWindow, ids: Collection[TaskId]) -> None:
        """Forget the tasks whose places were removed from a window."""
        self.place_count -= len(ids)
        if window.unread:
            window.unread.difference_update(ids)
        if window.places:
            pop = window.tasks.pop
            gone = [task for task_id in ids if (task := pop(task_id, None)) is not None]
        else:
            gone, window.tasks = [*window.tasks.values()], {}
        self.held_bytes -= sum([RECORD_BYTES + len(task.payload) for task in gone])

    def _drop_if_empty(self, lane: int) -> None:
        window = self.by_lane.get(lane)
        if window is not None and not window.places and window.bound is None:
            del self.by_lane[lane]
