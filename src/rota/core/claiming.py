"""Who gets the work that waits?

A worker asks for at most so many tasks; what it may have is bounded by its free capacity and the
lanes it can serve. Workers that can serve the same open lanes and ask at the same moment are one
group, and the group's share of the queue's head is dealt out by the strategy: not first come,
first served, but best first.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from rota.core import breakers, choosing, scoring, statistics
from rota.core.choosing import Candidate
from rota.core.decisions import LeaseTask
from rota.core.events import LeaseWork
from rota.core.ids import TaskId
from rota.core.registry import current_worker, health_of
from rota.core.snapshot import Quality, Snapshot
from rota.core.tasks import Lane, Task, TaskState
from rota.core.workers import Health, Worker, WorkerState, can_serve


class Claim(Struct, frozen=True, kw_only=True):
    """What one worker may have now."""

    worker: Worker
    free: int
    lanes: tuple[int, ...]
    probes: tuple[int, ...] = ()  # lanes whose breaker is half open: one task, to see


def claim(
    snapshot: Snapshot, event: LeaseWork, open_lanes: Mapping[int, Lane], *, promised: int = 0
) -> Claim:
    """Bound a worker's wish by its state, its capacity, and what it can serve.

    `promised` is what other calls of the same worker may get at this moment: together they must
    not pass its capacity.
    """
    worker = current_worker(snapshot, event.worker_id, event.incarnation)
    taken = snapshot.held.get(worker.incarnation, 0) + promised
    free = min(event.most, worker.max_concurrent_tasks - taken)
    # One whose call waits while it has fallen silent may be gone; its next beat brings it back.
    is_heard_of = health_of(snapshot, worker) is Health.HEALTHY
    if free <= 0 or worker.state is not WorkerState.ACTIVE or not is_heard_of:
        return Claim(worker=worker, free=0, lanes=())

    lanes: list[int] = []
    probes: list[int] = []
    for number, lane in open_lanes.items():
        if not can_serve(worker, queue=lane.queue, name=lane.name, requires=lane.requires):
            continue
        quality = snapshot.qualities.get((worker.id, lane.name))
        allowed = None
        if quality is not None:
            allowed = breakers.allowance(
                quality.breaker, now_ms=snapshot.now_ms, policy=snapshot.rules.breaker
            )
        if allowed is None:
            lanes.append(number)
        elif allowed > 0:
            probes.append(number)
    return Claim(worker=worker, free=free, lanes=tuple(lanes), probes=tuple(probes))


def turn(task: Task) -> tuple[int, TaskId]:
    """Tasks come in the order of this: higher priority first, then first come."""
    return -task.priority, task.id


def groups(claims: Sequence[Claim]) -> list[list[Claim]]:
    """Claims on the same lanes share one head of the queue."""
    by_lanes: dict[tuple[int, ...], list[Claim]] = {}
    for one in claims:
        if one.free > 0 and one.lanes:
            by_lanes.setdefault(one.lanes, []).append(one)
    return list(by_lanes.values())


def candidate(
    snapshot: Snapshot, one: Claim, qualities: Mapping[str, Quality], *, last_chosen: int
) -> Candidate:
    worker = one.worker
    maximum = worker.max_concurrent_tasks
    merits = scoring.score(
        free=max(0, maximum - snapshot.held.get(worker.incarnation, 0)),
        maximum=maximum,
        statistics=statistics.combine(
            (quality.statistics for quality in qualities.values()), now_ms=snapshot.now_ms
        ),
        age_ms=snapshot.now_ms - worker.started_at_ms,
        policy=snapshot.rules.scoring,
    )
    return Candidate(
        worker_id=worker.id, free=one.free, maximum=maximum, score=merits, last_chosen=last_chosen
    )


def deal(
    snapshot: Snapshot,
    head: Sequence[Task],
    group: Sequence[Claim],
    candidates: Sequence[Candidate],
) -> list[list[LeaseTask]]:
    """Give the tasks at the head of the queue to the group; a list of leases a claim."""
    if len(group) == 1:
        return [lease_all(snapshot, head[: group[0].free], group[0].worker)]
    shares = choosing.share(
        len(head),
        candidates,
        strategy=snapshot.rules.strategy,
        dice=lambda sides: int(snapshot.dice() * sides),
    )
    dealt: list[list[Task]] = [[] for _ in group]
    for task, index in zip(head, shares, strict=False):
        dealt[index].append(task)
    return [lease_all(snapshot, tasks, one.worker) for tasks, one in zip(dealt, group, strict=True)]


def lease_all(snapshot: Snapshot, tasks: Sequence[Task], worker: Worker) -> list[LeaseTask]:
    now_ms, incarnation = snapshot.now_ms, worker.incarnation
    snapshot.held[incarnation] = snapshot.held.get(incarnation, 0) + len(tasks)
    return [
        LeaseTask(
            task.id,
            TaskState.QUEUED,
            incarnation,
            task.fence + 1,
            task.attempt + 1,
            now_ms,
            None if task.options.timeout_ms is None else now_ms + task.options.timeout_ms,
        )
        for task in tasks
    ]
