"""Matches queued tasks to lease calls.

A worker asks for at most so many tasks; its free capacity and the lanes that it can serve bound
what it gets. Workers that can serve the same open lanes and ask at the same moment are one group,
and the strategy divides the head of the queue among them: not first come, first served, but best
first.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct, structs

from rota.core.commands import LeaseWork
from rota.core.context import Context
from rota.core.decisions import LeaseTask
from rota.core.ids import TaskId
from rota.core.snapshot import Quality, Snapshot
from rota.core.tasks.model import Lane, Lease, TaskRecord, TaskState
from rota.core.workers import circuit_breaker, scoring, selection, statistics
from rota.core.workers.model import Health, WorkerRecord, WorkerState, can_serve
from rota.core.workers.registry import current_worker, health_of
from rota.core.workers.selection import Candidate


class LeaseCall(Struct, frozen=True, kw_only=True):
    """The tasks that one worker may have now."""

    worker: WorkerRecord
    free: int
    lanes: tuple[int, ...]
    probes: tuple[int, ...] = ()  # lanes whose breaker is half open: one task, to see


def claim(
    snapshot: Snapshot,
    command: LeaseWork,
    open_lanes: Mapping[int, Lane],
    context: Context,
    *,
    promised: int = 0,
) -> LeaseCall:
    """Bound a worker's request by its state, its capacity, and the lanes that it can serve.

    `promised` is the number of tasks that other calls of the same worker may get at this moment:
    together they must not exceed its capacity.
    """
    worker = current_worker(snapshot, command.worker_id, command.incarnation)
    taken = snapshot.held.get(worker.incarnation, 0) + promised
    free = min(command.most, worker.max_concurrent_tasks - taken)
    # A worker that fell silent while its call waits may be gone. Its next heartbeat brings it back.
    is_healthy = health_of(worker, context) is Health.HEALTHY
    if free <= 0 or worker.state is not WorkerState.ACTIVE or not is_healthy:
        return LeaseCall(worker=worker, free=0, lanes=())

    lanes: list[int] = []
    probes: list[int] = []
    for number, lane in open_lanes.items():
        if not can_serve(worker, queue=lane.queue, name=lane.name, requires=lane.requires):
            continue
        quality = snapshot.qualities.get((worker.id, lane.name))
        allowed = None
        if quality is not None:
            allowed = circuit_breaker.allowance(
                quality.breaker, now_ms=context.now_ms, policy=context.rules.breaker
            )
        if allowed is None:
            lanes.append(number)
        elif allowed > 0:
            probes.append(number)
    return LeaseCall(worker=worker, free=free, lanes=tuple(lanes), probes=tuple(probes))


def leases_to_repeat(
    calls: Sequence[LeaseWork], held: Mapping[int, Sequence[Lease]], *, now_ms: int
) -> dict[int, list[TaskId]]:
    """The leases that are granted again: by the number of the call, in the order of the leases.

    The answer to an earlier call has been lost if the worker holds a lease that none of its calls
    of this batch lists. Its newest call gets it again. `held` has the leases by incarnation, from
    before this batch grants any: no call can list those.
    """
    newest: dict[int, int] = {}
    listed: dict[int, set[TaskId]] = {}
    for number, call in enumerate(calls):
        if call.running is not None:
            newest[call.incarnation] = number
            listed.setdefault(call.incarnation, set()).update(call.running)
    return {
        number: [
            lease.id
            for lease in held.get(incarnation, ())
            if lease.id not in listed[incarnation]
            and (lease.deadline_ms is None or lease.deadline_ms > now_ms)
        ][: calls[number].most]
        for incarnation, number in newest.items()
    }


def turn(task: TaskRecord) -> tuple[int, TaskId]:
    """The sort key of queued tasks: higher priority first, then first come.

    A priority that ages has been turned into a rank when the task was submitted.
    """
    return -task.priority if task.rank is None else task.rank, task.id


def groups(calls: Sequence[LeaseCall]) -> list[list[LeaseCall]]:
    """The calls grouped by lanes: each group shares one head of the queue."""
    by_lanes: dict[tuple[int, ...], list[LeaseCall]] = {}
    for one in calls:
        if one.free > 0 and one.lanes:
            by_lanes.setdefault(one.lanes, []).append(one)
    return list(by_lanes.values())


def candidate(
    snapshot: Snapshot,
    one: LeaseCall,
    qualities: Mapping[str, Quality],
    context: Context,
    *,
    last_chosen: int,
) -> Candidate:
    worker = one.worker
    maximum = worker.max_concurrent_tasks
    merits = scoring.score(
        free=max(0, maximum - snapshot.held.get(worker.incarnation, 0)),
        maximum=maximum,
        statistics=statistics.combine(
            (quality.statistics for quality in qualities.values()), now_ms=context.now_ms
        ),
        age_ms=context.now_ms - worker.started_at_ms,
        policy=context.rules.scoring,
    )
    return Candidate(
        worker_id=worker.id, free=one.free, maximum=maximum, score=merits, last_chosen=last_chosen
    )


def assign(
    snapshot: Snapshot,
    head: Sequence[TaskRecord],
    group: Sequence[LeaseCall],
    candidates: Sequence[Candidate],
    context: Context,
    *,
    preferred: Mapping[TaskId, int] = MappingProxyType({}),
) -> list[list[LeaseTask]]:
    """Divide the head of the queue among the group; one list of leases for each call.

    `preferred` has the incarnation of the worker that a task should go to, if that one has room.
    """
    if len(group) == 1:
        return [lease_all(snapshot, head[: group[0].free], group[0].worker, context)]
    assigned: list[list[TaskRecord]] = [[] for _ in group]
    if preferred:
        head, candidates = _assign_preferred(head, group, candidates, assigned, preferred)
    shares = selection.share(
        len(head),
        candidates,
        strategy=context.rules.strategy,
        dice=lambda sides: int(context.dice() * sides),
    )
    for task, index in zip(head, shares, strict=False):
        assigned[index].append(task)
    pairs = zip(assigned, group, strict=True)
    return [lease_all(snapshot, tasks, call.worker, context) for tasks, call in pairs]


def _assign_preferred(
    head: Sequence[TaskRecord],
    group: Sequence[LeaseCall],
    candidates: Sequence[Candidate],
    assigned: list[list[TaskRecord]],
    preferred: Mapping[TaskId, int],
) -> tuple[list[TaskRecord], list[Candidate]]:
    """Give tasks to the workers that they prefer; return the other tasks, and the room left."""
    places = {call.worker.incarnation: place for place, call in enumerate(group)}
    left: list[TaskRecord] = []
    for task in head:
        place = places.get(preferred.get(task.id, 0))
        if place is not None and len(assigned[place]) < group[place].free:
            assigned[place].append(task)
        else:
            left.append(task)
    room = [
        structs.replace(one, free=one.free - len(assigned[place]))
        for place, one in enumerate(candidates)
    ]
    return left, room


def lease_all(
    snapshot: Snapshot, tasks: Sequence[TaskRecord], worker: WorkerRecord, context: Context
) -> list[LeaseTask]:
    now_ms, incarnation, queued = context.now_ms, worker.incarnation, TaskState.QUEUED
    snapshot.held[incarnation] = snapshot.held.get(incarnation, 0) + len(tasks)
    return [
        LeaseTask(
            task.id,
            queued,
            incarnation,
            task.fence + 1,
            task.attempt + 1,
            now_ms,
            None if task.options.timeout_ms is None else now_ms + task.options.timeout_ms,
        )
        for task in tasks
    ]
