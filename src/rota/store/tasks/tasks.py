"""Task rows, from submission to history. A method runs in its caller's transaction.

A live task has a row in `task` (what does not change) and in exactly one of `ready`, `scheduled`
and `lease` (its state). A finished task is a row of `history` and nothing else.
"""

import heapq
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice

import msgspec

from rota.core.decisions import (
    AddTask,
    FinishTask,
    LeaseTask,
    NoteProgress,
    RequeueTask,
    ReviveTask,
)
from rota.core.ids import TaskId
from rota.core.snapshot import last_line, logged
from rota.core.tasks import error_fingerprints
from rota.core.tasks.keys import KeyPlace
from rota.core.tasks.model import Lease, TaskError, TaskOptions, TaskRecord, TaskState, start_by_ms
from rota.store.database import Row, Transaction
from rota.store.tasks import bulk, pruning, row_types
from rota.store.tasks.lanes import Lanes

FEW = 3  # tasks that are moved one by one: staging takes three statements
NOT_LIVE = "a finished task was live, at its fence"
FINISH_COLUMNS = (
    "state",
    "fence",
    "attempt",
    "worker_id",
    "finished_at_ms",
    "result",
    "error",
    "cause",
    "id",
)

_encode = msgspec.json.Encoder().encode


class TaskStore:
    def __init__(self, tx: Transaction, lanes: Lanes) -> None:
        self._tx = tx
        self._lanes = lanes

    # --- submission -------------------------------------------------------------------------

    def last_id(self) -> int:
        return int(self._tx.value("tasks.last_id"))

    def add(self, added: Sequence[AddTask], *, is_queued: bool = True) -> set[int]:
        """Write new tasks; returns the lanes with a task that can be leased now.

        With `is_queued` False, no task is put into the queue; see `queue_new`.
        """
        return bulk.insert(self._tx, self._lanes, added, is_queued=is_queued)

    def queue_new(self, ids: Iterable[int]) -> None:
        """Queue tasks that were added without; their ids rise."""
        bulk.queue(self._tx, ids)

    def by_keys(self, places: Collection[KeyPlace]) -> dict[KeyPlace, TaskRecord]:
        """The tasks that have these keys in these queues."""
        if not places:
            return {}
        keys = list({key for _, key in places})
        wanted = {*places}
        found = {
            (queue, key): TaskId(number)
            for key, queue, number in self._tx.rows("tasks.by_keys", keys=keys)
            if (queue, key) in wanted
        }
        tasks = self.by_ids(list(found.values()))
        return {place: tasks[task_id] for place, task_id in found.items()}

    def with_key(
        self, keys: list[str], *, limit: int, before: TaskId | None, queue: str | None = None
    ) -> list[TaskRecord]:
        """The tasks that have one of these keys, in one queue or in any; newest first."""
        ids = [
            TaskId(number)
            for _, found_in, number in self._tx.rows("tasks.by_keys", keys=keys)
            if queue in {None, found_in} and (before is None or number < before)
        ]
        newest = sorted(ids, reverse=True)[:limit]
        tasks = self.by_ids([*newest])
        return [tasks[one] for one in newest]

    # --- leasing ----------------------------------------------------------------------------

    def open_lanes(self) -> list[int]:
        """The lanes with queued tasks."""
        return self._tx.column("tasks.open_lanes")

    def head(self, lanes: Sequence[int], limit: int) -> list[TaskRecord]:
        """The next tasks of all these lanes: higher priority first, then the oldest."""
        if len(lanes) == 1:
            rows = self._tx.rows("tasks.head", lane=lanes[0], limit=limit)
        else:
            rows = self._merged_head(lanes, limit)
        return row_types.queued(rows, self._lanes.by_number)

    def _merged_head(self, lanes: Sequence[int], limit: int) -> list[Row]:
        """Merge the heads of the lanes, reading each only as far as needed.

        Each lane is read in growing steps, so that many lanes do not cost `limit` rows each.
        """
        first_step = max(1, min(limit, 2 * limit // len(lanes)))

        def in_order(lane: int) -> Iterator[tuple[int, int, Row]]:
            step, seen = first_step, 0
            while seen < limit:
                wanted = min(limit, seen + step)
                rows = self._tx.rows("tasks.head", lane=lane, limit=wanted)
                for row in rows[seen:]:
                    yield row[1], row[2], row
                if len(rows) < wanted:
                    return
                seen, step = len(rows), step * 2

        merged = heapq.merge(*(in_order(lane) for lane in lanes))
        return [row for _, _, row in islice(merged, limit)]

    def lease(
        self,
        leases: Sequence[LeaseTask],
        tasks: dict[TaskId, TaskRecord],
        *,
        unqueued: Collection[TaskId] = (),
    ) -> None:
        """Lease tasks; those of one lane and priority leave the queue by one statement.

        `unqueued` are the tasks that were added and never put into the queue.
        """
        tx, queued = self._tx, TaskState.QUEUED
        known = [tasks[one.id] for one in leases]
        lanes = self._numbers(known)
        places: dict[tuple[int, int], list[int]] = {}
        taken = 0
        for one, task, lane in zip(leases, known, lanes, strict=True):
            if one.id in unqueued:
                taken += 1
            elif one.was is queued:
                places.setdefault((lane, -task.priority), []).append(one.id)
        taken += sum(bulk.dequeue(tx, *place, ids) for place, ids in places.items())
        if scheduled := [(one.id,) for one in leases if one.was is TaskState.SCHEDULED]:
            taken += tx.execute_many("tasks.unschedule_one", ("id",), scheduled)
        assert taken == len(leases), "a leased task was in exactly one place"
        bulk.write_leases(tx, leases, lanes)

    def _numbers(self, tasks: Sequence[TaskRecord]) -> list[int]:
        """The lane number of each task; each lane is looked up once."""
        known: dict[int, int] = {}
        for lane in {id(task.lane): task.lane for task in tasks}.values():
            number = self._lanes.number(self._tx, lane.queue, lane.name, lane.requires)
            known[id(lane)] = number
        return [known[id(task.lane)] for task in tasks]

    # --- running ----------------------------------------------------------------------------

    def leases(self, ids: list[int]) -> dict[TaskId, Lease]:
        rows = self._tx.rows("tasks.leases", ids=ids) if ids else []
        return row_types.leases(rows, self._lanes.by_number)

    def leases_of(self, incarnations: list[int]) -> dict[TaskId, Lease]:
        """All leases of these incarnations of workers."""
        rows = self._tx.rows("tasks.leases_of", incarnations=incarnations)
        return row_types.leases(rows, self._lanes.by_number)

    def lease_counts(self, incarnations: list[int]) -> dict[int, int]:
        """The number of leases of each of these incarnations, also where it is 0."""
        counts = dict.fromkeys(incarnations, 0)
        if incarnations:
            counts |= dict(self._tx.rows("tasks.lease_counts", incarnations=incarnations))
        return counts

    def lease_count_in_lane(self, incarnation: int, lane: int) -> int:
        query = "tasks.lease_count_in_lane"
        return int(self._tx.value(query, incarnation=incarnation, lane=lane))

    def note_progress(self, notes: Sequence[NoteProgress]) -> None:
        rows = [(_blob(note.progress), _blob(note.partial), note.id, note.fence) for note in notes]
        names = ("progress", "partial", "id", "fence")
        self._tx.pipeline_many("tasks.note_progress", names, rows)

    # --- finishing --------------------------------------------------------------------------

    def finish(self, finished: Sequence[FinishTask]) -> None:
        """Move tasks to history: one statement for all that were running, one for the others."""
        running = [one for one in finished if one.was is TaskState.RUNNING]
        waiting = [one for one in finished if one.was is not TaskState.RUNNING]
        if running:
            self._finish_running(running)
        if waiting:
            ready = [(one.id,) for one in waiting if one.was is TaskState.QUEUED]
            scheduled = [(one.id,) for one in waiting if one.was is not TaskState.QUEUED]
            taken = self._tx.execute_many("tasks.dequeue_one", ("id",), ready)
            taken += self._tx.execute_many("tasks.unschedule_one", ("id",), scheduled)
            assert taken == len(waiting), "a waiting task is in the table of its state"
            self._move_to_history(waiting, "tasks.finish_waiting")
        bulk.drop(self._tx, "tasks", [one.id for one in finished])

    def _finish_running(self, running: Sequence[FinishTask]) -> None:
        groups, others = bulk.group_successes(running)
        if len(others) <= FEW and all(one.error is None for one in others):
            groups, others = [*groups, *([one] for one in others)], []
        for group in groups:
            one = group[0]
            moved = self._tx.execute(
                "tasks.finish_alike",
                ids=[each.id for each in group],
                fence=one.fence,
                state=one.state,
                attempt=one.attempt,
                worker_id=one.worker_id,
                finished_at_ms=one.finished_at_ms,
                result=_blob(one.result),
            )
            assert moved == len(group), NOT_LIVE
        if others:
            self._move_to_history(others, "tasks.finish_running")
        bulk.drop(self._tx, "leases", [one.id for one in running])

    def _move_to_history(self, finished: Sequence[FinishTask], query: str) -> None:
        moved = self._tx.execute_many(
            query,
            FINISH_COLUMNS,
            [
                (
                    one.state,
                    one.fence,
                    one.attempt,
                    one.worker_id,
                    one.finished_at_ms,
                    _blob(one.result),
                    None if one.error is None else _encode(one.error),
                    _cause(one),
                    one.id,
                )
                for one in finished
            ],
        )
        assert moved == len(finished), NOT_LIVE

    def requeue(self, requeued: Sequence[RequeueTask], *, now_ms: int) -> set[int]:
        """End leases without finishing; returns the lanes with a task that can be leased now."""
        tx, ids = self._tx, [one.id for one in requeued]
        leases = [(one.id, one.fence) for one in requeued]
        dropped = tx.execute_many("tasks.drop_lease_at_fence", ("id", "fence"), leases)
        assert dropped == len(requeued), "a requeued task was leased, at its fence"
        before = {row[0]: row for row in tx.rows("tasks.attempt_logs", ids=ids)}
        logs = [
            (_encode(logged(row_types.log(before[one.id][1]), one.ended)), one.id)
            for one in requeued
        ]
        tx.execute_many("tasks.set_log", ("log", "id"), logs)
        # A limit that was over while its task was leased is gone. The core decides if it counts.
        self._limit_starts(
            (number, row_types.decode_options(options), created_at_ms)
            for number, _, options, created_at_ms in before.values()
            if options is not None
        )
        if now := [
            (one.fence, one.attempt, now_ms, one.id) for one in requeued if one.due_at_ms is None
        ]:
            tx.pipeline_many("tasks.requeue", ("fence", "attempt", "since_ms", "id"), now)
        if later := [
            (one.due_at_ms, one.id, one.fence, one.attempt)
            for one in requeued
            if one.due_at_ms is not None
        ]:
            tx.pipeline_many("tasks.reschedule", ("due_at_ms", "id", "fence", "attempt"), later)
        return self._lanes_of([one.id for one in requeued if one.due_at_ms is None])

    def _limit_starts(self, tasks: Iterable[tuple[int, TaskOptions, int]]) -> None:
        """Add the start limits of tasks, each with its options and creation time."""
        limits = [
            (limit_ms, number)
            for number, options, created_at_ms in tasks
            if (limit_ms := start_by_ms(options, created_at_ms=created_at_ms)) is not None
        ]
        if limits:
            self._tx.pipeline_many("tasks.add_start_limit", ("start_by_ms", "id"), limits)

    def queue(self, ids: list[int], *, now_ms: int) -> set[int]:
        """Queue scheduled tasks; returns their lanes."""
        moved = self._tx.execute("tasks.queue_scheduled", since_ms=now_ms, ids=ids)
        assert moved == len(ids), "a task that is due was scheduled"
        self._tx.execute("tasks.drop_scheduled", ids=ids)
        return self._lanes_of(ids)

    def revive(self, revived: Sequence[ReviveTask], *, now_ms: int) -> set[int]:
        """Queue finished tasks again; returns their lanes.

        Fences continue to rise, start limits begin again.
        """
        ids: list[int] = [one.id for one in revived]
        before = self.by_ids(ids)
        rows = [
            (None if one.options is None else _encode(one.options), _log_of(before[one.id]), one.id)
            for one in revived
        ]
        self._tx.execute_many("tasks.revive", ("options", "log", "id"), rows)
        self._limit_starts(
            (one.id, one.options, before[one.id].created_at_ms)
            for one in revived
            if one.options is not None
        )
        queued = [(now_ms, number) for number in ids]
        self._tx.execute_many("tasks.queue_revived", ("since_ms", "id"), queued)
        self._tx.execute("tasks.drop_history", ids=ids)
        return self._lanes_of(ids)

    def _lanes_of(self, ids: list[int]) -> set[int]:
        return set(self._tx.column("tasks.lanes_of", ids=ids)) if ids else set()

    # --- time -------------------------------------------------------------------------------

    def due(self, now_ms: int, limit: int) -> list[TaskId]:
        return self._tx.column("tasks.due", now_ms=now_ms, limit=limit)

    def overdue(self, now_ms: int, limit: int) -> list[TaskId]:
        return self._tx.column("tasks.overdue", now_ms=now_ms, limit=limit)

    def take_unstarted(self, now_ms: int, limit: int) -> list[TaskId]:
        """The tasks past their time limit to start; each is returned once."""
        ids = self._tx.column("tasks.unstarted", now_ms=now_ms, limit=limit)
        if ids:
            self._tx.execute("tasks.drop_start_limits", now_ms=now_ms, ids=ids)
        return ids

    def next_due_ms(self) -> int | None:
        """When the next scheduled task, deadline or time limit comes up."""
        moments = [
            self._tx.value(f"tasks.{name}")
            for name in ("next_due", "next_deadline", "next_start_limit")
        ]
        return min((moment for moment in moments if moment is not None), default=None)

    def prune(self, finished_before_ms: int, limit: int, *, now_ms: int = 0) -> list[TaskId]:
        """Delete old history with its keys and labels; returns the deleted tasks."""
        return pruning.prune(self._tx, finished_before_ms, limit, now_ms=now_ms)

    # --- reading ----------------------------------------------------------------------------

    def by_ids(self, ids: list[int]) -> dict[TaskId, TaskRecord]:
        """Tasks, live or finished; unknown ids are left out."""
        if not ids:
            return {}
        lanes = self._lanes.by_number
        found = {row[0]: row_types.live(row, lanes) for row in self._tx.rows("tasks.live", ids=ids)}
        if missing := [number for number in ids if number not in found]:
            past = self._tx.rows("tasks.finished", ids=missing)
            found |= {row[0]: row_types.finished(row, lanes) for row in past}
        return found


def _log_of(task: TaskRecord) -> bytes | None:
    """The log of a finished task, with its end as the last line if that was a failure."""
    log = logged(task.log, last_line(task)) if task.error is not None else task.log
    return _encode(log) if log else None


def _cause(finished: FinishTask) -> str | None:
    """The cause of a failed task; None when the task did not fail."""
    if finished.state is not TaskState.FAILED:
        return None
    error = finished.error or TaskError(type="")
    return error_fingerprints.cause(error.type, error.message)


def _blob(value: bytes | None) -> bytes | None:
    return None if value is None else bytes(value)
