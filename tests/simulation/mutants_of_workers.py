"""Broken rules about workers, and about what they are given."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from rota.core.commands import LeaseWork, ReportResults, Result
from rota.core.context import Context
from rota.core.decisions import LeaseTask, PutWorker
from rota.core.dispatch import matching
from rota.core.snapshot import Snapshot
from rota.core.tasks import attempts
from rota.core.tasks.model import Lane, TaskRecord, TaskState
from rota.core.workers import eviction_guards, registry
from rota.core.workers.model import HealthPolicy, WorkerRecord, WorkerState
from rota.engine import coordinator, policies
from rota.engine.dispatch import dispatch_domain
from rota.engine.working_set.held_workers import HeldWorkers
from rota.engine.working_set.lane_windows import LaneWindows
from rota.errors import WorkerNotFound
from rota.store.database import Transaction
from rota.store.tasks import bulk
from rota.store.tasks.tasks import TaskStore
from tests.simulation import profiles
from tests.simulation.mutation import Mutants, skipping
from tests.simulation.profiles import Profile

MUTANTS = Mutants[Profile](seeds=10)
mutant = MUTANTS.add

FAR_MS = 10**10


# --- fences and incarnations --------------------------------------------------------------------


@mutant(profiles.SLOW_HANDLERS, seeds=40)
def no_fence() -> Iterator[None]:
    """A result is accepted under any fence, if only its worker holds the task."""
    report = attempts.report

    def careless(snapshot: Snapshot, command: ReportResults, context: Context) -> Any:
        def current(result: Result) -> Result:
            lease = snapshot.leases.get(result.task_id)
            return result if lease is None else replace(result, fence=lease.fence)

        results = [current(one) for one in command.results]
        return report(snapshot, replace(command, results=results), context)

    with patch.object(attempts, "report", careless):
        yield


@mutant(profiles.SLEEPING_WORKERS)
def no_incarnation() -> Iterator[None]:
    """A zombie is served like the worker that has taken its place."""

    def anyone(snapshot: Snapshot, worker_id: str, _incarnation: int, **_: object) -> WorkerRecord:
        worker = snapshot.workers.get(worker_id)
        if worker is None:
            raise WorkerNotFound(worker_id)
        return worker

    with (
        patch.object(registry, "current_worker", anyone),
        patch.object(matching, "current_worker", anyone),
    ):
        yield


@mutant(profiles.ROUGH_NETWORK)
def attempt_as_fence() -> Iterator[None]:
    """The fence is the number of the attempt: it does not rise when one is given back."""
    lease_all = matching.lease_all

    def counted(
        snapshot: Snapshot, tasks: Sequence[TaskRecord], worker: WorkerRecord, context: Context
    ) -> list[LeaseTask]:
        leases = lease_all(snapshot, tasks, worker, context)
        return [replace(one, fence=one.attempt) for one in leases]

    with patch.object(matching, "lease_all", counted):
        yield


@mutant(profiles.DYING_WORKERS)
def incarnations_reused() -> Iterator[None]:
    """The number of the last incarnation is not kept."""
    note_put = HeldWorkers.note_put

    def noted(self: HeldWorkers, decisions: Sequence[PutWorker]) -> None:
        note_put(self, decisions)
        self.last_incarnation = 0

    with skipping("workers.raise_counter"), patch.object(HeldWorkers, "note_put", noted):
        yield


# --- workers and their leases -------------------------------------------------------------------


@mutant(profiles.ROUGH_NETWORK)
def early_eviction() -> Iterator[None]:
    """One missed beat, and a worker is taken for dead."""
    rules_of = policies.policies_of

    def impatient(settings: Any) -> Any:
        health = HealthPolicy(degraded_after=1.0, unhealthy_after=1.0)
        return replace(rules_of(settings), health=health)

    with patch.object(coordinator, "policies_of", impatient):
        yield


@mutant(profiles.SLEEPING_COORDINATOR, seeds=60)
def no_amnesty() -> Iterator[None]:
    """The coordinator blames the workers for its own absence."""
    with patch.object(eviction_guards, "was_paused", lambda **_: False):
        yield


@mutant(profiles.SLEEPING_COORDINATOR, seeds=60)
def hasty_eviction() -> Iterator[None]:
    """A pause too short to be noticed counts as silence of quick workers."""
    with patch.object(registry, "_is_confirmed", lambda *_: True):
        yield


@mutant(profiles.DYING_WORKERS)
def lost_leases_stay() -> Iterator[None]:
    """A worker goes, and what it held stays with it."""
    with patch.object(attempts, "lose", lambda *_, **__: []):
        yield


@mutant(profiles.ROUGH_NETWORK)
def unclaimed_stay() -> Iterator[None]:
    """A lease whose answer was lost is waited for, for ever."""
    with patch.object(registry, "_release_unclaimed", lambda *_: []):
        yield


@mutant(profiles.ROUGH_NETWORK)
def capacity_ignored() -> Iterator[None]:
    """A worker gets as much as it asks for."""
    claim = matching.claim

    def generous(
        snapshot: Snapshot,
        command: LeaseWork,
        open_lanes: Mapping[int, Lane],
        context: Context,
        **_: object,
    ) -> matching.LeaseCall:
        held, snapshot.held = snapshot.held, {}
        try:
            return claim(snapshot, command, open_lanes, context)
        finally:
            snapshot.held = held

    with patch.object(matching, "claim", generous):
        yield


# --- leasing ------------------------------------------------------------------------------------


@mutant(profiles.CALM)
def double_grant() -> Iterator[None]:
    """A leased task stays in the queue as well."""
    leave = LaneWindows.note_left

    def stay(self: LaneWindows, tasks: Sequence[TaskRecord]) -> None:
        leave(self, [task for task in tasks if task.state is not TaskState.QUEUED])

    def stay_stored(*_: object, **__: object) -> None:
        pass

    with patch.object(LaneWindows, "note_left", stay), patch.object(bulk, "dequeue", stay_stored):
        yield


@mutant(profiles.CALM)
def pause_ignored() -> Iterator[None]:
    with patch.object(dispatch_domain, "paused_after", lambda *_: frozenset()):
        yield


@mutant(profiles.CALM)
def drain_ignored() -> Iterator[None]:
    """A worker that is to drain, or in quarantine, gets work like any other."""
    current_worker = registry.current_worker

    def active(snapshot: Snapshot, worker_id: str, incarnation: int) -> WorkerRecord:
        worker = current_worker(snapshot, worker_id, incarnation)
        return replace(worker, state=WorkerState.ACTIVE)

    with patch.object(matching, "current_worker", active):
        yield


@mutant(profiles.CALM)
def requirements_ignored() -> Iterator[None]:
    """Anybody gets anything."""
    with patch.object(matching, "can_serve", lambda *_, **__: True):
        yield


@mutant(profiles.CALM)
def priority_ignored() -> Iterator[None]:
    """First come, first served, whatever the priority."""
    head = LaneWindows.head

    def fair(self: LaneWindows, tx: Transaction, lanes: Any, most: int) -> list[TaskRecord]:
        return sorted(head(self, tx, lanes, 1_000), key=lambda task: task.id)[:most]

    with patch.object(LaneWindows, "head", fair):
        yield


@mutant(profiles.CALM)
def early_start() -> Iterator[None]:
    """What is scheduled for later is queued now."""
    due = TaskStore.due

    def hurried(self: TaskStore, now_ms: int, most: int) -> Any:
        return due(self, now_ms + FAR_MS, most)

    with patch.object(TaskStore, "due", hurried):
        yield
