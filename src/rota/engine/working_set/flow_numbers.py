"""The numbers of flows: which flow a task belongs to, and which flows and limits are forgotten.

A flow is a lane and what its tasks share: limits, a tenant, an era. It gets its number when its
first task is added. The number is forgotten when the flow has no live tasks any more, and a limit
when no flow names it and nothing of it has to be remembered.
"""

from collections.abc import Container, Iterable, Sequence
from itertools import islice

import msgspec

from rota.core import limits as core_limits
from rota.core.decisions import AddTask, ReplaceTask
from rota.core.flows.declaring import declare, is_forgettable
from rota.core.flows.model import FlowSpec, named_limits
from rota.core.flows.queue_settings import QUEUE_KEY
from rota.core.tasks.model import Lane, NewTask, TaskRecord, flow_of, lane_of
from rota.engine.working_set.flow_admission import FlowAdmission
from rota.engine.working_set.held_limits import HeldLimits
from rota.engine.working_set.held_queues import HeldQueues
from rota.store.database import Transaction
from rota.store.tasks.flows import FlowStore, StoredFlow
from rota.store.tasks.lanes import Lanes
from rota.store.tasks.row_types import FIRST_FLOW

CHECKED_AT_ONCE = 5_000  # flows, and limits, that are looked at for being forgotten
NO_SPEC = FlowSpec()


