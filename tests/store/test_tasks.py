import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from rota.core import limits
from rota.core.decisions import AddTask, NoteProgress, ReviveTask
from rota.core.ids import TaskId
from rota.core.tasks import keys
from rota.core.tasks.model import (
    DEFAULT_OPTIONS,
    JOB_INCARNATION,
    Backoff,
    Lane,
    NewTask,
    TaskError,
    TaskOptions,
    TaskState,
    options_of,
)
from rota.store.tasks import bulk
from rota.store.tasks.row_types import FIRST_FLOW, FIRST_PLACE, QueuedPlace
from tests.store.opened import NOW_MS, Opened, in_memory, refused, requeue

EVERYTHING: dict[str, Any] = {
    "name": "resize",
    "payload": Raw(b'{"path": "a.png"}'),
    "queue": "images",
    "priority": 7,
    "requires": ("gpu", "big"),
    "delay_ms": 50,
    "timeout_ms": 900,
    "start_within_ms": 800,
    "max_attempts": 5,
    "backoff": Backoff(kind="linear", initial_ms=10),
    "key": "k",
    "labels": {"team": "blue"},
}
AWKWARD = ["a\0b", "a", "ü€😀", " ", "'; --", "%_"]


# --- accepting ----------------------------------------------------------------------------------


def test_an_added_task_is_found_as_it_was_described(store: Opened) -> None:
    new = NewTask(**EVERYTHING)

    store.tasks.add([AddTask(TaskId(1), new, NOW_MS, NOW_MS + 50)])

    task = store.task()
    assert task.lane == Lane("images", "resize", ("big", "gpu"))
    assert (task.state, task.due_at_ms) == (TaskState.SCHEDULED, NOW_MS + 50)
    assert (task.priority, task.payload, task.key) == (7, b'{"path": "a.png"}', "k")
    assert task.options == options_of(new)
    assert (task.created_at_ms, task.attempt, task.fence, task.log) == (NOW_MS, 0, 0, ())


def test_a_task_without_options_of_its_own_stores_none(store: Opened) -> None:
    store.add()

    assert store.task().options == DEFAULT_OPTIONS
    assert store.rows("SELECT options FROM task") == [(None,)]


def test_only_lanes_with_something_to_claim_are_said_to_be_open(store: Opened) -> None:
    added = [
        AddTask(TaskId(1), NewTask(name="now"), NOW_MS),
        AddTask(TaskId(2), NewTask(name="later"), NOW_MS, NOW_MS + 5),
        AddTask(TaskId(3), NewTask(name="now"), NOW_MS),
    ]

    opened = store.tasks.add(added)

    assert [store.lanes.by_number[number].name for number in opened] == ["now"]
    assert store.tasks.open_lanes() == list(opened)


@given(st.lists(st.booleans(), max_size=12), st.integers(1, 3))
def test_ready_and_scheduled_tasks_of_one_submission_keep_apart(
    delayed: list[bool], gap: int
) -> None:
    with in_memory() as store:
        added = [
            AddTask(TaskId(1 + index * gap), NewTask(name="work"), NOW_MS, 99 if is_late else None)
            for index, is_late in enumerate(delayed)
        ]

        store.tasks.add(added)

        for one in added:
            expected = TaskState.QUEUED if one.due_at_ms is None else TaskState.SCHEDULED
            assert store.task(one.id).state is expected


def test_tasks_are_found_by_their_keys_whatever_is_in_them(store: Opened) -> None:
    for number, key in enumerate(AWKWARD, start=1):
        store.add(number, key=key)

    found = store.tasks.by_keys([("default", key) for key in [*AWKWARD, "unknown"]])

    assert {key: task.id for (_, key), task in found.items()} == {
        key: number for number, key in enumerate(AWKWARD, start=1)
    }
    assert store.tasks.by_keys([]) == {}


