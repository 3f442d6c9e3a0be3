"""Inserts of new tasks: one row each, and further rows for options that most do not have."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import msgspec

from rota.core.decisions import AddTask
from rota.core.tasks.model import DEFAULT_OPTIONS, NewTask, normalised_labels, options_of
from rota.store.database import Transaction
from rota.store.tasks.lanes import Lanes

COLUMNS = ("id", "lane", "priority", "payload", "options", "key", "created_at_ms")

_encode = msgspec.json.Encoder().encode


def insert(tx: Transaction, lanes: Lanes, added: Sequence[AddTask], *, is_queued: bool) -> set[int]:
    """Write new tasks; returns the lanes with a task that can be leased now."""
    lane_of = lanes.number
    rows, open_lanes, special = [], set(), []
    for one in added:
        task = one.task
        lane = lane_of(tx, task.queue, task.name, task.requires)
        rows.append(
            (
                one.id,
                lane,
                task.priority,
                bytes(task.payload),
                _options(task),
                task.key,
                one.created_at_ms,
            )
        )
        if one.due_at_ms is None:
            open_lanes.add(lane)
        if _is_special(one):
            special.append(one)
    tx.pipeline_many("tasks.add", COLUMNS, rows)
    if is_queued and added:
        for first, last in _ready_ranges(added) if special else [(added[0].id, added[-1].id)]:
            tx.pipeline("tasks.queue_range", first=first, last=last)
    if special:
        _insert_options(tx, special)
    return open_lanes


def queue(tx: Transaction, ids: Iterable[int]) -> None:
    """Queue new tasks, whose ids rise."""
    for first, last in id_ranges(ids):
        tx.pipeline("tasks.queue_range", first=first, last=last)


def id_ranges(ids: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The first and the last id of each range of consecutive ids; the ids rise."""
    for _, group in groupby(enumerate(ids), key=lambda pair: pair[1] - pair[0]):
        consecutive = [number for _, number in group]
        yield consecutive[0], consecutive[-1]


def _insert_options(tx: Transaction, added: Sequence[AddTask]) -> None:
    if scheduled := [(one.due_at_ms, one.id) for one in added if one.due_at_ms is not None]:
        tx.pipeline_many("tasks.add_scheduled", ("due_at_ms", "id"), scheduled)
    if keys := [
        (one.task.key, one.task.queue, one.id) for one in added if one.task.key is not None
    ]:
        tx.pipeline_many("tasks.add_key", ("key", "queue", "id"), keys)
    if labels := [
        (label, one.id)
        for one in added
        if one.task.labels
        for label in normalised_labels(one.task.labels)
    ]:
        tx.pipeline_many("tasks.add_label", ("label", "id"), labels)
    if limits := [
        (one.created_at_ms + one.task.start_within_ms, one.id)
        for one in added
        if one.task.start_within_ms is not None
    ]:
        tx.pipeline_many("tasks.add_start_limit", ("start_by_ms", "id"), limits)


def _is_special(added: AddTask) -> bool:
    """Whether a task has more rows than its own and its place in the queue."""
    task = added.task
    return (
        added.due_at_ms is not None
        or task.key is not None
        or task.labels is not None
        or task.start_within_ms is not None
    )


def _ready_ranges(added: Sequence[AddTask]) -> Iterator[tuple[int, int]]:
    """The ranges of new tasks that are not scheduled; their ids rise."""
    for is_ready, group in groupby(added, key=lambda one: one.due_at_ms is None):
        if is_ready:
            ids = [one.id for one in group]
            yield ids[0], ids[-1]


def _options(task: NewTask) -> bytes | None:
    """The encoded options of a task; None when all are defaults."""
    options = options_of(task)
    return None if options is DEFAULT_OPTIONS else _encode(options)
