"""Why is nothing happening? What keeps the tasks of a lane, or one task, from running.

The same rules that give out work (`claiming`), asked the other way round: each thing that a worker
must be is asked of all workers in turn, and the first that none of them is, is the answer.
"""

from collections.abc import Sequence

from msgspec import Struct

from rota.core.breakers import BreakerState
from rota.core.tasks import FINISHED, Lane, Task, TaskState
from rota.core.workers import Health, Worker, WorkerState, can_serve


class Seat(Struct, frozen=True, kw_only=True):
    """A worker with what matters for whether it would take work now."""

    worker: Worker
    health: Health
    held: int
    open_breakers: frozenset[str] = frozenset()  # names of tasks it is kept from


class Explanation(Struct, frozen=True, kw_only=True):
    code: str  # stable, as those of errors
    text: str
    is_stuck: bool = False  # it will not go on by itself


READY = Explanation(code="ready", text="a worker has room, and takes it next")


def explain_lane(lane: Lane, seats: Sequence[Seat], *, is_paused: bool) -> Explanation:
    """Why the tasks of a lane wait."""
    if is_paused:
        return _stuck("queue_paused", f"queue {lane.queue!r} is paused")
    if not seats:
        return _stuck("no_workers", "no worker is registered")
    serving = [seat for seat in seats if _serves(seat.worker, lane)]
    if not serving:
        return _nobody_can(lane, [seat.worker for seat in seats])
    return _nobody_does(lane, serving) or READY


def _nobody_can(lane: Lane, workers: Sequence[Worker]) -> Explanation:
    """No worker could take it even if it were idle: what do they lack?"""
    in_queue = [one for one in workers if can_serve_queue(one, lane.queue)]
    if not in_queue:
        return _stuck("no_worker_for_queue", f"no worker serves queue {lane.queue!r}")
    knowing = [one for one in in_queue if one.tasks is None or lane.name in one.tasks]
    if not knowing:
        return _stuck("no_worker_for_task", f"no worker that serves the queue knows {lane.name!r}")
    offered = {capability for one in knowing for capability in one.capabilities}
    missing = [capability for capability in lane.requires if capability not in offered]
    if missing:
        names = ", ".join(repr(one) for one in missing)
        return _stuck("no_worker_with_capability", f"no worker has capability {names}")
    names = ", ".join(repr(one) for one in lane.requires)
    return _stuck("no_worker_with_capabilities", f"no single worker has all of {names}")


def _nobody_does(lane: Lane, serving: Sequence[Seat]) -> Explanation | None:
    """Workers could take it; None: and one of them does."""
    active = [seat for seat in serving if seat.worker.state is WorkerState.ACTIVE]
    if not active:
        text = f"{_workers(serving)} could take it, and none is to: {_states(serving)}"
        return _stuck("workers_held_back", text)
    heard = [seat for seat in active if seat.health is Health.HEALTHY]
    if not heard:
        return _stuck("workers_silent", f"{_workers(active)} could take it, but fell silent")
    trusted = [seat for seat in heard if lane.name not in seat.open_breakers]
    if not trusted:
        text = f"{_workers(heard)} keep failing {lane.name!r} and are kept from it for a while"
        return Explanation(code="breaker_open", text=text)
    if all(seat.held >= seat.worker.max_concurrent_tasks for seat in trusted):
        places = sum(seat.worker.max_concurrent_tasks for seat in trusted)
        text = f"all {places} places of {_workers(trusted)} are taken"
        return Explanation(code="workers_busy", text=text)
    return None


def explain_task(
    task: Task, lane: Explanation, *, position: int | None, now_ms: int
) -> Explanation:
    """Why one task is where it is; `lane` is what keeps its lane waiting."""
    if task.state is TaskState.QUEUED:
        return _explain_queued(lane, position)
    if task.state is TaskState.SCHEDULED:
        return _explain_scheduled(task)
    if task.state is TaskState.RUNNING:
        since_ms = max(0, now_ms - (task.started_at_ms or now_ms))
        text = f"runs on {task.worker_id!r} since {since_ms / 1000:.1f} s"
        return Explanation(code="running", text=text)
    assert task.state in FINISHED
    return Explanation(code=task.state.value, text=_end(task))


def _end(task: Task) -> str:
    if task.state is TaskState.SUCCEEDED:
        return "finished with a result"
    if task.state is TaskState.CANCELLED:
        return "ended by somebody's wish"
    error = task.error
    return "failed" if error is None else f"{error.type}: {error.message}"


def _explain_queued(lane: Explanation, position: int | None) -> Explanation:
    if position == 1 or lane.is_stuck:
        return lane
    ahead = "more than a thousand" if position is None else str(position - 1)
    code = "queued_behind" if lane is READY else lane.code
    return Explanation(code=code, text=f"{ahead} of its kind are before it; {lane.text}")


def _explain_scheduled(task: Task) -> Explanation:
    error = task.last_error
    if task.attempt == 0 or error is None:
        return Explanation(code="not_due", text="waits for its time")
    text = (
        f"attempt {task.attempt} of {task.options.max_attempts} failed with {error.type}: "
        f"{error.message}; the next one waits for its time"
    )
    return Explanation(code="retry_later", text=text)


def can_serve_queue(worker: Worker, queue: str) -> bool:
    return worker.queues is None or queue in worker.queues


def _serves(worker: Worker, lane: Lane) -> bool:
    return can_serve(worker, queue=lane.queue, name=lane.name, requires=lane.requires)


def is_open(state: BreakerState) -> bool:
    return state is BreakerState.OPEN


def _stuck(code: str, text: str) -> Explanation:
    return Explanation(code=code, text=text, is_stuck=True)


def _workers(seats: Sequence[Seat]) -> str:
    return "1 worker" if len(seats) == 1 else f"{len(seats)} workers"


def _states(seats: Sequence[Seat]) -> str:
    counts: dict[str, int] = {}
    for seat in seats:
        counts[seat.worker.state.value] = counts.get(seat.worker.state.value, 0) + 1
    return ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
