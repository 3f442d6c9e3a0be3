"""Submission: new tasks, or the existing ones that have the same keys.

A task is known by its idempotency key first. Only a task that is not known by it asks for the key
by which it is unique or debounced: it gets that key, or the task that holds it answers.
"""

from collections.abc import Sequence

import msgspec

from rota.core.commands import SubmitTasks
from rota.core.context import Context
from rota.core.decisions import AddTask, Decision
from rota.core.flows.model import check_limits
from rota.core.ids import TaskId, next_ids
from rota.core.replies import Submitted
from rota.core.snapshot import Snapshot
from rota.core.tasks.headers import check_headers
from rota.core.tasks.keys import KeyPlace, KeySpace, check_key_size
from rota.core.tasks.lanes import LaneRoom
from rota.core.tasks.model import NewTask, TaskRecord, due_at_ms, lane_of
from rota.core.tasks.submission.holders import (
    answer_of_holder,
    check_conflicts,
    held_key_of,
    holder_of,
    key_place,
)
from rota.core.tasks.submission.room import check_room, check_use_of, make_room, take_keys_and_flows


def submit(
    snapshot: Snapshot, command: SubmitTasks, context: Context
) -> tuple[list[Decision], Submitted]:
    """Accept each task once: for a key that its queue knows, return the task it names."""
    has_limits = has_unique = False
    for task in command.tasks:
        if task.key is not None or task.headers is not None:
            _check_sizes(task)
        if task.concurrency is not None or task.rate is not None:
            has_limits = True
            check_limits(task.concurrency, task.rate)
            check_use_of(snapshot, task, command.by)
        if task.unique is not None or task.debounce is not None:
            has_unique = True
    if has_unique:
        check_conflicts(snapshot, command, context)
    if has_limits or snapshot.new_flows is not None:
        take_keys_and_flows(snapshot, command.tasks, command.by, has_limits=has_limits)
    if has_limits or snapshot.queue_room:
        check_room(snapshot, command, context)
    if snapshot.lane_room is not None:
        _take_lanes(snapshot, snapshot.lane_room, command)
    owner = "" if command.by is None else command.by.binding
    decisions, submitted = accept(
        snapshot,
        command.tasks,
        command.key_space,
        context,
        has_unique=has_unique,
        owner=owner,
    )
    if has_limits:
        decisions = [*make_room(snapshot, decisions, context), *decisions]
    return decisions, submitted


def accept(
    snapshot: Snapshot,
    tasks: Sequence[NewTask],
    space: KeySpace,
    context: Context,
    *,
    has_unique: bool = True,
    owner: str = "",
) -> tuple[list[Decision], Submitted]:
    """Add each task that is new; a key that is taken is answered with the task that has it."""
    now_ms = context.now_ms
    ids = next_ids(len(tasks), last=snapshot.last_task_id, now_ms=now_ms)
    snapshot.last_task_id = ids[-1] if ids else snapshot.last_task_id

    decisions: list[Decision] = []
    items: list[AddTask | TaskRecord] = []
    for number, task in zip(ids, tasks, strict=True):
        place = None if task.key is None else key_place(task, space)
        if place is not None and place in snapshot.keys:
            items.append(snapshot.keys[place])
            continue
        held = None
        if has_unique and (held := held_key_of(task, now_ms=now_ms)) is not None:
            holder = holder_of(snapshot, task, (task.queue, held.key), context)
            if holder is not None:
                changes, holder = answer_of_holder(snapshot, task, holder, context)
                decisions += changes
                items.append(holder)
                continue
        kept = task if place is None else _with_kept_key(task, place)
        due_ms = due_at_ms(task, now_ms=now_ms)
        decision = AddTask(TaskId(number), kept, now_ms, due_ms, owner, held)
        if place is not None or held is not None:
            snapshot.note_added(decision, lane_of(task))
        decisions.append(decision)
        items.append(decision)
    return decisions, Submitted(items)


def _take_lanes(snapshot: Snapshot, room: LaneRoom, command: SubmitTasks) -> None:
    """Find room for the lanes of the new tasks."""
    room.take(
        {
            lane_of(task)
            for task in command.tasks
            if task.key is None or key_place(task, command.key_space) not in snapshot.keys
        }
    )


def _check_sizes(task: NewTask) -> None:
    if task.key is not None:
        check_key_size(task.queue, task.key)
    if task.headers is not None:
        check_headers(task.headers)


def _with_kept_key(task: NewTask, place: KeyPlace) -> NewTask:
    """The task with its key as it is stored, which is nearly always the given one."""
    kept = place[1]
    return task if kept == task.key else msgspec.structs.replace(task, key=kept)
