"""Was it true, what callers were told?

An answer must fit what the store held at some moment between the arrival of its call and its
leaving; what it promised must stay true for ever after (see `promises`).
"""

from rota.core.commands import (
    BeatWorker,
    CancelTasks,
    CompleteJob,
    LeaseWork,
    RegisterWorker,
    ReportResults,
    Result,
    RetryTasks,
    StartJob,
    SubmitTasks,
    TaskCommand,
)
from rota.core.decisions import AddTask
from rota.core.replies import (
    Beat,
    Changed,
    Granted,
    JobChanged,
    OutcomeName,
    Outcomes,
    Registered,
    Reply,
    Submitted,
)
from rota.core.tasks.model import FINISHED, TaskState
from rota.errors import (
    RotaError,
    StaleIncarnation,
    TaskNotFound,
    UniqueConflict,
    WorkerNotFound,
)
from tests.simulation.book import Arrival, Book, WorkerCall
from tests.simulation.invariants import JOB_INCARNATION, demand
from tests.simulation.trace import Violation

LIVE = {str(state) for state in TaskState if state not in FINISHED}


def check_answer(book: Book, arrival: Arrival, reply: Reply) -> None:
    event, since = arrival.event, arrival.commit
    # A call for work whose time is over before it is looked at may be answered with nothing.
    if isinstance(event, WorkerCall) and reply != Granted([]):
        was_current = book.observer.was_current(event.incarnation, since=since)
        demand(was_current, f"incarnation {event.incarnation} was replaced and still served")
    match event, reply:
        case SubmitTasks(), Submitted():
            _check_submitted(book, event, reply, above=arrival.highest_id)
        case ReportResults(), Outcomes():
            for result, outcome in zip(event.results, reply.outcomes, strict=True):
                _check_outcome(book, event.incarnation, result, outcome, since)
        case LeaseWork(), Granted():
            _check_granted(book, event, reply)
        case BeatWorker(), Beat():
            _check_beat(book, event, reply, since)
        case RegisterWorker(), Registered():
            _check_registered(book, reply, since)
        case CancelTasks() | RetryTasks(), Changed():
            _check_changed(book, event, reply, since)
        case StartJob() | CompleteJob(), JobChanged():
            _check_job(book, event, since)
        case _:
            pass


def check_refusal(book: Book, arrival: Arrival, error: Exception) -> None:
    """A refusal is an answer too: it must not deny what was true all the time."""
    event, since = arrival.event, arrival.commit
    match error:
        case WorkerNotFound() | StaleIncarnation() if isinstance(event, WorkerCall):
            is_wrong = book.observer.is_current_since(event.incarnation, since)
            demand(not is_wrong, f"incarnation {event.incarnation} is current and was refused")
        case TaskNotFound() if isinstance(event, StartJob | CompleteJob):
            _check_unknown(book, event.task_id)
        case UniqueConflict():
            holder = int(error.facts["task_id"], 16)
            is_there = book.observer.was_in(holder, LIVE, since=since)
            demand(is_there, f"task {holder:x} had ended, and another was refused for its sake")
        case RotaError():
            pass
        case _:
            raise Violation(f"a mistake of the coordinator: {error!r}")


def _check_unknown(book: Book, task_id: int) -> None:
    is_known = task_id in book.acknowledged and task_id not in book.forgotten
    demand(not is_known, f"task {task_id:x} was acknowledged and is said to be unknown")


def _check_submitted(book: Book, event: SubmitTasks, reply: Submitted, *, above: int) -> None:
    demand(len(reply.items) == len(event.tasks), "not every submitted task was answered")
    for task, item in zip(event.tasks, reply.items, strict=True):
        if task.key is not None:
            known = book.keys.get((task.queue, task.key))
            if known is not None and known not in book.forgotten:
                demand(known == item.id, f"key {task.key!r} has two tasks")
            book.keys[task.queue, task.key] = item.id
        elif task.unique is None:
            is_new = item.id not in book.acknowledged
            demand(is_new, f"two submissions were answered with task {item.id:x}")
        if isinstance(item, AddTask):
            demand(item.id > above, f"new task {item.id:x} has no higher id than those before it")
        if task.unique is None or isinstance(item, AddTask):
            book.acknowledged[item.id] = bytes(task.payload)
        book.highest_id = max(book.highest_id, item.id)


