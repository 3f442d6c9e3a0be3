"""Which tasks does a filter mean? Newest first, page by page, from where each state stands.

Finished and queued tasks are walked lane by lane along an index that has them in order, all lanes
merged, each read no further than it is needed: a page costs the same however many tasks there are,
and however rare those are that the filter lets through.
"""

import heapq
from collections.abc import Callable, Iterator
from itertools import islice

from rota.core.events import TaskFilter
from rota.core.ids import TaskId
from rota.core.tasks import FINISHED, Task, TaskState, normalised_labels
from rota.store.database import Row, Transaction
from rota.store.lanes import Lanes
from rota.store.tasks import Tasks

NEWEST = TaskId(2**63 - 1)
LEAST_STEP = 8  # ids that are read of a lane at once
LABELLED_STEP = 500  # how many labelled ids are looked at before more are fetched
FEW_LABELLED = 2_000  # so many tasks of a label are looked at one by one

Fetch = Callable[[int, int], list[Row]]  # below which id, how many


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
        if selection.label is None:
            return list(islice(self._walk(selection, start, limit), limit))
        return list(islice(self._labelled(selection, start), limit))

    # --- walking ------------------------------------------------------------------------------

    def _walk(self, selection: TaskFilter, start: int, limit: int) -> Iterator[TaskId]:
        """All ids that match but for the label, newest first."""
        lanes = self._lanes.matching(queue=selection.queue, name=selection.name)
        if not lanes:
            return iter(())
        walks = [walk for state in _states(selection) for walk in self._walks(state, lanes)]
        step = max(LEAST_STEP, 2 * limit // max(1, len(walks)))
        parts = (_newest_first(fetch, start, min(limit, step)) for fetch in walks)
        return heapq.merge(*parts, reverse=True)

    def _walks(self, state: TaskState, lanes: list[int]) -> list[Fetch]:
        """The stretches of one state, each of them in order."""
        query = f"tasks.{state}_ids"
        if state in FINISHED:
            return [self._stretch(query, lane) for lane in lanes]
        if state is TaskState.QUEUED:
            return [
                self._stretch(query, lane, rank)
                for lane in set(self._tasks.open_lanes()) & set(lanes)
                for (rank,) in self._tx.rows("tasks.queued_ranks", lane, lane)
            ]
        return [self._stretch(query, lanes)]

    def _stretch(self, query: str, *place: object) -> Fetch:
        return lambda below, most: self._tx.rows(query, *place, below, most)

    def _labelled(self, selection: TaskFilter, start: int) -> Iterator[TaskId]:
        """The same with a label, from the side that has fewer: its tasks, or those of the rest."""
        label = selection.label
        rows = self._tx.rows("tasks.labelled_ids", label, start, FEW_LABELLED)
        if len(rows) < FEW_LABELLED:
            ids = [number for (number,) in rows]
            tasks = self._tasks.by_ids(ids)
            yield from (one for one in ids if one in tasks and matches(tasks[one], selection))
            return
        walk = self._walk(selection, start, LABELLED_STEP)
        while step := list(islice(walk, LABELLED_STEP)):
            found = {number for (number,) in self._tx.rows("tasks.labelled_among", label, step)}
            yield from (number for number in step if number in found)

    # --- counting -----------------------------------------------------------------------------

    def count(self, selection: TaskFilter) -> int:
        if selection.label is not None:
            return sum(1 for _ in self._labelled(selection, NEWEST))
        lanes = self._lanes.matching(queue=selection.queue, name=selection.name)
        if not lanes:
            return 0
        return sum(
            int(self._tx.rows(f"tasks.count_{state}", lanes)[0][0]) for state in _states(selection)
        )

    def ahead(self, task: Task, *, most: int) -> int:
        """How many tasks of its lane are before a queued one, counted up to `most`."""
        lane = self._lanes.number_of(task.lane)
        rows = self._tx.rows("tasks.ahead", lane, -task.priority, task.id, most)
        return int(rows[0][0])


def _newest_first(fetch: Fetch, below: int, step: int) -> Iterator[TaskId]:
    """What a stretch has, read in growing steps."""
    while True:
        rows = fetch(below, step)
        for (number,) in rows:
            yield TaskId(number)
        if len(rows) < step:
            return
        below, step = rows[-1][0], min(2 * step, LABELLED_STEP)


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
