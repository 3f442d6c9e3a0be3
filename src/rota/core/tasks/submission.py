"""Submission: new tasks, or the existing ones that have the same keys."""

from collections.abc import Sequence

import msgspec

from rota.core.commands import SubmitTasks
from rota.core.context import Context
from rota.core.decisions import AddTask, Decision, FinishTask
from rota.core.ids import next_ids
from rota.core.replies import Submitted, Taken
from rota.core.snapshot import Snapshot, added_task
from rota.core.tasks import attempts
from rota.core.tasks.inbox import UNACCEPTED, InboxItem, without_lane
from rota.core.tasks.keys import KeyPlace, KeySpace, check_key_size, kept_key
from rota.core.tasks.lanes import LaneRoom
from rota.core.tasks.model import (
    Lane,
    NewTask,
    TaskError,
    TaskRecord,
    TaskState,
    due_at_ms,
    lane_of,
)


def key_place(task: NewTask, space: KeySpace = KeySpace.CALLER) -> KeyPlace | None:
    """The place at which the key of a task is looked up; None for a task without one."""
    return None if task.key is None else (task.queue, kept_key(task.key, space))


def submit(
    snapshot: Snapshot, command: SubmitTasks, context: Context
) -> tuple[list[AddTask], Submitted]:
    """Accept each task once: for a key that its queue knows, return the task it names."""
    for task in command.tasks:
        if task.key is not None:
            check_key_size(task.queue, task.key)
    if snapshot.lane_room is not None:
        _take_lanes(snapshot, snapshot.lane_room, command)
    return _accept(snapshot, command.tasks, command.key_space, context)


def _take_lanes(snapshot: Snapshot, room: LaneRoom, command: SubmitTasks) -> None:
    """Find room for the lanes of the new tasks."""
    room.take(
        {
            lane_of(task)
            for task in command.tasks
            if task.key is None or key_place(task, command.key_space) not in snapshot.keys
        }
    )


def _accept(
    snapshot: Snapshot, tasks: Sequence[NewTask], space: KeySpace, context: Context
) -> tuple[list[AddTask], Submitted]:
    now_ms = context.now_ms
    ids = next_ids(len(tasks), last=snapshot.last_task_id, now_ms=now_ms)
    snapshot.last_task_id = ids[-1] if ids else snapshot.last_task_id

    added: list[AddTask] = []
    items: list[AddTask | TaskRecord] = []
    for number, task in zip(ids, tasks, strict=True):
        place = None if task.key is None else key_place(task, space)
        if place is not None and place in snapshot.keys:
            items.append(snapshot.keys[place])
            continue
        kept = task if place is None else _with_kept_key(task, place)
        decision = AddTask(number, kept, now_ms, due_at_ms(task, now_ms=now_ms))
        if place is not None:
            snapshot.note_added(decision, lane_of(task))
        added.append(decision)
        items.append(decision)
    return added, Submitted(items)


def _with_kept_key(task: NewTask, place: KeyPlace) -> NewTask:
    """The task with its key as it is stored, which is nearly always the given one."""
    kept = place[1]
    return task if kept == task.key else msgspec.structs.replace(task, key=kept)


def take_inbox(snapshot: Snapshot, context: Context) -> tuple[list[Decision], Taken]:
    """Accept the rows of the inbox. A row that cannot be accepted becomes a failed task."""
    items, snapshot.inbox = snapshot.inbox, []
    if snapshot.lane_room is not None:
        items = [_with_lane(snapshot, snapshot.lane_room, item) for item in items]
    added, submitted = _accept(snapshot, [item.task for item in items], KeySpace.CALLER, context)
    decisions: list[Decision] = [*added]
    refused: list[tuple[str | None, TaskError]] = []
    for item, outcome in zip(items, submitted.items, strict=True):
        if item.error is not None and isinstance(outcome, AddTask):
            refused.append((item.task.key, item.error))
            decisions.append(_failed(snapshot, outcome, item.error, context))
    return decisions, Taken(
        count=len(items), duplicates=len(items) - len(added), refused=tuple(refused)
    )


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


def _failed(snapshot: Snapshot, added: AddTask, error: TaskError, context: Context) -> FinishTask:
    task = added_task(added, lane_of(added.task))
    snapshot.tasks[added.id] = task
    return attempts.end_task(snapshot, task, TaskState.FAILED, context, error=error)
