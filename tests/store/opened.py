"""A store that is open for a test: every noun on one transaction that nobody commits."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from rota.core.decisions import AddTask, FinishTask, LeaseTask, RequeueTask
from rota.core.ids import TaskId
from rota.core.tasks.model import EndedAttempt, Ending, NewTask, TaskError, TaskRecord, TaskState
from rota.store.access import TokenStore
from rota.store.database import Database, Transaction
from rota.store.postgres.link import StatementRefused
from rota.store.tasks.lanes import Lanes
from rota.store.tasks.listing import Listing
from rota.store.tasks.queues import QueueStore
from rota.store.tasks.tasks import TaskStore
from rota.store.workers import WorkerStore
from tests.databases.schemas import open_store, open_transaction, seen

NOW_MS = 1_000_000


class Opened:
    def __init__(self, tx: Transaction, lanes: Lanes) -> None:
        self.tx = tx
        self.lanes = lanes
        self.tasks = TaskStore(tx, lanes)
        self.listing = Listing(tx, lanes)
        self.workers = WorkerStore(tx)
        self.queues = QueueStore(tx)
        self.access = TokenStore(tx)

    def add(self, number: int = 1, *, due_at_ms: int | None = None, **options: Any) -> TaskId:
        """One task, queued unless it is due later."""
        fields = {"name": "work", **options}
        self.tasks.add([AddTask(TaskId(number), NewTask(**fields), NOW_MS, due_at_ms)])
        return TaskId(number)

    def task(self, number: int = 1) -> TaskRecord:
        return self.tasks.by_ids([number])[TaskId(number)]

    def lease(self, number: int = 1, *, incarnation: int = 1, **changes: Any) -> LeaseTask:
        """Lease a waiting task under its next fence."""
        task = self.task(number)
        lease = LeaseTask(
            id=task.id,
            was=task.state,
            incarnation=incarnation,
            fence=task.fence + 1,
            attempt=task.attempt + 1,
            started_at_ms=NOW_MS,
        )
        changed = replace(lease, **changes)
        self.tasks.lease([changed], {task.id: task})
        return changed

    def running(self, number: int = 1, **options: Any) -> LeaseTask:
        self.add(number, **options)
        return self.lease(number)

    def finish(
        self, number: int = 1, state: TaskState = TaskState.SUCCEEDED, **changes: Any
    ) -> None:
        """End a live task, wherever it stands."""
        task = self.task(number)
        error = TaskError(message="boom") if state is TaskState.FAILED else None
        end = FinishTask(
            id=task.id,
            was=task.state,
            state=state,
            fence=task.fence,
            attempt=task.attempt,
            finished_at_ms=NOW_MS,
            worker_id="w1",
            error=error,
        )
        self.tasks.finish([replace(end, **changes)])

    def history(self, number: int, state: TaskState = TaskState.SUCCEEDED, **options: Any) -> None:
        """A task that has run and finished."""
        finished_at_ms = options.pop("finished_at_ms", NOW_MS)
        self.running(number, **options)
        self.finish(number, state, finished_at_ms=finished_at_ms)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """What stands in the tables, seen past the queries of the store."""
        return seen(self.tx, sql)


@contextmanager
def transaction(database: Database) -> Iterator[Opened]:
    """Everything in here happens in one transaction that is rolled back at the end."""
    with open_transaction(database) as tx:
        yield Opened(tx, Lanes())


@contextmanager
def in_memory() -> Iterator[Opened]:
    """A fresh store for each example of a property."""
    database = open_store(":memory:")
    try:
        with transaction(database) as opened:
            yield opened
    finally:
        database.close()


@contextmanager
def refused(store: Opened) -> Iterator[None]:
    """What is done here contradicts the rows. That may be noticed only with the next statement."""
    mismatch = r"changed \d+ rows, not \d+"
    with pytest.raises((AssertionError, StatementRefused), match=mismatch):  # noqa: PT012
        yield
        store.tx.rows("queues.lanes")


def requeue(lease: LeaseTask, *, used: int = 1, **changes: Any) -> RequeueTask:
    """The end of a lease that did not finish its task."""
    due_at_ms = changes.get("due_at_ms")
    ended = EndedAttempt(
        attempt=lease.attempt,
        fence=lease.fence,
        ending=Ending.FAILED,
        worker_id="w1",
        ended_at_ms=NOW_MS,
        next_state=TaskState.QUEUED if due_at_ms is None else TaskState.SCHEDULED,
        error=TaskError(message="boom"),
    )
    again = RequeueTask(
        id=lease.id, fence=lease.fence, attempt=lease.attempt - 1 + used, ended=ended
    )
    return replace(again, **changes)
