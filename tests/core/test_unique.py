from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from rota.core import limits
from rota.core.commands import QueueDueTasks, SubmitTasks
from rota.core.decisions import AddTask, FinishTask, QueueTask, ReplaceTask
from rota.core.replies import Submitted, Taken
from rota.core.snapshot import KeyHolder
from rota.core.tasks.inbox import InboxItem
from rota.core.tasks.keys import check_unique
from rota.core.tasks.model import NewTask, TaskRecord, TaskState
from rota.core.tasks.submission.holders import held_key_of
from rota.core.tasks.submission.inbox_rows import take_inbox
from rota.core.tasks.unique import Debounce, Release, Unique, debounced_due_ms
from rota.errors import Invalid, UniqueConflict
from tests.core.snapshots import NOW_MS, Situation, add_task, new_task, reduce, situation

MINUTE_MS = 60_000


def unique_task(payload: object = None, name: str = "work", **unique: object) -> NewTask:
    raw = Raw(msgspec.json.encode(payload))
    return new_task(name, payload=raw, unique=msgspec.convert(unique, Unique))


def debounced(payload: object = None, **debounce: object) -> NewTask:
    given = {"key": "d", "wait_ms": 1_000, **debounce}
    raw = Raw(msgspec.json.encode(payload))
    return new_task(payload=raw, debounce=msgspec.convert(given, Debounce))


def held_by(task: TaskRecord, new: NewTask, *, until_ms: int | None = None) -> Situation:
    """A situation in which a task holds the key of a new one."""
    snapshot = situation()
    snapshot.tasks[task.id] = task
    held = held_key_of(new, now_ms=NOW_MS)
    assert held is not None
    snapshot.holders["default", held.key] = KeyHolder(task.id, until_ms)
    return snapshot


def a_task(state: TaskState = TaskState.QUEUED, **changes: Any) -> TaskRecord:
    return add_task(situation(), state=state, **changes)


def only_item(snapshot: Situation, *tasks: NewTask) -> AddTask | TaskRecord:
    _, reply = reduce(snapshot, SubmitTasks([*tasks]))
    assert isinstance(reply, Submitted)
    return reply.items[-1]


# --- keys ---------------------------------------------------------------------------------------


def key_of(task: NewTask) -> str:
    held = held_key_of(task, now_ms=NOW_MS)
    assert held is not None
    return held.key


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=4,
)


@given(JSON, JSON)
def test_tasks_have_the_same_key_when_the_named_fields_are_equal(
    one: object, other: object
) -> None:
    first = unique_task({"user": one, "at": 1}, by=["name", "payload.user"])
    second = unique_task({"at": 2, "user": other}, by=["name", "payload.user"])

    as_json = [msgspec.json.encode(value, order="sorted") for value in (one, other)]
    assert (key_of(first) == key_of(second)) == (as_json[0] == as_json[1])


def test_a_key_is_made_of_the_name_and_the_payload_if_nothing_is_said() -> None:
    assert key_of(unique_task({"a": 1, "b": 2})) == key_of(unique_task({"b": 2, "a": 1}))
    assert key_of(unique_task({"a": 1})) != key_of(unique_task({"a": 2}))
    assert key_of(unique_task(1)) != key_of(unique_task(1, name="other"))


@pytest.mark.parametrize("payload", [None, 7, [], {}, {"user": 7}, {"user": {"name": "x"}}])
def test_a_field_that_the_payload_lacks_is_null(payload: object) -> None:
    absent = unique_task(payload, by=["payload.user.id"])

    assert key_of(absent) == key_of(unique_task({"user": {"id": None}}, by=["payload.user.id"]))


def test_no_key_of_one_kind_is_one_of_another() -> None:
    digest = key_of(unique_task(1)).removeprefix("by:")
    texts = ["x", digest, f"by:{digest}", "debounce:x", "key:x"]
    keys = [key_of(unique_task(key=text)) for text in texts]
    keys += [key_of(debounced(key=text)) for text in texts]
    keys.append(key_of(unique_task(1)))

    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("path", ["", "payload.", "payload..a", "nam", "payloads", "queue"])
