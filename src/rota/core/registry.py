"""Who is in the registry, and what do registering, beating, leaving and silence lead to?"""

from collections.abc import Collection

import msgspec

from rota.core import attempts, valves, workers
from rota.core.decisions import (
    ChangeWorkerState,
    Decision,
    ForgetCancelled,
    NoteHeartbeat,
    NoteWatch,
    PutWorker,
    RemoveWorker,
)
from rota.core.events import Heartbeat, LeaveWorker, RegisterWorker, SetWorkerState
from rota.core.ids import TaskId
from rota.core.replies import Beat, Done, Registered
from rota.core.snapshot import Snapshot
from rota.core.valves import Watch
from rota.core.workers import Health, Worker
from rota.errors import StaleIncarnation, WorkerNotFound

SWEEP_INTERVAL_MS = 1_000
# How old the last note that a worker lives may be before a call of it is noted, too: this, or for
# quick beaters one of so many parts of their interval.
LIFE_NOTED_MS = 1_000
LIFE_NOTED_TIMES = 10


def current_worker(snapshot: Snapshot, worker_id: str, incarnation: int) -> Worker:
    """The worker, if this is its living incarnation and no zombie."""
    worker = snapshot.workers.get(worker_id)
    if worker is None:
        raise WorkerNotFound(worker_id)
    if worker.incarnation != incarnation:
        raise StaleIncarnation(worker_id, given=incarnation, current=worker.incarnation)
    return worker


def health_of(snapshot: Snapshot, worker: Worker) -> Health:
    return workers.health(
        age_ms=snapshot.now_ms - worker.last_heartbeat_ms,
        interval_ms=worker.heartbeat_interval_ms,
        policy=snapshot.rules.health,
    )


def register(snapshot: Snapshot, event: RegisterWorker) -> tuple[list[Decision], Registered]:
    """A worker arrives, or comes back: what its earlier incarnation held moves on at once."""
    decisions: list[Decision] = []
    before = snapshot.workers.get(event.worker_id)
    if before is not None and before.incarnation == event.incarnation:
        return _go_on(snapshot, before, event)
    if before is not None:
        decisions += attempts.lose(snapshot, before.incarnation, worker_id=before.id)
        # Nobody is left to be told.
        told = snapshot.to_cancel.get(before.incarnation, set())
        decisions += forget_cancelled(snapshot, before.incarnation, told)

    fleet = snapshot.fleet + (before is None)
    worker = Worker(
        id=event.worker_id,
        incarnation=snapshot.next_incarnation,
        node_id=event.node_id,
        capabilities=event.capabilities,
        max_concurrent_tasks=event.max_concurrent_tasks,
        tasks=event.tasks,
        queues=event.queues,
        heartbeat_interval_ms=workers.stretched_interval_ms(event.heartbeat_interval_ms, fleet),
        group=event.group,
        labels=event.labels,
        last_heartbeat_ms=snapshot.now_ms,
        started_at_ms=snapshot.now_ms,
    )
    snapshot.next_incarnation += 1
    snapshot.fleet = fleet
    snapshot.workers[worker.id] = worker
    snapshot.held[worker.incarnation] = 0
    decisions.append(PutWorker(worker))
    return decisions, Registered(worker, _lease_ms(snapshot, worker))


def _go_on(
    snapshot: Snapshot, before: Worker, event: RegisterWorker
) -> tuple[list[Decision], Registered]:
    """The same process over another connection: it keeps what it holds."""
    worker = msgspec.structs.replace(
        before,
        node_id=event.node_id,
        capabilities=event.capabilities,
        max_concurrent_tasks=event.max_concurrent_tasks,
        tasks=event.tasks,
        queues=event.queues,
        group=event.group,
        labels=event.labels,
        last_heartbeat_ms=snapshot.now_ms,
    )
    snapshot.workers[worker.id] = worker
    return [PutWorker(worker)], Registered(worker, _lease_ms(snapshot, worker))


def _lease_ms(snapshot: Snapshot, worker: Worker) -> int:
    return workers.lease_ms(worker.heartbeat_interval_ms, snapshot.rules.health)


