from rota.core.commands import KeepMinutes, KeptMinute
from rota.core.decisions import ReviveTask
from rota.core.ids import TaskId
from rota.core.tasks import error_fingerprints
from rota.core.tasks.model import TaskError, TaskState
from rota.store.dashboard import DashboardStore
from rota.store.workflow.runs import RunStore
from tests.store.opened import NOW_MS, Opened

ODD = TaskError(type="E", message="row 1 is odd")


def fail(store: Opened, number: int, error: TaskError = ODD, *, at_ms: int = NOW_MS) -> None:
    store.running(number, queue="mail" if number % 2 else "post")
    store.finish(number, TaskState.FAILED, error=error, finished_at_ms=at_ms)


def test_failures_are_counted_by_cause_and_lane(store: Opened) -> None:
    for number in (1, 2, 3):
        fail(store, number, at_ms=NOW_MS + number)
    fail(store, 4, TaskError(type="E", message="no route"))
    store.history(5)

    found = DashboardStore(store.tx).failures()

    odd = error_fingerprints.cause("E", "row 77 is odd")
    post, mail = sorted((one for one in found if one.cause == odd), key=lambda one: one.count)
    assert (mail.count, mail.first_failed_at_ms, mail.last_failed_at_ms) == (
        2,
        NOW_MS + 1,
        NOW_MS + 3,
    )
    assert post.count == 1
    assert sum(one.count for one in found) == 4


def test_the_newest_of_a_kind_come_first_over_all_its_lanes(store: Opened) -> None:
    for number in (1, 2, 3):
        fail(store, number, at_ms=NOW_MS - number)
    board = DashboardStore(store.tx)
    kinds = board.failures()

    assert board.newest_failed(kinds, limit=2) == [1, 2]
    assert board.newest_failed(kinds, limit=9) == [1, 2, 3]
    assert board.errors([*board.newest_failed(kinds, limit=1)])[TaskId(1)] == ODD


def test_failures_without_a_cause_get_one(store: Opened) -> None:
    fail(store, 1)
    fail(store, 2)
    store.tx.execute_many("dashboard.set_cause", ("cause", "id"), [(None, 1)])
    board = DashboardStore(store.tx)

    assert board.backfill_causes() == 1
    assert {one.cause for one in board.failures()} == {
        error_fingerprints.cause("E", "row 1 is odd")
    }
    assert board.backfill_causes() == 0


def test_a_task_that_goes_round_again_is_no_failure(store: Opened) -> None:
    fail(store, 1)

    store.tasks.revive([ReviveTask(TaskId(1))], now_ms=NOW_MS)

    assert DashboardStore(store.tx).failures() == []


def test_minutes_are_kept_once_each_and_forgotten(store: Opened) -> None:
    board = DashboardStore(store.tx)
    old, first, second = (
        KeptMinute(started_at_ms=at_ms, queue="mail", slots=slots)
        for at_ms, slots in ((0, b"0"), (60_000, b"1"), (60_000, b"2"))
    )

    board.put_minutes(KeepMinutes(minutes=(old, first), forget_before_ms=0))
    board.put_minutes(KeepMinutes(minutes=(second,), forget_before_ms=60_000))

    assert board.minutes(0) == [second]


def test_what_a_run_is_at_is_told_by_lane_and_state(store: Opened) -> None:
    store.running(1)
    store.add(2)
    store.add(3)
    store.add(4, due_at_ms=NOW_MS + 1)
    store.running(5)
    RunStore(store.tx).add_tasks([*((number, 70, number) for number in (1, 2, 3, 4)), (5, 80, 1)])
    board = DashboardStore(store.tx)

    found = board.run_work([70, 90])

    assert {one.run for one in found} == {70}
    assert {one.state.value: one.count for one in found} == {
        "running": 1,
        "queued": 2,
        "scheduled": 1,
    }
    assert board.run_work([]) == []
