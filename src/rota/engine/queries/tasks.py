"""Reads of tasks: one, a page, the place in a queue, and what is due next."""

from collections.abc import Callable, Collection, Sequence

from msgspec import Struct

from rota.core import limits
from rota.core.commands import TaskFilter
from rota.core.ids import TaskId
from rota.core.tasks.keys import kept_forms
from rota.core.tasks.logs import RANKS, LogLevel, LogUsage, size_of
from rota.core.tasks.model import FINISHED, TaskRecord, TaskState, of_run
from rota.core.workflow.states import RUN_ENDED
from rota.engine.queries.reader import StoreReader
from rota.store.database import Transaction
from rota.store.tasks.listing import Listing
from rota.store.tasks.logs import LogStore, NumberedLine
from rota.store.tasks.queues import InboxStore
from rota.store.tasks.tasks import TaskStore
from rota.store.workflow.runs import RunStore

MOST_COUNTED_AHEAD = 1_000  # a position further back is expensive to count, and not reported


class TaskLog(Struct, frozen=True, kw_only=True):
    """A part of a task's log."""

    lines: list[NumberedLine]
    attempts: dict[int, LogUsage]  # by fence
    scanned: int  # the number of the last line that was looked at
    has_more: bool


class TaskQueries:
    def __init__(self, reader: StoreReader) -> None:
        self._read = reader.read
        self._lanes = reader.lanes

    async def by_id(self, task_id: TaskId) -> TaskRecord | None:
        """Return a task, with the run and token that it works for."""

        def body(tx: Transaction) -> TaskRecord | None:
            task = TaskStore(tx, self._lanes).by_ids([task_id]).get(task_id)
            return None if task is None else _with_runs(tx, [task])[0]

        return await self._read(body)

    async def by_ids(self, ids: Sequence[TaskId]) -> dict[TaskId, TaskRecord]:
        """Return those of the given tasks that exist, without their runs."""
        return await self._read(lambda tx: TaskStore(tx, self._lanes).by_ids([*ids]))

    async def with_key(
        self, key: str, *, queue: str | None, limit: int, before: TaskId | None = None
    ) -> list[TaskRecord]:
        """Return the tasks accepted under this key, in one queue or in any; newest first."""

        def body(tx: Transaction) -> list[TaskRecord]:
            tasks = TaskStore(tx, self._lanes)
            forms = kept_forms(key)
            return _with_runs(tx, tasks.with_key(forms, queue=queue, limit=limit, before=before))

        return await self._read(body)

    async def held_by(self, incarnation: int) -> list[TaskRecord]:
        """Return the tasks that a worker holds, the oldest first."""

        def body(tx: Transaction) -> list[TaskRecord]:
            tasks = TaskStore(tx, self._lanes)
            held = tasks.by_ids([*tasks.leases_of([incarnation])])
            return [held[task_id] for task_id in sorted(held)]

        return await self._read(body)

    async def page(
        self, selection: TaskFilter, *, limit: int, before: TaskId | None = None
    ) -> list[TaskRecord]:
        """Return a page of tasks, newest first."""

        def body(tx: Transaction) -> list[TaskRecord]:
            listing = Listing(tx, self._lanes)
            return _with_runs(tx, listing.page(selection, limit=limit, before=before))

        return await self._read(body)

    async def ids(
        self, selection: TaskFilter, *, limit: int, before: TaskId | None = None
    ) -> list[TaskId]:
        """Return the ids of a page of tasks, newest first."""
        return await self._read(
            lambda tx: Listing(tx, self._lanes).ids(selection, limit=limit, before=before)
        )

    async def count(self, selection: TaskFilter) -> int:
        return await self._read(lambda tx: Listing(tx, self._lanes).count(selection))

    async def position(self, task: TaskRecord) -> int | None:
        """Return a queued task's place in its lane, from 1; None: not queued, or too far back."""
        if task.state is not TaskState.QUEUED:
            return None
        ahead = await self._read(
            lambda tx: Listing(tx, self._lanes).count_ahead(task, limit=MOST_COUNTED_AHEAD)
        )
        return ahead + 1 if ahead < MOST_COUNTED_AHEAD else None

    async def is_live(self, task_id: int) -> bool:
        """Return whether a task or a run of this id exists and has not ended."""

        def body(tx: Transaction) -> bool:
            task = TaskStore(tx, self._lanes).by_ids([task_id]).get(TaskId(task_id))
            if task is not None:
                return task.state not in FINISHED
            run = RunStore(tx).by_ids([task_id]).get(task_id)
            return run is not None and run.state not in RUN_ENDED

        return await self._read(body)

    async def log_after(
        self,
        task_id: TaskId,
        number: int,
        *,
        attempt: int | None = None,
        level: LogLevel = "debug",
        limit: int = limits.MAX_PAGE,
    ) -> TaskLog:
        """Return lines of a task's log after a number, of one attempt or of all."""

        def body(tx: Transaction) -> TaskLog:
            store = LogStore(tx)
            found = store.usages([task_id]).get(task_id)
            attempts = {} if found is None else found.attempts
            wanted = {
                fence: log.last
                for fence, log in attempts.items()
                if log.lines and log.last > number and attempt in {None, log.attempt}
            }
            if not wanted:
                return TaskLog(lines=[], attempts=attempts, scanned=number, has_more=False)
            page, scanned = _log_page(
                lambda after: store.after(task_id, after, fences=[*wanted], limit=limit),
                number,
                level=level,
                limit=limit,
            )
            has_more = scanned < max(wanted.values())
            return TaskLog(lines=page, attempts=attempts, scanned=scanned, has_more=has_more)

        return await self._read(body)

    async def has_inbox(self) -> bool:
        """Return whether tasks from applications' own transactions wait in the inbox."""
        return not await self._read(lambda tx: InboxStore(tx).is_empty())

    async def next_moment_ms(self) -> int | None:
        """Return the time of the next scheduled task, deadline or time limit."""

        def body(tx: Transaction) -> int | None:
            moments = (TaskStore(tx, self._lanes).next_due_ms(), RunStore(tx).next_timer_ms())
            return min((moment for moment in moments if moment is not None), default=None)

        return await self._read(body)


def _with_runs(tx: Transaction, tasks: Collection[TaskRecord]) -> list[TaskRecord]:
    """Return the tasks, each with the run and token that it works for, if any."""
    working = RunStore(tx).tasks([task.id for task in tasks])
    return [of_run(task, working.get(task.id)) for task in tasks]


def _log_page(
    read: Callable[[int], Sequence[NumberedLine]], number: int, *, level: LogLevel, limit: int
) -> tuple[list[NumberedLine], int]:
    """Return as many lines as one answer may have, and the number of the last one looked at."""
    page: list[NumberedLine] = []
    size, least = 0, RANKS[level]
    while len(page) < limit and size <= limits.MAX_LOG_PAGE_BYTES and (lines := read(number)):
        for one in lines:
            size += size_of(one.line)
            if len(page) == limit or (page and size > limits.MAX_LOG_PAGE_BYTES):
                break
            number = one.number
            if RANKS[one.line.level] >= least:
                page.append(one)
    return page, number
