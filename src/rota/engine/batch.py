"""One batch of events, from load to the last lease: the body of one transaction.

All events that wait at a moment are decided one after the other on one snapshot, their decisions
are written grouped by kind, and then the work that waits is dealt out to the workers that ask for
it: those of this batch, and those whose calls were parked because there was nothing for them.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, cast, get_args

from msgspec import Struct

from rota.core.charts import KeepMinutes
from rota.core.decide import decide
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
from rota.core.events import Event, LeaseWork, PruneHistory, ReportResults, TakeInbox
from rota.core.ids import TaskId
from rota.core.notices import Notice, PruneNotices
from rota.core.replicas import BeatReplica, Replica
from rota.core.replies import Done, Granted, Reply
from rota.core.sessions import ClearNews
from rota.core.shards.events import ShardEvent
from rota.core.snapshot import Rules, Snapshot
from rota.core.tasks import Lane, Lease, Task
from rota.core.workers import Worker
from rota.core.workflow.commands import RunCommand
from rota.engine.apply import Applied, apply, by_kind
from rota.engine.artifacts import ArtifactKeeper
from rota.engine.dealing import Dealer
from rota.engine.happened import Happened, Tally, tally_of
from rota.engine.keeping import KEEPING_EVENTS, Keeper, KeepingEvent, KeepingReply, KeepingWork
from rota.engine.load import load
from rota.engine.moments import earlier, next_moment_ms
from rota.engine.notices import PRUNED_PER_STEP, Told, healths_after, write_notices
from rota.engine.parking import Parked, Parking
from rota.engine.remembering import Memory, opens_breakers, paused_after, remembered
from rota.engine.run_commands import RunCommands, RunReply
from rota.engine.runs import RunAdvancer, RunCache, RunWork
from rota.engine.sessions import SessionKeeper
from rota.engine.shard_cache import ShardCache
from rota.engine.shards import SHARD_EVENTS, ShardKeeper, ShardReply, ShardWork
from rota.engine.sharing import CatchUp, Sharing, is_swept, share
from rota.errors import RotaError
from rota.store.board import Board
from rota.store.database import Transaction
from rota.store.lanes import Lanes
from rota.store.notices import Notices

Outcome = Reply | RunReply | ShardReply | KeepingReply | RotaError
Sharer = BeatReplica | CatchUp  # where several coordinators share the store
# Not decided with the others.
Aside = RunCommand | ShardEvent | KeepingEvent | PruneNotices | KeepMinutes | ClearNews | Sharer
Anything = Event | Aside  # that may come before the engine
# A look-up for each event, since to ask a union of many kinds takes longer than to decide.
ASIDES = frozenset(get_args(Aside))
RUN_COMMANDS = frozenset(get_args(RunCommand))
HOUSEKEEPING = frozenset({PruneHistory, PruneNotices, KeepMinutes})
MOST_UNQUEUED = 16  # new tasks that may be leased without having been in the queue
BRINGS_WORK: tuple[type[Decision], ...] = (AddTask, RequeueTask, QueueTask, ReviveTask)


class BatchResult(Struct, kw_only=True):
    outcomes: list[Outcome]
    parked: list[tuple[Parked, Granted | RotaError]]  # those that were parked and are answered
    applied: Applied
    memory: Memory
    decisions: dict[type[Decision], list[Any]]  # by kind
    now_ms: int
    told: Told
    tally: Tally
    next_moment_ms: int | None = None
    ended_runs: list[int]
    dropped_files: list[str]
    shards: ShardWork
    keeping: KeepingWork
    sessions: set[str]  # that there is news for
    workers: Mapping[str, Worker]  # those whose calls were looked at
    open_lanes: Collection[Lane] = ()  # in which work may be left
    replicas: Sequence[Replica] = ()  # with a beat: all that share the store

    @property
    def next_sweep_ms(self) -> int | None:
        """When a service or a lock comes up next."""
        return earlier(self.shards.next_sweep_ms, self.keeping.next_moment_ms)


class Batch:
    """The transaction body: made for one batch, called once with the open transaction."""

    def __init__(
        self,
        events: Sequence[Anything],
        parking: Parking[Any],
        *,
        now_ms: int,
        steady_ms: int,
        rules: Rules,
        dice: Callable[[], float],
        lanes: Lanes,
        memory: Memory,
        runs: RunCache,
        shards: ShardCache,
        sharing: Sharing | None = None,
    ) -> None:
        """Sharing: None where nobody else writes to the store."""
        self._events = events
        self._kinds = {type(event) for event in events}
        self._parking = parking
        self._open_lanes: Collection[Lane] = ()  # in which work may be left
        self._lanes = lanes
        self._memory = memory
        self._runs = runs
        self._shards = shards
        self._sharing = sharing
        self._steady_ms = steady_ms
        self._snapshot = Snapshot(
            now_ms=now_ms,
            rules=rules,
            dice=dice,
            last_task_id=memory.last_task_id,
            watch=memory.watch,
        )

    def __call__(self, tx: Transaction) -> BatchResult:
        """What a batch is not about is not set up for it: most are about one thing."""
        snapshot = self._snapshot
        answered: dict[int, Any] = {}
        # First of all, so that results are held against the newest epochs.
        shards = self._carry_out_shards(tx, answered)
        keeping = self._keep(tx, answered)
        if not self._kinds <= ASIDES:
            events = [cast("Event", event) for event in self._events if type(event) not in ASIDES]
            memory = self._memory
            load(
                tx,
                self._lanes,
                snapshot,
                events,
                has_cancelled=memory.has_cancelled,
                unwell=memory.healths.keys(),
            )
        leases = dict(snapshot.leases)
        outcomes, decided = self._decide()
        for index, answer in answered.items():
            outcomes[index] = answer
        if snapshot.stale_claims and shards is not None:
            shards.note_refused(self._events, outcomes)
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
        self._keep_house(tx, applied, outcomes)
        parked, granted = self._deal(tx, decisions, outcomes, new)
        keeper = SessionKeeper(tx, self._lanes, self._memory.sessions)
        sessions = keeper.carry_out(self._events, outcomes, decisions)
        shard_work = ShardWork() if shards is None else shards.work
        happened = self._happened(
            decisions, leases, granted, [*runs.told, *keeping.notices], shard_work
        )
        told = write_notices(tx, happened, last_seq=self._memory.last_seq)
        memory = remembered(
            self._memory, happened, last_seq=told.last_seq, sessions=sessions.memory
        )
        replicas: list[Replica] = []
        if self._sharing is not None:
            before, after = self._memory.known, memory.known
            replicas = share(tx, self._sharing, before, after, self._events, now_ms=snapshot.now_ms)
        return BatchResult(
            outcomes=outcomes,
            parked=parked,
            applied=applied,
            memory=memory,
            decisions=decisions,
            now_ms=snapshot.now_ms,
            told=told,
            tally=happened.tally,
            next_moment_ms=earlier(next_moment_ms(decisions), runs.next_moment_ms),
            ended_runs=runs.ended,
            dropped_files=runs.dropped_files,
            shards=shard_work,
            keeping=keeping,
            sessions=sessions.told,
            workers=snapshot.workers,
            open_lanes=self._open_lanes,
            replicas=replicas,
        )

    def _carry_out_shards(self, tx: Transaction, answered: dict[int, Any]) -> ShardKeeper | None:
        """Carry out what is about services; its answers go beside the others."""
        is_foreign = self._sharing is not None and self._sharing.is_foreign
        if (
            not is_foreign
            and ReportResults not in self._kinds
            and SHARD_EVENTS.isdisjoint(self._kinds)
        ):
            return None
        shards = ShardKeeper(tx, self._shards, now_ms=self._steady_ms)
        if is_foreign:
            shards.refresh(self._memory.services)
        if self._sharing is not None:
            shards.hear_others(self._kinds)
        answered |= shards.carry_out(self._events)
        self._snapshot.stale_claims = shards.stale_claims(self._events)
        return shards

    def _keep(self, tx: Transaction, answered: dict[int, Any]) -> KeepingWork:
        """Carry out what is about memory and locks; its answers go beside the others."""
        if KEEPING_EVENTS.isdisjoint(self._kinds):
            return KeepingWork()
        keeper = Keeper(
            tx,
            now_ms=self._snapshot.now_ms,
            steady_ms=self._steady_ms,
            replica=None if self._sharing is None else self._sharing.replica,
        )
        answered |= keeper.carry_out(self._events)
        return keeper.work

    def _advance_runs(
        self, tx: Transaction, decided: Sequence[Decision], outcomes: list[Outcome]
    ) -> RunWork:
        """Tell runs of their tasks' ends, and carry out what callers ask of them."""
        decisions = by_kind(decided)
        is_asked = not RUN_COMMANDS.isdisjoint(self._kinds)
        if not is_asked and not self._runs.is_concerned(decisions):
            return RunWork(decisions)
        runs = RunAdvancer(tx, self._lanes, self._snapshot, self._runs)
        artifacts = ArtifactKeeper(tx, self._lanes, self._snapshot, self._runs)
        runs.tasks_finished(decisions.get(FinishTask, []))
        if is_asked:
            self._command(RunCommands(tx, runs, artifacts, now_ms=self._snapshot.now_ms), outcomes)
        decisions = by_kind(runs.close(decided))
        artifacts.settle(decisions)
        return RunWork(decisions, runs.told, runs.ended, artifacts.dropped, runs.next_moment_ms)

    def _command(self, commands: RunCommands, outcomes: list[Outcome]) -> None:
        for index, event in enumerate(self._events):
            if type(event) in RUN_COMMANDS:
                try:
                    outcomes[index] = commands.carry_out(cast("RunCommand", event))
                except RotaError as error:
                    outcomes[index] = error

    def _keep_house(self, tx: Transaction, applied: Applied, outcomes: list[Outcome]) -> None:
        """Say how much was forgotten; notices are forgotten here, and minutes kept."""
        if HOUSEKEEPING.isdisjoint(self._kinds):
            return
        for index, event in enumerate(self._events):
            if isinstance(event, PruneHistory):
                outcomes[index] = Done(applied.forgotten)
            elif isinstance(event, PruneNotices):
                outcomes[index] = Done(Notices(tx).prune(event, step=PRUNED_PER_STEP))
            elif isinstance(event, KeepMinutes):
                outcomes[index] = Done(Board(tx).keep_minutes(event))

    def _decide(self) -> tuple[list[Outcome], list[Decision]]:
        in_its_place = Done()  # until its turn comes
        if self._kinds <= ASIDES:
            return [in_its_place] * len(self._events), []
        outcomes: list[Outcome] = []
        decisions: list[Decision] = []
        is_shared, now_ms = self._sharing is not None, self._snapshot.now_ms
        for event in self._events:
            if type(event) in ASIDES or (
                is_shared and is_swept(event, self._snapshot.watch, now_ms=now_ms)
            ):
                outcomes.append(in_its_place)
                continue
            try:
                decided, reply = decide(self._snapshot, cast("Event", event))
            except RotaError as error:
                outcomes.append(error)
            else:
                decisions += decided
                outcomes.append(reply)
        return outcomes, decisions

    def _new_and_wanted(self, decisions: Mapping[type[Decision], list[Any]]) -> list[AddTask]:
        """New tasks that need not go through the queue, since somebody waits for work.

        Only a few: more of them leave the queue together for less than they would cost here.
        What is taken from the inbox may have failed already.
        """
        new: list[AddTask] = decisions.get(AddTask, [])
        is_wanted = len(new) <= MOST_UNQUEUED and self._is_asked and TakeInbox not in self._kinds
        return new if is_wanted else []

    @property
    def _is_asked(self) -> bool:
        """Whether anybody wants work."""
        return len(self._parking) > 0 or LeaseWork in self._kinds

    def _deal(
        self,
        tx: Transaction,
        decisions: dict[type[Decision], list[Any]],
        outcomes: list[Outcome],
        new: Sequence[AddTask],
    ) -> tuple[list[tuple[Parked, Granted | RotaError]], list[tuple[str, list[Task]]]]:
        """Ask for the calls of this batch and the parked ones alike; whoever is best gets it.

        What becomes of the parked ones, and what each worker was given.
        """
        if not self._is_asked:
            return [], []
        now = [
            (index, event)
            for index, event in enumerate(self._events)
            if isinstance(event, LeaseWork) and isinstance(outcomes[index], Granted)
        ]
        dealer = Dealer(
            tx,
            self._lanes,
            self._snapshot,
            self._memory.turns,
            paused=paused_after(self._memory.paused, decisions),
            has_open_breakers=self._memory.has_open_breakers or opens_breakers(decisions),
            names_runs=self._runs.has_tasks,
            new=new,
        )
        answers, parked = dealer.deal(
            [event for _, event in now],
            self._parking,
            changed=self._came_or_left(decisions),
            expected=sum(len(decisions.get(kind, ())) for kind in BRINGS_WORK),
        )
        for (index, _), answer in zip(now, answers, strict=True):
            outcomes[index] = answer
        self._open_lanes = dealer.open_lanes
        if dealer.leased:
            decisions.setdefault(LeaseTask, []).extend(dealer.leased)
        asked = [(event, answer) for (_, event), answer in zip(now, answers, strict=True)]
        asked += [(cast("LeaseWork", call.event), answer) for call, answer in parked]
        granted = [
            (event.worker_id, answer.leases)
            for event, answer in asked
            if isinstance(answer, Granted) and answer.leases
        ]
        return parked, granted

    def _came_or_left(self, decisions: Mapping[type[Decision], list[Any]]) -> set[str]:
        """The workers that have registered, or are gone."""
        if self._sharing is not None and self._sharing.workers_changed:
            return self._parking.worker_ids()  # any of those that wait, for all we know
        if PutWorker not in decisions and RemoveWorker not in decisions:
            return set()
        came = {one.worker.id for one in decisions.get(PutWorker, ())}
        return came | {one.worker_id for one in decisions.get(RemoveWorker, ())}

    def _happened(
        self,
        decisions: Mapping[type[Decision], list[Any]],
        leases: Mapping[TaskId, Lease],
        granted: Sequence[tuple[str, list[Task]]],
        told: Sequence[Notice],
        shards: ShardWork,
    ) -> Happened:
        memory, snapshot = self._memory, self._snapshot
        return Happened(
            decisions=decisions,
            tally=tally_of(decisions),
            snapshot=snapshot,
            leases=leases,
            granted=granted,
            told=told,
            services=shards.changes,
            paused=memory.paused,
            healths=memory.healths,
            healths_now=healths_after(memory.healths, decisions, snapshot),
        )
