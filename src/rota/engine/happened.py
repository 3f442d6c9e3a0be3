"""What came of a batch, as far as anybody is told of it?"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from rota.core.decisions import AddTask, Decision, FinishTask
from rota.core.ids import TaskId
from rota.core.notices import Notice
from rota.core.snapshot import Snapshot
from rota.core.tasks import Lane, Lease, Task
from rota.core.workers import Health
from rota.engine.shard_changes import ServiceChanges

Key = TypeVar("Key")


class Tally(Struct, frozen=True):
    """How many tasks fared alike, counted once for all who want to know."""

    submitted: Mapping[str, int] = {}  # by queue
    finished: Mapping[tuple[str, str], int] = {}  # by queue and state


NOTHING = Tally()


def tally_of(decisions: Mapping[type[Decision], list[Any]]) -> Tally:
    added, finished = decisions.get(AddTask), decisions.get(FinishTask)
    if added is None and finished is None:
        return NOTHING
    return Tally(
        _counted([one.task.queue for one in added]) if added else {},
        _counted([(one.queue, one.state) for one in finished]) if finished else {},
    )


def _counted(keys: list[Key]) -> Mapping[Key, int]:
    return {keys[0]: 1} if len(keys) == 1 else Counter(keys)  # one is seen at a glance


class Happened(Struct, kw_only=True):
    decisions: Mapping[type[Decision], list[Any]]  # by kind
    tally: Tally
    snapshot: Snapshot
    leases: Mapping[TaskId, Lease]  # as they stood before anything was decided
    granted: Sequence[tuple[str, list[Task]]]  # to workers
    told: Sequence[Notice]  # what others have to tell, such as runs
    services: Mapping[str, ServiceChanges]
    paused: frozenset[str]  # queues, before the batch
    healths: Mapping[str, Health]  # of workers that were not healthy at the sweep before
    healths_now: Mapping[str, Health]

    def lane(self, task_id: TaskId) -> Lane | None:
        """What kind of task this is, as far as the batch has seen it."""
        known = self.leases.get(task_id) or self.snapshot.tasks.get(task_id)
        return None if known is None else known.lane
