"""Loads in bulk everything that the reducer needs to decide the commands of a batch.

Workers and leases come from the working set, everything else from the store.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from rota.core.commands import (
    AcknowledgeTasks,
    BeatWorker,
    CancelTasks,
    CompleteJob,
    ExpireAttempts,
    FailJob,
    LeaseWork,
    LeaveWorker,
    PauseQueue,
    QueueDueTasks,
    RegisterWorker,
    ReportLogs,
    ReportProgress,
    ReportResults,
    RetryTasks,
    ReturnLeases,
    RevokeToken,
    SetWorkerState,
    StartJob,
    SubmitTasks,
    SweepWorkers,
    TakeInbox,
    TaskCommand,
)
from rota.core.context import Context
from rota.core.flows.model import Concurrency, LimitUse, named_limits
from rota.core.ids import TaskId
from rota.core.snapshot import Snapshot
from rota.core.tasks.inbox import UNACCEPTED, read_item
from rota.core.tasks.keys import KeyPlace, check_unique, kept_key
from rota.core.tasks.model import NewTask
from rota.core.tasks.submission.holders import held_key_of, key_place
from rota.core.workers.model import Health
from rota.core.workers.registry import health_of
from rota.engine.working_set.held_flows import HeldFlows
from rota.engine.working_set.held_leases import HeldLeases
from rota.engine.working_set.working_set import WorkingSet
from rota.errors import Invalid
from rota.store.access import TokenStore
from rota.store.database import Transaction
from rota.store.tasks.lanes import Lanes
from rota.store.tasks.queues import InboxStore, QueueStore
from rota.store.tasks.tasks import TaskStore

DUE_PER_STEP = 2_000  # tasks that a duty moves in one transaction; the rest follow in the next
OVERDUE_PER_STEP = 500
TAKEN_PER_STEP = 1_000
TAKEN_BYTES_PER_STEP = 16 * 1024 * 1024

WORKER_CALLS = (
    RegisterWorker,
    BeatWorker,
    LeaseWork,
    ReportResults,
    ReportProgress,
    ReportLogs,
    ReturnLeases,
    LeaveWorker,
    SetWorkerState,
)
MOST_CANCELLED = 1_000  # tasks of a key that one batch cancels to make room for others
NAMES_TASKS = {
    *(SubmitTasks, CancelTasks, RetryTasks, AcknowledgeTasks),
    *(StartJob, CompleteJob, FailJob),
}
NAMES_WORKERS = {*WORKER_CALLS, SweepWorkers}
NAMES_LEASES = {ReportResults, ReportProgress, ReportLogs, ReturnLeases}
DUTIES = {QueueDueTasks, ExpireAttempts}
SUBMITS_ALONE = frozenset({SubmitTasks})


def load(
    tx: Transaction,
    lanes: Lanes,
    snapshot: Snapshot,
    commands: Sequence[TaskCommand],
    context: Context,
    *,
    kinds: AbstractSet[type[Any]],
    held: WorkingSet,
    unwell: Collection[str],
) -> None:
    """Fill the snapshot for the commands; unwell: workers not healthy at the last sweep."""
    tasks = TaskStore(tx, lanes)
    if not kinds.isdisjoint(NAMES_TASKS):
        _load_tasks(tasks, held.leases, snapshot, commands, context.now_ms)
    if TakeInbox in kinds:
        _load_inbox(tx, tasks, held.leases, snapshot, commands, now_ms=context.now_ms)
    if SubmitTasks in kinds or snapshot.inbox:
        snapshot.lane_room = lanes.room_for(tx, _new_tasks(snapshot, commands), context.now_ms)
    if held.flows.is_used:
        _load_limits(tx, tasks, held, snapshot, commands)
    if kinds != SUBMITS_ALONE:  # as many batches do, which need nothing of the rest
        _load_rest(tx, tasks, snapshot, commands, context, kinds=kinds, held=held, unwell=unwell)


def _load_rest(
    tx: Transaction,
    tasks: TaskStore,
    snapshot: Snapshot,
    commands: Sequence[TaskCommand],
    context: Context,
    *,
    kinds: AbstractSet[type[Any]],
    held: WorkingSet,
    unwell: Collection[str],
) -> None:
    """Load what workers, duties and operators need."""
    if not kinds.isdisjoint(NAMES_WORKERS):
        _load_workers(tasks, held, snapshot, commands, context, unwell=unwell)
    if not kinds.isdisjoint(DUTIES):
        _load_duties(tasks, held.leases, snapshot, kinds, context.now_ms)
    if not kinds.isdisjoint(NAMES_LEASES):
        _load_results(tx, tasks, held, snapshot, commands)
    if ReportLogs in kinds:
        snapshot.logs = tasks.logs(_logging(commands))
    if PauseQueue in kinds:
        snapshot.known_queues = QueueStore(tx).known()
    if RevokeToken in kinds:
        snapshot.token_ids = TokenStore(tx).ids()


def _load_tasks(  # noqa: C901 - a table, and the loop over all tasks of a batch
    tasks: TaskStore,
    leases: HeldLeases,
    snapshot: Snapshot,
    commands: Iterable[TaskCommand],
    now_ms: int,
) -> None:
    keys: list[KeyPlace] = []
    ids: list[TaskId] = []
    submitted: list[NewTask] = []  # those that are unique or debounced
    for command in commands:
        match command:
            case SubmitTasks():
                for task in command.tasks:
                    if task.key is not None:
                        keys.append((task.queue, kept_key(task.key, command.key_space)))
                    if task.unique is not None or task.debounce is not None:
                        submitted.append(task)
            case CancelTasks() | RetryTasks() | AcknowledgeTasks():
                ids += command.ids
            case StartJob() | CompleteJob() | FailJob():
                ids.append(command.task_id)
            case _:
                pass
    if keys:
        snapshot.keys = tasks.by_keys(keys)
    if submitted:
        places = [place for one in submitted if (place := _held_place(one, now_ms)) is not None]
        if places:
            _load_holders(tasks, leases, snapshot, places)
    if ids:
        _remember_tasks(tasks, leases, snapshot, ids)


def _load_limits(
    tx: Transaction,
    tasks: TaskStore,
    held: WorkingSet,
    snapshot: Snapshot,
    commands: Iterable[TaskCommand],
) -> None:
    """Load the limits that new tasks and jobs name, and the room of queues that have a bound."""
    flows = held.flows
    limits = flows.limits
    _load_slots(flows, snapshot, commands)
    new = _new_tasks(snapshot, commands)
    snapshot.new_keys -= len(limits.by_key)
    snapshot.owned_keys = dict(limits.owned)
    snapshot.new_flows = flows.numbers.room_for(len(new))
    if snapshot.new_flows is not None:
        snapshot.known_flows = flows.numbers.known_among(new)
    snapshot.lingering = {
        task_id
        for command in commands
        if isinstance(command, RetryTasks)
        for task_id in command.ids
        if limits.kept.get(task_id) is not None
    }
    for task in new:
        for one in named_limits(task.concurrency, task.rate):
            record = limits.by_key.get(one.key)
            if record is not None and one.key not in snapshot.limits:
                load = limits.running.get(one.key, 0) + limits.waiting.get(one.key, 0)
                snapshot.limits[one.key] = LimitUse(record, load, limits.holder_of(one.key))
            use = snapshot.limits.get(one.key)
            if use is not None and isinstance(one, Concurrency):
                _load_cancellable(tx, tasks, held, snapshot, use=use, wanted=one)
        if task.queue in flows.queues.depths and task.queue not in snapshot.queue_room:
            snapshot.queue_room[task.queue] = flows.queues.room_of(task.queue)


def _new_tasks(snapshot: Snapshot, commands: Iterable[TaskCommand]) -> list[NewTask]:
    """The tasks that callers submit, and those from the inbox."""
    wanted = [task for one in commands if type(one) is SubmitTasks for task in one.tasks]
    return wanted + [item.task for item in snapshot.inbox] if snapshot.inbox else wanted


def _load_slots(flows: HeldFlows, snapshot: Snapshot, commands: Iterable[TaskCommand]) -> None:
    """Load the slots that jobs take when they start."""
    for command in commands:
        task = snapshot.tasks.get(command.task_id) if isinstance(command, StartJob) else None
        if task is not None:
            keys = flows.missing_slots(task)
            snapshot.job_slots[task.id] = keys
            snapshot.slot_room |= {key: flows.limits.room(key) for key in keys}


def _load_cancellable(
    tx: Transaction,
    tasks: TaskStore,
    held: WorkingSet,
    snapshot: Snapshot,
    *,
    use: LimitUse,
    wanted: Concurrency,
) -> None:
    """Load the tasks of a full key that a new task may cancel, the oldest first."""
    if wanted.on_full == "cancel_running" and not use.running:
        use.running = sorted(held.flows.limits.holders(wanted.key, MOST_CANCELLED))
        _remember_tasks(tasks, held.leases, snapshot, [TaskId(one) for one in use.running])
    elif wanted.on_full == "cancel_queued" and not use.queued:
        use.queued = sorted(held.flows.queued_tasks(tx, wanted.key, MOST_CANCELLED))
        _remember_tasks(tasks, held.leases, snapshot, [TaskId(one) for one in use.queued])


def _held_place(task: NewTask, now_ms: int) -> KeyPlace | None:
    """The place of the key by which a task is unique or debounced, if it has a valid one."""
    try:
        check_unique(task)
        held = held_key_of(task, now_ms=now_ms)
    except Invalid:
        return None
    return None if held is None else (task.queue, held.key)


def _load_holders(
    tasks: TaskStore, leases: HeldLeases, snapshot: Snapshot, places: Sequence[KeyPlace]
) -> None:
    """Load the tasks that hold these keys."""
    snapshot.holders |= tasks.key_holders(places)
    _remember_tasks(tasks, leases, snapshot, [one.task_id for one in snapshot.holders.values()])


def _load_inbox(
    tx: Transaction,
    tasks: TaskStore,
    leases: HeldLeases,
    snapshot: Snapshot,
    commands: Iterable[TaskCommand],
    *,
    now_ms: int,
) -> None:
    """Take tasks from the inbox, once even if the batch has several such commands."""
    taking = next(command for command in commands if isinstance(command, TakeInbox))
    taken = InboxStore(tx).take(TAKEN_PER_STEP, most_bytes=TAKEN_BYTES_PER_STEP)
    items = [read_item(one.key, one.task, most_bytes=taking.max_payload_bytes) for one in taken]
    snapshot.inbox = items
    places = [place for item in items if (place := key_place(item.task)) is not None]
    # A task that finds no lane in its own queue may end up in this one.
    elsewhere = [(UNACCEPTED.queue, key) for _, key in places]
    snapshot.keys |= tasks.by_keys([*places, *elsewhere])
    if held := [place for item in items if (place := _held_place(item.task, now_ms)) is not None]:
        _load_holders(tasks, leases, snapshot, held)


def _remember_tasks(
    tasks: TaskStore, leases: HeldLeases, snapshot: Snapshot, ids: Sequence[TaskId]
) -> None:
    """Load whole tasks, and the leases of the running ones."""
    snapshot.tasks |= tasks.by_ids([*ids])
    snapshot.leases |= leases.of_tasks(ids)


def _load_workers(
    tasks: TaskStore,
    held: WorkingSet,
    snapshot: Snapshot,
    commands: Iterable[TaskCommand],
    context: Context,
    *,
    unwell: Collection[str],
) -> None:
    workers = held.workers
    calls = [command for command in commands if isinstance(command, WORKER_CALLS)]
    sweeps = any(isinstance(command, SweepWorkers) for command in commands)
    fails = any(isinstance(command, ReportResults) and _fails(command) for command in commands)
    callers = {command.worker_id for command in calls}
    if fails:
        snapshot.workers = {**workers.by_id}
        # Whether one more breaker may open for a task depends on how many are open already.
        snapshot.qualities |= workers.open_breakers
    elif sweeps:
        snapshot.workers = workers.silent(
            now_ms=context.now_ms,
            intervals=context.rules.health.degraded_after,
            also=callers.union(unwell),
        )
    else:
        snapshot.workers = workers.of_ids(callers)
    snapshot.fleet = len(workers)
    snapshot.next_incarnation = workers.last_incarnation + 1
    snapshot.to_cancel = workers.to_cancel(snapshot.workers.values())
    _load_leases_at_stake(tasks, held.leases, snapshot, calls, context, sweeps=sweeps)


def _load_leases_at_stake(
    tasks: TaskStore,
    leases: HeldLeases,
    snapshot: Snapshot,
    calls: Sequence[Any],
    context: Context,
    *,
    sweeps: bool,
) -> None:
    """Load the leases of workers that may lose or return some, and the tasks of lost ones."""
    registering = {command.worker_id for command in calls if isinstance(command, RegisterWorker)}
    at_stake = registering | {
        command.worker_id
        for command in calls
        if (type(command) is BeatWorker and command.running is not None)
        or type(command) is LeaveWorker
    }
    if sweeps:
        at_stake |= {
            worker.id
            for worker in snapshot.workers.values()
            if health_of(worker, context) is Health.UNHEALTHY
        }
    standing = at_stake & snapshot.workers.keys()
    if not standing:
        return
    at_risk = leases.of_incarnations(snapshot.workers[one].incarnation for one in standing)
    if not at_risk:
        return
    snapshot.leases |= at_risk
    losing = standing if sweeps else standing & registering
    lost = {snapshot.workers[one].incarnation for one in losing}
    ids = [task_id for task_id, lease in at_risk.items() if lease.incarnation in lost]
    snapshot.tasks |= tasks.by_ids([*ids])


def _fails(command: ReportResults) -> bool:
    return any(not result.ok for result in command.results)


def _load_duties(
    tasks: TaskStore,
    leases: HeldLeases,
    snapshot: Snapshot,
    kinds: Collection[type[TaskCommand]],
    now_ms: int,
) -> None:
    """Load each kind of duty once, even if the batch repeats it.

    `take_unstarted` returns each task only once, so it is called once for a batch.
    """
    if QueueDueTasks in kinds:
        snapshot.due = tasks.due(now_ms, DUE_PER_STEP)
    if ExpireAttempts in kinds:
        snapshot.overdue = tasks.overdue(now_ms, OVERDUE_PER_STEP)
        snapshot.unstarted = tasks.take_unstarted(now_ms, OVERDUE_PER_STEP)
        _remember_tasks(tasks, leases, snapshot, [*snapshot.overdue, *snapshot.unstarted])


def _load_results(
    tx: Transaction,
    tasks: TaskStore,
    held: WorkingSet,
    snapshot: Snapshot,
    commands: Iterable[TaskCommand],
) -> None:
    ids: list[TaskId] = []
    failing: list[TaskId] = []
    reporters: set[str] = set()
    for command in commands:
        match command:
            case ReportResults():
                ids += [result.task_id for result in command.results]
                failing += [
                    result.task_id
                    for result in command.results
                    if not result.ok or result.rate_limited
                ]
                reporters.add(command.worker_id)
            case ReportProgress() | ReportLogs():
                ids += [item.task_id for item in command.items]
            case ReturnLeases():
                ids += [task_id for task_id, _ in command.leases]
                snapshot.repeated = held.leases.repeated
            case _:
                pass
    if not ids:
        return
    snapshot.leases |= held.leases.of_tasks(ids)
    wanted = [number for number in ids if number not in snapshot.leases] + failing
    wanted += _moved_on(snapshot, commands)
    if wanted:
        snapshot.tasks |= tasks.by_ids([one for one in wanted if one not in snapshot.tasks])
    for worker_id, qualities in held.workers.qualities_of(tx, reporters).items():
        for name, quality in qualities.items():
            snapshot.qualities[worker_id, name] = quality


def _logging(commands: Iterable[TaskCommand]) -> list[TaskId]:
    """The tasks that workers send log lines of."""
    reports = [one for one in commands if type(one) is ReportLogs]
    return list({item.task_id for one in reports for item in one.items})


def _moved_on(snapshot: Snapshot, commands: Iterable[TaskCommand]) -> Iterator[TaskId]:
    """Yield tasks with a newer lease than the result's: their rows say why it is too late."""
    leases = snapshot.leases
    for command in commands:
        if isinstance(command, ReportResults):
            incarnation = command.incarnation
            yield from [
                result.task_id
                for result in command.results
                if (lease := leases.get(result.task_id)) is not None
                and (lease.fence != result.fence or lease.incarnation != incarnation)
            ]
