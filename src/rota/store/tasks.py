"""Task rows, from acceptance to history. A method runs in its caller's transaction.

What is live stands in `task` (what does not change) and in exactly one of `ready`, `scheduled` and
`lease` (where it is). A finished task is a row of `history` and nothing else.
"""

import heapq
from collections.abc import Collection, Iterable, Iterator, Sequence

import msgspec

from rota.core import fingerprints
from rota.core.decisions import (
    AddTask,
    FinishTask,
    LeaseTask,
    NoteProgress,
    RequeueTask,
)
from rota.core.ids import TaskId
from rota.core.snapshot import last_line, logged
from rota.core.tasks import (
    Lease,
    Task,
    TaskError,
    TaskState,
)
from rota.store import adding, forgetting, reading, together
from rota.store.database import Row, Transaction
from rota.store.lanes import Lanes

_encode = msgspec.json.Encoder().encode
FEW = 3  # so many tasks are moved one by one: to gather them takes three statements
UNFINISHED = "what was decided to be finished was live, at its fence"


class Tasks:
    def __init__(self, tx: Transaction, lanes: Lanes) -> None:
        self._tx = tx
        self._lanes = lanes

    # --- accepting -------------------------------------------------------------------------

    def last_id(self) -> int:
        return int(self._tx.rows("tasks.last_id")[0][0])

    def add(self, added: Sequence[AddTask], *, is_queued: bool = True) -> set[int]:
        """Write new tasks; the answer is the lanes in which some can be claimed at once.

        Is queued: False leaves those out of the queue that would be in it; see `queue_new`.
        """
        return adding.add(self._tx, self._lanes, added, is_queued=is_queued)

    def queue_new(self, ids: Iterable[int]) -> None:
        """Put tasks into the queue that were added without; their ids rise."""
        for first, last in adding.spans(ids):
            self._tx.put("tasks.add_ready_range", first, last)

    def by_keys(self, keys: list[str]) -> dict[str, Task]:
        if not keys:
            return {}
        found = {key: TaskId(number) for key, number in self._tx.rows("tasks.ids_by_keys", keys)}
        tasks = self.by_ids(list(found.values()))
        return {key: tasks[task_id] for key, task_id in found.items()}

    # --- claiming ---------------------------------------------------------------------------

    def open_lanes(self) -> list[int]:
        """The lanes in which something waits."""
        return [lane for (lane,) in self._tx.rows("tasks.open_lanes")]

    def head(self, lanes: Sequence[int], most: int) -> list[Task]:
        """The next tasks over all these lanes: higher priority first, then first come."""
        if len(lanes) == 1:
            rows: Iterable[Row] = self._tx.rows("tasks.head", lanes[0], most)
        else:
            rows = self._merged_head(lanes, most)
        return reading.queued(rows, self._lanes.by_number)

    def _merged_head(self, lanes: Sequence[int], most: int) -> list[Row]:
        """Merge the lanes by turn, reading each only as far as it is needed.

        Each lane is read in growing steps, so that many lanes do not cost `most` rows each.
        """
        first_step = max(1, min(most, 2 * most // len(lanes)))

        def turns(lane: int) -> Iterator[tuple[int, int, Row]]:
            step, seen = first_step, 0
            while seen < most:
                rows = self._tx.rows("tasks.head", lane, min(most, seen + step))
                for row in rows[seen:]:
                    yield row[1], row[2], row
                if len(rows) < min(most, seen + step):
                    return
                seen, step = len(rows), step * 2

        merged = heapq.merge(*(turns(lane) for lane in lanes))
        return [row for _, (_, _, row) in zip(range(most), merged, strict=False)]

    def lease(
        self,
        leases: Sequence[LeaseTask],
        tasks: dict[TaskId, Task],
        *,
        unqueued: Collection[TaskId] = (),
    ) -> None:
        """Hand over tasks; those of one lane and priority leave the queue together.

        Unqueued: those that were added and never put into the queue.
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
        taken += sum(together.take_ready(tx, *place, ids) for place, ids in places.items())
        if scheduled := [(one.id,) for one in leases if one.was is TaskState.SCHEDULED]:
            taken += tx.many("tasks.take_scheduled_one", scheduled)
        assert taken == len(leases), "a task is leased from exactly one place"
        together.write_leases(tx, leases, lanes)

    def _numbers(self, tasks: Sequence[Task]) -> list[int]:
        """The numbers of the tasks' lanes, each looked up once."""
        known: dict[int, int] = {}
        for lane in {id(task.lane): task.lane for task in tasks}.values():
            number = self._lanes.number(self._tx, lane.queue, lane.name, lane.requires)
            known[id(lane)] = number
        return [known[id(task.lane)] for task in tasks]

    # --- running ----------------------------------------------------------------------------

    def leases(self, ids: list[int]) -> dict[TaskId, Lease]:
        return self._leases(self._tx.rows("tasks.leases", ids)) if ids else {}

    def leases_of(self, incarnations: list[int]) -> dict[TaskId, Lease]:
        """All that these incarnations of workers hold."""
        return self._leases(self._tx.rows("tasks.leases_of", incarnations))

    def _leases(self, found: Iterable[Row]) -> dict[TaskId, Lease]:
        return reading.leases(found, self._lanes.by_number)

    def held(self, incarnations: list[int]) -> dict[int, int]:
        """How many leases each incarnation has; an entry for each that was asked for."""
        held = dict.fromkeys(incarnations, 0)
        if incarnations:
            held |= dict(self._tx.rows("tasks.held", incarnations))
        return held

    def held_in_lane(self, incarnation: int, lane: int) -> int:
        return int(self._tx.rows("tasks.held_in_lane", incarnation, lane)[0][0])

    def note_progress(self, notes: Sequence[NoteProgress]) -> None:
        rows = [(_blob(note.progress), _blob(note.partial), note.id, note.fence) for note in notes]
        self._tx.put_many("tasks.note_progress", rows)

    # --- ending -----------------------------------------------------------------------------

    def finish(self, finished: Sequence[FinishTask]) -> None:
        """Move tasks to history: one statement for all that were running, one for the others."""
        running = [one for one in finished if one.was is TaskState.RUNNING]
        waiting = [one for one in finished if one.was is not TaskState.RUNNING]
        if running:
            self._finish_running(running)
        if waiting:
            ready = [(one.id,) for one in waiting if one.was is TaskState.QUEUED]
            scheduled = [(one.id,) for one in waiting if one.was is not TaskState.QUEUED]
            taken = self._tx.many("tasks.take_ready_one", ready) if ready else 0
            taken += self._tx.many("tasks.take_scheduled_one", scheduled) if scheduled else 0
            assert taken == len(waiting), "a waiting task stands where its state says"
            self._move_to_history(waiting, "tasks.finish_waiting")
        together.drop(self._tx, "tasks", [one.id for one in finished])

    def _finish_running(self, running: Sequence[FinishTask]) -> None:
        alike, others = together.alike_and_others(running)
        if len(others) <= FEW and all(one.error is None for one in others):
            alike, others = [*alike, *([one] for one in others)], []
        for group in alike:
            ids, one = [each.id for each in group], group[0]
            moved = self._tx.run(
                "tasks.finish_alike",
                one.state,
                one.attempt,
                one.worker_id,
                one.finished_at_ms,
                _blob(one.result),
                ids,
                one.fence,
            )
            assert moved == len(group), UNFINISHED
        if others:
            self._move_to_history(others, "tasks.finish_running")
        together.drop(self._tx, "leases", [one.id for one in running])

    def _move_to_history(self, finished: Sequence[FinishTask], query: str) -> None:
        moved = self._tx.many(
            query,
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
        assert moved == len(finished), UNFINISHED

    def requeue(self, requeued: Sequence[RequeueTask], *, now_ms: int) -> set[int]:
        """End leases without finishing; the answer is the lanes with something new to claim."""
        tx = self._tx
        dropped = tx.many("tasks.drop_lease_at", [(one.id, one.fence) for one in requeued])
        assert dropped == len(requeued), "what was decided to be requeued was leased, at its fence"
        before = {row[0]: row for row in tx.rows("tasks.before", [one.id for one in requeued])}
        tx.many(
            "tasks.set_log",
            [
                (_encode(logged(reading.log(before[one.id][1]), one.ended)), one.id)
                for one in requeued
            ],
        )
        self._limit_start_again(before.values())
        if now := [
            (one.fence, one.attempt, now_ms, one.id) for one in requeued if one.due_at_ms is None
        ]:
            tx.put_many("tasks.queue_again", now)
        if later := [
            (one.due_at_ms, one.id, one.fence, one.attempt)
            for one in requeued
            if one.due_at_ms is not None
        ]:
            tx.put_many("tasks.schedule_again", later)
        return self._lanes_of([one.id for one in requeued if one.due_at_ms is None])

    def _limit_start_again(self, rows: Iterable[Row]) -> None:
        """One that was over while its task was leased is gone; whether it counts, core says."""
        limits = [
            (created_at_ms + within_ms, number)
            for number, _, options, created_at_ms in rows
            if options is not None
            and (within_ms := reading.decode_options(options).start_within_ms) is not None
        ]
        if limits:
            self._tx.put_many("tasks.add_start_limit", limits)

    def queue(self, ids: list[int], *, now_ms: int) -> set[int]:
        """Scheduled tasks become ready."""
        moved = self._tx.run("tasks.queue_scheduled", now_ms, ids)
        assert moved == len(ids), "what was decided to be queued was scheduled"
        self._tx.run("tasks.drop_scheduled", ids)
        return self._lanes_of(ids)

    def revive(self, ids: list[int], *, now_ms: int) -> set[int]:
        """Bring tasks back from history; fences go on rising where they stood."""
        before = self.by_ids(ids)
        logs = [_log_of(before[TaskId(number)]) for number in ids]
        self._tx.many("tasks.revive", list(zip(logs, ids, strict=True)))
        self._tx.many("tasks.revive_ready", [(now_ms, number) for number in ids])
        self._tx.run("tasks.drop_history", ids)
        return self._lanes_of(ids)

    def _lanes_of(self, ids: list[int]) -> set[int]:
        return {lane for (lane,) in self._tx.rows("tasks.lanes_of", ids)} if ids else set()

    # --- what time brings -------------------------------------------------------------------

    def due(self, now_ms: int, most: int) -> list[TaskId]:
        return [number for (number,) in self._tx.rows("tasks.due", now_ms, most)]

    def overdue(self, now_ms: int, most: int) -> list[TaskId]:
        return [number for (number,) in self._tx.rows("tasks.overdue", now_ms, most)]

    def take_unstarted(self, now_ms: int, most: int) -> list[TaskId]:
        """Tasks whose time limit to start is over; asked about once."""
        ids = [number for (number,) in self._tx.rows("tasks.unstarted", now_ms, most)]
        if ids:
            self._tx.run("tasks.drop_start_limits", now_ms, ids)
        return ids

    def next_moment_ms(self) -> int | None:
        """When the next scheduled task, deadline or time limit comes up."""
        moments = [
            self._tx.rows(f"tasks.{name}")[0][0]
            for name in ("next_due", "next_deadline", "next_start_limit")
        ]
        return min((moment for moment in moments if moment is not None), default=None)

    def forget(self, finished_before_ms: int, most: int, *, now_ms: int = 0) -> list[TaskId]:
        """Delete old history with its keys and labels; the answer is which tasks went."""
        return forgetting.forget(self._tx, finished_before_ms, most, now_ms=now_ms)

    # --- looking ----------------------------------------------------------------------------

    def by_ids(self, ids: list[int]) -> dict[TaskId, Task]:
        """Tasks wherever they stand; ids that no task has are left out."""
        if not ids:
            return {}
        lanes = self._lanes.by_number
        found = {row[0]: reading.live(row, lanes) for row in self._tx.rows("tasks.live", ids)}
        if missing := [number for number in ids if number not in found]:
            past = self._tx.rows("tasks.finished", missing)
            found |= {row[0]: reading.finished(row, lanes) for row in past}
        return found


def _log_of(task: Task) -> bytes | None:
    """The log of a finished task, with its end as the last line if that was a failure."""
    log = logged(task.log, last_line(task)) if task.error is not None else task.log
    return _encode(log) if log else None


def _cause(finished: FinishTask) -> str | None:
    """What a task failed of; None when it did not."""
    if finished.state is not TaskState.FAILED:
        return None
    error = finished.error or TaskError(type="")
    return fingerprints.cause(error.type, error.message)


def _blob(value: bytes | None) -> bytes | None:
    return None if value is None else bytes(value)
