"""Wait reasons: what keeps a lane or a single task from running.

The rules are those of `matching`, asked the other way round: each condition for a worker is checked
on all workers in turn, and the first that none of them meets is the reason.
"""

from collections.abc import Sequence
from typing import assert_never

from msgspec import Struct

from rota.core.tasks.model import Lane, TaskRecord, TaskState
from rota.core.workers.circuit_breaker import BreakerState
from rota.core.workers.model import Health, WorkerRecord, WorkerState, can_serve
from rota.errors import did_you_mean


class WorkerSlot(Struct, frozen=True, kw_only=True):
    """A worker with what decides whether it would take work now."""

    worker: WorkerRecord
    health: Health
    held: int
    open_breakers: frozenset[str] = frozenset()  # names of tasks that it is kept from


class Explanation(Struct, frozen=True, kw_only=True):
    code: str  # stable, like the codes of errors
    text: str
    is_stuck: bool = False  # it does not end without an operator or a worker
    limit_key: str | None = None  # the limit that is the reason
    opens_at_ms: int | None = None  # when a rate lets the next start through


READY = Explanation(code="ready", text="a worker has room, and takes it next")
NO_WORKERS = Explanation(
    code="no_workers",
    text="no worker is registered; start one with `rota worker MODULE:APP`",
    is_stuck=True,
)


def explain_lane(
    lane: Lane,
    slots: Sequence[WorkerSlot],
    *,
    is_paused: bool,
    limit: Explanation | None = None,
) -> Explanation:
    """The reason why the tasks of a lane wait; limit: that of its queue, if nothing may start."""
    if is_paused:
        return _stuck("queue_paused", f"queue {lane.queue!r} is paused")
    if not slots:
        return NO_WORKERS
    serving = [slot for slot in slots if _serves(slot.worker, lane)]
    if not serving:
        return _why_none_can(lane, [slot.worker for slot in slots])
    why = _why_none_does(lane, serving)
    if limit is not None and (why is None or not why.is_stuck):
        return limit
    return why or READY


def _why_none_can(lane: Lane, workers: Sequence[WorkerRecord]) -> Explanation:
    """The condition that every worker misses, even if it were idle."""
    in_queue = [one for one in workers if can_serve_queue(one, lane.queue)]
    if not in_queue:
        return no_worker_for_queue(lane.queue)
    knowing = [one for one in in_queue if one.tasks is None or lane.name in one.tasks]
    if not knowing:
        known = sorted({name for one in in_queue for name in one.tasks or ()})
        meant = did_you_mean(lane.name, known)
        text = f"no worker of queue {lane.queue!r} knows {lane.name!r}{meant}"
        return _stuck("no_worker_for_task", text)
    offered = {capability for one in knowing for capability in one.capabilities}
    missing = [capability for capability in lane.requires if capability not in offered]
    if missing:
        names = ", ".join(repr(one) for one in missing)
        return _stuck("no_worker_with_capability", f"no worker has capability {names}")
    names = ", ".join(repr(one) for one in lane.requires)
    return _stuck("no_worker_with_capabilities", f"no single worker has all of {names}")


def _why_none_does(lane: Lane, serving: Sequence[WorkerSlot]) -> Explanation | None:
    """The reason why no worker that can serve a lane does; None: one does."""
    active = [slot for slot in serving if slot.worker.state is WorkerState.ACTIVE]
    if not active:
        text = f"{_workers(serving)} could take it, but none is active: {_states(serving)}"
        return _stuck("workers_held_back", text)
    heard = [slot for slot in active if slot.health is Health.HEALTHY]
    if not heard:
        return _stuck("workers_silent", f"{_workers(active)} could take it, but fell silent")
    trusted = [slot for slot in heard if lane.name not in slot.open_breakers]
    if not trusted:
        text = f"{_workers(heard)} keep failing {lane.name!r} and are kept from it for a while"
        return Explanation(code="breaker_open", text=text)
    if all(slot.held >= slot.worker.max_concurrent_tasks for slot in trusted):
        places = sum(slot.worker.max_concurrent_tasks for slot in trusted)
        text = f"all {places} places of {_workers(trusted)} are taken"
        return Explanation(code="workers_busy", text=text)
    return None


def explain_task(
    task: TaskRecord,
    lane: Explanation,
    *,
    limit: Explanation | None = None,
    position: int | None,
    now_ms: int,
) -> Explanation:
    """The reason for the state of a task.

    Lane: the reason why its lane waits. Limit: the limit that does not let it start.
    """
    match task.state:
        case TaskState.QUEUED:
            # A lane that is stuck stays so when the limit has room again; busy workers do not.
            if limit is not None and not lane.is_stuck:
                return limit
            return _explain_queued(lane, position)
        case TaskState.SCHEDULED:
            return _explain_scheduled(task)
        case TaskState.RUNNING:
            since_ms = max(0, now_ms - (task.started_at_ms or now_ms))
            text = f"has been running on {task.worker_id!r} for {since_ms / 1000:.1f} s"
        case TaskState.SUCCEEDED:
            text = "finished with a result"
        case TaskState.CANCELLED:
            text = "cancelled by a caller"
        case TaskState.FAILED:
            error = task.error
            text = "failed" if error is None else f"{error.type}: {error.message}"
        case _:
            assert_never(task.state)
    return Explanation(code=task.state.value, text=text)


def _explain_queued(lane: Explanation, position: int | None) -> Explanation:
    if position == 1 or lane.is_stuck:
        return lane
    ahead = "more than a thousand" if position is None else str(position - 1)
    code = "queued_behind" if lane is READY else lane.code
    return Explanation(code=code, text=f"{ahead} of its kind are before it; {lane.text}")


def _explain_scheduled(task: TaskRecord) -> Explanation:
    error = task.last_error
    if task.attempt == 0 or error is None:
        return Explanation(code="not_due", text="waits for its time")
    text = (
        f"attempt {task.attempt} of {task.options.max_attempts} failed with {error.type}: "
        f"{error.message}; the next one waits for its time"
    )
    return Explanation(code="retry_later", text=text)


def no_worker_for_queue(queue: str) -> Explanation:
    return _stuck("no_worker_for_queue", f"no worker serves queue {queue!r}")


def can_serve_queue(worker: WorkerRecord, queue: str) -> bool:
    return worker.queues is None or queue in worker.queues


def _serves(worker: WorkerRecord, lane: Lane) -> bool:
    return can_serve(worker, queue=lane.queue, name=lane.name, requires=lane.requires)


def is_open(state: BreakerState) -> bool:
    return state is BreakerState.OPEN


def _stuck(code: str, text: str) -> Explanation:
    return Explanation(code=code, text=text, is_stuck=True)


def _workers(slots: Sequence[WorkerSlot]) -> str:
    return "1 worker" if len(slots) == 1 else f"{len(slots)} workers"


def _states(slots: Sequence[WorkerSlot]) -> str:
    counts: dict[str, int] = {}
    for slot in slots:
        counts[slot.worker.state.value] = counts.get(slot.worker.state.value, 0) + 1
    return ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
