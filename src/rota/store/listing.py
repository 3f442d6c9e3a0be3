"""Which tasks does a filter mean? Newest first, page by page, from where each state stands."""

import heapq

from rota.core.events import TaskFilter
from rota.core.ids import TaskId
from rota.core.tasks import FINISHED, Task, TaskState, normalised_labels
from rota.store.database import Transaction
from rota.store.lanes import Lanes
from rota.store.tasks import Tasks

NEWEST = TaskId(2**63 - 1)
LABELLED_STEP = 500  # how many labelled ids are looked at before more are fetched


class Listing:
    def __init__(self, tx: Transaction, lanes: Lanes) -> None:
        self._tx = tx
        self._lanes = lanes
        self._tasks = Tasks(tx, lanes)

    def page(self, selection: TaskFilter, *, limit: int, before: TaskId | None) -> list[Task]:
        ids = self.ids(selection, limit=limit, before=before)
        found = self._tasks.by_ids([*ids])
        return [found[task_id] for task_id in ids]

    def ids(self, selection: TaskFilter, *, limit: int, before: TaskId | None) -> list[TaskId]:
        """The newest ids below `before` that the filter lets through."""
        start = NEWEST if before is None else before
        if selection.label is not None:
            return self._labelled(selection, limit=limit, before=start)
        lanes = self._lanes.matching(queue=selection.queue, name=selection.name)
        if not lanes:
            return []
        found = (
            number
            for state in _states(selection)
            for (number,) in self._tx.rows(f"tasks.{state}_ids", lanes, start, limit)
        )
        return heapq.nlargest(limit, found)

    def _labelled(self, selection: TaskFilter, *, limit: int, before: TaskId) -> list[TaskId]:
        chosen: list[TaskId] = []
        while len(chosen) < limit:
            rows = self._tx.rows("tasks.labelled_ids", selection.label, before, LABELLED_STEP)
            ids = [number for (number,) in rows]
            tasks = self._tasks.by_ids(ids)
            chosen += [one for one in ids if one in tasks and matches(tasks[one], selection)]
            if len(ids) < LABELLED_STEP:
                break
            before = ids[-1]
        return chosen[:limit]

    def count(self, selection: TaskFilter) -> int:
        if selection.label is not None:
            return len(self._labelled(selection, limit=2**31, before=NEWEST))
        lanes = self._lanes.matching(queue=selection.queue, name=selection.name)
        if not lanes:
            return 0
        return sum(self._count(state, lanes) for state in _states(selection))

    def _count(self, state: TaskState, lanes: list[int]) -> int:
        if state in FINISHED:
            return int(self._tx.rows("tasks.count_finished", state, lanes)[0][0])
        return int(self._tx.rows(f"tasks.count_{state}", lanes)[0][0])

    def ahead(self, task: Task, *, most: int) -> int:
        """How many tasks of its lane are before a queued one, counted up to `most`."""
        lane = self._lanes.number_of(task.lane)
        rows = self._tx.rows("tasks.ahead", lane, -task.priority, task.id, most)
        return int(rows[0][0])


def _states(selection: TaskFilter) -> set[TaskState]:
    """Each state that is meant, once."""
    return set(selection.states or TaskState)


def matches(task: Task, selection: TaskFilter) -> bool:
    """The filter as a rule on one task."""
    return (
        (not selection.states or task.state in selection.states)
        and selection.queue in {None, task.lane.queue}
        and selection.name in {None, task.lane.name}
        and (selection.label is None or selection.label in normalised_labels(task.options.labels))
    )
