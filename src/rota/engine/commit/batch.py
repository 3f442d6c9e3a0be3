"""One batch of commands: the body of one transaction.

A batch loads what its commands need, reduces each, writes the decisions grouped by kind, and
returns the replies and notifications for after the commit. The domains come in this order:

1. Shards, so that results in the batch are checked against the newest epochs.
2. Values and locks. They are independent of the other domains.
3. Tasks and workers.
4. Runs. They continue after the tasks that ended, and add and cancel tasks.
5. Dispatch. It assigns the tasks queued by then to the lease calls of the batch and the waitlist.
6. Sessions. They are notified of all ended tasks.
7. Events, and the state that peers on the store need. They record the decisions of all others.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast, get_args

from msgspec import Struct

from rota.core.commands import (
    Command,
    KeepMinutes,
    LeaseWork,
    PruneHistory,
    ReportResults,
    TakeInbox,
    TaskCommand,
)
from rota.core.context import Context
from rota.core.decisions import (
    AddTask,
    Decision,
    FinishTask,
    LeaseTask,
    PutWorker,
    QueueTask,
    RemoveWorker,
    RequeueTask,
    ReviveTask,
)
from rota.core.events import Event, PruneEvents
from rota.core.ids import TaskId
from rota.core.kv import KvReply
from rota.core.locks import LockAnswer
from rota.core.reducer import reduce
from rota.core.replicas import Replica
from rota.core.replies import Done, Granted, Reply
from rota.core.snapshot import Snapshot
from rota.core.tasks.model import Lane, Lease, TaskRecord
from rota.core.workers.model import WorkerRecord
from rota.core.workflow.commands import RunCommand, RunReply
from rota.engine.commit.applier import Applied, apply, by_kind
from rota.engine.commit.loader import load
from rota.engine.commit.outcome import BatchCounts, BatchOutcome, counts_of
from rota.engine.commit.state import WriterState, loaded_state, opens_breakers, paused_after
from rota.engine.dispatch.dispatcher import Dispatcher
from rota.engine.dispatch.waitlist import WaitingLease, Waitlist
from rota.engine.events.recorder import PRUNED_PER_STEP, EventBatch, healths_after, write_events
from rota.engine.kv.domains import KvDomain, LockDomain
from rota.engine.replicas.shared_store import SharedStore, is_swept, share
from rota.engine.runs.artifacts import ArtifactEngine
from rota.engine.runs.run_commands import RunCommands
from rota.engine.runs.run_engine import RunAdvancer, RunCache, RunWork
from rota.engine.sessions import SessionEngine
from rota.engine.shards.cache import ShardCache
from rota.engine.shards.shard_engine import SHARD_COMMANDS, ShardEngine, ShardReply, ShardWork
from rota.errors import RotaError
from rota.store.dashboard import DashboardStore
from rota.store.database import Transaction
from rota.store.events import EventStore
from rota.store.tasks.lanes import Lanes

Outcome = Reply | RunReply | ShardReply | KvReply | LockAnswer | RotaError
# Sets, since a look-up is fast. An `isinstance` check of a union of many kinds is slower than the
# decision itself.
TASK_COMMANDS = frozenset(get_args(TaskCommand))
RUN_COMMANDS = frozenset(get_args(RunCommand))
HOUSEKEEPING = frozenset({PruneHistory, PruneEvents, KeepMinutes})
MOST_UNQUEUED = 16  # new tasks that may be leased without having been in the queue
BRINGS_WORK: tuple[type[Decision], ...] = (AddTask, RequeueTask, QueueTask, ReviveTask)


class BatchResult(Struct, kw_only=True):
    outcomes: list[Outcome]
    parked: list[tuple[WaitingLease, Granted | RotaError]]  # calls of the waitlist that get a reply
    applied: Applied
    state: WriterState
    decisions: dict[type[Decision], list[Any]]  # by kind
    now_ms: int
    events: EventBatch
    tally: BatchCounts
    next_moment_ms: int | None = None
    ended_runs: list[int]
    dropped_files: list[str]
    shards: ShardWork
    granted_locks: list[LockAnswer]  # to waiting callers
    next_lock_ms: int | None  # when the next lock expires
    sessions: set[str]  # sessions with new notifications
    workers: Mapping[str, WorkerRecord]  # the workers that the batch loaded
    open_lanes: Collection[Lane] = ()  # lanes that may have work left
    replicas: Sequence[Replica] = ()  # after a replica's beat: all that share the store

    @property
    def next_sweep_ms(self) -> int | None:
        """When the next sweep of a service or a lock is due."""
        return earlier(self.shards.next_sweep_ms, self.next_lock_ms)


class Batch:
    """The transaction body of one batch. The pipeline calls it once, with the open transaction."""

    def __init__(
        self,
        commands: Sequence[Command],
        waitlist: Waitlist[Any],
        *,
        context: Context,
        lanes: Lanes,
        state: WriterState,
        runs: RunCache,
        shards: ShardCache,
        sharing: SharedStore | None = None,
    ) -> None:
        """Sharing: None where no peer writes to the store."""
        self._commands = commands
        self._kinds = {type(command) for command in commands}
        self._waitlist = waitlist
        self._open_lanes: Collection[Lane] = ()  # lanes that may have work left
        self._lanes = lanes
        self._state = state
        self._runs = runs
        self._shards = shards
        self._sharing = sharing
        self._context = context
        self._snapshot = Snapshot(
            now_ms=context.now_ms,
            rules=context.rules,
            dice=context.dice,
            last_task_id=state.last_task_id,
            watch=state.watch,
        )

    def __call__(self, tx: Transaction) -> BatchResult:
        """Execute the batch. Only the domains that it concerns are set up: in most batches one."""
        snapshot = self._snapshot
        answered: dict[int, Any] = {}
        shards = self._execute_shards(tx, answered)
        values = self._reduce_values(tx, answered)
        locks = self._reduce_locks(tx, answered)
        if not self._kinds.isdisjoint(TASK_COMMANDS):
            commands = [
                cast("TaskCommand", event)
                for event in self._commands
                if type(event) in TASK_COMMANDS
            ]
            state = self._state
            load(
                tx,
                self._lanes,
                snapshot,
                commands,
                has_cancelled=state.has_cancelled,
                unwell=state.healths.keys(),
            )
        leases = dict(snapshot.leases)
        outcomes, decided = self._decide()
        for index, answer in answered.items():
            outcomes[index] = answer
        if snapshot.stale_claims and shards is not None:
            shards.note_refused(self._commands, outcomes)
        runs = self._advance_runs(tx, decided, outcomes)
        decisions = runs.decisions
        new = self._new_and_wanted(decisions)
        applied = apply(
            tx,
            self._lanes,
            decisions,
            now_ms=snapshot.now_ms,
            tasks=snapshot.tasks,
            queues_new=not new,
        )
        self._prune(tx, applied, outcomes)
        parked, granted = self._assign(tx, decisions, outcomes, new)
        session_engine = SessionEngine(tx, self._lanes, self._state.sessions)
        sessions = session_engine.apply(self._commands, outcomes, decisions)
        shard_work = ShardWork() if shards is None else shards.work
        events = [*runs.events]
        for domain in (values, locks):
            if domain is not None:
                events += domain.events
        outcome = self._outcome(decisions, leases, granted, events, shard_work)
        logged = write_events(tx, outcome, last_seq=self._state.last_seq)
        state = loaded_state(
            self._state,
            outcome,
            last_seq=logged.last_seq,
            sessions=sessions.state,
            values=self._state.values if values is None else values.state.usage,
        )
        replicas: list[Replica] = []
        if self._sharing is not None:
            before, after = self._state.known, state.known
            replicas = share(
                tx, self._sharing, before, after, self._commands, now_ms=snapshot.now_ms
            )
        return BatchResult(
            outcomes=outcomes,
            parked=parked,
            applied=applied,
            state=state,
            decisions=decisions,
            now_ms=snapshot.now_ms,
            events=logged,
            tally=outcome.tally,
            next_moment_ms=earlier(next_due_ms(decisions), runs.next_moment_ms),
            ended_runs=runs.ended,
            dropped_files=runs.dropped_files,
            shards=shard_work,
            granted_locks=[] if locks is None else locks.granted,
            next_lock_ms=None if locks is None else locks.next_moment_ms,
            sessions=sessions.notified,
            workers=snapshot.workers,
            open_lanes=self._open_lanes,
            replicas=replicas,
        )

    def _execute_shards(self, tx: Transaction, answered: dict[int, Any]) -> ShardEngine | None:
        """Execute the commands about services; return None if the batch concerns no service."""
        changed_by_peer = self._sharing is not None and self._sharing.changed_by_peer
        if (
            not changed_by_peer
            and ReportResults not in self._kinds
            and SHARD_COMMANDS.isdisjoint(self._kinds)
        ):
            return None
        shards = ShardEngine(tx, self._shards, now_ms=self._context.steady_ms)
        if changed_by_peer:
            shards.refresh(self._state.services)
        if self._sharing is not None:
            shards.hear_others(self._kinds)
        answered |= shards.execute(self._commands)
        self._snapshot.stale_claims = shards.stale_claims(self._commands)
        return shards

    def _reduce_locks(self, tx: Transaction, answered: dict[int, Any]) -> LockDomain | None:
        if LockDomain.COMMANDS.isdisjoint(self._kinds):
            return None
        replica = None if self._sharing is None else self._sharing.replica
        domain = LockDomain(tx, self._context, replica=replica)
        self._reduce(domain, answered)
        return domain

    def _reduce_values(self, tx: Transaction, answered: dict[int, Any]) -> KvDomain | None:
        if KvDomain.COMMANDS.isdisjoint(self._kinds):
            return None
        is_shared = self._sharing is not None
        domain = KvDomain(tx, self._context, usage=self._state.values, is_shared=is_shared)
        self._reduce(domain, answered)
        return domain

    def _reduce(self, domain: KvDomain | LockDomain, answered: dict[int, Any]) -> None:
        """Load what a domain's commands need, reduce each, and write the decisions."""
        commands: list[tuple[int, Any]] = [
            (index, command)
            for index, command in enumerate(self._commands)
            if type(command) in domain.COMMANDS
        ]
        domain.load([command for _, command in commands])
        for index, command in commands:
            try:
                answered[index] = domain.reduce(command)
            except RotaError as error:
                answered[index] = error
        domain.write()

    def _advance_runs(
        self, tx: Transaction, decided: Sequence[Decision], outcomes: list[Outcome]
    ) -> RunWork:
        """Feed the ends of tasks to their runs, and execute the commands about runs."""
        decisions = by_kind(decided)
        is_asked = not RUN_COMMANDS.isdisjoint(self._kinds)
        if not is_asked and not self._runs.is_concerned(decisions):
            return RunWork(decisions)
        runs = RunAdvancer(tx, self._lanes, self._snapshot, self._runs)
        artifacts = ArtifactEngine(tx, self._lanes, self._snapshot, self._runs)
        runs.tasks_finished(decisions.get(FinishTask, []))
        if is_asked:
            self._command(RunCommands(tx, runs, artifacts, now_ms=self._snapshot.now_ms), outcomes)
        decisions = by_kind(runs.close(decided))
        artifacts.settle(decisions)
        return RunWork(decisions, runs.events, runs.ended, artifacts.dropped, runs.next_moment_ms)

    def _command(self, commands: RunCommands, outcomes: list[Outcome]) -> None:
        for index, event in enumerate(self._commands):
            if type(event) in RUN_COMMANDS:
                try:
                    outcomes[index] = commands.execute(cast("RunCommand", event))
                except RotaError as error:
                    outcomes[index] = error

    def _prune(self, tx: Transaction, applied: Applied, outcomes: list[Outcome]) -> None:
        """Prune the event log, keep chart minutes, and reply how much was pruned."""
        if HOUSEKEEPING.isdisjoint(self._kinds):
            return
        for index, event in enumerate(self._commands):
            if isinstance(event, PruneHistory):
                outcomes[index] = Done(applied.forgotten)
            elif isinstance(event, PruneEvents):
                outcomes[index] = Done(EventStore(tx).prune(event, step=PRUNED_PER_STEP))
            elif isinstance(event, KeepMinutes):
                outcomes[index] = Done(DashboardStore(tx).put_minutes(event))

    def _decide(self) -> tuple[list[Outcome], list[Decision]]:
        in_its_place = Done()  # until another domain sets the command's outcome
        if self._kinds.isdisjoint(TASK_COMMANDS):
            return [in_its_place] * len(self._commands), []
        outcomes: list[Outcome] = []
        decisions: list[Decision] = []
        is_shared, now_ms = self._sharing is not None, self._snapshot.now_ms
        for event in self._commands:
            if type(event) not in TASK_COMMANDS or (
                is_shared and is_swept(event, self._snapshot.watch, now_ms=now_ms)
            ):
                outcomes.append(in_its_place)
                continue
            try:
                decided, reply = reduce(self._snapshot, cast("TaskCommand", event))
            except RotaError as error:
                outcomes.append(error)
            else:
                decisions += decided
                outcomes.append(reply)
        return outcomes, decisions

    def _new_and_wanted(self, decisions: Mapping[type[Decision], list[Any]]) -> list[AddTask]:
        """New tasks that need not go through the queue, since a lease call waits for work.

        Only a few: many tasks are claimed from the queue together at a lower cost.
        Tasks from the inbox may have failed already.
        """
        new: list[AddTask] = decisions.get(AddTask, [])
        is_wanted = len(new) <= MOST_UNQUEUED and self._is_asked and TakeInbox not in self._kinds
        return new if is_wanted else []

    @property
    def _is_asked(self) -> bool:
        """Whether a lease call asks for work."""
        return len(self._waitlist) > 0 or LeaseWork in self._kinds

    def _assign(
        self,
        tx: Transaction,
        decisions: dict[type[Decision], list[Any]],
        outcomes: list[Outcome],
        new: Sequence[AddTask],
    ) -> tuple[list[tuple[WaitingLease, Granted | RotaError]], list[tuple[str, list[TaskRecord]]]]:
        """Assign work to the lease calls of this batch and of the waitlist.

        Return the replies to calls of the waitlist, and the tasks that each worker was granted.
        """
        if not self._is_asked:
            return [], []
        now = [
            (index, event)
            for index, event in enumerate(self._commands)
            if isinstance(event, LeaseWork) and isinstance(outcomes[index], Granted)
        ]
        dispatcher = Dispatcher(
            tx,
            self._lanes,
            self._snapshot,
            self._state.turns,
            paused=paused_after(self._state.paused, decisions),
            has_open_breakers=self._state.has_open_breakers or opens_breakers(decisions),
            names_runs=self._runs.has_tasks,
            new=new,
        )
        answers, parked = dispatcher.assign(
            [event for _, event in now],
            self._waitlist,
            changed=self._came_or_left(decisions),
            expected=sum(len(decisions.get(kind, ())) for kind in BRINGS_WORK),
        )
        for (index, _), answer in zip(now, answers, strict=True):
            outcomes[index] = answer
        self._open_lanes = dispatcher.open_lanes
        if dispatcher.leased:
            decisions.setdefault(LeaseTask, []).extend(dispatcher.leased)
        asked = [(event, answer) for (_, event), answer in zip(now, answers, strict=True)]
        asked += [(cast("LeaseWork", call.event), answer) for call, answer in parked]
        granted = [
            (event.worker_id, answer.leases)
            for event, answer in asked
            if isinstance(answer, Granted) and answer.leases
        ]
        return parked, granted

    def _came_or_left(self, decisions: Mapping[type[Decision], list[Any]]) -> set[str]:
        """Return the workers that have registered or left in this batch."""
        if self._sharing is not None and self._sharing.workers_changed:
            return self._waitlist.worker_ids()  # a peer's batch may concern any waiting worker
        if PutWorker not in decisions and RemoveWorker not in decisions:
            return set()
        came = {one.worker.id for one in decisions.get(PutWorker, ())}
        return came | {one.worker_id for one in decisions.get(RemoveWorker, ())}

    def _outcome(
        self,
        decisions: Mapping[type[Decision], list[Any]],
        leases: Mapping[TaskId, Lease],
        granted: Sequence[tuple[str, list[TaskRecord]]],
        events: Sequence[Event],
        shards: ShardWork,
    ) -> BatchOutcome:
        state, snapshot = self._state, self._snapshot
        return BatchOutcome(
            decisions=decisions,
            tally=counts_of(decisions),
            snapshot=snapshot,
            leases=leases,
            granted=granted,
            events=events,
            services=shards.changes,
            paused=state.paused,
            healths=state.healths,
            healths_now=healths_after(state.healths, decisions, snapshot),
        )


def earlier(one_ms: int | None, other_ms: int | None) -> int | None:
    return min((moment for moment in (one_ms, other_ms) if moment is not None), default=None)


def next_due_ms(decisions: Mapping[type[Decision], list[Any]]) -> int | None:
    """Return the earliest due time, deadline or time limit to start in these decisions."""
    moments = [one.due_at_ms for one in decisions.get(RequeueTask, ())]
    moments += [one.deadline_ms for one in decisions.get(LeaseTask, ())]
    for one in decisions.get(AddTask, ()):
        if one.due_at_ms is not None:
            moments.append(one.due_at_ms)
        if one.task.start_within_ms is not None:
            moments.append(one.created_at_ms + one.task.start_within_ms)
    return min((moment for moment in moments if moment is not None), default=None)
