"""What must be true of the store after every commit, and of every step from one to the next?

Rules on pictures alone. What callers were told is held against the store in `ledger`.
"""

from collections import Counter

from rota.core.tasks.model import Lane
from rota.core.tasks.unique import Release
from tests.simulation.picture import LeaseRow, LiveRow, Picture, WorkerRow
from tests.simulation.trace import Violation

JOB_INCARNATION = 0


def demand(claim: bool, text: str) -> None:  # noqa: FBT001 - read as a sentence
    if not claim:
        raise Violation(text)


def check_picture(now: Picture) -> None:
    _check_places(now)
    _check_leases(now)
    _check_released(now)


def _check_released(now: Picture) -> None:
    """A task holds the key by which it is unique no longer than it says."""
    for (_, key), (task_id, release) in now.held.items():
        demand(task_id in now.live, f"task {task_id:x} has ended and holds key {key!r}")
        is_late = release == Release.START and now.fence_of(task_id) > 0
        demand(not is_late, f"task {task_id:x} has started and holds key {key!r}")


def _check_places(now: Picture) -> None:
    """A live task stands in exactly one place; a finished one in history and nowhere else."""
    places = Counter[int]()
    for place in (now.ready, now.scheduled, now.leases):
        places.update(place.keys())
    for task_id in now.live:
        demand(places[task_id] == 1, f"live task {task_id:x} stands in {places[task_id]} places")
    demand(places.keys() == now.live.keys(), "something waits or runs that is no live task")
    both = now.live.keys() & now.history.keys()
    demand(not both, f"tasks {sorted(both)} are live and finished at once")


def _check_keys(now: Picture) -> None:
    """One key in one queue, one task: the one its key row names."""
    rows = [(row.lane, row.key, task_id) for task_id, row in now.live.items()]
    rows += [(row.lane, row.key, task_id) for task_id, row in now.history.items()]
    keyed = [(lane, key, task_id) for lane, key, task_id in rows if key is not None]
    for lane, key, task_id in keyed:
        found = now.keys.get((now.lanes[lane].queue, key))
        demand(found == task_id, f"key {key!r} does not lead to task {task_id:x}")
    kept = len(keyed)
    demand(len(now.keys) == kept, "a key leads to a task that is forgotten")


def _check_leases(now: Picture) -> None:
    """Leases belong to registered workers, within their capacity and their tasks' attempts."""
    strangers = now.notices - {row.incarnation for row in now.workers.values()}
    demand(not strangers, f"nobody is left to be told of cancellations: {strangers}")
    held = Counter(row.incarnation for row in now.leases.values())
    capacity = {
        row.incarnation: row.worker.max_concurrent_tasks
        for row in now.workers.values()
        if row.incarnation in held
    }
    for incarnation, count in held.items():
        if incarnation == JOB_INCARNATION:
            continue
        demand(incarnation in capacity, f"incarnation {incarnation} is gone and holds leases")
        most = capacity[incarnation]
        demand(count <= most, f"incarnation {incarnation} holds {count} leases, {most} at most")
    for task_id, row in now.leases.items():
        most = now.live[task_id].max_attempts
        demand(row.attempt <= most, f"task {task_id:x} is at attempt {row.attempt} of {most}")


def check_step(before: Picture, now: Picture) -> None:
    if before.keys != now.keys or before.live.keys() != now.live.keys():
        _check_keys(now)
    _check_fences(before, now)
    _check_finished(before, now)
    _check_order(now, fresh_leases(before, now))


def fresh_leases(before: Picture, now: Picture) -> dict[int, LeaseRow]:
    return {
        task_id: row
        for task_id, row in now.leases.items()
        if task_id not in before.leases or before.leases[task_id].fence != row.fence
    }


def _check_fences(before: Picture, now: Picture) -> None:
    for task_id in (*now.live, *(now.history.keys() - before.history.keys())):
        earlier, fence = before.fence_of(task_id), now.fence_of(task_id)
        demand(fence >= earlier, f"the fence of task {task_id:x} fell from {earlier} to {fence}")
    for task_id, row in fresh_leases(before, now).items():
        is_new = row.fence > before.fence_of(task_id)
        demand(is_new, f"task {task_id:x} was leased again under fence {row.fence}")


def _check_finished(before: Picture, now: Picture) -> None:
    """What has succeeded stays; what has ended otherwise may come back, but never changes."""
    for task_id, row in before.history.items():
        after = now.history.get(task_id)
        if after is not None:
            demand(after == row, f"finished task {task_id:x} changed")
        if task_id in now.live:
            demand(row.state != "succeeded", f"task {task_id:x} came back after its success")


def _has_flow(row: LiveRow) -> bool:
    options = row.options or b""
    return b'"concurrency"' in options or b'"fair_key"' in options


def _check_order(now: Picture, fresh: dict[int, LeaseRow]) -> None:
    """A lease goes to a worker that may have it, and to none before those ahead in the lane."""
    workers = {row.incarnation: row for row in now.workers.values()}
    last: dict[int, tuple[int, int]] = {}
    for task_id, row in fresh.items():
        if row.incarnation == JOB_INCARNATION:
            continue  # a worker that names a task by its id does not stand in line
        if _has_flow(now.live[task_id]):
            continue  # its turn is between tenants, and among the tasks of its flow
        _check_fit(now.lanes[row.lane], workers[row.incarnation], now.paused)
        turn = (-now.live[task_id].priority, task_id)
        last[row.lane] = max(turn, last.get(row.lane, turn))
    for task_id, waiting in now.ready.items():
        if waiting.lane in last:
            turn = (waiting.rank, task_id)
            demand(turn > last[waiting.lane], f"task {task_id:x} was passed over in its lane")


def _check_fit(lane: Lane, row: WorkerRow, paused: set[str]) -> None:
    worker = row.worker
    demand(lane.queue not in paused, f"a task left the paused queue {lane.queue!r}")
    demand(row.state == "active", f"worker {worker.id} is {row.state} and was given work")
    is_served = worker.queues is None or lane.queue in worker.queues
    is_known = worker.tasks is None or lane.name in worker.tasks
    is_able = set(lane.requires) <= set(worker.capabilities)
    demand(is_served and is_known and is_able, f"worker {worker.id} cannot serve {lane}")
