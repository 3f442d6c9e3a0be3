"""One batch of commands on its way to replies, and the contract of the domains that execute it.

Theory of operation. A domain has the commands of one noun. The domains of a batch run in order.
Each loads what its commands need, reacts to the decisions of the domains before it, reduces its
commands one by one, and closes with what follows from all of them together. Only then all domains
write, in the same order, inside the same transaction. A domain leaves its replies, decisions,
events and notifications in the batch, where later domains and the pipeline find them.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter
from typing import Any, ClassVar, TypeVar

from msgspec import Struct

from rota.core.commands import Command
from rota.core.context import Context
from rota.core.decisions import AddTask, Decision, FinishTask
from rota.core.events import Event
from rota.core.ids import TaskId
from rota.core.quotas import Usage
from rota.core.replies import Done
from rota.core.snapshot import Snapshot
from rota.core.tasks.model import Lane, Lease, TaskRecord
from rota.core.workers.model import Health
from rota.engine.commit.request import NOTHING_COUNTED, BatchCounts, Delivery, Outcome
from rota.engine.commit.state import SessionState, WriterState
from rota.engine.dispatch.waitlist import WaitingLease, Waitlist
from rota.engine.kv.lock_cache import LockCache
from rota.engine.runs.cache import RunCache
from rota.engine.shards.cache import ShardCache
from rota.engine.shards.changes import ServiceChanges, ServiceGauges
from rota.engine.working_set.working_set import WorkingSet
from rota.store.database import Transaction
from rota.store.tasks.lanes import Lanes

Key = TypeVar("Key")


QUEUE_AND_STATE = attrgetter("queue", "state")
DONE = Done()  # the reply to a command that no domain replies to


class Batch(Struct, kw_only=True):
    """One batch on its way from commands to replies."""

    # What the batch begins with.
    tx: Transaction
    commands: Sequence[Command]
    kinds: frozenset[type[Any]]  # of the commands
    context: Context
    state: WriterState  # before the batch
    held: WorkingSet
    lanes: Lanes
    runs: RunCache
    services: ShardCache
    locks: LockCache
    waitlist: Waitlist[Any]
    snapshot: Snapshot

    # What its domains make of it.
    outcomes: list[Outcome]  # by command
    decisions: dict[type[Decision], list[Any]] = {}  # about tasks and workers, by kind
    events: list[Event] = []  # of runs, values and locks
    delivery: Delivery  # the notifications after the commit
    leases: Mapping[TaskId, Lease] = {}  # of the loaded tasks, before the batch decided anything
    unqueued: Sequence[AddTask] = ()  # new tasks that are offered before they are queued
    run_tokens: Mapping[TaskId, tuple[int, int]] = {}  # run and token of new tasks of runs
    # The incarnations of the workers that have the functions of new tasks in memory.
    preferred: dict[TaskId, int] = {}
    opened: set[int] = set()  # lanes with new work
    granted: list[tuple[str, list[TaskRecord]]] = []  # to each worker, by its id
    served: Sequence[tuple[WaitingLease, Outcome]] = ()  # replies to calls of the waitlist
    open_lanes: Collection[Lane] = ()  # lanes that may have work left
    forgotten: int = 0  # finished tasks that were pruned
    service_changes: dict[str, ServiceChanges] = {}
    service_gauges: dict[str, ServiceGauges] = {}  # from a sweep
    # Of schedules, by queue and outcome. Plain mappings: few batches have any of these.
    firings: dict[tuple[str, str], int] = {}
    refusals: dict[str, int] = {}  # by limits, by their kind
    late_ms: dict[str, int] = {}  # of firings of schedules, by queue
    fenced: list[str] = []  # the service of each effect that was refused as stale
    dropped_files: list[str] = []  # of artifacts, to remove after the commit
    sessions: SessionState
    values: Usage | None  # of the key-value store; None: not counted yet
    healths: Mapping[str, Health] = {}  # of workers that are not healthy, after the batch
    counts: BatchCounts = NOTHING_COUNTED
    last_seq: int = 0  # of the events in the log, after the batch

    @classmethod
    def begin(
        cls,
        tx: Transaction,
        commands: Sequence[Command],
        *,
        context: Context,
        state: WriterState,
        held: WorkingSet,
        lanes: Lanes,
        runs: RunCache,
        services: ShardCache,
        locks: LockCache,
        waitlist: Waitlist[Any],
    ) -> "Batch":
        return cls(
            tx=tx,
            commands=commands,
            kinds=frozenset(map(type, commands)),
            context=context,
            state=state,
            held=held,
            lanes=lanes,
            runs=runs,
            services=services,
            locks=locks,
            waitlist=waitlist,
            snapshot=Snapshot(last_task_id=state.last_task_id, watch=state.watch),
            outcomes=[DONE] * len(commands),
            delivery=Delivery(),
            sessions=state.sessions,
            values=state.values,
        )

    def lane(self, task_id: TaskId) -> Lane | None:
        """Return the lane of a task; None if the batch has not loaded the task."""
        known = self.leases.get(task_id) or self.snapshot.tasks.get(task_id)
        return None if known is None else known.lane


class Domain:
    """One domain of one batch. The batch calls the methods in the order they stand here."""

    COMMANDS: ClassVar[frozenset[type[Any]]] = frozenset()  # those that the domain reduces
    CONCERNS_ALL: ClassVar[bool] = False  # every batch needs the domain

    @classmethod
    def is_named_by(cls, kinds: frozenset[type[Any]]) -> bool:
        """Whether commands of these kinds are enough to need this domain."""
        return cls.CONCERNS_ALL or not cls.COMMANDS.isdisjoint(kinds)

    @classmethod
    def looks_further(cls, kinds: frozenset[type[Any]]) -> bool:  # noqa: ARG003 - most go by no kinds
        """Whether a batch of these kinds that do not name the domain may need it all the same."""
        return cls.is_concerned.__func__ is not Domain.is_concerned.__func__  # type: ignore[attr-defined]

    @classmethod
    def is_concerned(cls, batch: Batch) -> bool:
        """Whether the batch needs this domain at all; in most batches few do."""
        return cls.is_named_by(batch.kinds)

    def __init__(self, batch: Batch) -> None:
        self.batch = batch

    def load(self, commands: Sequence[Any]) -> None:
        """Load what the commands need."""

    def react(self) -> None:
        """Decide what follows from the decisions of the domains before this one."""

    def reduce(self, command: Any) -> Outcome:
        """Decide one command, and return the reply to it."""
        raise NotImplementedError

    def is_half_done(self, command: Any) -> bool:  # noqa: ARG002 - most domains refuse at first
        """Whether a refused command has changed something; the batch is then rolled back."""
        return False

    def close(self) -> None:
        """Decide what follows from all commands together."""

    def write(self) -> None:
        """Write the decisions."""


def tally(counts: dict[Key, int], key: Key, count: int) -> None:
    """Add to a count of a batch."""
    counts[key] = counts.get(key, 0) + count


def counts_of(decisions: Mapping[type[Decision], list[Any]]) -> BatchCounts:
    added, finished = decisions.get(AddTask), decisions.get(FinishTask)
    if added is None and finished is None:
        return NOTHING_COUNTED
    return BatchCounts(
        _counted([one.task.queue for one in added]) if added else {},
        _counted([*map(QUEUE_AND_STATE, finished)]) if finished else {},
    )


def _counted(keys: list[Key]) -> Mapping[Key, int]:
    return {keys[0]: 1} if len(keys) == 1 else Counter(keys)  # a Counter is slow for one key