class FlowNumbers:
    """The flows of live tasks by number, as the store has them."""

    def __init__(
        self, lanes: Lanes, limits: HeldLimits, queues: HeldQueues, admission: FlowAdmission
    ) -> None:
        self.specs: dict[int, tuple[int, FlowSpec]] = {}  # by number: the lane, and what it shares
        self._numbers: dict[tuple[int, FlowSpec], int] = {}
        self._named: dict[str, int] = {}  # by key: the flows that name it
        self._unnamed: set[str] = set()  # keys of limits that no flow names
        self._to_check: list[int] = []  # flows that may be unused
        self._last = FIRST_FLOW
        self._lanes = lanes
        self._limits = limits
        self._queues = queues
        self._admission = admission

    def load(self, tx: Transaction) -> None:
        for one in FlowStore(tx).all():
            self._intern(one)
        self._unnamed = {
            key
            for key in self._limits.by_key
            if key not in self._named and not key.startswith(QUEUE_KEY)
        }

    def lane_of(self, number: int) -> int:
        """The lane of a flow, or the lane itself."""
        return number if number < FIRST_FLOW else self.specs[number][0]

    def queue_of(self, number: int) -> str:
        """The queue of a lane or a flow."""
        return self._lanes.by_number[self.lane_of(number)].queue

    # --- the flows of tasks -----------------------------------------------------------------------

    def of_added(self, tx: Transaction, added: Sequence[AddTask], *, now_ms: int) -> dict[int, int]:
        """Return the flow of each new task that has one; its limits are declared."""
        # Not by `flow_of`: this is asked for every task, and nearly none has a flow.
        eras = self._queues.eras
        tasks = [
            one
            for one in added
            if one.task.fair_key is not None
            or one.task.concurrency is not None
            or one.task.rate is not None
            or one.task.queue in eras
        ]
        return self._in_eras_of_queues(tx, tasks, now_ms=now_ms) if tasks else {}

    def of_replaced(
        self, tx: Transaction, replaced: Sequence[ReplaceTask], *, now_ms: int
    ) -> dict[int, int]:
        """Return the flow of each waiting task that has new contents, and has one.

        Its rank stays, so its era does, too.
        """
        tasks = []
        for one in replaced:
            era = 0 if one.before.flow is None else self.specs[one.before.flow][1].era
            if era or flow_of(one.task) is not None:
                tasks.append((AddTask(one.id, one.task, one.at_ms), era))
        return self._in_eras(tx, tasks, now_ms=now_ms) if tasks else {}

    def of_revived(
        self, tx: Transaction, tasks: Iterable[TaskRecord], *, now_ms: int
    ) -> dict[int, int]:
        """Return the flow of each finished task that is queued again and has one."""
        again = [
            AddTask(task.id, _as_new(task), task.created_at_ms)
            for task in tasks
            if flow_of(task.options) is not None or task.lane.queue in self._queues.eras
        ]
        return self._in_eras_of_queues(tx, again, now_ms=now_ms) if again else {}

    def _in_eras_of_queues(
        self, tx: Transaction, added: Sequence[AddTask], *, now_ms: int
    ) -> dict[int, int]:
        eras = self._queues.eras
        tasks = [(one, eras.get(one.task.queue, 0)) for one in added]
        return self._in_eras(tx, tasks, now_ms=now_ms)

    def _in_eras(
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
        self.specs[flow.number] = flow.lane, flow.spec
        self._last = max(self._last, flow.number)
        for key in flow.spec.keys:
            self._named[key] = self._named.get(key, 0) + 1

    def _declare(self, task: NewTask, *, owner: str, now_ms: int) -> None:
        for wanted in named_limits(task.concurrency, task.rate):
            before = self._limits.by_key.get(wanted.key)
            after = declare(before, wanted, task.name, owner=owner, now_ms=now_ms)
            if after is not None:
                self._limits.put(after)
                if before is not None and after.limit != before.limit:
                    self._admission.wake(wanted.key, now_ms=now_ms)

    # --- new flows --------------------------------------------------------------------------------

    def room_for(self, count: int) -> int | None:
        """How many flows submissions may add; None: as many as they like, of so many tasks.

        Tasks of runs are not refused: they would refuse the report that led to them.
        """
        room = core_limits.MAX_FLOWS - len(self.specs)
        return max(0, room) if room < count else None

    def known_among(self, tasks: Iterable[NewTask]) -> set[tuple[Lane, FlowSpec]]:
        """The flows of these tasks that are known, but for the era of their queue."""
        found: set[tuple[Lane, FlowSpec]] = set()
        for task in tasks:
            spec, lane = flow_of(task), lane_of(task)
            if spec is None or not self._lanes.has(lane):
                continue
            era = self._queues.eras.get(task.queue, 0)
            in_era = msgspec.structs.replace(spec, era=era)
            if (self._lanes.number_of(lane), in_era) in self._numbers:
                found.add((lane, spec))
        return found

    # --- forgetting -------------------------------------------------------------------------------

    def is_named(self, key: str) -> bool:
        """Whether a live task names a limit, or an attempt still has a slot of it."""
        return key in self._limits.running or key in self._named

    def note_put(self, key: str) -> None:
        """Note a limit that an operator has set; it is forgotten once it says nothing."""
        if key not in self._named:
            self._unnamed.add(key)

    def prune(self, tx: Transaction, *, queued: Container[int], now_ms: int) -> None:
        """Forget flows without live tasks, and limits that say nothing; a bounded part at a time.

        A flow that is not looked at now comes up within a few calls: each call goes on where the
        last one has stopped. Queued: the flows that have queued tasks.
        """
        if not self._to_check:
            self._to_check = [*self.specs]
        step, self._to_check = self._to_check[:CHECKED_AT_ONCE], self._to_check[CHECKED_AT_ONCE:]
        idle = [number for number in step if number in self.specs and number not in queued]
        unused = {*idle} - FlowStore(tx).live(idle) if idle else set()
        for number in unused:
            lane, spec = self.specs.pop(number)
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
        by_key, running = self._limits.by_key, self._limits.running
        for key in [*islice(self._unnamed, CHECKED_AT_ONCE)]:
            record = by_key.get(key)
            if record is None or key in self._named or record.is_pinned:
                self._unnamed.discard(key)
            elif key not in running and is_forgettable(record, now_ms=now_ms):
                self._unnamed.discard(key)
                self._limits.drop(key)


def _as_new(task: TaskRecord) -> NewTask:
    """A task as it was submitted, as far as its flow is concerned."""
    options = task.options
    return NewTask(
        name=task.lane.name,
        queue=task.lane.queue,
        requires=task.lane.requires,
        concurrency=options.concurrency,
        rate=options.rate,
        fair_key=options.fair_key,
    )