def test_a_key_names_a_task_in_each_queue(store: Opened) -> None:
    store.add(1, key="k", queue="a")
    store.history(2, key="k", queue="b")

    found = store.tasks.by_keys([("a", "k"), ("b", "k"), ("c", "k")])

    assert {queue: task.id for (queue, _), task in found.items()} == {"a": 1, "b": 2}
    assert [task.id for task in store.tasks.with_key(["k"], limit=10, before=None)] == [2, 1]
    assert [task.id for task in store.tasks.with_key(["k"], limit=1, before=TaskId(2))] == [1]
    in_b = store.tasks.with_key(["k", "other"], limit=10, before=None, queue="b")
    assert [task.id for task in in_b] == [2]


def test_forgetting_the_task_of_one_queue_keeps_the_same_key_of_another(store: Opened) -> None:
    store.history(1, key="k", queue="a", finished_at_ms=1)
    store.history(2, key="k", queue="b", finished_at_ms=9)

    store.tasks.prune(5, 10)

    assert store.rows("SELECT key, queue, id FROM task_key") == [("k", "b", 2)]


def test_a_key_and_a_queue_of_the_greatest_length_are_kept(store: Opened) -> None:
    queue = "\N{ROCKET}" * limits.MAX_NAME_LENGTH
    key = "\x01" * 115 + "\N{ROCKET}" * ((limits.MAX_KEY_BYTES - 115 - 800) // 4)
    keys.check_key_size(queue, key)

    store.add(1, key=keys.ESCAPE + key, queue=queue)

    assert store.tasks.by_keys([(queue, keys.ESCAPE + key)])[queue, keys.ESCAPE + key].id == 1


def test_the_last_id_counts_live_and_finished_tasks(store: Opened) -> None:
    assert store.tasks.last_id() == 0

    store.history(9)
    store.add(4)

    assert store.tasks.last_id() == 9


# --- claiming -----------------------------------------------------------------------------------


def test_queued_tasks_are_read_as_they_will_be_leased(store: Opened) -> None:
    lease = store.running(timeout_ms=5, priority=3, key="k", payload=Raw(b"[1]"))
    store.tasks.requeue([requeue(lease)], now_ms=NOW_MS)

    ((place, task),) = store.tasks.queued_after(1, FIRST_PLACE, limit=10, most_bytes=3)

    assert place == (-3, 1)
    assert task is not None
    assert store.tasks.queued([1, 2]) == [task]
    assert task == msgspec.structs.replace(store.task(), log=())
    assert (task.fence, task.attempt, task.options.timeout_ms) == (1, 1, 5)


def test_queued_tasks_are_read_in_order_after_a_place_without_large_payloads(
    store: Opened,
) -> None:
    for number, priority in ((1, 0), (2, 5), (3, 0), (4, 5), (5, -1)):
        store.add(number, priority=priority, payload=Raw(b"1" * number))

    found = store.tasks.queued_after(1, (-5, TaskId(2)), limit=3, most_bytes=3)

    assert [place for place, _ in found] == [(-5, 4), (0, 1), (0, 3)]
    assert [task and task.payload for _, task in found] == [None, b"1", b"111"]


def test_tasks_are_read_whole_and_those_read_ahead_without_large_payloads(store: Opened) -> None:
    for number in range(1, 5):
        store.add(number, payload=Raw(b"1" * number))

    found = store.tasks.queued([4, 1], ahead=[2, 3], most_bytes=2)

    assert {task.id: task.payload for task in found} == {4: b"1111", 1: b"1", 2: b"11"}
    assert len(store.tasks.queued([4, 3])) == 2


def in_flow(store: Opened, flow: int, *numbers: int, **options: Any) -> None:
    """Queue tasks in a flow."""
    added = [AddTask(TaskId(one), NewTask(name="work", **options), NOW_MS) for one in numbers]
    store.tasks.add(added, flows=dict.fromkeys(numbers, flow))


def test_queued_tasks_of_several_flows_are_read_at_once_each_after_its_place(
    store: Opened,
) -> None:
    first, second, third = FIRST_FLOW + 1, FIRST_FLOW + 2, FIRST_FLOW + 3
    in_flow(store, first, 1, 4, 5, 6, payload=Raw(b"12"))
    in_flow(store, second, 2, priority=-1)
    in_flow(store, second, 3, priority=7, payload=Raw(b"12345"))
    in_flow(store, third, 7)

    found = store.tasks.queued_after_each(
        {second: FIRST_PLACE, first: (0, TaskId(1)), third: (0, TaskId(7))}, limit=2, most_bytes=4
    )

    places = {flow: [place for place, _ in of_flow] for flow, of_flow in found.items()}
    assert places == {second: [(-7, 3), (1, 2)], first: [(0, 4), (0, 5)], third: []}
    assert [task and task.payload for _, task in found[second]] == [None, b"null"]
    assert [task for _, task in found[first]] == store.tasks.queued([4, 5])


@pytest.mark.parametrize("due_at_ms", [None, NOW_MS + 5])
def test_a_leased_task_runs_and_waits_nowhere(store: Opened, due_at_ms: int | None) -> None:
    store.add(due_at_ms=due_at_ms)

    store.lease(incarnation=4, deadline_ms=NOW_MS + 9)

    task = store.task()
    assert (task.state, task.incarnation, task.fence) == (TaskState.RUNNING, 4, 1)
    assert (task.started_at_ms, task.deadline_ms, task.due_at_ms) == (NOW_MS, NOW_MS + 9, None)
    assert store.tasks.open_lanes() == []
    assert store.tasks.due(NOW_MS + 99, 10) == []


def test_a_task_is_leased_once(store: Opened) -> None:
    store.add()
    task = store.task()
    lease = store.lease()

    with refused(store):
        store.tasks.lease([lease], {task.id: task})


def test_a_task_is_leased_from_where_it_stands(store: Opened) -> None:
    store.add()

    with refused(store):
        store.lease(was=TaskState.SCHEDULED)


def test_tasks_of_several_lanes_and_priorities_are_leased_together(store: Opened) -> None:
    for number in range(1, 9):
        due_at_ms = NOW_MS if number == 8 else None
        store.add(number, name=f"n{number % 2}", priority=number % 3, due_at_ms=due_at_ms)
    tasks = store.tasks.by_ids([*range(1, 9)])
    leases = [store.lease(number) for number in (1, 8)]
    for lease in leases:
        store.tasks.requeue([requeue(lease)], now_ms=NOW_MS)
    tasks = store.tasks.by_ids([*range(1, 9)])

    store.tasks.lease(
        [
            msgspec.structs.replace(leases[0], id=task.id, was=task.state, fence=task.fence + 1)
            for task in tasks.values()
        ],
        tasks,
    )

    assert {task.state for task in store.tasks.by_ids([*range(1, 9)]).values()} == {
        TaskState.RUNNING
    }


# --- running ------------------------------------------------------------------------------------


def test_leases_are_found_by_task_and_by_holder(store: Opened) -> None:
    for number in (1, 2, 3):
        store.add(number)
        store.lease(number, incarnation=1 + number % 2)
    store.add(4)
    store.lease(4, incarnation=JOB_INCARNATION, holder="me", deadline_ms=7)

    assert store.tasks.leases([1, 4, 99]).keys() == {1, 4}
    assert store.tasks.leases_of([2]).keys() == {1, 3}
    assert store.tasks.all_leases().keys() == {1, 2, 3, 4}
    assert store.tasks.lease_counts([1, 2, 5]) == {1: 1, 2: 2, 5: 0}
    assert (store.tasks.leases([]), store.tasks.lease_counts([])) == ({}, {})
    job = store.tasks.leases([4])[TaskId(4)]
    assert (job.incarnation, job.holder, job.deadline_ms) == (JOB_INCARNATION, "me", 7)
    assert store.task(4).worker_id == "me"


def test_progress_is_kept_under_the_fence_and_each_part_for_itself(store: Opened) -> None:
    store.running()

    store.tasks.note_progress([NoteProgress(TaskId(1), 1, b"0.5", b'"half"')])
    store.tasks.note_progress([NoteProgress(TaskId(1), 1, b"0.7", None)])
    store.tasks.note_progress([NoteProgress(TaskId(1), 0, b"0.9", b'"stale"')])

    assert (store.task().progress, store.task().partial) == (b"0.7", b'"half"')


# --- ending -------------------------------------------------------------------------------------


def test_a_finished_task_is_a_row_of_history_and_nothing_else(store: Opened) -> None:
    store.running(key="k", labels=["l"], timeout_ms=10)
    store.tasks.note_progress([NoteProgress(TaskId(1), 1, b"1", b"[]")])

    store.finish(result=Raw(b"42"), finished_at_ms=NOW_MS + 5)

    task = store.task()
    assert (task.state, task.result, task.error) == (TaskState.SUCCEEDED, b"42", None)
    assert (task.started_at_ms, task.finished_at_ms) == (NOW_MS, NOW_MS + 5)
    assert (task.worker_id, task.incarnation, task.fence, task.attempt) == ("w1", 1, 1, 1)
    assert (task.progress, task.partial, task.key) == (b"1", b"[]", "k")
    for table in ("task", "ready", "scheduled", "lease"):
        assert store.rows(f"SELECT * FROM {table}") == []


@pytest.mark.parametrize("due_at_ms", [None, NOW_MS + 5])
def test_a_waiting_task_is_finished_from_where_it_stands(
    store: Opened, due_at_ms: int | None
) -> None:
    store.add(due_at_ms=due_at_ms)

    store.finish(state=TaskState.CANCELLED, worker_id=None)

    task = store.task()
    assert (task.state, task.incarnation, task.started_at_ms) == (TaskState.CANCELLED, None, None)
    assert store.rows("SELECT id FROM ready UNION SELECT id FROM scheduled") == []


@pytest.mark.parametrize("fence", [0, 2])
def test_a_stale_fence_finishes_nothing(store: Opened, fence: int) -> None:
    store.running()

    with refused(store):
        store.finish(fence=fence)


def test_a_task_that_does_not_run_cannot_be_finished_as_running(store: Opened) -> None:
    store.add()

    with refused(store):
        store.finish(was=TaskState.RUNNING)


@pytest.mark.parametrize("was", [TaskState.QUEUED, TaskState.SCHEDULED])
def test_a_task_that_runs_cannot_be_finished_as_waiting(store: Opened, was: TaskState) -> None:
    store.running()

    with refused(store):
        store.finish(was=was)


def test_an_error_survives_with_its_details(store: Opened) -> None:
    error = TaskError(type="T", message="ü", retryable=False, details={"a": [1, None]})
    store.running()

    store.finish(state=TaskState.FAILED, error=error)

    assert store.task().error == error


def test_a_requeued_task_waits_under_its_fence_and_remembers_the_attempt(store: Opened) -> None:
    lease = store.running()
    again = requeue(lease)

    opened = store.tasks.requeue([again], now_ms=NOW_MS + 7)

    task = store.task()
    assert (task.state, task.fence, task.attempt) == (TaskState.QUEUED, 1, 1)
    assert task.log == (again.ended,)
    assert opened == [QueuedPlace(1, 0, TaskId(1))]
    assert store.rows("SELECT since_ms FROM ready") == [(NOW_MS + 7,)]


def test_a_requeued_task_may_have_to_wait_for_its_time(store: Opened) -> None:
    lease = store.running()

    opened = store.tasks.requeue([requeue(lease, used=0, due_at_ms=NOW_MS + 9)], now_ms=NOW_MS)

    task = store.task()
    assert (task.state, task.due_at_ms, task.attempt) == (TaskState.SCHEDULED, NOW_MS + 9, 0)
    assert opened == []


def test_a_stale_fence_requeues_nothing(store: Opened) -> None:
    lease = store.running()
    store.tasks.requeue([requeue(lease)], now_ms=NOW_MS)
    store.lease()

    with refused(store):
        store.tasks.requeue([requeue(lease)], now_ms=NOW_MS)


def test_the_log_of_attempts_has_an_end(store: Opened) -> None:
    store.add()

    for _ in range(limits.MAX_LOGGED_ATTEMPTS + 3):
        store.tasks.requeue([requeue(store.lease())], now_ms=NOW_MS)

    fences = [line.fence for line in store.task().log]
    assert fences == list(range(4, limits.MAX_LOGGED_ATTEMPTS + 4))


def test_scheduled_tasks_become_ready(store: Opened) -> None:
    for number in (1, 2, 3):
        store.add(number, due_at_ms=NOW_MS + number)

    opened = store.tasks.queue([1, 3], now_ms=NOW_MS + 9)

    assert opened == [QueuedPlace(1, 0, TaskId(1)), QueuedPlace(1, 0, TaskId(3))]
    states = [store.task(number).state for number in (1, 2, 3)]
    assert states == [TaskState.QUEUED, TaskState.SCHEDULED, TaskState.QUEUED]
    with refused(store):
        store.tasks.queue([2, 3], now_ms=NOW_MS)


# --- coming back --------------------------------------------------------------------------------


def test_fences_go_on_rising_when_a_task_comes_back(store: Opened) -> None:
    store.running(max_attempts=1, key="k", labels=["l"], priority=4)
    fences = [1]

    for _ in range(3):
        store.finish(state=TaskState.FAILED)
        store.tasks.revive([ReviveTask(TaskId(1))], now_ms=NOW_MS)
        fences.append(store.lease().fence)

    task = store.task()
    assert fences == [1, 2, 3, 4]
    assert (task.attempt, task.key, task.priority, task.options.labels) == (1, "k", 4, ["l"])
    assert [line.fence for line in task.log] == [1, 2, 3]
    assert store.rows("SELECT * FROM history") == []
    assert store.tasks.by_keys([("default", "k")])["default", "k"].id == 1


def test_a_cancelled_task_comes_back_without_a_line_of_failure(store: Opened) -> None:
    store.add()
    store.finish(state=TaskState.CANCELLED)

    opened = store.tasks.revive([ReviveTask(TaskId(1))], now_ms=NOW_MS)

    assert store.task().log == ()
    assert opened == [QueuedPlace(1, 0, TaskId(1))]


# --- what time brings ---------------------------------------------------------------------------


def test_due_tasks_come_in_the_order_of_their_moments(store: Opened) -> None:
    for number, due_at_ms in ((1, 30), (2, 10), (3, 20), (4, 40), (5, 10)):
        store.add(number, due_at_ms=due_at_ms)

    assert store.tasks.due(30, 10) == [2, 5, 3, 1]
    assert store.tasks.due(30, 2) == [2, 5]
    assert store.tasks.due(9, 10) == []


def test_overdue_are_leases_past_their_deadline(store: Opened) -> None:
    for number, deadline_ms in ((1, 30), (2, 10), (3, None)):
        store.add(number)
        store.lease(number, deadline_ms=deadline_ms)

    assert store.tasks.overdue(9, 10) == []
    assert store.tasks.overdue(30, 10) == [2, 1]
    assert store.tasks.overdue(30, 1) == [2]


def test_a_time_limit_to_start_is_asked_about_once(store: Opened) -> None:
    for number, start_within_ms in ((1, 30), (2, 10), (3, 99), (4, None)):
        store.add(number, start_within_ms=start_within_ms)

    assert store.tasks.take_unstarted(NOW_MS + 9, 10) == []
    assert store.tasks.take_unstarted(NOW_MS + 30, 1) == [2]
    assert store.tasks.take_unstarted(NOW_MS + 30, 10) == [1]
    assert store.tasks.take_unstarted(NOW_MS + 30, 10) == []


def test_a_retried_task_has_the_time_limit_to_start_that_was_decided(store: Opened) -> None:
    store.add(1, start_within_ms=30)
    store.finish(state=TaskState.CANCELLED)
    options = TaskOptions(start_within_ms=30, retried_at_ms=NOW_MS + 100)

    store.tasks.revive([ReviveTask(TaskId(1), options)], now_ms=NOW_MS + 100)

    assert store.task().options == options
    store.tasks.take_unstarted(NOW_MS + 100, 10)  # the limit of before the retry
    assert store.tasks.take_unstarted(NOW_MS + 129, 10) == []
    assert store.tasks.take_unstarted(NOW_MS + 130, 10) == [1]


def test_the_next_moment_is_the_nearest_of_all_kinds(store: Opened) -> None:
    assert store.tasks.next_due_ms() is None

    store.add(1, start_within_ms=900)
    assert store.tasks.next_due_ms() == NOW_MS + 900
    store.add(2, due_at_ms=NOW_MS + 700)
    assert store.tasks.next_due_ms() == NOW_MS + 700
    store.add(3)
    store.lease(3, deadline_ms=NOW_MS + 500)
    assert store.tasks.next_due_ms() == NOW_MS + 500


# --- forgetting ---------------------------------------------------------------------------------


def test_forgetting_takes_the_keys_and_labels_along_and_leaves_the_rest(store: Opened) -> None:
    store.history(1, key="old", labels=["x", "y"], finished_at_ms=10)
    store.history(2, TaskState.FAILED, key="young", labels=["x"], finished_at_ms=11)
    store.add(3, key="live", labels={"x": "1"})

    gone = store.tasks.prune(11, 100)

    assert gone == [1]
    assert store.tasks.by_ids([1, 2, 3]).keys() == {2, 3}
    places = {("default", key) for key in ("old", "young", "live")}
    assert store.tasks.by_keys(places).keys() == places - {("default", "old")}
    assert store.rows("SELECT label, id FROM task_label ORDER BY id") == [("x", 2), ("x=1", 3)]


def test_a_forgotten_key_may_be_used_again(store: Opened) -> None:
    store.history(1, key="k", finished_at_ms=1)
    store.tasks.prune(2, 10)

    store.add(2, key="k")

    assert store.tasks.by_keys([("default", "k")])["default", "k"].id == 2


def test_forgetting_goes_in_steps_the_oldest_first(store: Opened) -> None:
    for number in range(1, 6):
        store.history(number, finished_at_ms=100 - number)

    steps = [store.tasks.prune(1_000, 2) for _ in range(4)]

    assert steps == [[5, 4], [3, 2], [1], []]


# --- looking ------------------------------------------------------------------------------------


def test_tasks_are_found_wherever_they_stand_and_unknown_ids_are_left_out(store: Opened) -> None:
    store.add(1)
    store.add(2, due_at_ms=NOW_MS + 1)
    store.running(3)
    store.history(4, TaskState.FAILED)

    found = store.tasks.by_ids([4, 3, 2, 1, 1, 99])

    assert {number: task.state for number, task in found.items()} == {
        1: TaskState.QUEUED,
        2: TaskState.SCHEDULED,
        3: TaskState.RUNNING,
        4: TaskState.FAILED,
    }
    assert store.tasks.by_ids([]) == {}


@given(st.sets(st.integers(0, 30)))
def test_id_ranges_hold_all_that_was_given_and_nothing_else(ids: set[int]) -> None:
    found = list(bulk.id_ranges(sorted(ids)))

    assert {one for first, last in found for one in range(first, last + 1)} == ids
    assert all(before[1] + 1 < after[0] for before, after in itertools.pairwise(found))
