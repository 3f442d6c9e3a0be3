"""How is old history deleted? Row by row where there is little of it, and else as whole stretches.

A stretch is a table of its own with the finished tasks of one day; only PostgreSQL has them. What
stands beside its tasks (keys and labels) is deleted in steps, then the table is dropped. A stretch
goes when all of it is past its time, so its tasks may be seen for up to a day longer.
"""

from rota.core.ids import COUNTER_BITS, TaskId
from rota.core.tasks import normalised_labels
from rota.store import reading
from rota.store.database import Transaction


def forget(tx: Transaction, finished_before_ms: int, most: int, *, now_ms: int = 0) -> list[TaskId]:
    """Forget no more than so many tasks; which. Given the time, stretches are made ahead."""
    before_id = max(0, finished_before_ms) << COUNTER_BITS
    for first, behind, cleaned in tx.rows(
        "tasks.old_stretch", now_ms << COUNTER_BITS, before_id, finished_before_ms
    ):
        if gone := _clean(tx, first, behind, cleaned, most):
            return gone
    ids = [number for (number,) in tx.rows("tasks.prunable", finished_before_ms, most)]
    if ids:
        _forget_beside(tx, ids)
        tx.run("tasks.drop_history", ids)
    return ids


def _clean(tx: Transaction, first: int, behind: int, cleaned: int, most: int) -> list[TaskId]:
    """Forget what stands beside some tasks of a stretch; after the last ones it is dropped."""
    ids = [number for (number,) in tx.rows("stretches.ids", cleaned, behind, most)]
    if ids:
        _forget_beside(tx, ids)
        tx.run("stretches.clean", ids[-1] + 1, first)
    if len(ids) < most:
        tx.rows("stretches.drop", first)
    return ids


def _forget_beside(tx: Transaction, ids: list[TaskId]) -> None:
    """Delete the labels and keys of finished tasks."""
    labels = [
        (label, number)
        for number, options in tx.rows("tasks.labelled", ids)
        for label in normalised_labels(reading.decode_options(options).labels)
    ]
    tx.many("tasks.drop_label", labels)
    tx.run("tasks.drop_keys", ids)
