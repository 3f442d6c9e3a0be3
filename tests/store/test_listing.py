from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.commands import TaskFilter
from rota.core.ids import TaskId
from rota.core.tasks.model import TaskState
from rota.store.tasks import listing
from rota.store.tasks.listing import matches
from tests.store.opened import NOW_MS, Opened, in_memory

STATES = st.sampled_from(TaskState)
TASKS = st.lists(
    st.tuples(
        STATES,
        st.sampled_from(["q1", "q2"]),
        st.sampled_from(["n1", "n2"]),
        st.sets(st.sampled_from(["red", "blue"])),
    ),
    max_size=25,
)
FILTERS = st.builds(
    TaskFilter,
    states=st.lists(STATES, max_size=3).map(tuple),
    queue=st.sampled_from([None, "q1", "q2", "q3"]),
    name=st.sampled_from([None, "n1", "n3"]),
    label=st.sampled_from([None, "red", "green"]),
)


def put(store: Opened, number: int, state: TaskState, **options: Any) -> None:
    """A task that stands in this state."""
    match state:
        case TaskState.SCHEDULED:
            store.add(number, due_at_ms=NOW_MS + number, **options)
        case TaskState.QUEUED:
            store.add(number, **options)
        case TaskState.RUNNING:
            store.running(number, **options)
        case _:
            store.history(number, state, **options)


@pytest.mark.parametrize("few", [0, 1, 2, 1_000])
@given(TASKS, FILTERS, st.integers(1, 6))
def test_pages_give_what_filtering_everything_would_give_newest_first(
    few: int,
    described: list[tuple[TaskState, str, str, set[str]]],
    selection: TaskFilter,
    limit: int,
) -> None:
    with in_memory() as store, pytest.MonkeyPatch.context() as patch:
        # In steps as small as can be, so that a handful of tasks takes many of them.
        patch.setattr(listing, "LEAST_STEP", 1)
        patch.setattr(listing, "LABELLED_STEP", 2)
        patch.setattr(listing, "FEW_LABELLED", few)
        for number, (state, queue, name, labels) in enumerate(described, start=1):
            put(store, number, state, queue=queue, name=name, labels=sorted(labels) or None)
        everything = store.tasks.by_ids([*range(1, len(described) + 1)])
        expected = [
            number
            for number in sorted(everything, reverse=True)
            if matches(everything[number], selection)
        ]

        seen: list[TaskId] = []
        before: TaskId | None = None
        while page := store.listing.page(selection, limit=limit, before=before):
            assert len(page) <= limit
            assert page == [everything[task.id] for task in page]
            seen += [task.id for task in page]
            before = page[-1].id

        assert seen == expected
        assert store.listing.count(selection) == len(expected)


def test_a_rare_kind_among_many_labelled_tasks_is_found(
    store: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "LABELLED_STEP", 3)
    monkeypatch.setattr(listing, "FEW_LABELLED", 4)
    for number in range(1, 11):
        put(
            store,
            number,
            TaskState.QUEUED,
            name="rare" if number in {2, 5} else "often",
            labels=["l"],
        )

    selection = TaskFilter(name="rare", label="l")

    assert store.listing.ids(selection, limit=10, before=None) == [5, 2]
    assert store.listing.ids(selection, limit=1, before=TaskId(5)) == [2]
    assert store.listing.count(selection) == 2


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 1)), min_size=1, max_size=15))
def test_a_position_counts_those_that_come_before_in_the_lane(
    queued: list[tuple[int, int]],
) -> None:
    with in_memory() as store:
        for number, (lane, priority) in enumerate(queued, start=1):
            store.add(number, name=f"n{lane}", priority=priority)

        for number, (lane, priority) in enumerate(queued, start=1):
            ahead = [
                1
                for other, (its_lane, its_priority) in enumerate(queued, start=1)
                if its_lane == lane and (-its_priority, other) < (-priority, number)
            ]
            assert store.listing.count_ahead(store.task(number), limit=100) == len(ahead)


def test_a_position_is_counted_no_further_than_asked(store: Opened) -> None:
    for number in range(1, 11):
        store.add(number)

    assert store.listing.count_ahead(store.task(10), limit=4) == 4
