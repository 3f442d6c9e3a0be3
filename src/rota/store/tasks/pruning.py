"""Prunes history: row by row where there is little, by partition where there is much.

A partition is a table with the finished tasks of one day; only PostgreSQL has them. The keys,
labels and logs of its tasks are deleted in steps, then the table is dropped. A partition is dropped
when all of it is past its retention, so its tasks may be seen for up to a day longer.
"""

from rota.core.ids import COUNTER_BITS, TaskId
from rota.core.tasks.model import normalised_labels
from rota.store.database import Transaction
from rota.store.tasks import row_types
from rota.store.tasks.logs import LogStore


def prune(tx: Transaction, finished_before_ms: int, limit: int, *, now_ms: int = 0) -> list[TaskId]:
    """Delete at most `limit` tasks and return them. With `now_ms`, partitions are made ahead."""
    for first, end, cleaned in tx.rows(
        "tasks.expired_partition",
        now_id=now_ms << COUNTER_BITS,
        before_id=max(0, finished_before_ms) << COUNTER_BITS,
        before_ms=finished_before_ms,
    ):
        if deleted := _clean_partition(tx, first, end, cleaned, limit):
            return deleted
    ids = tx.column("tasks.prunable", before_ms=finished_before_ms, limit=limit)
    if ids:
        _delete_what_belongs_to(tx, ids)
        tx.pipeline("tasks.drop_history", ids=ids)
    return ids


def _clean_partition(
    tx: Transaction, first: int, end: int, cleaned: int, limit: int
) -> list[TaskId]:
    """Delete the keys, labels and logs of some tasks of a partition; after the last, drop it."""
    ids = tx.column("partitions.ids", first=cleaned, end=end, limit=limit)
    if ids:
        _delete_what_belongs_to(tx, ids)
        tx.pipeline("partitions.set_cleaned", cleaned_to=ids[-1] + 1, first_id=first)
    if len(ids) < limit:
        tx.rows("partitions.drop", first_id=first)
    return ids


def _delete_what_belongs_to(tx: Transaction, ids: list[TaskId]) -> None:
    labels = [
        (label, task_id)
        for task_id, options in tx.rows("tasks.options", ids=ids)
        for label in normalised_labels(row_types.decode_options(options).labels)
    ]
    tx.pipeline_many("tasks.drop_label", ("label", "id"), labels)
    tx.pipeline("tasks.drop_keys", ids=ids)
    LogStore(tx).drop(ids)
