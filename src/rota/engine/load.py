"""What must be known to decide these events? Loaded in bulk, before anything is decided."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from rota.core.events import (
    CancelTasks,
    CompleteJob,
    Event,
    ExpireAttempts,
    FailJob,
    Heartbeat,
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
)
from rota.core.inbox import read_item, within_lanes
from rota.core.limits import MAX_LANES
from rota.core.registry import health_of
from rota.core.snapshot import Snapshot
from rota.core.workers import Health
from rota.store.access import Access
from rota.store.database import Transaction
from rota.store.inbox import Inbox
from rota.store.lanes import Lanes
from rota.store.queues import Queues
from rota.store.tasks import Tasks
from rota.store.workers import Workers

DUE_PER_STEP = 2_000  # tasks a duty moves in one transaction; the rest follow in the next
OVERDUE_PER_STEP = 500
TAKEN_PER_STEP = 1_000
TAKEN_BYTES_PER_STEP = 16 * 1024 * 1024

WORKER_CALLS = (
    RegisterWorker,
    Heartbeat,
    LeaseWork,
    ReportResults,
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
    events: Sequence[Event],
    *,
    has_cancelled: bool,
    unwell: Collection[str],
) -> None:
    """Fill the snapshot with what the events touch; unwell: the workers that were not healthy."""
    kinds = {type(event) for event in events}
    tasks, workers = Tasks(tx, lanes), Workers(tx)
    if kinds & NAMES_TASKS:
        _load_tasks(tasks, snapshot, events)
    if TakeInbox in kinds:
        _load_inbox(tx, tasks, lanes, snapshot, events)
    if kinds & NAMES_WORKERS:
        _load_workers(workers, tasks, snapshot, events, has_cancelled=has_cancelled, unwell=unwell)
    if kinds & DUTIES:
        _load_duties(tasks, snapshot, kinds)
    if kinds & NAMES_LEASES:
        _load_results(tasks, workers, snapshot, events)
    if PauseQueue in kinds:
        snapshot.known_queues = Queues(tx).known()
    if RevokeToken in kinds:
        snapshot.token_ids = Access(tx).ids()


def _load_tasks(tasks: Tasks, snapshot: Snapshot, events: Iterable[Event]) -> None:
    keys: list[str] = []
    ids: list[int] = []
    for event in events:
        match event:
            case SubmitTasks():
                keys += [task.key for task in event.tasks if task.key is not None]
            case CancelTasks() | RetryTasks():
                ids += event.ids
            case StartJob() | CompleteJob() | FailJob():
                ids.append(event.task_id)
            case _:
                pass
    if keys:
        snapshot.keys = tasks.by_keys(keys)
    if ids:
        remember_tasks(tasks, snapshot, ids)


def _load_inbox(
    tx: Transaction, tasks: Tasks, lanes: Lanes, snapshot: Snapshot, events: Iterable[Event]
) -> None:
    """Once, however often it is asked for in the batch."""
    wish = next(event for event in events if isinstance(event, TakeInbox))
    taken = Inbox(tx).take(TAKEN_PER_STEP, most_bytes=TAKEN_BYTES_PER_STEP)
    items = [read_item(key, task, most_bytes=wish.max_payload_bytes) for key, task in taken]
    snapshot.inbox = within_lanes(items, lanes.has, room=MAX_LANES - len(lanes.by_number))
    keys = [item.task.key for item in items if item.task.key is not None]
    snapshot.keys |= tasks.by_keys(keys)


def remember_tasks(tasks: Tasks, snapshot: Snapshot, ids: list[int]) -> None:
    """Load tasks whole, and the leases of those that run."""
    snapshot.tasks |= tasks.by_ids(ids)
    snapshot.leases |= tasks.leases(ids)


def _load_workers(
    workers: Workers,
    tasks: Tasks,
    snapshot: Snapshot,
    events: Iterable[Event],
    *,
    has_cancelled: bool,
    unwell: Collection[str],
) -> None:
    calls = [event for event in events if isinstance(event, WORKER_CALLS)]
    sweeps = any(isinstance(event, SweepWorkers) for event in events)
    fails = any(isinstance(event, ReportResults) and _fails(event) for event in events)
    if fails:
        snapshot.workers = workers.every()
        snapshot.fleet = len(snapshot.workers)
    elif sweeps:
        also = {*unwell, *(event.worker_id for event in calls)}
        snapshot.workers, snapshot.fleet = workers.silent(
            now_ms=snapshot.now_ms,
            intervals=snapshot.rules.health.degraded_after,
            also=also,
        )
    elif calls:
        _load_callers(workers, snapshot, calls)
    if not calls and not sweeps:
        return
    if fails:
        # Whether one more worker may be kept from a task depends on how many are already.
        snapshot.qualities |= workers.every_quality(open_only=True)
    if any(isinstance(event, RegisterWorker) for event in calls):
        snapshot.fleet = workers.count()
        snapshot.next_incarnation = workers.counter("incarnation") + 1
    incarnations = [worker.incarnation for worker in snapshot.workers.values()]
    if has_cancelled:
        snapshot.to_cancel = workers.to_cancel(incarnations)
    if not snapshot.held and any(isinstance(event, LeaseWork) for event in calls):
        snapshot.held = tasks.held(incarnations)
    _load_leases_at_stake(tasks, snapshot, calls, sweeps=sweeps)


def _load_callers(workers: Workers, snapshot: Snapshot, calls: Sequence[Any]) -> None:
    ids = list({event.worker_id for event in calls})
    if any(isinstance(event, LeaseWork) for event in calls):
        snapshot.workers, snapshot.held = workers.with_held(ids)
    else:
        snapshot.workers = workers.by_ids(ids)


def _load_leases_at_stake(
    tasks: Tasks, snapshot: Snapshot, calls: Sequence[Any], *, sweeps: bool
) -> None:
    """The leases of workers that may lose or give back some, with their tasks."""
    registering = {event.worker_id for event in calls if isinstance(event, RegisterWorker)}
    at_stake = registering | {
        event.worker_id
        for event in calls
        if (type(event) is Heartbeat and event.running is not None) or type(event) is LeaveWorker
    }
    if sweeps:
        at_stake |= {
            worker.id
            for worker in snapshot.workers.values()
            if health_of(snapshot, worker) is Health.UNHEALTHY
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


def _fails(event: ReportResults) -> bool:
    return any(not result.ok for result in event.results)


def _load_duties(tasks: Tasks, snapshot: Snapshot, kinds: Collection[type[Event]]) -> None:
    """Once a kind, however often it stands in the batch: time limits to start are taken once."""
    if QueueDueTasks in kinds:
        snapshot.due = tasks.due(snapshot.now_ms, DUE_PER_STEP)
    if ExpireAttempts in kinds:
        snapshot.overdue = tasks.overdue(snapshot.now_ms, OVERDUE_PER_STEP)
        snapshot.unstarted = tasks.take_unstarted(snapshot.now_ms, OVERDUE_PER_STEP)
        remember_tasks(tasks, snapshot, [*snapshot.overdue, *snapshot.unstarted])


def _load_results(
    tasks: Tasks, workers: Workers, snapshot: Snapshot, events: Iterable[Event]
) -> None:
    ids: list[int] = []
    failing: list[int] = []
    reporters: set[str] = set()
    for event in events:
        match event:
            case ReportResults():
                ids += [result.task_id for result in event.results]
                failing += [result.task_id for result in event.results if not result.ok]
                reporters.add(event.worker_id)
            case ReportProgress():
                ids += [item.task_id for item in event.items]
            case ReturnLeases():
                ids += [task_id for task_id, _ in event.leases]
            case _:
                pass
    if not ids:
        return
    snapshot.leases |= tasks.leases(ids)
    wanted = [number for number in ids if number not in snapshot.leases] + failing
    wanted += _moved_on(snapshot, events)
    if wanted:
        snapshot.tasks |= tasks.by_ids([one for one in wanted if one not in snapshot.tasks])
    for worker_id in reporters:
        for name, quality in workers.qualities(worker_id).items():
            snapshot.qualities[worker_id, name] = quality


def _moved_on(snapshot: Snapshot, events: Iterable[Event]) -> Iterator[int]:
    """Tasks that are leased anew since: they are needed to say why a result comes too late."""
    leases = snapshot.leases
    for event in events:
        if isinstance(event, ReportResults):
            for result in event.results:
                lease = leases.get(result.task_id)
                if lease is not None and (
                    lease.fence != result.fence or lease.incarnation != event.incarnation
                ):
                    yield result.task_id
