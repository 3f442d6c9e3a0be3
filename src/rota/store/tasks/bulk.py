"""Bulk writes: many tasks are added or change at the cost of a few statements.

A new task is one row, and further rows for options that most tasks do not have.

Tasks with equal decisions (the same worker, time, fence and result) are written by one statement
that has what they share once, and their ids as one array. Every row holds exactly what was decided
for it: equal decisions are found by comparing them. The others are written row by row.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TypeVar

import msgspec

from rota.core.decisions import AddTask, FinishTask, LeaseTask
from rota.core.tasks.model import (
    DEFAULT_OPTIONS,
    Labels,
    TaskState,
    normalised_labels,
    options_of,
)
from rota.store.database import Transaction
from rota.store.tasks.lanes import Lanes

MANY = 16  # equal decisions that are worth a statement of their own
TASK_COLUMNS = ("id", "lane", "priority", "payload", "options", "key", "created_at_ms")
QUEUE_COLUMNS = ("lane", "rank", "id", "since_ms")
HELD_KEY_COLUMNS = ("queue", "key", "id", "release", "until_ms")
LEASE_TERMS = ("incarnation", "fence", "attempt", "started_at_ms", "deadline_ms")

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode
_terms_of = attrgetter(*LEASE_TERMS)


# --- submission ---------------------------------------------------------------------------------


def insert(
    tx: Transaction,
    lanes: Lanes,
    added: Sequence[AddTask],
    *,
    is_queued: bool,
    flows: Mapping[int, int],
    ranks: Mapping[int, int],
) -> set[int]:
    """Write new tasks; returns the lanes with a task that can be leased now.

    Flows: the number of the flow of each task that has one. Ranks: of those whose priority ages.
    """
    lane_of = lanes.number
    rows, open_lanes, special = [], set(), []
    for one in added:
        task = one.task
        lane = lane_of(tx, task.queue, task.name, task.requires)
        options = options_of(task)
        is_plain = options is DEFAULT_OPTIONS and task.key is None and one.due_at_ms is None
        rows.append(
            (
                one.id,
                lane,
                task.priority,
                bytes(task.payload),
                None if options is DEFAULT_OPTIONS else _encode(options),
                task.key,
                one.created_at_ms,
            )
        )
        if one.due_at_ms is None:
            open_lanes.add(lane)
        if not is_plain and _is_special(one):
            special.append(one)
    if flows:
        in_flows = [(*row, flows[row[0]], ranks.get(row[0])) for row in rows if row[0] in flows]
        tx.pipeline_many("tasks.add_in_flow", (*TASK_COLUMNS, "flow", "rank"), in_flows)
    plain = [row for row in rows if row[0] not in flows] if flows else rows
    if plain:
        tx.pipeline_many("tasks.add", TASK_COLUMNS, plain)
    if is_queued and len(added) < MANY:
        places = [
            (flows.get(number, lane), ranks.get(number, -priority), number, created_at_ms)
            for one, (number, lane, priority, *_, created_at_ms) in zip(added, rows, strict=True)
            if one.due_at_ms is None
        ]
        tx.pipeline_many("tasks.queue_new", QUEUE_COLUMNS, places)
    elif is_queued:
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
    if held := {(one.task.queue, one.holds.key): one for one in added if one.holds is not None}:
        # The last one of a batch with the same key holds it: those before it have let go of it.
        rows = [
            (queue, key, one.id, one.holds.release, one.holds.until_ms)
            for (queue, key), one in held.items()
            if one.holds is not None
        ]
        tx.pipeline_many("unique.hold", HELD_KEY_COLUMNS, rows)


def change_labels(tx: Transaction, task_id: int, before: Labels | None, now: Labels | None) -> None:
    """Replace the labels by which a task is found."""
    gone = [(label, task_id) for label in normalised_labels(before)]
    tx.pipeline_many("tasks.drop_label", ("label", "id"), gone)
    new = [(label, task_id) for label in normalised_labels(now)]
    tx.pipeline_many("tasks.add_label", ("label", "id"), new)


def _is_special(added: AddTask) -> bool:
    """Whether a task has more rows than its own and its place in the queue."""
    task = added.task
    return (
        added.due_at_ms is not None
        or task.key is not None
        or task.labels is not None
        or task.start_within_ms is not None
        or added.holds is not None
    )


def _ready_ranges(added: Sequence[AddTask]) -> Iterator[tuple[int, int]]:
    """The ranges of new tasks that are not scheduled; their ids rise."""
    for is_ready, group in groupby(added, key=lambda one: one.due_at_ms is None):
        if is_ready:
            ids = [one.id for one in group]
            yield ids[0], ids[-1]


# --- equal decisions ----------------------------------------------------------------------------


def group_equal(items: Sequence[T], keys: Sequence[Hashable]) -> tuple[list[list[T]], list[T]]:
    """Split items into groups of at least `MANY` equal keys, and the others."""
    if len(items) < MANY:
        return [], [*items]
    if keys.count(keys[0]) == len(keys):  # nearly always; faster than a set of them
        return [[*items]], []
    different = len(set(keys))
    if different * MANY > len(items):
        return [], [*items]
    by_key: dict[Hashable, list[T]] = {}
    for key, item in zip(keys, items, strict=True):
        by_key.setdefault(key, []).append(item)
    groups = list(by_key.values())
    others = [item for group in groups if len(group) < MANY for item in group]
    return [group for group in groups if len(group) >= MANY], others


# --- leasing ------------------------------------------------------------------------------------


def dequeue(tx: Transaction, lane: int, rank: int, ids: list[int], *, are_next: bool) -> None:
    """Take tasks of one lane and rank out of the queue.

    Are next: there is no other task between them.
    """
    if are_next:
        tx.pipeline_exactly(
            len(ids),
            "tasks.dequeue_between",
            lane=lane,
            rank=rank,
            first=min(ids),
            last=max(ids),
        )
    else:
        tx.pipeline_exactly(len(ids), "tasks.dequeue", lane=lane, rank=rank, ids=ids)


def write_leases(tx: Transaction, leases: Sequence[LeaseTask], lanes: Sequence[int]) -> None:
    """Write the rows of leases; `lanes` has the lane of each."""
    count, all_terms = len(leases), [*map(_terms_of, leases)]
    if (
        count >= MANY
        and leases[0].holder is None
        and all_terms.count(all_terms[0]) == count
        and lanes.count(lanes[0]) == count
    ):  # nearly always, if there are many
        shared = dict(zip(LEASE_TERMS, all_terms[0], strict=True))
        tx.pipeline("tasks.lease_alike", ids=[one.id for one in leases], lane=lanes[0], **shared)
        return
    terms = [*zip(lanes, all_terms, strict=True)]
    pairs = [*zip(terms, leases, strict=True)]
    groups, others = group_equal(pairs, terms) if leases[0].holder is None else ([], pairs)
    for group in groups:
        (lane, equal), _ = group[0]
        ids = [one.id for _, one in group]
        tx.pipeline(
            "tasks.lease_alike", ids=ids, lane=lane, **dict(zip(LEASE_TERMS, equal, strict=True))
        )
    if others:
        tx.pipeline_many(
            "tasks.lease",
            ("id", "lane", *LEASE_TERMS, "holder", "owner"),
            [(one.id, lane, *own, one.holder, one.owner) for (lane, own), one in others],
        )


# --- finishing ----------------------------------------------------------------------------------


def group_successes(
    running: Sequence[FinishTask],
) -> tuple[list[list[FinishTask]], list[FinishTask]]:
    """Split tasks that ran into groups with equal successes, and the others."""
    succeeded = TaskState.SUCCEEDED
    good = [one for one in running if one.state is succeeded]
    # Results are equal when they are one object, as that of tasks without a result is.
    keys = [
        (one.fence, one.attempt, one.finished_at_ms, one.worker_id, id(one.result)) for one in good
    ]
    groups, others = group_equal(good, keys)
    if len(good) < len(running):
        others += [one for one in running if one.state is not succeeded]
    return groups, others


def drop(tx: Transaction, table: str, ids: list[int]) -> None:
    """Delete rows of `leases` or `tasks`; consecutive ids as one range."""
    first, last = min(ids), max(ids)
    if last - first + 1 == len(ids):
        tx.pipeline(f"tasks.drop_{table}_between", first=first, last=last)
    else:
        tx.pipeline(f"tasks.drop_{table}", ids=ids)
