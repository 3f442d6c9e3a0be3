"""How are new tasks written? One row each, and rows beside it for what most tasks do not have."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter

import msgspec

from rota.core.decisions import AddTask
from rota.core.tasks import DEFAULT_OPTIONS, NewTask, normalised_labels, options_of
from rota.store.database import Transaction
from rota.store.lanes import Lanes

_encode = msgspec.json.Encoder().encode


def add(tx: Transaction, lanes: Lanes, added: Sequence[AddTask], *, is_queued: bool) -> set[int]:
    """Write new tasks; the answer is the lanes in which some can be claimed at once."""
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
    tx.put_many("tasks.add", rows)
    if is_queued:
        for first, last in _runs_of_ready(added) if special else _whole(added):
            tx.put("tasks.add_ready_range", first, last)
    if special:
        _add_extras(tx, special)
    return open_lanes


def _add_extras(tx: Transaction, added: Sequence[AddTask]) -> None:
    if scheduled := [(one.due_at_ms, one.id) for one in added if one.due_at_ms is not None]:
        tx.put_many("tasks.add_scheduled", scheduled)
    if keys := [(one.task.key, one.id) for one in added if one.task.key is not None]:
        tx.put_many("tasks.add_key", keys)
    if labels := [
        (label, one.id)
        for one in added
        if one.task.labels
        for label in normalised_labels(one.task.labels)
    ]:
        tx.put_many("tasks.add_label", labels)
    if limits := [
        (one.created_at_ms + one.task.start_within_ms, one.id)
        for one in added
        if one.task.start_within_ms is not None
    ]:
        tx.put_many("tasks.add_start_limit", limits)


def _is_special(added: AddTask) -> bool:
    """Whether a task has more than its row and its place in the queue."""
    task = added.task
    return (
        added.due_at_ms is not None
        or task.key is not None
        or task.labels is not None
        or task.start_within_ms is not None
    )


def _whole(added: Sequence[AddTask]) -> list[tuple[int, int]]:
    """All of them as one stretch."""
    return [(added[0].id, added[-1].id)] if added else []


def _runs_of_ready(added: Sequence[AddTask]) -> Iterator[tuple[int, int]]:
    """The stretches of new tasks that are ready at once; their ids only rise."""
    for is_ready, run in groupby(added, key=lambda one: one.due_at_ms is None):
        if is_ready:
            ids = list(map(attrgetter("id"), run))
            yield ids[0], ids[-1]


def spans(ids: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Rising ids as the first and last of each span in which they follow each other."""
    for _, run in groupby(enumerate(ids), key=lambda pair: pair[1] - pair[0]):
        numbers = [number for _, number in run]
        yield numbers[0], numbers[-1]


def _options(task: NewTask) -> bytes | None:
    """What is stored of a task's options; None when it has none of its own."""
    options = options_of(task)
    return None if options is DEFAULT_OPTIONS else _encode(options)
