import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core import limits
from rota.core.commands import SubmitTasks
from rota.core.decisions import AddTask
from rota.core.flows.model import Concurrency, Rate
from rota.core.replies import Submitted
from rota.core.sessions import key_of, name_of
from rota.core.tasks.keys import KeySpace
from rota.core.tasks.lanes import LaneRoom
from rota.core.tasks.model import Lane, TaskRecord, TaskState
from rota.core.tasks.submission import submission
from rota.errors import Invalid, TooMany
from tests.core.snapshots import NOW_MS, Situation, add_task, new_task, situation

KEYS = st.sampled_from([None, "a", "b", "c"])


def submit(snapshot: Situation, command: SubmitTasks) -> tuple[list[AddTask], Submitted]:
    decisions, reply = submission.submit(snapshot, command, snapshot.context)
    return [one for one in decisions if isinstance(one, AddTask)], reply


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
    snapshot.keys["default", "k"] = known

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
        assert isinstance(repeated, TaskRecord)
        assert (repeated.id, repeated.lane.name) == (first[0].id, "work")


def test_the_task_behind_a_repeated_key_is_described_as_it_was_added() -> None:
    new = new_task(key="k", delay_ms=50, priority=3, max_attempts=9, labels=["x"])

    added, reply = submit(situation(), SubmitTasks([new, new]))

    repeated = reply.items[1]
    assert isinstance(repeated, TaskRecord)
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


def test_the_same_key_in_two_queues_names_two_tasks() -> None:
    snapshot = situation()

    first, _ = submit(snapshot, SubmitTasks([new_task(key="k", queue="a")]))
    second, _ = submit(snapshot, SubmitTasks([new_task(key="k", queue="b")]))
    again, reply = submit(snapshot, SubmitTasks([new_task(key="k", queue="a")]))

    assert len(first) == len(second) == 1
    assert again == []
    assert [one.id for one in reply.items] == [first[0].id]


@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
def test_no_key_of_a_caller_is_that_of_a_session(queue: str, name: str) -> None:
    for key in (key_of(queue, name), f"caller-key:{key_of(queue, name)}", name):
        snapshot = situation()
        callers, _ = submit(snapshot, SubmitTasks([new_task(key=key, queue=queue)]))
        named = new_task(key=key_of(queue, name), queue=queue)

        sessions, _ = submit(snapshot, SubmitTasks([named], "s", KeySpace.SESSION))

        assert len(callers) == len(sessions) == 1
        (caller_task, session_task) = snapshot.keys.values()
        assert name_of(session_task) == name
        assert caller_task.key != session_task.key


def test_a_key_that_is_too_large_for_an_index_is_refused() -> None:
    queue, key = "\N{ROCKET}" * limits.MAX_NAME_LENGTH, "\N{ROCKET}" * limits.MAX_KEY_LENGTH
    submit(situation(), SubmitTasks([new_task(key=key), new_task(queue=queue, key="k")]))

    with pytest.raises(Invalid, match="key: has more than 2500 bytes"):
        submit(situation(), SubmitTasks([new_task(queue=queue, key=key)]))


# --- room for lanes -----------------------------------------------------------------------------


def crowded(**by_queue: int) -> LaneRoom:
    """Queues with so many lanes each, whose names are numbers."""

    def is_known(lane: Lane) -> bool:
        return int(lane.name) < by_queue.get(lane.queue, 0)

    return LaneRoom(is_known, sum(by_queue.values()), by_queue)


def test_a_queue_that_has_its_share_of_lanes_gets_no_new_one_and_others_do() -> None:
    snapshot = situation()
    snapshot.lane_room = crowded(a=limits.MAX_LANES_PER_QUEUE)

    with pytest.raises(TooMany, match="in queue 'a'") as refusal:
        submit(snapshot, SubmitTasks([new_task("99999", queue="a"), new_task("0", queue="b")]))
    known, _ = submit(snapshot, SubmitTasks([new_task("0", queue="a")]))
    other, _ = submit(snapshot, SubmitTasks([new_task("0", queue="b")]))

    assert refusal.value.facts == {"limit": "max_lanes_per_queue", "queue": "a"}
    assert len(known) == len(other) == 1


def test_lanes_that_one_batch_adds_count_at_once() -> None:
    snapshot = situation()
    most = limits.MAX_LANES_PER_QUEUE
    snapshot.lane_room = crowded(a=most - 1)

    submit(snapshot, SubmitTasks([new_task(f"{most}", queue="a")]))
    submit(snapshot, SubmitTasks([new_task(f"{most}", queue="a")]))

    with pytest.raises(TooMany, match="in queue 'a'"):
        submit(snapshot, SubmitTasks([new_task(f"{most + 1}", queue="a")]))


def test_one_submission_adds_no_more_than_its_part_of_the_lanes() -> None:
    snapshot = situation()
    snapshot.lane_room = crowded()
    most = limits.MAX_NEW_LANES_PER_SUBMISSION
    tasks = [new_task("0", queue=f"q{number}") for number in range(most + 1)]

    with pytest.raises(TooMany, match="smaller parts") as refusal:
        submit(snapshot, SubmitTasks(tasks))
    added, _ = submit(snapshot, SubmitTasks(tasks[:most]))

    assert refusal.value.facts == {"limit": "max_new_lanes_per_submission"}
    assert len(added) == most


def test_endless_new_lanes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_LANES", 10)
    snapshot = situation()
    snapshot.lane_room = crowded(a=4, b=5)
    submit(snapshot, SubmitTasks([new_task("0", queue="c")]))

    with pytest.raises(TooMany, match="more than 10 distinct") as refusal:
        submit(snapshot, SubmitTasks([new_task("1", queue="c")]))

    assert refusal.value.facts == {"limit": "max_lanes"}


def test_a_refused_submission_leaves_no_trace() -> None:
    snapshot = situation()
    snapshot.lane_room = crowded(a=limits.MAX_LANES_PER_QUEUE)
    refused = [new_task("0", queue="b", key="k"), new_task("99999", queue="a")]

    with pytest.raises(TooMany):
        submit(snapshot, SubmitTasks(refused))

    assert snapshot.keys == {}
    assert snapshot.lane_room.new == set()


def test_a_known_key_needs_no_lane() -> None:
    snapshot = situation()
    submit(snapshot, SubmitTasks([new_task("0", queue="a", key="k")]))
    snapshot.lane_room = crowded(a=limits.MAX_LANES_PER_QUEUE)

    added, reply = submit(snapshot, SubmitTasks([new_task("99999", queue="a", key="k")]))

    assert added == []
    assert len(reply.items) == 1


def test_a_submission_adds_no_more_keys_of_limits_than_there_is_room_for() -> None:
    snapshot = situation()
    snapshot.new_keys = 1
    one, two = new_task("a", concurrency=Concurrency("x")), new_task("a", rate=Rate("y", limit=1))

    with pytest.raises(TooMany):
        submit(snapshot, SubmitTasks([one, two]))
    submit(snapshot, SubmitTasks([one, one]))

    assert snapshot.new_keys == 0