def beat(snapshot: Snapshot, event: Heartbeat) -> tuple[list[Decision], Beat]:
    """Note that a worker lives, and tell it what it should know."""
    worker = current_worker(snapshot, event.worker_id, event.incarnation)
    decisions: list[Decision] = [NoteHeartbeat(worker.id, snapshot.now_ms, event.load)]

    told = snapshot.to_cancel.get(worker.incarnation, set())
    lost: list[TaskId] = []
    if event.running is not None:
        running = set(event.running)
        # One it no longer runs, it has let go of; there is nothing more to tell after this.
        decisions += forget_cancelled(snapshot, worker.incarnation, told - running)
        lost = [
            task_id
            for task_id in event.running
            if task_id not in told and not _holds(snapshot, worker, task_id)
        ]
        decisions += _release_unclaimed(snapshot, worker, running)

    snapshot.workers[worker.id] = msgspec.structs.replace(worker, last_heartbeat_ms=snapshot.now_ms)
    return decisions, Beat(
        health=Health.HEALTHY,
        state=worker.state,
        cancel=tuple(sorted(told)),
        lost=tuple(lost),
        heartbeat_interval_ms=worker.heartbeat_interval_ms,
        lease_ms=_lease_ms(snapshot, worker),
    )


def forget_cancelled(
    snapshot: Snapshot, incarnation: int, task_ids: Collection[TaskId]
) -> list[Decision]:
    if not task_ids:
        return []
    snapshot.to_cancel[incarnation] = snapshot.to_cancel[incarnation].difference(task_ids)
    return [ForgetCancelled(incarnation, task_id) for task_id in sorted(task_ids)]


def _holds(snapshot: Snapshot, worker: Worker, task_id: TaskId) -> bool:
    lease = snapshot.leases.get(task_id)
    return lease is not None and lease.incarnation == worker.incarnation


def _release_unclaimed(snapshot: Snapshot, worker: Worker, running: set[TaskId]) -> list[Decision]:
    """Leases whose answer was lost on its way: the worker never lists them as running."""
    oldest_ms = max(snapshot.rules.unclaimed_lease_ms, _lease_ms(snapshot, worker))
    unclaimed = [
        lease
        for lease in attempts.leases_of(snapshot, worker.incarnation)
        if lease.id not in running and snapshot.now_ms - lease.started_at_ms > oldest_ms
    ]
    return attempts.release(snapshot, unclaimed, worker_id=worker.id)