def test_a_path_that_names_no_field_is_refused(path: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        unique_task(by=[path])


@pytest.mark.parametrize(
    ("task", "field"),
    [
        (unique_task(key="k", by=["name"]), "unique"),
        (msgspec.structs.replace(debounced(), unique=Unique(key="k")), "debounce"),
        (msgspec.structs.replace(debounced(), delay_ms=1), "debounce"),
        (msgspec.structs.replace(debounced(), run_at_ms=1), "debounce"),
        (unique_task(key="\N{BUG}" * limits.MAX_KEY_LENGTH), None),
    ],
)
def test_options_that_contradict_each_other_are_refused(task: NewTask, field: str | None) -> None:
    if field is None:
        task = msgspec.structs.replace(task, queue="\N{BUG}" * limits.MAX_NAME_LENGTH)
    with pytest.raises(Invalid) as refusal:
        check_unique(task)

    assert refusal.value.facts["field"] == (field or "key")


@pytest.mark.parametrize("payload", [b'{"n": 1e999}', b'"\xff"', b'"\\ud800"'])
def test_a_payload_that_cannot_be_compared_is_refused(payload: bytes) -> None:
    task = new_task(payload=Raw(payload), unique=Unique(by=("payload.n",)))

    with pytest.raises(Invalid, match="cannot be compared"):
        reduce(situation(), SubmitTasks([task]))
    added, ended, _ = taken(situation(), task)
    assert [(one.id, one.state) for one in ended] == [(added[0].id, TaskState.FAILED)]


# --- conflicts ----------------------------------------------------------------------------------


def test_a_second_unique_task_is_answered_with_the_first() -> None:
    first, second = unique_task(1, key="k"), unique_task(2, key="k")

    decisions, reply = reduce(situation(), SubmitTasks([first, second]))

    assert isinstance(reply, Submitted)
    added, known = reply.items
    assert isinstance(added, AddTask)
    assert isinstance(known, TaskRecord)
    assert decisions == [added]
    assert (known.id, known.payload) == (added.id, b"1")
    assert added.holds is not None
    assert (added.holds.release, added.holds.until_ms) == (Release.END, None)


def test_a_key_of_another_queue_is_another_key() -> None:
    snapshot = situation()
    elsewhere = msgspec.structs.replace(unique_task(key="k"), queue="elsewhere")

    reduce(snapshot, SubmitTasks([unique_task(key="k")]))

    assert isinstance(only_item(snapshot, elsewhere), AddTask)


def test_a_key_is_free_when_its_time_is_over() -> None:
    new = unique_task(key="k", for_ms=500)

    held = held_by(a_task(), new, until_ms=NOW_MS + 1)
    free = held_by(a_task(), new, until_ms=NOW_MS)

    assert isinstance(only_item(held, new), TaskRecord)
    taken = only_item(free, new)
    assert isinstance(taken, AddTask)
    assert taken.holds is not None
    assert taken.holds.until_ms == NOW_MS + 500


@pytest.mark.parametrize("state", TaskState)
def test_a_rejected_task_names_the_holder(state: TaskState) -> None:
    new = unique_task(key="k", on_conflict="reject")
    holder = a_task(state)
    snapshot = held_by(holder, new)
    if state in {TaskState.SUCCEEDED, TaskState.FAILED, TaskState.CANCELLED}:
        assert isinstance(only_item(snapshot, new), AddTask)
        return

    with pytest.raises(UniqueConflict) as refusal:
        reduce(snapshot, SubmitTasks([new_task(), new]))

    assert refusal.value.facts == {"task_id": f"{holder.id:016x}", "state": state}
    assert snapshot.last_task_id == 0


def test_two_tasks_of_one_submission_cannot_be_rejected_for_each_other() -> None:
    new = unique_task(key="k", on_conflict="reject")

    with pytest.raises(Invalid, match="same key"):
        reduce(situation(), SubmitTasks([new, new]))


def test_a_known_idempotency_key_comes_before_uniqueness() -> None:
    new = msgspec.structs.replace(unique_task(key="k", on_conflict="reject"), key="known")
    snapshot = held_by(a_task(), new)
    snapshot.keys["default", "known"] = known = add_task(snapshot, 7, key="known")

    assert only_item(snapshot, new) == known


# --- replacement --------------------------------------------------------------------------------


def test_a_queued_task_is_replaced_where_it_stands() -> None:
    new = msgspec.structs.replace(
        unique_task(2, key="k", on_conflict="replace", **{"while": "queued"}),
        priority=5,
        max_attempts=9,
        delay_ms=MINUTE_MS,
    )
    holder = a_task(payload=b"1", key="mine", attempt=2, fence=3, unique=Unique(key="k"))
    snapshot = held_by(holder, new)

    decisions, reply = reduce(snapshot, SubmitTasks([new]))

    assert [type(one) for one in decisions] == [ReplaceTask]
    assert isinstance(reply, Submitted)
    (task,) = reply.items
    assert isinstance(task, TaskRecord)
    assert (task.id, task.key, task.fence) == (holder.id, "mine", 3)
    assert (task.payload, task.priority, task.options.max_attempts) == (b"2", 5, 9)
    assert (task.state, task.due_at_ms, task.attempt) == (TaskState.QUEUED, None, 0)
    assert task.options.unique == holder.options.unique, "the release point stays"


def test_a_scheduled_task_is_due_when_its_replacement_is() -> None:
    new = unique_task(2, key="k", on_conflict="replace")
    later = msgspec.structs.replace(new, delay_ms=MINUTE_MS)
    holder = a_task(TaskState.SCHEDULED, due_at_ms=NOW_MS + 5)

    moved, _ = reduce(held_by(holder, new), SubmitTasks([later]))
    queued, _ = reduce(held_by(holder, new), SubmitTasks([new]))

    assert [type(one) for one in moved] == [ReplaceTask]
    assert isinstance(moved[0], ReplaceTask)
    assert moved[0].due_at_ms == NOW_MS + MINUTE_MS
    assert [type(one) for one in queued] == [ReplaceTask, QueueTask]


def test_a_running_task_is_not_replaced() -> None:
    new = unique_task(2, key="k", on_conflict="replace")

    with pytest.raises(UniqueConflict):
        reduce(held_by(a_task(TaskState.RUNNING), new), SubmitTasks([new]))


def test_a_task_that_was_moved_to_a_later_time_is_not_queued_in_the_same_batch() -> None:
    new = msgspec.structs.replace(
        unique_task(2, key="k", on_conflict="replace"), delay_ms=MINUTE_MS
    )
    holder = a_task(TaskState.SCHEDULED, due_at_ms=NOW_MS)
    snapshot = held_by(holder, new)
    snapshot.due = [holder.id]

    reduce(snapshot, SubmitTasks([new]))
    decisions, _ = reduce(snapshot, QueueDueTasks())

    assert decisions == []


# --- debounce -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("keep", "payload"), [("last", b"2"), ("first", b"1")])
def test_a_debounced_task_moves_and_keeps_what_it_shall(keep: str, payload: bytes) -> None:
    snapshot = situation()
    reduce(snapshot, SubmitTasks([debounced(1)]))
    snapshot.now_ms += 400

    task = only_item(snapshot, debounced(2, keep=keep))

    assert isinstance(task, TaskRecord)
    assert (task.state, task.payload) == (TaskState.SCHEDULED, payload)
    assert task.due_at_ms == NOW_MS + 400 + 1_000


def test_a_debounced_task_that_is_due_is_over() -> None:
    snapshot = situation()
    first = only_item(snapshot, debounced(1))
    snapshot.now_ms += 1_000

    second = only_item(snapshot, debounced(2))

    assert isinstance(second, AddTask)
    assert second.id != first.id


@given(
    st.lists(st.integers(0, 2_000), min_size=1, max_size=30),
    st.integers(1, 1_500),
    st.integers(1, 5_000) | st.none(),
)
def test_a_debounced_task_starts_once_it_is_quiet_and_never_later_than_its_bound(
    pauses: list[int], wait_ms: int, max_wait_ms: int | None
) -> None:
    debounce = Debounce(key="d", wait_ms=wait_ms, max_wait_ms=max_wait_ms)
    first_ms = now_ms = NOW_MS
    due_ms = debounced_due_ms(debounce, first_ms=first_ms, now_ms=now_ms)
    for pause_ms in pauses:
        now_ms += pause_ms
        if now_ms >= due_ms:
            first_ms = now_ms
        due_ms = debounced_due_ms(debounce, first_ms=first_ms, now_ms=now_ms)

        assert now_ms < due_ms <= now_ms + wait_ms
        assert due_ms <= first_ms + (max_wait_ms or limits.MAX_DELAY_MS)


# --- the inbox ----------------------------------------------------------------------------------


def taken(snapshot: Situation, *tasks: NewTask) -> tuple[list[AddTask], list[FinishTask], Taken]:
    keyed = [
        msgspec.structs.replace(task, key=f"row-{number}") for number, task in enumerate(tasks)
    ]
    snapshot.inbox = [InboxItem(task) for task in keyed]
    decisions, reply = take_inbox(snapshot, snapshot.context)
    added = [one for one in decisions if isinstance(one, AddTask)]
    return added, [one for one in decisions if isinstance(one, FinishTask)], reply


def test_a_row_for_which_another_task_stands_is_found_by_its_key_as_cancelled() -> None:
    snapshot = situation()

    added, ended, reply = taken(snapshot, unique_task(1, key="k"), unique_task(2, key="k"))

    assert [one.task.key for one in added] == ["row-0", "row-1"]
    assert [(one.id, one.state) for one in ended] == [(added[1].id, TaskState.CANCELLED)]
    assert ended[0].error is not None
    assert ended[0].error.details == {"task_id": f"{added[0].id:016x}"}
    assert added[1].holds is None
    assert (reply.count, reply.duplicates, reply.refused) == (2, 1, ())


def test_a_row_that_is_rejected_becomes_a_failed_task() -> None:
    new = unique_task(2, key="k", on_conflict="reject")

    added, ended, reply = taken(held_by(a_task(), new), new)

    assert [(one.id, one.state) for one in ended] == [(added[0].id, TaskState.FAILED)]
    assert ended[0].error is not None
    assert ended[0].error.type == "unique_conflict"
    assert [key for key, _ in reply.refused] == ["row-0"]
