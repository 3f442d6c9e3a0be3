"""Task rows, from submission to history. A method runs in its caller's transaction.

A live task has a row in `task` (what does not change) and in exactly one of `ready`, `scheduled`
and `lease` (its state). A finished task is a row of `history` and nothing else.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from types import MappingProxyType

import msgspec

from rota.core.decisions import (
    AcknowledgeTask,
    AddTask,
    FinishTask,
    LeaseTask,
    NoteProgress,
    ReplaceTask,
    RequeueTask,
    ReviveTask,
)
from rota.core.ids import TaskId
from rota.core.snapshot import KeyHolder, last_line, logged
from rota.core.tasks import error_fingerprints
from rota.core.tasks.keys import KeyPlace
from rota.core.tasks.logs import TaskLogs
from rota.core.tasks.model import (
    DEFAULT_OPTIONS,
    Acknowledgement,
    Lease,
    TaskError,
    TaskOptions,
    TaskRecord,
    TaskState,
    holds_key,
    holds_key_while_running,
    start_by_ms,
)
from rota.store.database import Row, Transaction
from rota.store.tasks import bulk, pruning, row_types
from rota.store.tasks.lanes import Lanes
from rota.store.tasks.logs import LogStore
from rota.store.tasks.row_types import FIRST_FLOW, Place, QueuedPlace

# By whether none of the tasks belongs to a flow or works for a run.
QUEUED_AFTER = {False: "tasks.queued_after", True: "tasks.queued_plain_after"}
FEW = 3  # tasks that are moved one by one: staging takes three statements
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

_place_of = attrgetter("flow", "lane", "priority")
NO_FLOWS: Mapping[int, int] = MappingProxyType({})

_encode = msgspec.json.Encoder().encode


class TaskStore:
    def __init__(self, tx: Transaction, lanes: Lanes) -> None:
        self._tx = tx
        self._lanes = lanes

    # --- submission -------------------------------------------------------------------------

    def last_id(self) -> int:
        return int(self._tx.value("tasks.last_id"))

    def add(
        self,
        added: Sequence[AddTask],
        *,
        is_queued: bool = True,
        flows: Mapping[int, int] = NO_FLOWS,
        ranks: Mapping[int, int] = NO_FLOWS,
    ) -> set[int]:
        """Write new tasks; returns the lanes with a task that can be leased now.

        With `is_queued` False, no task is put into the queue; see `queue_new`. `flows` has the
        number of the flow of each task that has one, `ranks` the rank of those that age.
        """
        return bulk.insert(
            self._tx, self._lanes, added, is_queued=is_queued, flows=flows, ranks=ranks
        )

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

    def key_holders(self, places: Collection[KeyPlace]) -> dict[KeyPlace, KeyHolder]:
        """The tasks that hold these keys in these queues, by which they are unique."""
        wanted, keys = {*places}, list({key for _, key in places})
        return {
            (queue, key): KeyHolder(task_id, until_ms)
            for queue, key, task_id, until_ms in self._tx.rows("unique.holders", keys=keys)
            if (queue, key) in wanted
        }

    def leased_key_holders(self) -> set[TaskId]:
        return set(self._tx.column("unique.leased_holders"))

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
        """The lanes with queued tasks that belong to no flow."""
        return self._tx.column("tasks.open_lanes", end=FIRST_FLOW)

    def queued_after(
        self, lane: int, place: Place, *, limit: int, most_bytes: int, are_plain: bool = False
    ) -> list[tuple[Place, TaskRecord | None]]:
        """The next tasks of a lane after a place; None: its payload has more than `most_bytes`.

        Are plain: none of them belongs to a flow or works for a run.
        """
        wanted = _after(lane, place, limit=limit, most_bytes=most_bytes)
        return self._queued_of(lane, self._tx.rows(QUEUED_AFTER[are_plain], **wanted), are_plain)

    def read_queued_ahead(
        self,
        take: Callable[[list[tuple[Place, TaskRecord | None]]], None],
        lane: int,
        place: Place,
        *,
        limit: int,
        most_bytes: int,
        are_plain: bool,
    ) -> None:
        """Hand over what `queued_after` finds now, at the latest in the commit."""
        self._tx.read_ahead(
            lambda rows: take(self._queued_of(lane, rows, are_plain)),
            QUEUED_AFTER[are_plain],
            **_after(lane, place, limit=limit, most_bytes=most_bytes),
        )

    def _queued_of(
        self,
        lane: int,
        rows: Sequence[Row],
        are_plain: bool,  # noqa: FBT001 - as the parameter of its callers
    ) -> list[tuple[Place, TaskRecord | None]]:
        if are_plain:
            return row_types.queued_plain(rows, self._lanes.by_number[lane])
        return self._places(rows)

    def queued_after_each(
        self, places: Mapping[int, Place], *, limit: int, most_bytes: int
    ) -> dict[int, list[tuple[Place, TaskRecord | None]]]:
        """The next tasks of several flows, each after a place of its own; at most `limit` of each.

        One statement, however many flows there are.
        """
        after = [{"lane": flow, "rank": rank, "id": one} for flow, (rank, one) in places.items()]
        rows = self._tx.rows(
            "tasks.queued_after_each",
            after=msgspec.json.encode(after).decode(),
            limit=limit,
            most_bytes=most_bytes,
        )
        found: dict[int, list[tuple[Place, TaskRecord | None]]] = {flow: [] for flow in places}
        for row, one in zip(rows, self._places(rows), strict=True):
            found[row[11]].append(one)
        for of_flow in found.values():
            of_flow.sort(key=itemgetter(0))
        return found

    def _places(self, rows: Sequence[Row]) -> list[tuple[Place, TaskRecord | None]]:
        whole = [row for row in rows if row[5] is not None]
        tasks = iter(row_types.queued(whole, self._lanes.by_number))
        return [((row[1], row[2]), None if row[5] is None else next(tasks)) for row in rows]

    def queued(
        self, ids: list[int], *, ahead: Sequence[int] = (), most_bytes: int = 0
    ) -> list[TaskRecord]:
        """Those of these tasks that are queued; of those ahead, if they are small enough."""
        rows = self._tx.rows(
            "tasks.queued", ids=[*ids, *ahead], ahead=[*ahead], most_bytes=most_bytes
        )
        small = [row for row in rows if row[5] is not None] if ahead else rows
        return row_types.queued(small, self._lanes.by_number)

    def lease(
        self,
        leases: Sequence[LeaseTask],
        tasks: dict[TaskId, TaskRecord],
        *,
        unqueued: Collection[TaskId] = (),
        are_next: bool = False,
    ) -> None:
        """Lease tasks; those of one lane and priority leave the queue by one statement.

        `unqueued` are the tasks that were added and never put into the queue. Are next: the others
        are queued, and the first of their lanes.
        """
        tx, queued, scheduled = self._tx, TaskState.QUEUED, TaskState.SCHEDULED
        known = [tasks[one.id] for one in leases]
        lanes = self._numbers(known)
        places: dict[tuple[int, int], list[int]] = {}
        flowing: list[tuple[int]] = []
        leaving = known
        if unqueued or not are_next:
            leaving = [
                task
                for one, task in zip(leases, known, strict=True)
                if one.was is queued and one.id not in unqueued
            ]
        for (flow, lane, priority), group in groupby(leaving, key=_place_of):
            if flow is None:
                ids = places.setdefault((self._lanes.number_of(lane), -priority), [])
                ids += [task.id for task in group]
            else:
                flowing += [(task.id,) for task in group]
        for place, ids in places.items():
            bulk.dequeue(tx, *place, ids, are_next=are_next)
        if flowing:  # one statement for all flows: a batch may have a task of each
            tx.pipeline_each("tasks.dequeue_one", ("id",), flowing)
        if waiting := [(one.id,) for one in leases if one.was is scheduled]:
            tx.pipeline_each("tasks.unschedule_one", ("id",), waiting)
        bulk.write_leases(tx, leases, lanes)
        default = DEFAULT_OPTIONS
        if released := [
            one.id
            for one, task in zip(leases, known, strict=True)
            if task.options is not default and _releases_at_start(one, task.options)
        ]:
            tx.pipeline("unique.release", ids=released)

    def _numbers(self, tasks: Sequence[TaskRecord]) -> list[int]:
        """The lane number of each task; for tasks in a row of one lane it is looked up once."""
        numbers: list[int] = []
        for lane, group in groupby(tasks, key=attrgetter("lane")):
            number = self._lanes.number(self._tx, lane.queue, lane.name, lane.requires)
            numbers += [number for _ in group]
        return numbers

    # --- running ----------------------------------------------------------------------------

    def leases(self, ids: list[int]) -> dict[TaskId, Lease]:
        rows = self._tx.rows("tasks.leases", ids=ids) if ids else []
        return row_types.leases(rows, self._lanes.by_number)

    def all_leases(self) -> dict[TaskId, Lease]:
        return row_types.leases(self._tx.rows("tasks.all_leases"), self._lanes.by_number)

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

    def note_progress(self, notes: Sequence[NoteProgress]) -> None:
        rows = [(_blob(note.progress), _blob(note.partial), note.id, note.fence) for note in notes]
        names = ("progress", "partial", "id", "fence")
        self._tx.pipeline_many("tasks.note_progress", names, rows)

    def logs(self, ids: Sequence[TaskId]) -> dict[TaskId, TaskLogs]:
        """What is kept of the logs of these tasks; those without a log are left out."""
        return LogStore(self._tx).usages(ids)

    # --- finishing --------------------------------------------------------------------------

    def finish(self, finished: Sequence[FinishTask], holding: Collection[TaskId] = ()) -> None:
        """Move tasks to history: one statement for all that were running, one for the others.

        `holding` are those that may hold a key by which they are unique.
        """
        was_running = TaskState.RUNNING
        running = [one for one in finished if one.was is was_running]
        waiting = [one for one in finished if one.was is not was_running]
        if running:
            self._finish_running(running)
        if waiting:
            ready = [(one.id,) for one in waiting if one.was is TaskState.QUEUED]
            scheduled = [(one.id,) for one in waiting if one.was is not TaskState.QUEUED]
            self._tx.pipeline_each("tasks.dequeue_one", ("id",), ready)
            self._tx.pipeline_each("tasks.unschedule_one", ("id",), scheduled)
            self._move_to_history(waiting, "tasks.finish_waiting")
        bulk.drop(self._tx, "tasks", [one.id for one in finished])
        if holding:
            self._tx.pipeline("unique.release", ids=[*holding])

    def _finish_running(self, running: Sequence[FinishTask]) -> None:
        groups, others = bulk.group_successes(running)
        if len(others) <= FEW and all(one.error is None for one in others):
            groups, others = [*groups, *([one] for one in others)], []
        for group in groups:
            one = group[0]
            self._tx.pipeline_exactly(
                len(group),
                "tasks.finish_alike",
                ids=[each.id for each in group],
                fence=one.fence,
                state=one.state,
                attempt=one.attempt,
                worker_id=one.worker_id,
                finished_at_ms=one.finished_at_ms,
                result=_blob(one.result),
            )
        if others:
            self._move_to_history(others, "tasks.finish_running")
        bulk.drop(self._tx, "leases", [one.id for one in running])

    def _move_to_history(self, finished: Sequence[FinishTask], query: str) -> None:
        self._tx.pipeline_each(
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

    def acknowledge(self, acknowledged: Sequence[AcknowledgeTask]) -> None:
        """Store the acknowledgements of failed tasks, or delete them."""
        by_value: dict[Acknowledgement | None, list[int]] = {}
        for one in acknowledged:
            by_value.setdefault(one.acknowledgement, []).append(one.id)
        for value, ids in by_value.items():
            self._tx.pipeline(
                "tasks.acknowledge",
                ids=ids,
                acknowledgement=None if value is None else _encode(value),
                is_acknowledged=int(value is not None),
            )

    def requeue(self, requeued: Sequence[RequeueTask], *, now_ms: int) -> list[QueuedPlace]:
        """End leases without finishing; returns the places of the tasks that are queued now."""
        tx, ids = self._tx, [one.id for one in requeued]
        leases = [(one.id, one.fence) for one in requeued]
        tx.pipeline_each("tasks.drop_lease_at_fence", ("id", "fence"), leases)
        before = {row[0]: row for row in tx.rows("tasks.attempt_logs", ids=ids)}
        logs = [
            (_encode(logged(row_types.log(before[one.id][1]), one.ended)), one.id)
            for one in requeued
        ]
        tx.pipeline_many("tasks.set_log", ("log", "id"), logs)
        # A limit that was over while its task was leased is gone. The core decides if it counts.
        self._limit_starts(
            (number, row_types.decode_options(options), created_at_ms)
            for number, _, options, created_at_ms, _, _ in before.values()
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
        return [
            QueuedPlace(lane=before[one.id][4], rank=before[one.id][5], id=one.id)
            for one in requeued
            if one.due_at_ms is None
        ]

    def _limit_starts(self, tasks: Iterable[tuple[int, TaskOptions, int]]) -> None:
        """Add the start limits of tasks, each with its options and creation time."""
        limits = [
            (limit_ms, number)
            for number, options, created_at_ms in tasks
            if (limit_ms := start_by_ms(options, created_at_ms=created_at_ms)) is not None
        ]
        if limits:
            self._tx.pipeline_many("tasks.add_start_limit", ("start_by_ms", "id"), limits)

    def replace(
        self, replaced: Sequence[ReplaceTask], flows: Mapping[int, int] = NO_FLOWS
    ) -> list[QueuedPlace]:
        """Give waiting tasks new contents; returns the new places of those that are queued.

        `flows` has the number of the flow of each task that has one now.
        """
        tx = self._tx
        places: list[QueuedPlace] = []
        for one in replaced:
            new, before, is_queued = one.task, one.before, one.before.state is TaskState.QUEUED
            lane = self._lanes.number(tx, new.queue, new.name, new.requires)
            if is_queued:
                tx.pipeline_each("tasks.dequeue_one", ("id",), [(one.id,)])
            options = None if one.options is DEFAULT_OPTIONS else _encode(one.options)
            tx.pipeline_exactly(
                1,
                "tasks.replace",
                id=one.id,
                lane=lane,
                priority=new.priority,
                payload=bytes(new.payload),
                options=options,
                flow=flows.get(one.id),
            )
            if is_queued:
                row = (before.fence, 0, one.at_ms, one.id)
                tx.pipeline_many("tasks.requeue", ("fence", "attempt", "since_ms", "id"), [row])
                # A rank that ages stays as it is: the task keeps its place.
                rank = -new.priority if before.rank is None else before.rank
                places.append(QueuedPlace(flows.get(one.id, lane), rank, one.id))
            else:
                due_at_ms = before.due_at_ms if one.due_at_ms is None else one.due_at_ms
                tx.pipeline_exactly(1, "tasks.move_scheduled", due_at_ms=due_at_ms, id=one.id)
            if before.options.labels != one.options.labels:
                bulk.change_labels(tx, one.id, before.options.labels, one.options.labels)
            self._limit_starts([(one.id, one.options, before.created_at_ms)])
        return places

    def queue(self, ids: list[int], *, now_ms: int) -> list[QueuedPlace]:
        """Queue scheduled tasks; returns their places."""
        self._tx.pipeline_exactly(len(ids), "tasks.queue_scheduled", since_ms=now_ms, ids=ids)
        self._tx.pipeline("tasks.drop_scheduled", ids=ids)
        return [QueuedPlace(*row) for row in self._tx.rows("tasks.places", ids=ids)]

    def revive(
        self,
        revived: Sequence[ReviveTask],
        *,
        now_ms: int,
        flows: Mapping[int, int] = NO_FLOWS,
        ranks: Mapping[int, int] = NO_FLOWS,
    ) -> list[QueuedPlace]:
        """Queue finished tasks again; returns their places.

        Fences continue to rise, start limits begin again. `flows` has the number of the flow of
        each task that has one, `ranks` the rank of those that age.
        """
        revived_ids = [one.id for one in revived]
        ids: list[int] = [*revived_ids]
        before = self.by_ids(ids)
        rows = [
            (
                None if one.options is None else _encode(one.options),
                _log_of(before[one.id]),
                flows.get(one.id),
                ranks.get(one.id),
                one.id,
            )
            for one in revived
        ]
        self._tx.pipeline_each("tasks.revive", ("options", "log", "flow", "rank", "id"), rows)
        self._limit_starts(
            (one.id, one.options, before[one.id].created_at_ms)
            for one in revived
            if one.options is not None
        )
        queued = [(flows.get(number), ranks.get(number), now_ms, number) for number in ids]
        self._tx.pipeline_each("tasks.queue_revived", ("flow", "rank", "since_ms", "id"), queued)
        self._tx.pipeline("tasks.drop_history", ids=ids)
        numbers = self._numbers([before[one] for one in revived_ids])
        return [
            QueuedPlace(flows.get(one, number), ranks.get(one, -before[one].priority), one)
            for number, one in zip(numbers, revived_ids, strict=True)
        ]

    # --- time -------------------------------------------------------------------------------

    def due(self, now_ms: int, limit: int) -> list[TaskId]:
        return self._tx.column("tasks.due", now_ms=now_ms, limit=limit)

    def overdue(self, now_ms: int, limit: int) -> list[TaskId]:
        return self._tx.column("tasks.overdue", now_ms=now_ms, limit=limit)

    def take_unstarted(self, now_ms: int, limit: int) -> list[TaskId]:
        """The tasks past their time limit to start; each is returned once."""
        ids = self._tx.column("tasks.unstarted", now_ms=now_ms, limit=limit)
        if ids:
            self._tx.pipeline("tasks.drop_start_limits", now_ms=now_ms, ids=ids)
        return ids

    def next_due_ms(self) -> int | None:
        """When the next scheduled task, deadline or time limit comes up."""
        moments = [
            self._tx.value(f"tasks.{name}")
            for name in ("next_due", "next_deadline", "next_start_limit")
        ]
        return min((moment for moment in moments if moment is not None), default=None)

    def prune(self, finished_before_ms: int, limit: int, *, now_ms: int = 0) -> list[TaskId]:
        """Delete old history with its keys, labels and logs; returns the deleted tasks."""
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


def _after(lane: int, place: Place, *, limit: int, most_bytes: int) -> dict[str, object]:
    rank, task_id = place
    return {"lane": lane, "rank": rank, "id": task_id, "limit": limit, "most_bytes": most_bytes}


def _releases_at_start(lease: LeaseTask, options: TaskOptions) -> bool:
    """Whether a task lets go of its key with this lease: its first one, or none at all."""
    is_first = lease.fence == 1
    return is_first and holds_key(options) and not holds_key_while_running(options)


def _log_of(task: TaskRecord) -> bytes | None:
    """The log of a finished task, with its end as the last line if that was a failure."""
    has_failed = task.state is TaskState.FAILED and task.error is not None
    log = logged(task.log, last_line(task)) if has_failed else task.log
    return _encode(log) if log else None


def _cause(finished: FinishTask) -> str | None:
    """The cause of a failed task; None when the task did not fail."""
    if finished.state is not TaskState.FAILED:
        return None
    error = finished.error or TaskError(type="")
    return error_fingerprints.cause(error.type, error.message)


def _blob(value: bytes | None) -> bytes | None:
    return None if value is None else bytes(value)
