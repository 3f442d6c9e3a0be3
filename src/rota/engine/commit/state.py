"""The state that the writer carries from batch to batch, to avoid reads of the store."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from rota.core.decisions import ChangeQueue, Decision, NoteQuality, NoteWatch, TellCancelled
from rota.core.quotas import Usage
from rota.core.workers.circuit_breaker import BreakerState
from rota.core.workers.eviction_guards import SweepState
from rota.core.workers.model import Health
from rota.engine.commit.outcome import BatchOutcome
from rota.engine.replicas.shared_store import Known
from rota.engine.runs.run_engine import RunCache
from rota.engine.sessions import SessionState
from rota.store.database import Transaction
from rota.store.replicas import ReplicaStore
from rota.store.tasks.lanes import Lanes
from rota.store.tasks.queues import QueueStore


class WriterState(Struct):
    """The state between two batches. The pipeline replaces it only after a commit.

    It stays true because no other process writes to the store. Where peers write, the pipeline
    reads it again before a batch (`refreshed`).
    """

    last_task_id: int = 0
    watch: SweepState = SweepState()
    turns: dict[str, int] = {}  # when each worker was last chosen
    paused: frozenset[str] = frozenset()  # queues
    has_open_breakers: bool = True  # False: none is open
    has_cancelled: bool = True  # False: no worker has to be told of a cancelled task
    last_seq: int = 0  # of the events in the log
    healths: Mapping[str, Health] = {}  # of workers that are not healthy
    sessions: SessionState = SessionState()
    values: Usage | None = None  # of the key-value store; None: not counted yet
    # Only where peers write, too. A different value means a change.
    workers: tuple[int, int] = (0, 0)  # a worker registered or left
    services: int = 0  # a service changed

    @property
    def known(self) -> Known:
        """The part of the state that peers have to know, too."""
        return Known(self.watch, self.healths, self.sessions.last_news)


def loaded_state(
    before: WriterState,
    outcome: BatchOutcome,
    *,
    last_seq: int,
    sessions: SessionState,
    values: Usage | None,
) -> WriterState:
    """Return the state after a batch."""
    decisions = outcome.decisions
    watches = decisions.get(NoteWatch)
    return WriterState(
        last_task_id=outcome.snapshot.last_task_id,
        watch=watches[-1].watch if watches else before.watch,
        turns=before.turns,
        paused=paused_after(before.paused, decisions),
        has_open_breakers=before.has_open_breakers or opens_breakers(decisions),
        has_cancelled=before.has_cancelled or TellCancelled in decisions,
        last_seq=last_seq,
        healths=outcome.healths_now,
        sessions=sessions,
        workers=before.workers,
        services=before.services,
        values=values,
    )


def refreshed(tx: Transaction, before: WriterState, lanes: Lanes, runs: RunCache) -> WriterState:
    """Read the state again after peers have written; update lanes and runs, too."""
    facts = ReplicaStore(tx).facts()
    lanes.refresh(tx, facts.last_lane)
    runs.grow_old()
    runs.has_tasks = facts.has_run_tasks
    runs.has_staged = facts.has_staged
    return WriterState(
        # The last id and the last number never fall while a coordinator runs.
        last_task_id=max(before.last_task_id, facts.last_task_id),
        watch=facts.watch.watch,
        turns=before.turns,
        paused=frozenset(QueueStore(tx).paused()),
        has_open_breakers=facts.has_open_breakers,
        has_cancelled=facts.has_cancelled,
        last_seq=max(before.last_seq, facts.last_seq),
        healths=facts.watch.healths,
        sessions=SessionState(
            has_tasks=facts.has_session_tasks,
            last_news=max(before.sessions.last_news, facts.last_notification),
        ),
        values=before.values,
        workers=facts.workers,
        services=facts.services,
    )


def paused_after(
    before: frozenset[str], decisions: Mapping[type[Decision], list[Any]]
) -> frozenset[str]:
    """Return the queues that are paused after these decisions."""
    for one in decisions.get(ChangeQueue, ()):
        before = before | {one.queue} if one.paused else before - {one.queue}
    return before


def opens_breakers(decisions: Mapping[type[Decision], list[Any]]) -> bool:
    return any(one.breaker.state is BreakerState.OPEN for one in decisions.get(NoteQuality, ()))
