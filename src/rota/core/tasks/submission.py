"""Submission: new tasks, or the existing ones that have the same keys.

A task is known by its idempotency key first. Only a task that is not known by it asks for the key
by which it is unique or debounced: it gets that key, or the task that holds it answers.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Raw

from rota.core import limits
from rota.core.access import Caller
from rota.core.commands import SubmitTasks
from rota.core.context import Context
from rota.core.decisions import AddTask, Decision, FinishTask, QueueTask, ReplaceTask
from rota.core.flows.declaring import check_kinds, check_use, kind_of
from rota.core.flows.model import (
    Concurrency,
    Rate,
    check_limits,
    listed_concurrency,
    named_limits,
)
from rota.core.ids import TaskId, next_ids, to_text
from rota.core.replies import Submitted, Taken
from rota.core.snapshot import Snapshot, added_task
from rota.core.tasks import attempts
from rota.core.tasks.headers import check_headers
from rota.core.tasks.inbox import (
    UNACCEPTED,
    InboxItem,
    refused,
    without_key,
    without_lane,
    without_limits,
)
from rota.core.tasks.keys import KeyPlace, KeySpace, check_key_size, check_unique, kept_key
from rota.core.tasks.lanes import LaneRoom
from rota.core.tasks.model import (
    FINISHED,
    Lane,
    NewTask,
    TaskError,
    TaskOptions,
    TaskRecord,
    TaskState,
    due_at_ms,
    flow_of,
    lane_of,
    options_of,
    retried_options,
    waiting_state,
)
from rota.core.tasks.operations import cancel_task
from rota.core.tasks.unique import HeldKey, debounce_key, debounced_due_ms, held_key
from rota.errors import Invalid, KeyBusy, QueueFull, RotaError, TooMany, UniqueConflict

WAITING = frozenset({TaskState.QUEUED, TaskState.SCHEDULED})


def key_place(task: NewTask, space: KeySpace = KeySpace.CALLER) -> KeyPlace | None:
    """The place at which the key of a task is looked up; None for a task without one."""
    return None if task.key is None else (task.queue, kept_key(task.key, space))


def held_key_of(task: NewTask, *, now_ms: int) -> HeldKey | None:
    """The key that a task is to hold while it is unique or debounced; None: it is neither."""
    if task.unique is not None:
        return held_key(task.unique, name=task.name, payload=bytes(task.payload), now_ms=now_ms)
    return None if task.debounce is None else debounce_key(task.debounce)


def _check_sizes(task: NewTask) -> None:
    if task.key is not None:
        check_key_size(task.queue, task.key)
    if task.headers is not None:
        check_headers(task.headers)


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
            _check_use(snapshot, task, command.by)
        if task.unique is not None or task.debounce is not None:
            has_unique = True
    if has_unique:
        _check_conflicts(snapshot, command, context)
    if has_limits or snapshot.new_flows is not None:
        _take_keys_and_flows(snapshot, command.tasks, command.by, has_limits=has_limits)
    if has_limits or snapshot.queue_room:
        _check_room(snapshot, command, context)
    if snapshot.lane_room is not None:
        _take_lanes(snapshot, snapshot.lane_room, command)
    owner = "" if command.by is None else command.by.binding
    decisions, submitted = _accept(
        snapshot,
        command.tasks,
        command.key_space,
        context,
        has_unique=has_unique,
        owner=owner,
    )
    if has_limits:
        decisions = [*_make_room(snapshot, decisions, context), *decisions]
    return decisions, submitted


def _take_keys_and_flows(
    snapshot: Snapshot, tasks: Sequence[NewTask], by: Caller | None, *, has_limits: bool
) -> None:
    """Find room for what the limits and tenants of new tasks take up in memory."""
    if has_limits:
        named = [one for task in tasks for one in named_limits(task.concurrency, task.rate)]
        check_kinds(named, snapshot.new_kinds)
        _take_keys(snapshot, named, by)
    if snapshot.new_flows is not None:
        _take_flows(snapshot, tasks, snapshot.new_flows)


def _take_keys(snapshot: Snapshot, named: Iterable[Concurrency | Rate], by: Caller | None) -> None:
    """Find room for the keys of limits that are not known yet."""
    known, added = snapshot.limits, snapshot.new_kinds
    new = {one.key: kind_of(one) for one in named if not (one.key in known or one.key in added)}
    if by is not None and by.is_bound and new:
        owned = snapshot.owned_keys.get(by.binding, 0) + len(new)
        most = limits.MAX_LIMIT_KEYS_PER_BINDING
        if owned > most:
            raise TooMany(
                f"{most} keys of limits may be named by the tokens of one binding, and this "
                "submission has more; use fewer keys, or let the tasks of some finish first",
                limit=most,
            )
        snapshot.owned_keys[by.binding] = owned
    if len(new) > snapshot.new_keys:
        most = limits.MAX_LIMIT_KEYS
        raise TooMany(
            f"{most} keys of limits may be known, and this submission has more; use fewer keys, or "
            "let the tasks of some finish first",
            limit=most,
        )
    snapshot.new_keys -= len(new)
    snapshot.new_kinds |= new


def _take_flows(snapshot: Snapshot, tasks: Iterable[NewTask], room: int) -> None:
    """Find room for the combinations of lane, tenant and limits that are not known yet."""
    new = {
        (lane_of(task), spec) for task in tasks if (spec := flow_of(task)) is not None
    } - snapshot.known_flows
    if len(new) > room:
        most = limits.MAX_FLOWS
        raise TooMany(
            f"live tasks have {most} combinations of limits and tenants, which is the limit; "
            "finish some of them first",
            limit=most,
        )
    snapshot.new_flows = room - len(new)
    snapshot.known_flows |= new


def _check_use(snapshot: Snapshot, task: NewTask, by: Caller | None) -> None:
    """Refuse a task that names a limit which its submitter must not use."""
    for wanted in named_limits(task.concurrency, task.rate):
        use = snapshot.limits.get(wanted.key)
        if use is not None:
            check_use(use.record, wanted, by)


def _check_room(snapshot: Snapshot, command: SubmitTasks, context: Context) -> None:
    """Refuse new tasks when their queue, or a key that must not be waited for, is full.

    This is asked before anything is noted, so a task counts even if an earlier one will answer for
    it as unique.
    """
    queued: Counter[str] = Counter()
    loads: Counter[str] = Counter()
    for task in command.tasks:
        if task.key is not None and key_place(task, command.key_space) in snapshot.keys:
            continue
        if due_at_ms(task, now_ms=context.now_ms) is None:
            queued[task.queue] += 1
            room = snapshot.queue_room.get(task.queue)
            if room is not None and queued[task.queue] > room:
                raise QueueFull(
                    f"queue {task.queue!r} has as many queued tasks as it may have; "
                    "submit again later",
                    queue=task.queue,
                )
        for wanted in listed_concurrency(task.concurrency):
            use = snapshot.limits.get(wanted.key)
            load = loads[wanted.key] + (0 if use is None else use.load)
            if wanted.on_full == "reject" and load >= wanted.limit:
                raise _busy(wanted, load, None if use is None else use.holder)
            loads[wanted.key] += 1
    for queue, count in queued.items():
        if queue in snapshot.queue_room:
            snapshot.queue_room[queue] -= count


def _busy(wanted: Concurrency, load: int, holder: int | None) -> KeyBusy:
    return KeyBusy(
        f"{load} of {wanted.limit} tasks of the key {wanted.key!r} run or wait already",
        key=wanted.key,
        holder=None if holder is None else to_text(TaskId(holder)),
    )


def _make_room(
    snapshot: Snapshot, accepted: Sequence[Decision], context: Context
) -> list[Decision]:
    """Count the new tasks of each key, and cancel earlier ones where a new task says so."""
    decisions: list[Decision] = []
    for one in accepted:
        if not isinstance(one, AddTask):
            continue
        for wanted in listed_concurrency(one.task.concurrency):
            use = snapshot.limits.get(wanted.key)
            if use is None:
                continue
            use.load += 1
            if wanted.on_full not in {"cancel_running", "cancel_queued"}:
                continue
            others = use.running if wanted.on_full == "cancel_running" else use.queued
            while others and use.load > wanted.limit:
                task = snapshot.tasks.get(TaskId(others.pop(0)))
                if task is not None and task.state.may_become(TaskState.CANCELLED):
                    decisions += cancel_task(snapshot, task, context)
                    use.load -= 1
    return decisions


def _check_conflicts(snapshot: Snapshot, command: SubmitTasks, context: Context) -> None:
    """Refuse a submission that has a task which may not be accepted beside another."""
    for task in command.tasks:
        if task.unique is not None or task.debounce is not None:
            check_unique(task)
    claimed: set[KeyPlace] = set()
    for task in command.tasks:
        if task.unique is None or key_place(task, command.key_space) in snapshot.keys:
            continue
        problem = _conflict(snapshot, task, claimed, context)
        if problem is not None:
            raise problem


def _conflict(
    snapshot: Snapshot, task: NewTask, claimed: set[KeyPlace], context: Context
) -> RotaError | None:
    """The reason to refuse a unique task; `claimed`: the keys of those before it."""
    held = held_key_of(task, now_ms=context.now_ms)
    assert held is not None
    assert task.unique is not None
    place = (task.queue, held.key)
    holder = _holder(snapshot, task, place, context)
    on_conflict = task.unique.on_conflict
    if holder is not None:
        is_replaceable = on_conflict == "replace" and holder.state in WAITING
        if on_conflict != "return" and not is_replaceable:
            return UniqueConflict(to_text(holder.id), holder.state)
    elif place in claimed and on_conflict == "reject":
        return Invalid("unique: two tasks of one submission have the same key", field="unique")
    claimed.add(place)
    return None


def _holder(
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
    snapshot: Snapshot,
    tasks: Sequence[NewTask],
    space: KeySpace,
    context: Context,
    *,
    has_unique: bool = True,
    owner: str = "",
) -> tuple[list[Decision], Submitted]:
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
            holder = _holder(snapshot, task, (task.queue, held.key), context)
            if holder is not None:
                changes, holder = _answer_of_holder(snapshot, task, holder, context)
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


def _answer_of_holder(
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
    # A task that waits no longer is left alone: `_conflict` refuses such a replacement before.
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


def _with_kept_key(task: NewTask, place: KeyPlace) -> NewTask:
    """The task with its key as it is stored, which is nearly always the given one."""
    kept = place[1]
    return task if kept == task.key else msgspec.structs.replace(task, key=kept)


def take_inbox(snapshot: Snapshot, context: Context) -> tuple[list[Decision], Taken]:
    """Accept the rows of the inbox. A row that cannot be accepted becomes a failed task."""
    items, snapshot.inbox = snapshot.inbox, []
    if snapshot.lane_room is not None:
        items = [_with_lane(snapshot, snapshot.lane_room, item) for item in items]
    items = _without_conflicts(snapshot, items, context)
    decisions, submitted = _accept(
        snapshot, [item.task for item in items], KeySpace.CALLER, context
    )
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
                    problem = _conflict(snapshot, task, claimed, context)
            except RotaError as error:
                problem = error
        checked.append(item if problem is None else refused(without_limits(task), problem))
    return checked


def _check_limits_of(snapshot: Snapshot, task: NewTask) -> None:
    """Refuse a task of the inbox whose limits are of another kind, too many, or full.

    `max_queued` does not count here: the task is committed already, and is not lost.
    """
    _check_use(snapshot, task, None)
    has_limits = task.concurrency is not None or task.rate is not None
    _take_keys_and_flows(snapshot, [task], None, has_limits=has_limits)
    for wanted in listed_concurrency(task.concurrency):
        use = snapshot.limits.get(wanted.key)
        if use is not None:
            if wanted.on_full == "reject" and use.load >= wanted.limit:
                raise _busy(wanted, use.load, use.holder)
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
