"""The state that the writer carries from batch to batch, to avoid reads of the store."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from rota.core.decisions import ChangeQueue, Decision
from rota.core.quotas import Usage
from rota.core.workers.eviction_guards import SweepState
from rota.core.workers.model import Health
from rota.engine.runs.cache import RunCache
from rota.engine.shards.cache import ShardCache
from rota.store.database import Transaction
from rota.store.events import EventStore
from rota.store.sessions import SessionStore
from rota.store.shards import ShardStore
from rota.store.tasks.lanes import Lanes
from rota.store.tasks.queues import QueueStore
from rota.store.tasks.tasks import TaskStore
from rota.store.workers import WorkerStore
from rota.store.workflow.artifacts import ArtifactStore
from rota.store.workflow.runs import RunStore

NOTIFICATIONS = "news"  # the counter of the notifications of sessions


class SessionState(Struct, frozen=True):
    """State of the sessions table that is cached between batches; replaced only after a commit."""

    has_tasks: bool = False  # a session waits for a task, or has waited for one
    last_notification: int = 0


class WriterState(Struct):
    """The state between two batches. The pipeline replaces it only after a commit.

    It stays true because no other process writes to the store: a coordinator that no longer leads
    cannot commit. After a failed commit the pipeline loads it again.
    """

    last_task_id: int = 0
    watch: SweepState = SweepState()
    turns: dict[str, int] = {}  # when each worker was last chosen
    paused: frozenset[str] = frozenset()  # queues
    last_seq: int = 0  # of the events in the log
    healths: Mapping[str, Health] = {}  # of workers that are not healthy
    sessions: SessionState = SessionState()
    values: Usage | None = None  # of the key-value store; None: not counted yet


def loaded(
    tx: Transaction,
    before: WriterState,
    lanes: Lanes,
    runs: RunCache,
    services: ShardCache,
    *,
    steady_ms: int,
) -> WriterState:
    """Load the state of the store, at a start, at a takeover, and after a failed commit.

    The outcome of a failed commit may be unknown, so everything is read again. What the store does
    not have is taken from `before`. Numbers never fall while a coordinator runs.
    """
    lanes.load(tx)
    stored_runs, workers = RunStore(tx), WorkerStore(tx)
    runs.has_tasks = stored_runs.has_tasks()
    runs.has_staged = ArtifactStore(tx).has_staged()
    services.fill(ShardStore(tx), now_ms=steady_ms)
    last = TaskStore(tx, lanes).last_id()
    return WriterState(
        last_task_id=max(before.last_task_id, last, stored_runs.last_id(), workers.counter("task")),
        watch=before.watch,
        turns=before.turns,
        paused=frozenset(QueueStore(tx).paused()),
        last_seq=max(before.last_seq, EventStore(tx).bounds().last_seq),
        healths=before.healths,
        sessions=_sessions(tx, before.sessions),
    )


def _sessions(tx: Transaction, before: SessionState) -> SessionState:
    """The counter is above every number that was used, also by a leader before this one."""
    sessions = SessionStore(tx)
    last_notification = max(
        before.last_notification,
        sessions.last_notification(),
        WorkerStore(tx).counter(NOTIFICATIONS),
    )
    return SessionState(has_tasks=sessions.has_tasks(), last_notification=last_notification)


def paused_after(
    before: frozenset[str], decisions: Mapping[type[Decision], list[Any]]
) -> frozenset[str]:
    """Return the queues that are paused after these decisions."""
    for one in decisions.get(ChangeQueue, ()):
        before = before | {one.queue} if one.paused else before - {one.queue}
    return before
