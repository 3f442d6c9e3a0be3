"""Loads in bulk everything that the reducer needs to decide the commands of a batch."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from rota.core.commands import (
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
from rota.core.snapshot import Snapshot
from rota.core.tasks.inbox import UNACCEPTED, read_item
from rota.core.tasks.keys import KeyPlace, kept_key
from rota.core.tasks.submission import key_place
from rota.core.workers.model import Health
from rota.core.workers.registry import health_of
from rota.store.access import TokenStore
from rota.store.database import Transaction
from rota.store.tasks.lanes import Lanes
from rota.store.tasks.queues import InboxStore, QueueStore
from rota.store.tasks.tasks import TaskStore
from rota.store.workers import WorkerStore

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
    ReturnLeases,
    LeaveWorker,
    SetWorkerState,
)
NAMES_TASKS = {SubmitTasks, CancelTasks, RetryTasks, StartJob, CompleteJob, FailJob}
NAMES_WORKERS = {*WORKER_CALLS, SweepWorkers}
NAMES_LEASES = {ReportResults, ReportProgress, ReturnLeases}
DUTIES = {QueueDueTasks, ExpireAttempts}


def load(
    tx: Transaction,
    lanes: Lanes,
    snapshot: Snapshot,
    commands: Sequence[TaskCommand],
    context: Context,
    *,
    has_cancelled: bool,
    unwell: Collection[str],
) -> None:
    """Fill the snapshot for the commands; unwell: workers not healthy at the last sweep."""
    kinds = {type(command) for command in commands}
    tasks, workers = TaskStore(tx, lanes), WorkerStore(tx)
    if kinds & NAMES_TASKS:
        _load_tasks(tasks, snapshot, commands)
    if TakeInbox in kinds:
        _load_inbox(tx, tasks, snapshot, commands)
    if SubmitTasks in kinds or snapshot.inbox:
        wanted = [
            task for command in commands if type(command) is SubmitTasks for task in command.tasks
        ]
        wanted += [item.task for item in snapshot.inbox]
        snapshot.lane_room = lanes.room_for(tx, wanted, context.now_ms)
    if kinds & NAMES_WORKERS:
        _load_workers(
            workers,
            tasks,
            snapshot,
            commands,
            context,
            has_cancelled=has_cancelled,
            unwell=unwell,
        )
    if kinds & DUTIES:
        _load_duties(tasks, snapshot, kinds, context.now_ms)
    if kinds & NAMES_LEASES:
        _load_results(tasks, workers, snapshot, commands)
    if PauseQueue in kinds:
        snapshot.known_queues = QueueStore(tx).known()
    if RevokeToken in kinds:
        snapshot.token_ids = TokenStore(tx).ids()


def _load_tasks(tasks: TaskStore, snapshot: Snapshot, commands: Iterable[TaskCommand]) -> None:
    keys: list[KeyPlace] = []
    ids: list[int] = []
    for command in commands:
        match command:
            case SubmitTasks():
                space = command.key_space
                keys += [
                    (task.queue, kept_key(task.key, space))
                    for task in command.tasks
                    if task.key is not None
                ]
            case CancelTasks() | RetryTasks():
                ids += command.ids
            case StartJob() | CompleteJob() | FailJob():
                ids.append(command.task_id)
            case _:
                pass
    if keys:
        snapshot.keys = tasks.by_keys(keys)
    if ids:
        remember_tasks(tasks, snapshot, ids)


def _load_inbox(
    tx: Transaction, tasks: TaskStore, snapshot: Snapshot, commands: Iterable[TaskCommand]
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


def remember_tasks(tasks: TaskStore, snapshot: Snapshot, ids: list[int]) -> None:
    """Load whole tasks, and the leases of the running ones."""
    snapshot.tasks |= tasks.by_ids(ids)
    snapshot.leases |= tasks.leases(ids)


def _load_workers(
    workers: WorkerStore,
    tasks: TaskStore,
    snapshot: Snapshot,
    commands: Iterable[TaskCommand],
    context: Context,
    *,
    has_cancelled: bool,
    unwell: Collection[str],
) -> None:
    calls = [command for command in commands if isinstance(command, WORKER_CALLS)]
    sweeps = any(isinstance(command, SweepWorkers) for command in commands)
    fails = any(isinstance(command, ReportResults) and _fails(command) for command in commands)
    if fails:
        snapshot.workers = workers.all()
        snapshot.fleet = len(snapshot.workers)
    elif sweeps:
        also = {*unwell, *(command.worker_id for command in calls)}
        snapshot.workers, snapshot.fleet = workers.silent(
            now_ms=context.now_ms,
            intervals=context.rules.health.degraded_after,
            also=also,
        )
    elif calls:
        _load_callers(workers, snapshot, calls)
    if not calls and not sweeps:
        return
    if fails:
        # Whether one more breaker may open for a task depends on how many are open already.
        snapshot.qualities |= workers.all_qualities(open_only=True)
    if any(isinstance(command, RegisterWorker) for command in calls):
        snapshot.fleet = workers.count()
        snapshot.next_incarnation = workers.counter("incarnation") + 1
    incarnations = [worker.incarnation for worker in snapshot.workers.values()]
    if has_cancelled:
        snapshot.to_cancel = workers.cancelled(incarnations)
    if not snapshot.held and any(isinstance(command, LeaseWork) for command in calls):
        snapshot.held = tasks.lease_counts(incarnations)
    _load_leases_at_stake(tasks, snapshot, calls, context, sweeps=sweeps)


def _load_callers(workers: WorkerStore, snapshot: Snapshot, calls: Sequence[Any]) -> None:
    ids = list({command.worker_id for command in calls})
    if any(isinstance(command, LeaseWork) for command in calls):
        snapshot.workers, snapshot.held = workers.with_lease_counts(ids)
    else:
        snapshot.workers = workers.by_ids(ids)


def _load_leases_at_stake(
    tasks: TaskStore, snapshot: Snapshot, calls: Sequence[Any], context: Context, *, sweeps: bool
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
    held = tasks.leases_of([snapshot.workers[one].incarnation for one in standing])
    if not held:
        return
    snapshot.leases |= held
    losing = standing if sweeps else standing & registering
    lost = {snapshot.workers[one].incarnation for one in losing}
    ids = [task_id for task_id, lease in held.items() if lease.incarnation in lost]
    snapshot.tasks |= tasks.by_ids([*ids])


def _fails(command: ReportResults) -> bool:
    return any(not result.ok for result in command.results)


def _load_duties(
    tasks: TaskStore, snapshot: Snapshot, kinds: Collection[type[TaskCommand]], now_ms: int
) -> None:
    """Load each kind of duty once, even if the batch repeats it.

    `take_unstarted` returns each task only once, so it is called once for a batch.
    """
    if QueueDueTasks in kinds:
        snapshot.due = tasks.due(now_ms, DUE_PER_STEP)
    if ExpireAttempts in kinds:
        snapshot.overdue = tasks.overdue(now_ms, OVERDUE_PER_STEP)
        snapshot.unstarted = tasks.take_unstarted(now_ms, OVERDUE_PER_STEP)
        remember_tasks(tasks, snapshot, [*snapshot.overdue, *snapshot.unstarted])


def _load_results(
    tasks: TaskStore, workers: WorkerStore, snapshot: Snapshot, commands: Iterable[TaskCommand]
) -> None:
    ids: list[int] = []
    failing: list[int] = []
    reporters: set[str] = set()
    for command in commands:
        match command:
            case ReportResults():
                ids += [result.task_id for result in command.results]
                failing += [result.task_id for result in command.results if not result.ok]
                reporters.add(command.worker_id)
            case ReportProgress():
                ids += [item.task_id for item in command.items]
            case ReturnLeases():
                ids += [task_id for task_id, _ in command.leases]
            case _:
                pass
    if not ids:
        return
    snapshot.leases |= tasks.leases(ids)
    wanted = [number for number in ids if number not in snapshot.leases] + failing
    wanted += _moved_on(snapshot, commands)
    if wanted:
        snapshot.tasks |= tasks.by_ids([one for one in wanted if one not in snapshot.tasks])
    for worker_id, qualities in workers.qualities([*reporters]).items():
        for name, quality in qualities.items():
            snapshot.qualities[worker_id, name] = quality


def _moved_on(snapshot: Snapshot, commands: Iterable[TaskCommand]) -> Iterator[int]:
    """Yield tasks with a newer lease than the result's: their rows say why it is too late."""
    leases = snapshot.leases
    for command in commands:
        if isinstance(command, ReportResults):
            for result in command.results:
                lease = leases.get(result.task_id)
                if lease is not None and (
                    lease.fence != result.fence or lease.incarnation != command.incarnation
                ):
                    yield result.task_id
