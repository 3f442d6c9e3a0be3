"""Conversion of task and lease rows to core records.

The exception to conversion by name: these rows are the hot path, and are converted by position, in
the order of the columns in `sql/tasks.sql`.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from rota.core.ids import TaskId
from rota.core.tasks.model import (
    DEFAULT_OPTIONS,
    Acknowledgement,
    EndedAttempt,
    Lane,
    Lease,
    TaskError,
    TaskOptions,
    TaskRecord,
    TaskState,
)
from rota.store.database import Row

decode_options = msgspec.json.Decoder(TaskOptions).decode
_decode_error = msgspec.json.Decoder(TaskError).decode
_decode_acknowledgement = msgspec.json.Decoder(Acknowledgement).decode
_decode_log = msgspec.json.Decoder(tuple[EndedAttempt, ...]).decode

LaneTable = Mapping[int, Lane]
Place = tuple[int, TaskId]  # of a task in the queue of its lane: rank and id
FIRST_PLACE: Place = (-(2**62), TaskId(0))  # before every task
FIRST_FLOW = 2**40  # flows are numbered from here on, above every lane


class QueuedPlace(NamedTuple):
    """The place of a task in the queue."""

    lane: int  # or the flow of the task, if it has one
    rank: int  # the negated priority, unless it ages
    id: TaskId


def queued(rows: Iterable[Row], lanes: LaneTable) -> list[TaskRecord]:
    """Convert rows of `tasks.queued_after` and `queued`, in one loop: there may be thousands."""
    state = TaskState.QUEUED
    return [
        TaskRecord(
            id=number,
            lane=lanes[lane],
            state=state,
            priority=priority,
            payload=payload,
            options=DEFAULT_OPTIONS if options is None else decode_options(options),
            key=key,
            created_at_ms=created_at_ms,
            attempt=attempt,
            fence=fence,
            run=run,
            token=token,
            flow=flow,
            rank=rank,
        )
        for (
            lane,
            _,
            number,
            fence,
            attempt,
            payload,
            options,
            key,
            created_at_ms,
            run,
            token,
            flow,
            priority,
            rank,
        ) in rows
    ]


def queued_plain(rows: Iterable[Row], lane: Lane) -> list[tuple[Place, TaskRecord | None]]:
    """Convert rows of `tasks.queued_plain_after`; None: its payload was left out."""
    state = TaskState.QUEUED
    return [
        (
            (rank, number),
            None
            if payload is None
            else TaskRecord(
                id=number,
                lane=lane,
                state=state,
                priority=-rank,
                payload=payload,
                options=DEFAULT_OPTIONS if options is None else decode_options(options),
                key=key,
                created_at_ms=created_at_ms,
                attempt=attempt,
                fence=fence,
            ),
        )
        for rank, number, fence, attempt, payload, options, key, created_at_ms in rows
    ]


def leases(rows: Iterable[Row], lanes: LaneTable) -> dict[TaskId, Lease]:
    """Convert rows of `tasks.leases`, `leases_of` and `all_leases`; by task."""
    return {
        task_id: Lease(
            task_id, lanes[lane], incarnation, fence, attempt, started, deadline, holder, owner
        )
        for task_id, lane, incarnation, fence, attempt, started, deadline, holder, owner in rows
    }


def live(row: Row, lanes: LaneTable) -> TaskRecord:
    """Convert a row of `tasks.live`. The state follows from the tables that have the task."""
    incarnation, due_at_ms = row[10], row[16]
    if incarnation is not None:
        state = TaskState.RUNNING
    else:
        state = TaskState.QUEUED if due_at_ms is None else TaskState.SCHEDULED
    return msgspec.structs.replace(
        _common(row, lanes, state),
        deadline_ms=row[13],
        due_at_ms=due_at_ms,
        flow=row[17],
        rank=row[18],
    )


def finished(row: Row, lanes: LaneTable) -> TaskRecord:
    """Convert a row of `tasks.finished`."""
    return msgspec.structs.replace(
        _common(row, lanes, TaskState(row[16])),
        finished_at_ms=row[13],
        result=row[17],
        error=None if row[18] is None else _decode_error(row[18]),
        acknowledged=None if row[19] is None else _decode_acknowledgement(row[19]),
    )


def _common(row: Row, lanes: LaneTable, state: TaskState) -> TaskRecord:
    """Convert the columns that live and finished rows have at the same positions."""
    return TaskRecord(
        id=row[0],
        lane=lanes[row[1]],
        state=state,
        priority=row[2],
        payload=row[3],
        options=DEFAULT_OPTIONS if row[4] is None else decode_options(row[4]),
        key=row[5],
        created_at_ms=row[6],
        log=log(row[7]),
        fence=row[8],
        attempt=row[9],
        incarnation=row[10],
        worker_id=row[11],
        started_at_ms=row[12],
        progress=row[14],
        partial=row[15],
    )


def log(text: bytes | None) -> tuple[EndedAttempt, ...]:
    return () if text is None else _decode_log(text)
