"""Bulk writes: many tasks change at the cost of a few statements.

Tasks with equal decisions (the same worker, time, fence and result) are written by one statement
that has what they share once, and their ids as one array. Every row holds exactly what was decided
for it: equal decisions are found by comparing them. The others are written row by row.
"""

from collections.abc import Hashable, Sequence
from typing import TypeVar

from rota.core.decisions import FinishTask, LeaseTask
from rota.core.tasks.model import TaskState
from rota.store.database import Transaction

T = TypeVar("T")

MANY = 16  # equal decisions that are worth a statement of their own
TERMS = ("lane", "incarnation", "fence", "attempt", "started_at_ms", "deadline_ms")


def group_equal(items: Sequence[T], keys: Sequence[Hashable]) -> tuple[list[list[T]], list[T]]:
    """Split items into groups of at least `MANY` equal keys, and the others."""
    if len(items) < MANY:
        return [], [*items]
    different = len(set(keys))
    if different == 1:  # nearly always
        return [[*items]], []
    if different * MANY > len(items):
        return [], [*items]
    by_key: dict[Hashable, list[T]] = {}
    for key, item in zip(keys, items, strict=True):
        by_key.setdefault(key, []).append(item)
    groups = list(by_key.values())
    others = [item for group in groups if len(group) < MANY for item in group]
    return [group for group in groups if len(group) >= MANY], others


# --- leasing ------------------------------------------------------------------------------------


def dequeue(tx: Transaction, lane: int, rank: int, ids: list[int]) -> int:
    """Take tasks of one lane and rank out of the queue; returns how many were there."""
    if len(ids) >= MANY:
        place = {"lane": lane, "rank": rank, "first": min(ids), "last": max(ids)}
        # They are at the head of their lane, so there is rarely another task between them.
        if tx.value("tasks.count_queued_between", **place) == len(ids):
            return tx.execute("tasks.dequeue_between", **place)
    return tx.execute("tasks.dequeue", lane=lane, rank=rank, ids=ids)


def write_leases(tx: Transaction, leases: Sequence[LeaseTask], lanes: Sequence[int]) -> None:
    """Write the rows of leases; `lanes` has the lane of each."""
    terms = [
        (lane, one.incarnation, one.fence, one.attempt, one.started_at_ms, one.deadline_ms)
        for lane, one in zip(lanes, leases, strict=True)
    ]
    pairs = list(zip(terms, leases, strict=True))
    groups, others = group_equal(pairs, terms) if leases[0].holder is None else ([], pairs)
    for group in groups:
        ids = [one.id for _, one in group]
        tx.pipeline("tasks.lease_alike", ids=ids, **dict(zip(TERMS, group[0][0], strict=True)))
    if others:
        tx.pipeline_many(
            "tasks.lease",
            ("id", *TERMS, "holder", "owner"),
            [(one.id, *shared, one.holder, one.owner) for shared, one in others],
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
