"""The outcome of a batch, as far as metrics and events need it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from rota.core.decisions import AddTask, Decision, FinishTask
from rota.core.events import Event
from rota.core.ids import TaskId
from rota.core.snapshot import Snapshot
from rota.core.tasks.model import Lane, Lease, TaskRecord
from rota.core.workers.model import Health
from rota.engine.shards.changes import ServiceChanges

Key = TypeVar("Key")


class BatchCounts(Struct, frozen=True):
    """How many tasks were submitted and finished, counted once for metrics and events."""

    submitted: Mapping[str, int] = {}  # by queue
    finished: Mapping[tuple[str, str], int] = {}  # by queue and state


NOTHING = BatchCounts()


def counts_of(decisions: Mapping[type[Decision], list[Any]]) -> BatchCounts:
    added, finished = decisions.get(AddTask), decisions.get(FinishTask)
    if added is None and finished is None:
        return NOTHING
    return BatchCounts(
        _counted([one.task.queue for one in added]) if added else {},
        _counted([(one.queue, one.state) for one in finished]) if finished else {},
    )


def _counted(keys: list[Key]) -> Mapping[Key, int]:
    return {keys[0]: 1} if len(keys) == 1 else Counter(keys)  # a Counter is slow for one key


class BatchOutcome(Struct, kw_only=True):
    decisions: Mapping[type[Decision], list[Any]]  # by kind
    tally: BatchCounts
    snapshot: Snapshot
    leases: Mapping[TaskId, Lease]  # before the batch decided anything
    granted: Sequence[tuple[str, list[TaskRecord]]]  # to each worker, by its id
    events: Sequence[Event]  # of runs, values and locks
    services: Mapping[str, ServiceChanges]
    paused: frozenset[str]  # queues, before the batch
    healths: Mapping[str, Health]  # of workers that were not healthy at the sweep before
    healths_now: Mapping[str, Health]

    def lane(self, task_id: TaskId) -> Lane | None:
        """Return the lane of a task; None if the batch has not loaded the task."""
        known = self.leases.get(task_id) or self.snapshot.tasks.get(task_id)
        return None if known is None else known.lane
