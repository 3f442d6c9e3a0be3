"""The leases that the writer holds in memory: all of them, at about 250 bytes each.

A worker's leases are found by its incarnation. Their number is the room that the worker has used.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter

from rota.core.decisions import LeaseTask
from rota.core.ids import TaskId
from rota.core.tasks.model import (
    DEFAULT_OPTIONS,
    JOB_INCARNATION,
    Lease,
    TaskRecord,
    holds_key_while_running,
)
from rota.store.database import Transaction
from rota.store.tasks.lanes import Lanes
from rota.store.tasks.tasks import TaskStore
from rota.store.workflow.runs import RunStore


class HeldLeases:
    """The leases as the store has them. Each decision is noted when it is written."""

    def __init__(self) -> None:
        self.by_task: dict[TaskId, Lease] = {}
        self._by_incarnation: dict[int, dict[TaskId, Lease]] = {}
        self.run_tokens: dict[TaskId, tuple[int, int]] = {}  # run and token, unless it is a job
        # Those that their worker was granted a second time, since the first answer was lost. Not in
        # the store: after a restart such a lease may be returned, as if it had been granted once.
        self.repeated: set[TaskId] = set()
        self.key_holders: set[TaskId] = set()  # those that may hold a key until their tasks end

    def __len__(self) -> int:
        return len(self.by_task)

    @classmethod
    def load(cls, tx: Transaction, lanes: Lanes) -> "HeldLeases":
        held = cls()
        held._enter(TaskStore(tx, lanes).all_leases().values())
        held.run_tokens = RunStore(tx).leased_tasks()
        held.key_holders = TaskStore(tx, lanes).leased_key_holders()
        return held

    # --- reading --------------------------------------------------------------------------------

    def of_tasks(self, ids: Iterable[TaskId]) -> dict[TaskId, Lease]:
        """Return the leases of these tasks; tasks that are not running are left out."""
        by_task = self.by_task
        return {one: by_task[one] for one in ids if one in by_task}

    def of_incarnations(self, incarnations: Iterable[int]) -> dict[TaskId, Lease]:
        return {
            task_id: lease
            for one in incarnations
            for task_id, lease in self._by_incarnation.get(one, {}).items()
        }

    def count(self, incarnation: int) -> int:
        return len(self._by_incarnation.get(incarnation, ()))

    def is_running(self, incarnation: int, name: str) -> bool:
        """Whether an incarnation runs a task of this name, from any lane."""
        held = self._by_incarnation.get(incarnation, {})
        return any(lease.lane.name == name for lease in held.values())

    def run_tokens_of(
        self, ids: Iterable[TaskId]
    ) -> tuple[dict[TaskId, tuple[int, int]], list[int]]:
        """Return the run and token of tasks that work for one, and the tasks not known here."""
        found: dict[TaskId, tuple[int, int]] = {}
        unknown: list[int] = []
        for task_id in ids:
            lease = self.by_task.get(task_id)
            if lease is None or lease.incarnation == JOB_INCARNATION:
                unknown.append(task_id)
            elif task_id in self.run_tokens:
                found[task_id] = self.run_tokens[task_id]
        return found, unknown

    def note_repeated(self, ids: Iterable[TaskId]) -> None:
        self.repeated.update(ids)

    # --- decisions ------------------------------------------------------------------------------

    def note_leased(self, decisions: Sequence[LeaseTask], tasks: Sequence[TaskRecord]) -> None:
        """Note leases, each with its task."""
        self._enter(
            [
                Lease(
                    one.id,
                    task.lane,
                    one.incarnation,
                    one.fence,
                    one.attempt,
                    one.started_at_ms,
                    one.deadline_ms,
                    one.holder,
                    one.owner,
                )
                for one, task in zip(decisions, tasks, strict=True)
            ]
        )
        default = DEFAULT_OPTIONS
        special = [task for task in tasks if task.options is not default or task.run is not None]
        for task in special:
            if task.run is not None and task.token is not None:
                self.run_tokens[task.id] = task.run, task.token
            if task.options is not default and holds_key_while_running(task.options):
                self.key_holders.add(task.id)

    def _enter(self, leases: Iterable[Lease]) -> None:
        for incarnation, group in groupby(leases, key=attrgetter("incarnation")):
            entered = {one.id: one for one in group}
            self.by_task.update(entered)
            self._by_incarnation.setdefault(incarnation, {}).update(entered)

    def note_ended(self, ids: Iterable[TaskId]) -> None:
        ids, by_incarnation = [*ids], self._by_incarnation
        if self.key_holders or self.repeated:
            self.key_holders.difference_update(ids)
            self.repeated.difference_update(ids)
        for incarnation, group in groupby(map(self.by_task.pop, ids), attrgetter("incarnation")):
            held = by_incarnation[incarnation]
            for lease in group:
                del held[lease.id]
            if not held:
                del by_incarnation[incarnation]
        if self.run_tokens:
            for task_id in ids:
                self.run_tokens.pop(task_id, None)
