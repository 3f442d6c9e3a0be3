"""Task lists by filter: newest first, in keyset pages along indexes.

Finished and queued tasks are read lane by lane along an index that has them in order. The lanes are
merged, and each is read no further than needed: a page costs the same however many tasks there are,
and however few of them match the filter.
"""

import heapq
from collections.abc import Callable, Iterator
from itertools import islice

from rota.core.commands import TaskFilter
from rota.core.ids import TaskId
from rota.core.tasks.model import FINISHED, TaskRecord, TaskState, normalised_labels
from rota.store.database import NEWEST, Transaction
from rota.store.tasks.lanes import Lanes
from rota.store.tasks.tasks import TaskStore

LEAST_STEP = 8  # ids that are read of a lane at once
LABELLED_STEP = 500  # ids that are checked for a label at once
FEW_LABELLED = 2_000  # tasks of a label that are checked one by one

Fetch = Callable[[int, int], list[TaskId]]  # ids below one, newest first, and how many


class Listing:
    def __init__(self, tx: Transaction, lanes: Lanes) -> None:
        self._tx = tx
        self._lanes = lanes
        self._tasks = TaskStore(tx, lanes)

    def page(self, selection: TaskFilter, *, limit: int, before: TaskId | None) -> list[TaskRecord]:
        ids = self.ids(selection, limit=limit, before=before)
        found = self._tasks.by_ids([*ids])
        return [found[task_id] for task_id in ids]

    def ids(self, selection: TaskFilter, *, limit: int, before: TaskId | None) -> list[TaskId]:
        """The newest ids below `before` that match the filter."""
        start = NEWEST if before is None else before
        if selection.label is None:
            return list(islice(self._merged(selection, start, limit), limit))
        return list(islice(self._labelled(selection, start), limit))

    # --- merging ------------------------------------------------------------------------------

    def _merged(self, selection: TaskFilter, start: int, limit: int) -> Iterator[TaskId]:
        """All ids that match the filter without its label, newest first."""
        lanes = self._lanes.matching(queue=selection.queue, name=selection.name)
        if not lanes:
            return iter(())
        sources = [
            source
            for state in _states(selection)
            for source in self._sources(state, lanes, _index_name(state, selection))
        ]
        step = max(LEAST_STEP, 2 * limit // max(1, len(sources)))
        parts = (_newest_first(fetch, start, min(limit, step)) for fetch in sources)
        return heapq.merge(*parts, reverse=True)

    def _sources(self, state: TaskState, lanes: list[int], index: str) -> list[Fetch]:
        """The index ranges with the tasks of one state, each in the order of ids."""
        query = f"tasks.{index}_ids"
        if state in FINISHED:
            return [self._source(query, lane=lane) for lane in lanes]
        if state is TaskState.QUEUED:
            return [
                self._source(query, lane=lane, rank=rank)
                for lane in set(self._tasks.open_lanes()) & set(lanes)
                for rank in self._tx.column("tasks.queued_ranks", lane=lane)
            ] + [self._source("tasks.queued_in_flows", lane=lane) for lane in self._flowing(lanes)]
        return [self._source(query, lanes=lanes)]

    def _flowing(self, lanes: list[int]) -> list[int]:
        """Those of these lanes that have flows."""
        return self._tx.column("tasks.lanes_with_flows", lanes=lanes)

    def _source(self, query: str, **place: object) -> Fetch:
        return lambda before, limit: self._tx.column(query, before=before, limit=limit, **place)

    def _labelled(self, selection: TaskFilter, start: int) -> Iterator[TaskId]:
        """All ids that match the filter, from the smaller side: the label, or the rest."""
        label = selection.label
        ids = self._tx.column("tasks.labelled_ids", label=label, before=start, limit=FEW_LABELLED)
        if len(ids) < FEW_LABELLED:
            tasks = self._tasks.by_ids(ids)
            yield from (one for one in ids if one in tasks and matches(tasks[one], selection))
            return
        merged = self._merged(selection, start, LABELLED_STEP)
        while step := list(islice(merged, LABELLED_STEP)):
            found = set(self._tx.column("tasks.labelled_among", label=label, ids=step))
            yield from (number for number in step if number in found)

    # --- counting -----------------------------------------------------------------------------

    def count(self, selection: TaskFilter) -> int:
        if selection.label is not None:
            return sum(1 for _ in self._labelled(selection, NEWEST))
        lanes = self._lanes.matching(queue=selection.queue, name=selection.name)
        if not lanes:
            return 0
        return sum(
            int(self._tx.value(f"tasks.count_{_index_name(state, selection)}", lanes=lanes))
            for state in _states(selection)
        )

    def count_ahead(self, task: TaskRecord, *, limit: int) -> int:
        """The number of tasks ahead of a queued one in its lane, counted up to `limit`."""
        lane = self._lanes.number_of(task.lane) if task.flow is None else task.flow
        rank = -task.priority if task.rank is None else task.rank
        return int(
            self._tx.value("tasks.count_ahead", lane=lane, rank=rank, id=task.id, limit=limit)
        )


def _newest_first(fetch: Fetch, before: int, step: int) -> Iterator[TaskId]:
    """The ids of an index range, read in growing steps."""
    while True:
        ids = fetch(before, step)
        yield from ids
        if len(ids) < step:
            return
        before, step = ids[-1], min(2 * step, LABELLED_STEP)


def _states(selection: TaskFilter) -> set[TaskState]:
    """The states that the filter selects; only failed tasks are acknowledged, or not."""
    states = set(selection.states or TaskState)
    return states if selection.acknowledged is None else states & {TaskState.FAILED}


def _index_name(state: TaskState, selection: TaskFilter) -> str:
    """The name of the queries that read the tasks of a state."""
    if state is not TaskState.FAILED or selection.acknowledged is None:
        return state.value
    return "acknowledged" if selection.acknowledged else "unacknowledged"


def fits_acknowledgement(task: TaskRecord, selection: TaskFilter) -> bool:
    """Whether a task is acknowledged, or failed and not acknowledged, as the filter wants it."""
    if selection.acknowledged is None:
        return True
    is_acknowledged = task.acknowledged is not None
    return task.state is TaskState.FAILED and is_acknowledged == selection.acknowledged


def matches(task: TaskRecord, selection: TaskFilter) -> bool:
    """Whether one task matches the filter."""
    return (
        (not selection.states or task.state in selection.states)
        and fits_acknowledgement(task, selection)
        and selection.queue in {None, task.lane.queue}
        and selection.name in {None, task.lane.name}
        and (selection.label is None or selection.label in normalised_labels(task.options.labels))
    )
