"""One batch of events, from load to the last lease: the body of one transaction.

All events that wait at a moment are decided one after the other on one snapshot, their decisions
are written grouped by kind, and then the work that waits is dealt out to the workers that ask for
it: those of this batch, and those whose calls were parked because there was nothing for them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rota.core.decide import decide
from rota.core.decisions import (
    AddTask,
    Decision,
    FinishTask,
    LeaseTask,
    NoteWatch,
    RequeueTask,
)
from rota.core.events import Event, LeaseWork, PruneHistory
from rota.core.replies import Done, Granted, Reply
from rota.core.snapshot import Rules, Snapshot
from rota.core.valves import Watch
from rota.core.workflow.commands import RunCommand
from rota.engine.apply import Applied, apply, by_kind
from rota.engine.artifacts import ArtifactKeeper
from rota.engine.dealing import Dealer
from rota.engine.load import load
from rota.engine.run_commands import RunCommands, RunReply
from rota.engine.runs import RunAdvancer, RunCache
from rota.errors import RotaError
from rota.store.database import Transaction
from rota.store.lanes import Lanes

Outcome = Reply | RunReply | RotaError
Anything = Event | RunCommand  # that may come before the engine


@dataclass
class Memory:
    """What a coordinator carries from batch to batch; taken over only after the commit."""

    last_task_id: int = 0
    watch: Watch = field(default_factory=Watch)
    turns: dict[str, int] = field(default_factory=dict)  # when each worker was last chosen


@dataclass
class BatchResult:
    outcomes: list[Outcome]
    parked: list[Granted | RotaError]  # for the parked calls; an empty grant parks on
    applied: Applied
    memory: Memory
    decisions: dict[type[Decision], list[Any]]  # by kind
    now_ms: int
    next_moment_ms: int | None = None
    ended_runs: list[int] = field(default_factory=list)
    dropped_files: list[str] = field(default_factory=list)


class Batch:
    """The transaction body: made for one batch, called once with the open transaction."""

    def __init__(
        self,
        events: Sequence[Anything],
        parked: Sequence[LeaseWork],
        *,
        now_ms: int,
        rules: Rules,
        dice: Callable[[], float],
        lanes: Lanes,
        memory: Memory,
        runs: RunCache,
    ) -> None:
        self._events = events
        self._parked = parked
        self._lanes = lanes
        self._memory = memory
        self._runs = runs
        self._snapshot = Snapshot(
            now_ms=now_ms,
            rules=rules,
            dice=dice,
            last_task_id=memory.last_task_id,
            watch=memory.watch,
        )

    def __call__(self, tx: Transaction) -> BatchResult:
        snapshot = self._snapshot
        events = [event for event in self._events if not isinstance(event, RunCommand)]
        load(tx, self._lanes, snapshot, events)
        outcomes, decided = self._decide()
        runs = RunAdvancer(tx, self._lanes, snapshot, self._runs)
        artifacts = ArtifactKeeper(tx, self._lanes, snapshot, self._runs)
        commands = RunCommands(tx, runs, artifacts, now_ms=snapshot.now_ms)
        decisions = by_kind(self._advance_runs(runs, commands, decided, outcomes))
        artifacts.settle(decisions)
        applied = apply(tx, self._lanes, decisions, now_ms=snapshot.now_ms, tasks=snapshot.tasks)
        for index, event in enumerate(self._events):
            if isinstance(event, PruneHistory):
                outcomes[index] = Done(applied.forgotten)
        dealer = Dealer(
            tx,
            self._lanes,
            snapshot,
            self._memory.turns,
            names_runs=self._runs.has_tasks,
        )
        parked = self._deal(dealer, outcomes)
        if dealer.leased:
            decisions.setdefault(LeaseTask, []).extend(dealer.leased)
        return BatchResult(
            outcomes=outcomes,
            parked=parked,
            applied=applied,
            memory=self._remember(decisions),
            decisions=decisions,
            now_ms=snapshot.now_ms,
            next_moment_ms=_earlier(_next_moment_ms(decisions), runs.next_moment_ms),
            ended_runs=runs.ended,
            dropped_files=artifacts.dropped,
        )

    def _advance_runs(
        self,
        runs: RunAdvancer,
        commands: RunCommands,
        decided: Sequence[Decision],
        outcomes: list[Outcome],
    ) -> list[Decision]:
        """Tell runs of their tasks' ends, and carry out what callers ask of them."""
        runs.tasks_finished([one for one in decided if isinstance(one, FinishTask)])
        for index, event in enumerate(self._events):
            if isinstance(event, RunCommand):
                try:
                    outcomes[index] = commands.carry_out(event)
                except RotaError as error:
                    outcomes[index] = error
        return runs.close(decided)

    def _decide(self) -> tuple[list[Outcome], list[Decision]]:
        outcomes: list[Outcome] = []
        decisions: list[Decision] = []
        for event in self._events:
            if isinstance(event, RunCommand):
                outcomes.append(Done())  # in its place until its turn comes
                continue
            try:
                decided, reply = decide(self._snapshot, event)
            except RotaError as error:
                outcomes.append(error)
            else:
                decisions += decided
                outcomes.append(reply)
        return outcomes, decisions

    def _deal(self, dealer: Dealer, outcomes: list[Outcome]) -> list[Granted | RotaError]:
        """Ask for the calls of this batch and the parked ones alike; whoever is best gets it."""
        now = [
            (index, event)
            for index, event in enumerate(self._events)
            if isinstance(event, LeaseWork) and isinstance(outcomes[index], Granted)
        ]
        answers = dealer.deal([*(event for _, event in now), *self._parked])
        for (index, _), answer in zip(now, answers, strict=False):
            outcomes[index] = answer
        return answers[len(now) :]

    def _remember(self, decisions: Mapping[type[Decision], list[Any]]) -> Memory:
        watches = decisions.get(NoteWatch)
        return Memory(
            last_task_id=self._snapshot.last_task_id,
            watch=watches[-1].watch if watches else self._memory.watch,
            turns=self._memory.turns,
        )


def _earlier(one_ms: int | None, other_ms: int | None) -> int | None:
    return min((moment for moment in (one_ms, other_ms) if moment is not None), default=None)


def _next_moment_ms(decisions: Mapping[type[Decision], list[Any]]) -> int | None:
    """The earliest moment these decisions wait for: a due time, a deadline, a time limit."""
    moments = [one.due_at_ms for one in decisions.get(RequeueTask, ())]
    moments += [one.deadline_ms for one in decisions.get(LeaseTask, ())]
    for one in decisions.get(AddTask, ()):
        moments.append(one.due_at_ms)
        if one.task.start_within_ms is not None:
            moments.append(one.created_at_ms + one.task.start_within_ms)
    return min((moment for moment in moments if moment is not None), default=None)
