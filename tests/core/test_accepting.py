import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.accepting import check_lanes, submit
from rota.core.decisions import AddTask
from rota.core.events import SubmitTasks
from rota.core.tasks import Task, TaskState
from rota.errors import TooMany
from tests.core.situations import NOW_MS, add_task, new_task, situation

KEYS = st.sampled_from([None, "a", "b", "c"])


def test_a_submission_is_answered_in_its_order() -> None:
    tasks = [new_task("first"), new_task("second", delay_ms=5), new_task("third")]

    added, reply = submit(situation(), SubmitTasks(tasks))

    assert reply.items == added
    assert [one.task for one in added] == tasks
    assert [one.due_at_ms for one in added] == [None, NOW_MS + 5, None]
    assert {one.created_at_ms for one in added} == {NOW_MS}


def test_an_empty_submission_adds_nothing() -> None:
    snapshot = situation()
    snapshot.last_task_id = 7

    added, reply = submit(snapshot, SubmitTasks([]))

    assert (added, reply.items) == ([], [])
    assert snapshot.last_task_id == 7


def test_ids_go_on_from_submission_to_submission() -> None:
    snapshot = situation()

    first, _ = submit(snapshot, SubmitTasks([new_task(), new_task()]))
    second, _ = submit(snapshot, SubmitTasks([new_task()]))

    ids = [one.id for one in [*first, *second]]
    assert ids == sorted(set(ids))
    assert snapshot.last_task_id == ids[-1]


def test_a_known_key_answers_with_the_task_it_named_before() -> None:
    snapshot = situation()
    known = add_task(snapshot, state=TaskState.CANCELLED, key="k")
    snapshot.keys["k"] = known

    added, reply = submit(snapshot, SubmitTasks([new_task(key="k")]))

    assert added == []
    assert reply.items == [known]


def test_a_key_is_known_at_once_in_the_same_submission_and_the_same_batch() -> None:
    snapshot = situation()

    first, answer = submit(snapshot, SubmitTasks([new_task(key="k"), new_task("other", key="k")]))
    again, later = submit(snapshot, SubmitTasks([new_task(key="k", delay_ms=9)]))

    assert len(first) == 1
    assert again == []
    for repeated in (answer.items[1], later.items[0]):
        assert isinstance(repeated, Task)
        assert (repeated.id, repeated.lane.name) == (first[0].id, "work")


def test_the_task_behind_a_repeated_key_is_described_as_it_was_added() -> None:
    new = new_task(key="k", delay_ms=50, priority=3, max_attempts=9, labels=["x"])

    added, reply = submit(situation(), SubmitTasks([new, new]))

    repeated = reply.items[1]
    assert isinstance(repeated, Task)
    assert repeated.state is TaskState.SCHEDULED
    assert repeated.due_at_ms == added[0].due_at_ms == NOW_MS + 50
    assert (repeated.priority, repeated.options.max_attempts) == (3, 9)
    assert repeated.options.labels == ["x"]


@given(st.lists(st.lists(KEYS, max_size=8), max_size=8))
def test_each_key_is_accepted_once_however_the_calls_are_cut(calls: list[list[str | None]]) -> None:
    snapshot = situation()
    added: list[AddTask] = []
    answered: dict[str, set[int]] = {}

    for keys in calls:
        tasks, reply = submit(snapshot, SubmitTasks([new_task(key=key) for key in keys]))
        added += tasks
        for key, item in zip(keys, reply.items, strict=True):
            if key is not None:
                answered.setdefault(key, set()).add(item.id)

    with_key = [one.task.key for one in added if one.task.key is not None]
    assert len(with_key) == len(set(with_key)) == len(answered)
    assert all(len(ids) == 1 for ids in answered.values())


def test_endless_new_lanes_are_refused() -> None:
    check_lanes(9, 1, most=10)

    with pytest.raises(TooMany, match="more than 10 distinct"):
        check_lanes(10, 1, most=10)