def sign_of_life(snapshot: Snapshot, worker: Worker) -> list[Decision]:
    """Any call of a worker proves that it lives, as a beat does; now and then it is noted.

    Were each noted, a call that changes nothing else would cost a commit. So silence is counted
    from a little too early where it follows calls and no beat; beats are noted each time.
    """
    known_for_ms = min(LIFE_NOTED_MS, worker.heartbeat_interval_ms // LIFE_NOTED_TIMES)
    if snapshot.now_ms - worker.last_heartbeat_ms <= known_for_ms:
        return []
    snapshot.workers[worker.id] = msgspec.structs.replace(worker, last_heartbeat_ms=snapshot.now_ms)
    return [NoteHeartbeat(worker.id, snapshot.now_ms)]


def leave(snapshot: Snapshot, event: LeaveWorker) -> tuple[list[Decision], Done]:
    """A worker goes in good order: its leases are released at once, no attempt used up."""
    worker = snapshot.workers.get(event.worker_id)
    if worker is None:
        raise WorkerNotFound(event.worker_id)
    if event.incarnation is not None:
        current_worker(snapshot, event.worker_id, event.incarnation)
    held = attempts.leases_of(snapshot, worker.incarnation)
    decisions = attempts.release(snapshot, held, worker_id=worker.id)
    return [*decisions, _removed(snapshot, worker, "left")], Done(len(held))


def _removed(snapshot: Snapshot, worker: Worker, reason: str) -> RemoveWorker:
    del snapshot.workers[worker.id]
    snapshot.fleet -= 1
    return RemoveWorker(worker.id, worker.incarnation, reason)


def set_state(snapshot: Snapshot, event: SetWorkerState) -> tuple[list[Decision], Registered]:
    worker = snapshot.workers.get(event.worker_id)
    if worker is None:
        raise WorkerNotFound(event.worker_id)
    changed = msgspec.structs.replace(worker, state=event.state)
    snapshot.workers[worker.id] = changed
    reply = Registered(changed, _lease_ms(snapshot, changed))
    if event.state is worker.state:
        return [], reply
    return [ChangeWorkerState(worker.id, worker.incarnation, event.state)], reply


def sweep(snapshot: Snapshot) -> tuple[list[Decision], Done]:
    """Let go of the workers that are gone, unless it is more likely that we were."""
    watch = _watched(snapshot)
    dying = [
        worker
        for worker in snapshot.workers.values()
        if _is_dead(snapshot, watch, worker, at_ms=snapshot.now_ms)
        and _is_confirmed(snapshot, watch, worker)
    ]
    verdict = valves.evictions(
        dying,
        fleet=snapshot.fleet,
        held_since_ms=watch.held_since_ms,
        now_ms=snapshot.now_ms,
        policy=snapshot.rules.valves,
    )
    decisions = _put_back_in_time(snapshot)
    for worker_id in verdict.evict:
        worker = snapshot.workers[worker_id]
        decisions += attempts.lose(snapshot, worker.incarnation, worker_id=worker_id)
        decisions.append(_removed(snapshot, worker, "unhealthy"))
    watch = msgspec.structs.replace(watch, held_since_ms=verdict.held_since_ms)
    decisions.append(NoteWatch(watch, verdict.reason))
    return decisions, Done(len(verdict.evict))


def _is_dead(snapshot: Snapshot, watch: Watch, worker: Worker, *, at_ms: int) -> bool:
    is_silent = at_ms - worker.last_heartbeat_ms > _lease_ms(snapshot, worker)
    return is_silent and at_ms >= _amnesty_until_ms(snapshot, watch, worker)


def _is_confirmed(snapshot: Snapshot, watch: Watch, worker: Worker) -> bool:
    """Whether no pause of our own, too short to be noticed, can be what kept a worker unheard.

    A slow beater outlasts such a pause. With a quick one the sweep before must agree: what it sent
    while we were away has been heard by now.
    """
    unnoticed_ms = snapshot.rules.valves.pause_sweeps * SWEEP_INTERVAL_MS
    if _lease_ms(snapshot, worker) - worker.heartbeat_interval_ms > unnoticed_ms:
        return True
    previous_ms = snapshot.watch.previous_sweep_ms
    return previous_ms is not None and _is_dead(snapshot, watch, worker, at_ms=previous_ms)


def _put_back_in_time(snapshot: Snapshot) -> list[Decision]:
    """After the clock was set back, a beat from the future would keep a dead worker alive."""
    return [
        NoteHeartbeat(worker.id, snapshot.now_ms)
        for worker in snapshot.workers.values()
        if worker.last_heartbeat_ms > snapshot.now_ms
    ]


def _watched(snapshot: Snapshot) -> Watch:
    """The watch as of this sweep: was this coordinator itself away since the last one?"""
    before = snapshot.watch
    is_back = valves.was_paused(
        previous_sweep_ms=before.previous_sweep_ms,
        now_ms=snapshot.now_ms,
        sweep_interval_ms=SWEEP_INTERVAL_MS,
        policy=snapshot.rules.valves,
    )
    return Watch(
        previous_sweep_ms=snapshot.now_ms,
        # A moment in the future is from before the clock was set back; it would hold for ever.
        resumed_at_ms=snapshot.now_ms if is_back else min(before.resumed_at_ms, snapshot.now_ms),
        held_since_ms=before.held_since_ms,
    )


def _amnesty_until_ms(snapshot: Snapshot, watch: Watch, worker: Worker) -> int:
    # In fleets of any size: whoever could not be heard because we were away is not to blame.
    return valves.amnesty_until_ms(
        resumed_at_ms=watch.resumed_at_ms, lease_ms=_lease_ms(snapshot, worker)
    )
