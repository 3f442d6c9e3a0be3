"""The worker registry: registration, heartbeats, leaving, and removal of silent workers."""

from collections.abc import Collection
from typing import Any, Literal

import msgspec

from rota.core import access
from rota.core.access import Caller
from rota.core.commands import BeatWorker, LeaveWorker, RegisterWorker, SetWorkerState
from rota.core.context import Context
from rota.core.decisions import (
    ChangeWorkerState,
    Decision,
    ForgetCancelled,
    NoteHeartbeat,
    NoteWatch,
    PutWorker,
    RemoveWorker,
)
from rota.core.ids import TaskId
from rota.core.replies import Beat, Done, Registered
from rota.core.snapshot import Snapshot
from rota.core.tasks import attempts
from rota.core.workers import eviction_guards, model
from rota.core.workers.eviction_guards import SweepState
from rota.core.workers.model import Health, WorkerRecord
from rota.errors import Forbidden, StaleIncarnation, TooMany, WorkerNotFound

SWEEP_INTERVAL_MS = 1_000
# A call of a worker is noted as a heartbeat when the last one noted is older than this, or, for
# short intervals, than this part of the interval.
LIFE_NOTED_MS = 1_000
LIFE_NOTED_TIMES = 10


def current_worker(
    snapshot: Snapshot, worker_id: str, incarnation: int | None, *, by: Caller | None = None
) -> WorkerRecord:
    """The worker, if this is its current incarnation and the caller owns it.

    The owner is checked first: another tenant must not learn the current incarnation.
    """
    worker = snapshot.workers.get(worker_id)
    if worker is None:
        raise WorkerNotFound(worker_id)
    if by is not None:
        check_owner(worker, by)
    if incarnation is not None and worker.incarnation != incarnation:
        raise StaleIncarnation(worker_id, given=incarnation, current=worker.incarnation)
    return worker


def check_owner(worker: WorkerRecord, by: Caller | None) -> None:
    """Refuse a caller that speaks for a worker which another binding registered."""
    if access.is_owner(by, worker.owner):
        return
    assert by is not None
    if worker.owner is None and _is_within(worker.queues, by.queues):
        return
    raise Forbidden(
        f"worker {worker.id!r} was registered with a token of another binding; use a token with "
        "that binding, or another worker id",
        worker_id=worker.id,
    )


def _is_within(served: tuple[str, ...] | None, own: tuple[str, ...] | None) -> bool:
    if own is None:
        return True
    return served is not None and set(own).issuperset(served)


def health_of(worker: WorkerRecord, context: Context) -> Health:
    return model.health(
        age_ms=context.now_ms - worker.last_heartbeat_ms,
        interval_ms=worker.heartbeat_interval_ms,
        policy=context.rules.health,
    )


def register(
    snapshot: Snapshot, command: RegisterWorker, context: Context
) -> tuple[list[Decision], Registered]:
    """Register a worker. The tasks of its earlier incarnation move on at once."""
    decisions: list[Decision] = []
    before = snapshot.workers.get(command.worker_id)
    if before is not None:
        check_owner(before, command.by)
    if before is not None and before.incarnation == command.incarnation:
        return _go_on(snapshot, before, command, context)
    if before is not None:
        decisions += attempts.lose(snapshot, before.incarnation, context, worker_id=before.id)
        # The earlier incarnation is gone, so its notifications are dropped.
        cancelled = snapshot.to_cancel.get(before.incarnation, set())
        decisions += forget_cancelled(snapshot, before.incarnation, cancelled)

    fleet = snapshot.fleet + (before is None)
    most = context.rules.max_workers
    if before is None and fleet > most:
        raise TooMany(
            f"{most} workers are registered, which is the limit; raise max_workers, or stop some",
            limit=most,
            setting="max_workers",
        )
    worker = WorkerRecord(
        id=command.worker_id,
        incarnation=snapshot.next_incarnation,
        heartbeat_interval_ms=model.stretched_interval_ms(command.heartbeat_interval_ms, fleet),
        started_at_ms=context.now_ms,
        **_registration(command, context),
    )
    snapshot.next_incarnation += 1
    snapshot.fleet = fleet
    snapshot.workers[worker.id] = worker
    snapshot.held[worker.incarnation] = 0
    decisions.append(PutWorker(worker))
    return decisions, Registered(worker, _lease_ms(worker, context))


