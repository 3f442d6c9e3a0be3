"""Broken rules about the ends of tasks, and about what is kept of them."""

from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from rota.core.commands import PruneHistory, RetryTasks, SubmitTasks
from rota.core.context import Context
from rota.core.decisions import Decision, FinishTask, ForgetHistory, RequeueTask
from rota.core.replies import Done
from rota.core.snapshot import Snapshot
from rota.core.tasks import attempts, operations
from rota.core.tasks.model import Lease, TaskRecord, TaskState, holds_key
from rota.core.tasks.submission import submission
from rota.engine.commit.pipeline import Pipeline
from rota.engine.working_set.working_set import WorkingSet
from rota.store.database import Transaction
from rota.store.sqlite.database import SqliteDatabase
from rota.store.tasks import tasks
from rota.store.tasks.lanes import Lanes
from rota.store.tasks.tasks import TaskStore
from rota.store.workers import WorkerStore
from tests.simulation import profiles
from tests.simulation.mutation import Mutants, skipping
from tests.simulation.profiles import Profile

MUTANTS = Mutants[Profile](seeds=10)
mutant = MUTANTS.add

FAR_MS = 10**10


# --- what is held in memory ---------------------------------------------------------------------


@mutant(profiles.FULL_DISK)
def stale_working_set() -> Iterator[None]:
    """What a failed commit was to write stays in memory."""
    begin = WorkingSet.begin

    def trusting(self: WorkingSet, tx: Transaction, lanes: Lanes) -> None:
        self._is_certain = self._is_certain or len(self.workers) + len(self.leases) > 0
        begin(self, tx, lanes)

    with patch.object(WorkingSet, "begin", trusting):
        yield


# --- ends of attempts and tasks -----------------------------------------------------------------


@mutant(profiles.CALM)
def loses_requeue() -> Iterator[None]:
    """A failed attempt is ended, and the next one forgotten."""
    with skipping("tasks.requeue", "tasks.reschedule"):
        yield


@mutant(profiles.BAD_HANDLERS)
def endless_attempts() -> Iterator[None]:
    fail = attempts.fail

    def patient(
        snapshot: Snapshot, lease: Lease, *rest: Any, **named: Any
    ) -> FinishTask | RequeueTask:
        task = snapshot.tasks[lease.id]
        options = replace(task.options, max_attempts=FAR_MS)
        snapshot.tasks[lease.id] = replace(task, options=options)
        return fail(snapshot, lease, *rest, **named)

    with patch.object(attempts, "fail", patient):
        yield


@mutant(profiles.CALM, seeds=20)
def deadlines_ignored() -> Iterator[None]:
    """An attempt may take as long as it likes, and so may a job nobody works on."""
    with (
        patch.object(TaskStore, "overdue", lambda *_: []),
        patch.object(TaskStore, "next_due_ms", lambda _: None),
    ):
        yield


@mutant(profiles.CALM)
def cancel_not_final() -> Iterator[None]:
    """A cancelled task that runs is only asked to stop, and may succeed."""
    cancel = operations.cancel_task

    def gentle(snapshot: Snapshot, task: TaskRecord, context: Context) -> list[Decision]:
        return [] if task.state is TaskState.RUNNING else cancel(snapshot, task, context)

    with patch.object(operations, "cancel_task", gentle):
        yield


@mutant(profiles.CALM)
def success_not_final() -> Iterator[None]:
    """A task that has succeeded can be sent round again."""
    retry = operations.retry

    def eager(snapshot: Snapshot, command: RetryTasks, context: Context) -> Any:
        for task_id in command.ids:
            task = snapshot.tasks.get(task_id)
            if task is not None and task.state is TaskState.SUCCEEDED:
                snapshot.tasks[task_id] = replace(task, state=TaskState.FAILED)
        return retry(snapshot, command, context)

    with patch.object(operations, "retry", eager):
        yield


# --- what is kept -------------------------------------------------------------------------------


@mutant(profiles.DYING_COORDINATOR)
def answer_before_commit() -> Iterator[None]:
    """Answers leave before the commit they speak of."""

    def commit(self: SqliteDatabase) -> None:
        if self._writer.in_transaction:
            self._writer.execute("COMMIT")

    def write(self: SqliteDatabase, body: Callable[[Any], Any]) -> Any:
        commit(self)
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            return body(self._transaction)
        except BaseException:
            self._writer.execute("ROLLBACK")
            raise

    read = SqliteDatabase.read

    def committed_read(self: SqliteDatabase, body: Callable[[Any], Any]) -> Any:
        commit(self)
        return read(self, body)

    with patch.multiple(SqliteDatabase, write=write, read=committed_read):
        yield


@mutant(profiles.ROUGH_NETWORK)
def forgets_keys() -> Iterator[None]:
    """The same key is a new task each time."""
    submit = submission.submit

    def forgetful(snapshot: Snapshot, command: SubmitTasks, context: Context) -> Any:
        keyless = SubmitTasks([replace(task, key=None) for task in command.tasks])
        return submit(snapshot, keyless, context)

    with patch.object(submission, "submit", forgetful):
        yield


@mutant(profiles.UNIQUE_TASKS)
def unique_key_kept() -> Iterator[None]:
    """A task that has started or ended still holds its key."""
    with skipping("unique.release"):
        yield


@mutant(profiles.UNIQUE_TASKS)
def unique_key_released_early() -> Iterator[None]:
    """Every task lets go of its key when it starts."""
    with patch.object(tasks, "_releases_at_start", lambda _, options: holds_key(options)):
        yield


@mutant(profiles.UNIQUE_TASKS, seeds=40)
def unique_key_released_twice() -> Iterator[None]:
    """A task that has no key any more takes the key of the next one from it when it ends."""
    finish = TaskStore.finish

    def greedy(self: TaskStore, finished: Any, holding: Any = ()) -> None:
        ended = self.by_ids([*holding]).values()
        places = [
            (task.lane.queue, f"key:{task.options.unique.key}")
            for task in ended
            if task.options.unique is not None
        ]
        finish(self, finished, [one.task_id for one in self.key_holders(places).values()])

    with patch.object(TaskStore, "finish", greedy):
        yield


@mutant(profiles.UNIQUE_TASKS)
def unique_keys_forgotten_at_start() -> Iterator[None]:
    """A coordinator that starts does not know which running tasks hold a key."""
    with patch.object(TaskStore, "leased_key_holders", lambda _: set()):
        yield


@mutant(profiles.CALM)
def early_prune() -> Iterator[None]:
    """What has just finished is forgotten."""

    def prune(command: PruneHistory) -> tuple[list[Decision], Done]:
        return [ForgetHistory(command.finished_before_ms + FAR_MS, 1_000)], Done()

    with patch.object(operations, "prune", prune):
        yield


@mutant(profiles.WRONG_CLOCK, seeds=30)
def ids_start_anew() -> Iterator[None]:
    """After a restart ids follow the clock alone, which may have been set back."""
    with (
        patch.object(TaskStore, "last_id", lambda _: 0),
        patch.object(WorkerStore, "counter", _only_incarnations(WorkerStore.counter)),
    ):
        yield


def _only_incarnations(
    counter: Callable[[WorkerStore, str], int],
) -> Callable[[WorkerStore, str], int]:
    return lambda self, name: counter(self, name) if name == "incarnation" else 0


@mutant(profiles.FULL_DISK, seeds=20)
def ghost_lanes() -> Iterator[None]:
    """Lanes that a rollback took back are remembered."""
    with patch.object(Pipeline, "_forget_uncommitted", lambda _: None):
        yield
