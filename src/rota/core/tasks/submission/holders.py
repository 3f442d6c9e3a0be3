"""Unique and debounced tasks: the keys that they hold, and what a new task does to a holder."""

import msgspec
from msgspec import Raw

from rota.core.commands import SubmitTasks
from rota.core.context import Context
from rota.core.decisions import Decision, QueueTask, ReplaceTask
from rota.core.ids import to_text
from rota.core.snapshot import Snapshot
from rota.core.tasks.keys import KeyPlace, KeySpace, check_unique, kept_key
from rota.core.tasks.model import (
    FINISHED,
    NewTask,
    TaskOptions,
    TaskRecord,
    TaskState,
    due_at_ms,
    options_of,
    retried_options,
    waiting_state,
)
from rota.core.tasks.unique import HeldKey, debounce_key, debounced_due_ms, held_key
from rota.errors import Invalid, RotaError, UniqueConflict

WAITING = frozenset({TaskState.QUEUED, TaskState.SCHEDULED})


def key_place(task: NewTask, space: KeySpace = KeySpace.CALLER) -> KeyPlace | None:
    """The place at which the key of a task is looked up; None for a task without one."""
    return None if task.key is None else (task.queue, kept_key(task.key, space))


def held_key_of(task: NewTask, *, now_ms: int) -> HeldKey | None:
    """The key that a task is to hold while it is unique or debounced; None: it is neither."""
    if task.unique is not None:
        return held_key(task.unique, name=task.name, payload=bytes(task.payload), now_ms=now_ms)
    return None if task.debounce is None else debounce_key(task.debounce)


def check_conflicts(snapshot: Snapshot, command: SubmitTasks, context: Context) -> None:
    """Refuse a submission that has a task which may not be accepted beside another."""
    for task in command.tasks:
        if task.unique is not None or task.debounce is not None:
            check_unique(task)
    claimed: set[KeyPlace] = set()
    for task in command.tasks:
        if task.unique is None or key_place(task, command.key_space) in snapshot.keys:
            continue
        problem = conflict(snapshot, task, claimed, context)
        if problem is not None:
            raise problem


def conflict(
    snapshot: Snapshot, task: NewTask, claimed: set[KeyPlace], context: Context
) -> RotaError | None:
    """The reason to refuse a unique task; `claimed`: the keys of those before it."""
    held = held_key_of(task, now_ms=context.now_ms)
    assert held is not None
    assert task.unique is not None
    place = (task.queue, held.key)
    holder = holder_of(snapshot, task, place, context)
    on_conflict = task.unique.on_conflict
    if holder is not None:
        is_replaceable = on_conflict == "replace" and holder.state in WAITING
        if on_conflict != "return" and not is_replaceable:
            return UniqueConflict(to_text(holder.id), holder.state)
    elif place in claimed and on_conflict == "reject":
        return Invalid("unique: two tasks of one submission have the same key", field="unique")
    claimed.add(place)
    return None


def holder_of(
    snapshot: Snapshot, task: NewTask, place: KeyPlace, context: Context
) -> TaskRecord | None:
    """The task that holds the key of a new one."""
    found = snapshot.holders.get(place)
    if found is None or found.task_id in snapshot.released:
        return None
    if found.until_ms is not None and found.until_ms <= context.now_ms:
        return None
    holder = snapshot.tasks.get(found.task_id)
    # A coordinator of an older version ends tasks without taking their keys from them.
    if holder is None or holder.state in FINISHED:
        return None
    if task.debounce is not None:
        is_pending = holder.state is TaskState.SCHEDULED and (
            holder.due_at_ms is not None and holder.due_at_ms > context.now_ms
        )
        return holder if is_pending else None
    return holder


def answer_of_holder(
    snapshot: Snapshot, task: NewTask, holder: TaskRecord, context: Context
) -> tuple[list[Decision], TaskRecord]:
    """The effect of a new task on the task that holds its key, and that task afterwards."""
    if task.debounce is not None:
        first_ms = holder.created_at_ms
        due_ms = debounced_due_ms(task.debounce, first_ms=first_ms, now_ms=context.now_ms)
        if task.debounce.keep == "first":
            task = _as_submitted(holder)
        return _replace(snapshot, task, holder, due_ms, context)
    assert task.unique is not None
    # A task that waits no longer is left alone: `conflict` refuses such a replacement before.
    if task.unique.on_conflict != "replace" or holder.state not in WAITING:
        return [], holder
    is_queued = holder.state is TaskState.QUEUED
    new_due_ms = None if is_queued else due_at_ms(task, now_ms=context.now_ms)
    return _replace(snapshot, task, holder, new_due_ms, context)


def _replace(
    snapshot: Snapshot,
    task: NewTask,
    holder: TaskRecord,
    due_ms: int | None,
    context: Context,
) -> tuple[list[Decision], TaskRecord]:
    """Give a waiting task the contents of a new one. One that need not wait longer is queued.

    The point at which the task lets go of its key stays.
    """
    options = retried_options(options_of(task), now_ms=context.now_ms)
    if holder.options.unique is not None:
        options = msgspec.structs.replace(options, unique=holder.options.unique)
    decision = ReplaceTask(
        holder.id,
        holder,
        task,
        options,
        due_ms if due_ms is not None else holder.due_at_ms,
        context.now_ms,
    )
    after = snapshot.note_replaced(decision)
    if waiting_state(due_ms) is holder.state:
        return [decision], after
    snapshot.note_state(holder.id, TaskState.QUEUED, now_ms=context.now_ms)
    return [decision, QueueTask(holder.id)], snapshot.tasks[holder.id]


def _as_submitted(task: TaskRecord) -> NewTask:
    """A stored task as its submitter described it."""
    options = task.options
    return NewTask(
        name=task.lane.name,
        payload=Raw(task.payload),
        queue=task.lane.queue,
        priority=task.priority,
        requires=task.lane.requires,
        **{
            name: getattr(options, name)
            for name in NewTask.__struct_fields__
            if name in TaskOptions.__struct_fields__
        },
    )
