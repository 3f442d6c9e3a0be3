"""The state that the writer carries from batch to batch, to avoid reads of the store."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from rota.core.decisions import ChangeQueue, Decision, NoteQuality
from rota.core.quotas import Usage
from rota.core.workers.circuit_breaker import BreakerState
from rota.core.workers.eviction_guards import SweepState
from rota.core.workers.model import Health
from rota.engine.replicas.shared_store import Known
from rota.engine.runs.cache import RunCache
from rota.engine.shards.cache import ShardCache
from rota.store.database import Transaction
from rota.store.events import EventStore
from rota.store.locks import LockStore
from rota.store.replicas import ReplicaStore
from rota.store.sessions import SessionStore
from rota.store.shards import ShardStore
from rota.store.tasks.lanes import Lanes
from rota.store.tasks.queues import QueueStore
from rota.store.tasks.tasks import TaskStore
from rota.store.workers import WorkerStore
from rota.store.workflow.artifacts import ArtifactStore
from rota.store.workflow.runs import RunStore


class SessionState(Struct, frozen=True):
    """State of the sessions table that is cached between batches; replaced only after a commit."""

    has_tasks: bool = False  # a session waits for a task, or has waited for one
    last_notification: int = 0


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
        return Known(self.watch, self.healths, self.sessions.last_notification)


def recovered(
    tx: Transaction,
    lanes: Lanes,
    runs: RunCache,
    services: ShardCache,
    *,
    steady_ms: int,
) -> WriterState:
    """Load the state that the last coordinator left in a store that no peer uses."""
    lanes.drop_unused_if_many(tx)
    stored_runs, workers = RunStore(tx), WorkerStore(tx)
    runs.has_tasks = stored_runs.has_tasks()
    runs.has_staged = ArtifactStore(tx).has_staged()
    services.fill(ShardStore(tx), now_ms=steady_ms)
    LockStore(tx).delete_waiters()
    last = TaskStore(tx, lanes).last_id()
    return WriterState(
        last_task_id=max(last, stored_runs.last_id(), workers.counter("task")),
        paused=frozenset(QueueStore(tx).paused()),
        has_open_breakers=workers.has_open_breakers(),
        has_cancelled=workers.has_cancelled(),
        last_seq=EventStore(tx).bounds().last_seq,
        sessions=loaded_sessions(tx, SessionState()),
    )


def joined(
    tx: Transaction,
    lanes: Lanes,
    runs: RunCache,
    services: ShardCache,
    replica: str,
    *,
    now_ms: int,
) -> WriterState:
    """Load the state of a store that peers may use now; change nothing that is theirs."""
    services.fill(ShardStore(tx), now_ms=now_ms)
    LockStore(tx).expire_waiters(replica, now_ms=now_ms)
    return refreshed(tx, WriterState(), lanes, runs)


def reread(tx: Transaction, state: WriterState, lanes: Lanes) -> None:
    """Read again what a failed commit may have written after all."""
    lanes.load(tx)
    state.sessions = loaded_sessions(tx, state.sessions)
    state.last_seq = EventStore(tx).bounds().last_seq


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
            last_notification=max(before.sessions.last_notification, facts.last_notification),
        ),
        values=before.values,
        workers=facts.workers,
        services=facts.services,
    )


def loaded_sessions(tx: Transaction, before: SessionState) -> SessionState:
    """Load the state from the table; numbers never fall while a coordinator runs."""
    sessions = SessionStore(tx)
    last_notification = max(before.last_notification, sessions.last_notification())
    return SessionState(has_tasks=sessions.has_tasks(), last_notification=last_notification)


def paused_after(
    before: frozenset[str], decisions: Mapping[type[Decision], list[Any]]
) -> frozenset[str]:
    """Return the queues that are paused after these decisions."""
    for one in decisions.get(ChangeQueue, ()):
        before = before | {one.queue} if one.paused else before - {one.queue}
    return before


def opens_breakers(decisions: Mapping[type[Decision], list[Any]]) -> bool:
    return any(one.breaker.state is BreakerState.OPEN for one in decisions.get(NoteQuality, ()))
