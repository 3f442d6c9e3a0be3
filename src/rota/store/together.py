"""How do a thousand tasks change places for little more than the price of one?

By saying once what they have in common. Tasks that were decided alike (for the same worker, at the
same moment, under the same fence, with the same result) are written by one statement, and their
ids go along as one array. Every row holds exactly what was decided for it: what is alike is found
by comparing decisions. Those that stand alone are written row by row, as ever.
"""

from collections.abc import Hashable, Sequence
from typing import TypeVar

from rota.core.decisions import FinishTask, LeaseTask
from rota.core.tasks import TaskState
from rota.store.database import Transaction

T = TypeVar("T")

MANY = 16  # so many that are alike are worth a statement of their own


def grouped(ones: Sequence[T], kinds: Sequence[Hashable]) -> tuple[list[list[T]], list[T]]:
    """Those that are many of a kind, kind by kind, and the others; `kinds` goes with `ones`."""
    if len(ones) < MANY:
        return [], [*ones]
    different = len(set(kinds))
    if different == 1:  # nearly always
        return [[*ones]], []
    if different * MANY > len(ones):
        return [], [*ones]
    by_kind: dict[Hashable, list[T]] = {}
    for kind, one in zip(kinds, ones, strict=True):
        by_kind.setdefault(kind, []).append(one)
    groups = list(by_kind.values())
    few = [one for group in groups if len(group) < MANY for one in group]
    return [group for group in groups if len(group) >= MANY], few


# --- leasing ------------------------------------------------------------------------------------


def take_ready(tx: Transaction, lane: int, rank: int, ids: list[int]) -> int:
    """Take tasks of one lane and priority out of the queue; how many were there."""
    if len(ids) >= MANY:
        first, last = min(ids), max(ids)
        # They stand at the head of their lane, so as a rule nobody else stands between them.
        if tx.rows("tasks.count_ready_between", lane, rank, first, last)[0][0] == len(ids):
            return tx.run("tasks.take_ready_between", lane, rank, first, last)
    return tx.run("tasks.take_ready", lane, rank, ids)


def write_leases(tx: Transaction, leases: Sequence[LeaseTask], lanes: Sequence[int]) -> None:
    """Write the rows of leases; `lanes` goes with them."""
    kinds = [
        (lane, one.incarnation, one.fence, one.attempt, one.started_at_ms, one.deadline_ms)
        for lane, one in zip(lanes, leases, strict=True)
    ]
    pairs = list(zip(lanes, leases, strict=True))
    alike, others = grouped(pairs, kinds) if leases[0].holder is None else ([], pairs)
    for group in alike:
        ids = [one.id for _, one in group]
        tx.put("tasks.lease_alike", *_terms(*group[0]), ids)
    if others:
        tx.put_many(
            "tasks.lease", [(one.id, *_terms(lane, one), one.holder) for lane, one in others]
        )


def _terms(lane: int, one: LeaseTask) -> tuple[object, ...]:
    return (
        lane,
        one.incarnation,
        one.fence,
        one.attempt,
        one.started_at_ms,
        one.deadline_ms,
    )


# --- ending -------------------------------------------------------------------------------------


def alike_and_others(
    running: Sequence[FinishTask],
) -> tuple[list[list[FinishTask]], list[FinishTask]]:
    """Tasks that ran and have succeeded alike, and those that have not."""
    is_good = TaskState.SUCCEEDED
    good = [one for one in running if one.state is is_good]
    # Results are the same when they are one object, as that of tasks without a result is.
    kinds = [
        (one.fence, one.attempt, one.finished_at_ms, one.worker_id, id(one.result)) for one in good
    ]
    alike, others = grouped(good, kinds)
    if len(good) < len(running):
        others += [one for one in running if one.state is not is_good]
    return alike, others


def drop(tx: Transaction, table: str, ids: list[int]) -> None:
    """Delete rows of `leases` or `tasks`; of ids that follow each other, from the first to last."""
    first, last = min(ids), max(ids)
    if last - first + 1 == len(ids):
        tx.put(f"tasks.drop_{table}_between", first, last)
    else:
        tx.put(f"tasks.drop_{table}", ids)