def _check_granted(book: Book, event: LeaseWork, reply: Granted) -> None:
    demand(len(reply.leases) <= event.most, "more leases were granted than asked for")
    for task in reply.leases:
        lease = (task.id, task.fence)
        demand(lease not in book.granted, f"lease {lease} was given to two callers")
        book.granted.add(lease)
        grant = book.observer.grants.get(lease)
        is_theirs = grant is not None and grant.incarnation == event.incarnation
        demand(is_theirs, f"lease {lease} was told and is not in the store")


def _check_registered(book: Book, reply: Registered, since: int) -> None:
    number, tenures = reply.worker.incarnation, book.observer.tenures
    demand(number not in book.incarnations, f"incarnation {number} was given to two callers")
    book.incarnations.add(number)
    before = max((one for one, tenure in tenures.items() if tenure.since <= since), default=0)
    demand(number > before, f"incarnation {number} was given after {before}")


def _check_outcome(
    book: Book, incarnation: int, result: Result, outcome: OutcomeName, since: int
) -> None:
    task_id, fence = result.task_id, result.fence
    grant = book.observer.grants.get((task_id, fence))
    is_theirs = grant is not None and grant.incarnation == incarnation
    is_success = result.ok and result.snooze_ms is None
    named = f"the result of task {task_id:x} under fence {fence}"
    match outcome:
        case "accepted":
            was_live = grant is not None and is_theirs and grant.lived_after(since)
            demand(was_live, f"{named} was accepted without a lease")
            if is_success:
                demand(task_id not in book.completed, f"task {task_id:x} was completed twice")
                book.completed.add(task_id)
                finished = book.observer.now.history.get(task_id)
                is_right = finished is None or finished.fence == fence
                demand(is_right, f"{named} was accepted, another one was kept")
        case "duplicate":
            # A failure may also repeat what time has already said of the attempt.
            is_told = not is_success or book.reported[task_id, fence] > 1
            demand(is_told, f"{named} came once and was called a duplicate")
        case "stale":
            holds = grant is not None and is_theirs and grant.lived_throughout(since)
            demand(not holds, f"{named} is current and was called stale")
        case "stale_epoch":
            raise Violation(f"{named} was refused for a shard that it did not name")
        case "unknown":
            _check_unknown(book, task_id)


def _check_beat(book: Book, event: BeatWorker, reply: Beat, since: int) -> None:
    """A worker is not told to drop what it holds."""
    observer = book.observer
    for task_id in (*reply.cancel, *reply.lost):
        lease = observer.now.leases.get(task_id)
        if lease is not None and lease.incarnation == event.incarnation:
            holds = observer.grants[task_id, lease.fence].lived_throughout(since)
            demand(not holds, f"incarnation {event.incarnation} was told to drop {task_id:x}")


def _check_changed(book: Book, event: TaskCommand, reply: Changed, since: int) -> None:
    states = {"cancelled"} if isinstance(event, CancelTasks) else LIVE
    for task_id in reply.changed:
        was_so = book.observer.was_in(task_id, states, since=since)
        if isinstance(event, CancelTasks):
            # A retry in the same batch undoes it before anybody can see it.
            was_so = was_so or book.may_be_retried(task_id, since=since)
        demand(was_so, f"{type(event).__name__} of task {task_id:x} was told and not done")
    for task_id, error in reply.refused.items():
        if isinstance(error, TaskNotFound):
            _check_unknown(book, task_id)


def _check_job(book: Book, event: StartJob | CompleteJob, since: int) -> None:
    task_id, observer = event.task_id, book.observer
    if isinstance(event, CompleteJob):
        is_done = task_id in book.forgotten or observer.was_in(task_id, {"succeeded"}, since=since)
        demand(is_done, f"job {task_id:x} was completed and is not")
        return
    holds = any(
        grant.incarnation == JOB_INCARNATION
        and grant.holder == event.holder
        and grant.lived_after(since)
        for (leased_id, _), grant in observer.grants.items()
        if leased_id == task_id
    )
    demand(holds, f"job {task_id:x} was started for {event.holder!r}, who never held it")