def _go_on(
    snapshot: Snapshot, before: WorkerRecord, command: RegisterWorker, context: Context
) -> tuple[list[Decision], Registered]:
    """Renew the registration of a process that came over another connection; its leases stay."""
    worker = msgspec.structs.replace(before, **_registration(command, context))
    snapshot.workers[worker.id] = worker
    return [PutWorker(worker)], Registered(worker, _lease_ms(worker, context))


def _registration(command: RegisterWorker, context: Context) -> dict[str, Any]:
    """The fields of a worker that every registration sets."""
    return {
        "node_id": command.node_id,
        "capabilities": command.capabilities,
        "max_concurrent_tasks": command.max_concurrent_tasks,
        "tasks": command.tasks,
        "queues": command.queues,
        "group": command.group,
        "labels": command.labels,
        "last_heartbeat_ms": context.now_ms,
        "owner": access.owner_of(command.by),
    }


def _lease_ms(worker: WorkerRecord, context: Context) -> int:
    return model.lease_ms(worker.heartbeat_interval_ms, context.rules.health)


def beat(snapshot: Snapshot, command: BeatWorker, context: Context) -> tuple[list[Decision], Beat]:
    """Take up a heartbeat; the answer lists the tasks that the worker has to stop."""
    worker = current_worker(snapshot, command.worker_id, command.incarnation, by=command.by)
    decisions: list[Decision] = [NoteHeartbeat(worker.id, context.now_ms, command.load)]

    cancelled = snapshot.to_cancel.get(worker.incarnation, set())
    lost: list[TaskId] = []
    if command.running is not None:
        running = set(command.running)
        # The worker has stopped those that it no longer runs. This is the last notification.
        decisions += forget_cancelled(snapshot, worker.incarnation, cancelled - running)
        lost = [
            task_id
            for task_id in command.running
            if task_id not in cancelled and not _holds(snapshot, worker, task_id)
        ]
        decisions += _release_unclaimed(snapshot, worker, running, context)

    snapshot.workers[worker.id] = msgspec.structs.replace(worker, last_heartbeat_ms=context.now_ms)
    return decisions, Beat(
        health=Health.HEALTHY,
        state=worker.state,
        cancel=tuple(sorted(cancelled)),
        lost=tuple(lost),
        heartbeat_interval_ms=worker.heartbeat_interval_ms,
        lease_ms=_lease_ms(worker, context),
    )


def forget_cancelled(
    snapshot: Snapshot, incarnation: int, task_ids: Collection[TaskId]
) -> list[Decision]:
    if not task_ids:
        return []
    snapshot.to_cancel[incarnation] = snapshot.to_cancel[incarnation].difference(task_ids)
    return [ForgetCancelled(incarnation, task_id) for task_id in sorted(task_ids)]


def _holds(snapshot: Snapshot, worker: WorkerRecord, task_id: TaskId) -> bool:
    lease = snapshot.leases.get(task_id)
    return lease is not None and lease.incarnation == worker.incarnation


def _release_unclaimed(
    snapshot: Snapshot, worker: WorkerRecord, running: set[TaskId], context: Context
) -> list[Decision]:
    """Release leases whose answer was lost: the worker does not list them as running."""
    oldest_ms = max(context.rules.unclaimed_lease_ms, _lease_ms(worker, context))
    unclaimed = [
        lease
        for lease in attempts.leases_of(snapshot, worker.incarnation)
        if lease.id not in running and context.now_ms - lease.started_at_ms > oldest_ms
    ]
    return attempts.release(snapshot, unclaimed, context, worker_id=worker.id)


