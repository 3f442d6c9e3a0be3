"""Room for new tasks: in their queues, and under the limits that they name.

What limits and tenants take up in memory is bounded, too: the keys that are known, and the flows.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from rota.core import limits
from rota.core.access import Caller
from rota.core.commands import SubmitTasks
from rota.core.context import Context
from rota.core.decisions import AddTask, Decision
from rota.core.flows.declaring import check_kinds, check_use, kind_of
from rota.core.flows.model import Concurrency, Rate, listed_concurrency, named_limits
from rota.core.ids import TaskId, to_text
from rota.core.snapshot import Snapshot
from rota.core.tasks.model import NewTask, TaskState, due_at_ms, flow_of, lane_of
from rota.core.tasks.operations import cancel_task
from rota.core.tasks.submission.holders import key_place
from rota.errors import KeyBusy, QueueFull, TooMany


def take_keys_and_flows(
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


def check_use_of(snapshot: Snapshot, task: NewTask, by: Caller | None) -> None:
    """Refuse a task that names a limit which its submitter must not use."""
    for wanted in named_limits(task.concurrency, task.rate):
        use = snapshot.limits.get(wanted.key)
        if use is not None:
            check_use(use.record, wanted, by)


def check_room(snapshot: Snapshot, command: SubmitTasks, context: Context) -> None:
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
                raise busy(wanted, load, None if use is None else use.holder)
            loads[wanted.key] += 1
    for queue, count in queued.items():
        if queue in snapshot.queue_room:
            snapshot.queue_room[queue] -= count


def busy(wanted: Concurrency, load: int, holder: int | None) -> KeyBusy:
    """The refusal of a task that must not wait for a key."""
    return KeyBusy(
        f"{load} of {wanted.limit} tasks of the key {wanted.key!r} run or wait already",
        key=wanted.key,
        holder=None if holder is None else to_text(TaskId(holder)),
    )


def make_room(snapshot: Snapshot, accepted: Sequence[Decision], context: Context) -> list[Decision]:
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
