"""Rows of the inbox: tasks that users' transactions have committed, which cannot be refused."""

from rota.core.context import Context
from rota.core.decisions import AddTask, Decision, FinishTask
from rota.core.flows.model import listed_concurrency
from rota.core.ids import TaskId, next_ids, to_text
from rota.core.replies import Taken
from rota.core.snapshot import Snapshot, added_task
from rota.core.tasks import attempts
from rota.core.tasks.inbox import (
    UNACCEPTED,
    InboxItem,
    refused,
    without_key,
    without_lane,
    without_limits,
)
from rota.core.tasks.keys import KeyPlace, KeySpace
from rota.core.tasks.lanes import LaneRoom
from rota.core.tasks.model import Lane, NewTask, TaskError, TaskRecord, TaskState, lane_of
from rota.core.tasks.submission.holders import conflict, key_place
from rota.core.tasks.submission.room import busy, check_use_of, take_keys_and_flows
from rota.core.tasks.submission.submission import accept
from rota.errors import RotaError, UniqueConflict


def take_inbox(snapshot: Snapshot, context: Context) -> tuple[list[Decision], Taken]:
    """Accept the rows of the inbox. A row that cannot be accepted becomes a failed task."""
    items, snapshot.inbox = snapshot.inbox, []
    if snapshot.lane_room is not None:
        items = [_with_lane(snapshot, snapshot.lane_room, item) for item in items]
    items = _without_conflicts(snapshot, items, context)
    decisions, submitted = accept(snapshot, [item.task for item in items], KeySpace.CALLER, context)
    failed: list[tuple[str | None, TaskError]] = []
    duplicates = 0
    for item, outcome in zip(items, submitted.items, strict=True):
        if isinstance(outcome, TaskRecord):
            duplicates += 1
            place = key_place(item.task)
            if place is not None and place not in snapshot.keys:
                decisions += _superseded(snapshot, item.task, outcome, context)
        elif item.error is not None:
            failed.append((item.task.key, item.error))
            decisions.append(_ended(snapshot, outcome, TaskState.FAILED, item.error, context))
    return decisions, Taken(count=len(items), duplicates=duplicates, refused=tuple(failed))


def _without_conflicts(
    snapshot: Snapshot, items: list[InboxItem], context: Context
) -> list[InboxItem]:
    """The items, with those refused that may not be accepted beside another task."""
    claimed: set[KeyPlace] = set()
    checked: list[InboxItem] = []
    for item in items:
        task = item.task
        problem: RotaError | None = None
        if key_place(task) not in snapshot.keys:
            try:
                _check_limits_of(snapshot, task)
                if task.unique is not None:
                    problem = conflict(snapshot, task, claimed, context)
            except RotaError as error:
                problem = error
        checked.append(item if problem is None else refused(without_limits(task), problem))
    return checked


def _check_limits_of(snapshot: Snapshot, task: NewTask) -> None:
    """Refuse a task of the inbox whose limits are of another kind, too many, or full.

    `max_queued` does not count here: the task is committed already, and is not lost.
    """
    check_use_of(snapshot, task, None)
    has_limits = task.concurrency is not None or task.rate is not None
    take_keys_and_flows(snapshot, [task], None, has_limits=has_limits)
    for wanted in listed_concurrency(task.concurrency):
        use = snapshot.limits.get(wanted.key)
        if use is not None:
            if wanted.on_full == "reject" and use.load >= wanted.limit:
                raise busy(wanted, use.load, use.holder)
            use.load += 1


def _superseded(
    snapshot: Snapshot, task: NewTask, holder: TaskRecord, context: Context
) -> list[Decision]:
    """A task of the inbox for which another one stands, as a task that was cancelled at once.

    Its submitter finds it by its key, and the other task in its error.
    """
    (number,) = next_ids(1, last=snapshot.last_task_id, now_ms=context.now_ms)
    snapshot.last_task_id = number
    text = to_text(holder.id)
    error = TaskError(
        type=UniqueConflict.code,
        message=f"task {text!r} stands for this one",
        retryable=False,
        details={"task_id": text},
    )
    added = AddTask(TaskId(number), without_key(task), context.now_ms)
    snapshot.note_added(added, lane_of(task))
    return [added, _ended(snapshot, added, TaskState.CANCELLED, error, context)]


def _with_lane(snapshot: Snapshot, room: LaneRoom, item: InboxItem) -> InboxItem:
    """The item, if there is a lane for its task or none is needed; otherwise a refused one.

    A refused task fails in its own queue, where its submitter finds it by its key. For this a queue
    may exceed its share by one lane, and one lane of all is kept free.
    """
    if key_place(item.task) in snapshot.keys or room.try_take(lane_of(item.task), spare=1):
        return item
    own = Lane(item.task.queue, UNACCEPTED.name)
    lane = own if room.try_take(own, spare=1, within_share=False) else UNACCEPTED
    room.try_take(lane, within_share=False)
    return without_lane(item, lane)


def _ended(
    snapshot: Snapshot, added: AddTask, state: TaskState, error: TaskError, context: Context
) -> FinishTask:
    """End a task in the batch that adds it."""
    task = added_task(added, lane_of(added.task))
    snapshot.tasks[added.id] = task
    return attempts.end_task(snapshot, task, state, context, error=error)