def sign_of_life(snapshot: Snapshot, worker: WorkerRecord, context: Context) -> list[Decision]:
    """Note a call of a worker as a heartbeat, now and then.

    If each was noted, a call that changes nothing else would cost a commit. Heartbeats themselves
    are noted each time.
    """
    known_for_ms = min(LIFE_NOTED_MS, worker.heartbeat_interval_ms // LIFE_NOTED_TIMES)
    if context.now_ms - worker.last_heartbeat_ms <= known_for_ms:
        return []
    snapshot.workers[worker.id] = msgspec.structs.replace(worker, last_heartbeat_ms=context.now_ms)
    return [NoteHeartbeat(worker.id, context.now_ms)]


def leave(
    snapshot: Snapshot, command: LeaveWorker, context: Context
) -> tuple[list[Decision], Done]:
    """Remove a worker that leaves. Its leases are released, and no attempt is used up."""
    worker = current_worker(snapshot, command.worker_id, command.incarnation, by=command.by)
    held = attempts.leases_of(snapshot, worker.incarnation)
    decisions = attempts.release(snapshot, held, context, worker_id=worker.id)
    return [*decisions, _removed(snapshot, worker, "left")], Done(len(held))


def _removed(
    snapshot: Snapshot, worker: WorkerRecord, reason: Literal["left", "unhealthy"]
) -> RemoveWorker:
    del snapshot.workers[worker.id]
    snapshot.fleet -= 1
    return RemoveWorker(worker.id, worker.incarnation, reason, worker.queues)


def set_state(
    snapshot: Snapshot, command: SetWorkerState, context: Context
) -> tuple[list[Decision], Registered]:
    worker = snapshot.workers.get(command.worker_id)
    if worker is None:
        raise WorkerNotFound(command.worker_id)
    lease_ms = _lease_ms(worker, context)
    if command.state is worker.state:
        return [], Registered(worker, lease_ms)
    changed = msgspec.structs.replace(worker, state=worker.state.to(command.state))
    snapshot.workers[worker.id] = changed
    decision = ChangeWorkerState(worker.id, worker.incarnation, changed.state)
    return [decision], Registered(changed, lease_ms)


def sweep(snapshot: Snapshot, context: Context) -> tuple[list[Decision], Done]:
    """Remove silent workers, unless the coordinator itself was likely paused."""
    watch = _watched(snapshot.watch, context)
    dying = [
        worker
        for worker in snapshot.workers.values()
        if _is_dead(watch, worker, context, at_ms=context.now_ms)
        and _is_confirmed(snapshot, watch, worker, context)
    ]
    verdict = eviction_guards.evictions(
        dying,
        fleet=snapshot.fleet,
        held_since_ms=watch.held_since_ms,
        now_ms=context.now_ms,
        policy=context.rules.eviction,
    )
    decisions = _put_back_in_time(snapshot, context)
    for worker_id in verdict.evict:
        worker = snapshot.workers[worker_id]
        decisions += attempts.lose(snapshot, worker.incarnation, context, worker_id=worker_id)
        decisions.append(_removed(snapshot, worker, "unhealthy"))
    watch = msgspec.structs.replace(watch, held_since_ms=verdict.held_since_ms)
    decisions.append(NoteWatch(watch, verdict.reason))
    return decisions, Done(len(verdict.evict))


def _is_dead(watch: SweepState, worker: WorkerRecord, context: Context, *, at_ms: int) -> bool:
    is_silent = at_ms - worker.last_heartbeat_ms > _lease_ms(worker, context)
    return is_silent and at_ms >= _amnesty_until_ms(watch, worker, context)


def _is_confirmed(
    snapshot: Snapshot, watch: SweepState, worker: WorkerRecord, context: Context
) -> bool:
    """Whether no unnoticed short pause of the coordinator can explain a worker's silence.

    A worker with a long lease outlasts such a pause. For a short one the sweep before must agree:
    heartbeats sent during the pause have been read by now.
    """
    unnoticed_ms = context.rules.eviction.pause_sweeps * SWEEP_INTERVAL_MS
    if _lease_ms(worker, context) - worker.heartbeat_interval_ms > unnoticed_ms:
        return True
    previous_ms = snapshot.watch.previous_sweep_ms
    return previous_ms is not None and _is_dead(watch, worker, context, at_ms=previous_ms)


def _put_back_in_time(snapshot: Snapshot, context: Context) -> list[Decision]:
    """Move heartbeats that are in the future, since the clock was set back, to now."""
    return [
        NoteHeartbeat(worker.id, context.now_ms)
        for worker in snapshot.workers.values()
        if worker.last_heartbeat_ms > context.now_ms
    ]


def _watched(before: SweepState, context: Context) -> SweepState:
    """The sweep state as of this sweep, with whether this coordinator itself was paused."""
    is_back = eviction_guards.was_paused(
        previous_sweep_ms=before.previous_sweep_ms,
        now_ms=context.now_ms,
        sweep_interval_ms=SWEEP_INTERVAL_MS,
        policy=context.rules.eviction,
    )
    return SweepState(
        previous_sweep_ms=context.now_ms,
        # A moment in the future is from before the clock was set back, and would hold evictions.
        resumed_at_ms=context.now_ms if is_back else min(before.resumed_at_ms, context.now_ms),
        held_since_ms=before.held_since_ms,
    )


def _amnesty_until_ms(watch: SweepState, worker: WorkerRecord, context: Context) -> int:
    # In fleets of any size: no worker is blamed for heartbeats that the coordinator missed.
    return eviction_guards.amnesty_until_ms(
        resumed_at_ms=watch.resumed_at_ms, lease_ms=_lease_ms(worker, context)
    )
