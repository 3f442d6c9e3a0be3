"""Leases as the rows of messages to streaming workers.

The coordinator that grants leases to a streaming worker encodes their rows. A worker may be
connected to another coordinator, which then passes the rows on without decoding them.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from rota.core.ids import TaskId, to_text
from rota.core.tasks.keys import shown_key
from rota.core.tasks.model import DEFAULT_OPTIONS, TaskRecord

FRAME_BYTES = 1024 * 1024  # of payloads in one message, unless one alone is larger
# Of payloads on their way to one worker, unless one alone is larger; the rest is given back.
GRANT_BYTES = 16 * 1024 * 1024


class _Holding(Struct, frozen=True, gc=False, array_like=True):
    """The first fields of a row."""

    task_id: TaskId
    fence: int


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[_Holding]).decode


class LeaseRows(Struct, frozen=True, array_like=True):
    """The leases of one message."""

    count: int
    payload_bytes: int
    rows: Raw  # a list of `StreamedLease`

    def holdings(self) -> Iterator[tuple[TaskId, int]]:
        """Yield the task and the fence of each lease."""
        return ((one.task_id, one.fence) for one in _decode(self.rows))


class GrantedRows(Struct, frozen=True):
    """`Granted` for a streaming worker that is connected to another coordinator."""

    messages: list[LeaseRows]

    def holdings(self) -> Iterator[tuple[TaskId, int]]:
        for message in self.messages:
            yield from message.holdings()


def granted_rows(leases: Sequence[TaskRecord]) -> GrantedRows:
    return GrantedRows(in_messages(leases))


def divided(leases: Sequence[TaskRecord]) -> tuple[Sequence[TaskRecord], Sequence[TaskRecord]]:
    """Divide leases into those that a worker is sent at once, and the rest."""
    if sum([len(task.payload) for task in leases]) <= GRANT_BYTES:  # nearly always
        return leases, ()
    size = 0
    for number, task in enumerate(leases):
        size += len(task.payload)
        if size > GRANT_BYTES and number:
            return leases[:number], leases[number:]
    return leases, ()


def in_messages(leases: Sequence[TaskRecord]) -> list[LeaseRows]:
    """Encode leases in order, in messages of a moderate size."""
    size = sum([len(task.payload) for task in leases])
    if size <= FRAME_BYTES:  # nearly always
        return [_encoded(leases, size)]
    return [_encoded(group, size) for group, size in _split(leases)]


def _split(leases: Sequence[TaskRecord]) -> Iterator[tuple[list[TaskRecord], int]]:
    group: list[TaskRecord] = []
    size = 0
    for task in leases:
        if group and size + len(task.payload) > FRAME_BYTES:
            yield group, size
            group, size = [], 0
        group.append(task)
        size += len(task.payload)
    yield group, size


def _encoded(leases: Sequence[TaskRecord], size: int) -> LeaseRows:
    # Tuples, without a struct for each row.
    rows = [
        (
            task.id,
            task.fence,
            task.lane.name,
            task.payload,
            task.attempt,
            task.options.max_attempts,
            task.lane.queue,
            task.priority,
            task.created_at_ms,
        )
        if task.options is DEFAULT_OPTIONS and task.key is None and task.run is None
        else _full_row(task)
        for task in leases
    ]
    return LeaseRows(len(rows), size, Raw(_encode(rows)))


def _full_row(task: TaskRecord) -> tuple[Any, ...]:
    options = task.options
    row = (
        task.id,
        task.fence,
        task.lane.name,
        task.payload,
        task.attempt,
        options.max_attempts,
        task.lane.queue,
        task.priority,
        task.created_at_ms,
        task.deadline_ms,
        options.timeout_ms,
        None if task.key is None else shown_key(task.key),
        options.labels,
        None if task.run is None else to_text(task.run),
    )
    return row if options.headers is None else (*row, options.headers)
