"""One batch of events, from load to the last lease: the body of one transaction.

All events that wait at a moment are decided one after the other on one snapshot, their decisions
are written grouped by kind, and then the work that waits is dealt out to the workers that ask for
it: those of this batch, and those whose calls were parked because there was nothing for them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rota.core.decide import decide
from rota.core.decisions import AddTask, Decision, LeaseTask, NoteWatch, RequeueTask
from rota.core.events import Event, LeaseWork, PruneHistory
from rota.core.replies import Done, Granted, Reply
from rota.core.snapshot import Rules, Snapshot
from rota.core.valves import Watch
from rota.engine.apply import Applied, apply, by_kind
from rota.engine.dealing import Dealer
from rota.engine.load import load
from rota.errors import RotaError
from rota.store.database import Transaction
from rota.store.lanes import Lanes

Outcome = Reply | RotaError


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


class Batch:
    """The transaction body: made for one batch, called once with the open transaction."""

    def __init__(
        self,
        events: Sequence[Event],
        parked: Sequence[LeaseWork],
        *,
        now_ms: int,
        rules: Rules,
        dice: Callable[[], float],
        lanes: Lanes,
        memory: Memory,
    ) -> None:
        self._events = events
        self._parked = parked
        self._lanes = lanes
        self._memory = memory
        self._snapshot = Snapshot(
            now_ms=now_ms,
            rules=rules,
            dice=dice,
            last_task_id=memory.last_task_id,
            watch=memory.watch,
        )

    def __call__(self, tx: Transaction) -> BatchResult:
        snapshot = self._snapshot
        load(tx, self._lanes, snapshot, self._events)
        outcomes, decided = self._decide()
        decisions = by_kind(decided)
        applied = apply(tx, self._lanes, decisions, now_ms=snapshot.now_ms, tasks=snapshot.tasks)
        for index, event in enumerate(self._events):
            if isinstance(event, PruneHistory):
                outcomes[index] = Done(applied.forgotten)
        dealer = Dealer(tx, self._lanes, snapshot, self._memory.turns)
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
            next_moment_ms=_next_moment_ms(decisions),
        )

    def _decide(self) -> tuple[list[Outcome], list[Decision]]:
        outcomes: list[Outcome] = []
        decisions: list[Decision] = []
        for event in self._events:
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


def _next_moment_ms(decisions: Mapping[type[Decision], list[Any]]) -> int | None:
    """The earliest moment these decisions wait for: a due time, a deadline, a time limit."""
    moments = [one.due_at_ms for one in decisions.get(RequeueTask, ())]
    moments += [one.deadline_ms for one in decisions.get(LeaseTask, ())]
    for one in decisions.get(AddTask, ()):
        moments.append(one.due_at_ms)
        if one.task.start_within_ms is not None:
            moments.append(one.created_at_ms + one.task.start_within_ms)
    return min((moment for moment in moments if moment is not None), default=None)
