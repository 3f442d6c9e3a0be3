from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from rota.core import limits
from rota.core.commands import (
    CancelTasks,
    ExpireAttempts,
    Progress,
    ReportProgress,
    Result,
    RetryTasks,
    ReturnLeases,
)
from rota.core.decisions import (
    CloseRates,
    Decision,
    FinishTask,
    NoteProgress,
    RequeueTask,
    ReviveTask,
)
from rota.core.flows.model import Rate
from rota.core.ids import TaskId
from rota.core.replies import Done, Outcomes
from rota.core.tasks import attempts
from rota.core.tasks.model import EndedAttempt, Ending, Lease, TaskError, TaskOptions, TaskState
from rota.core.workers.model import WorkerRecord
from tests.core.snapshots import (
    NOW_MS,
    Situation,
    add_running,
    add_task,
    add_worker,
    done,
    reduce,
    report,
    situation,
)

BOOM = TaskError(type="ValueError", message="boom")


def reported(
    snapshot: Situation, worker: WorkerRecord, *results: Result
) -> tuple[list[Decision], list[str]]:
    """What becomes of the tasks; what it says about the worker is another test's matter."""
    decisions, reply = reduce(snapshot, report(worker, *results))
    assert isinstance(reply, Outcomes)
    moves = [one for one in decisions if isinstance(one, FinishTask | RequeueTask)]
    return [*moves], [*reply.outcomes]


def requeued(decisions: list[Decision]) -> RequeueTask:
    (only,) = decisions
    assert isinstance(only, RequeueTask)
    return only


def finished(decisions: list[Decision]) -> FinishTask:
    (only,) = decisions
    assert isinstance(only, FinishTask)
    return only


# --- what a result leads to ---------------------------------------------------------------------


def test_a_success_finishes_the_task() -> None:
    snapshot = situation()
    worker = add_worker(snapshot)
    lease = add_running(snapshot, worker=worker, fence=4, attempt=2)

    decisions, outcomes = reported(snapshot, worker, done(lease, result=Raw(b'{"a":1}')))

    end = finished(decisions)
    assert outcomes == ["accepted"]
    assert (end.was, end.state) == (TaskState.RUNNING, TaskState.SUCCEEDED)
    assert (end.fence, end.attempt, end.worker_id) == (4, 2, "w1")
    assert bytes(end.result or b"") == b'{"a":1}'
    assert end.error is None


def test_a_failure_with_attempts_left_waits_for_its_back_off() -> None:
    snapshot = situation()
    worker = add_worker(snapshot)
    lease = add_running(snapshot, worker=worker, attempt=2, max_attempts=3)

    decisions, outcomes = reported(snapshot, worker, done(lease, ok=False, error=BOOM))

    again = requeued(decisions)
    assert outcomes == ["accepted"]
    assert (again.attempt, again.due_at_ms) == (2, NOW_MS + 2_000)
    assert again.ended == EndedAttempt(
        attempt=2,
        fence=1,
        ending=Ending.FAILED,
        worker_id="w1",
        started_at_ms=NOW_MS,
        ended_at_ms=NOW_MS,
        next_state=TaskState.SCHEDULED,
        error=BOOM,
    )


def test_the_last_attempt_that_fails_is_the_dead_letter() -> None:
    snapshot = situation()
    worker = add_worker(snapshot)
    lease = add_running(snapshot, worker=worker, attempt=3, max_attempts=3)

    decisions, _ = reported(snapshot, worker, done(lease, ok=False, error=BOOM))

    end = finished(decisions)
    assert (end.state, end.attempt, end.error) == (TaskState.FAILED, 3, BOOM)


def test_an_error_not_worth_another_attempt_ends_the_task() -> None:
    snapshot = situation()
    worker = add_worker(snapshot)
    lease = add_running(snapshot, worker=worker, attempt=1, max_attempts=9)
    final = msgspec.structs.replace(BOOM, retryable=False)

    decisions, _ = reported(snapshot, worker, done(lease, ok=False, error=final, retry_in_ms=5))

    assert finished(decisions).state is TaskState.FAILED


def test_a_failure_without_an_error_still_has_one() -> None:
    snapshot = situation()
    worker = add_worker(snapshot)
    lease = add_running(snapshot, worker=worker, max_attempts=1)

    decisions, _ = reported(snapshot, worker, done(lease, ok=False))

    assert finished(decisions).error == TaskError()


def test_an_overlong_error_is_cut_and_kept() -> None:
    snapshot = situation()
    worker = add_worker(snapshot)
    lease = add_running(snapshot, worker=worker)

    decisions, _ = reported(
        snapshot, worker, done(lease, ok=False, error=TaskError(message="x" * 50_000))
    )

    error = requeued(decisions).ended.error
    assert error is not None
    assert len(error.message) == limits.MAX_ERROR_LENGTH


@pytest.mark.parametrize(("retry_in_ms", "due_at_ms"), [(0, None), (77, NOW_MS + 77)])
def test_a_worker_may_say_when_to_try_again(retry_in_ms: int, due_at_ms: int | None) -> None:
    snapshot = situation()
    worker = add_worker(snapshot)
    lease = add_running(snapshot, worker=worker)

    decisions, _ = reported(
        snapshot, worker, done(lease, ok=False, error=BOOM, retry_in_ms=retry_in_ms)
    )

    assert requeued(decisions).due_at_ms == due_at_ms
    assert requeued(decisions).attempt == 1


@pytest.mark.parametrize("ok", [True, False])
def test_a_snooze_uses_up_no_attempt(ok: bool) -> None:  # noqa: FBT001 - a parameter of a test
    snapshot = situation()
    worker = add_worker(snapshot)
    lease = add_running(snapshot, worker=worker, attempt=3, max_attempts=3)

    decisions, outcomes = reported(snapshot, worker, done(lease, ok=ok, snooze_ms=500))

    again = requeued(decisions)
    assert outcomes == ["accepted"]
    assert (again.attempt, again.due_at_ms) == (2, NOW_MS + 500)
    assert (again.ended.ending, again.ended.error) == (Ending.SNOOZED, None)


def test_a_handler_that_is_rate_limited_closes_the_rates_of_its_task() -> None:
    snapshot = situation()
    worker = add_worker(snapshot)
    rates = [Rate("api", limit=10), Rate("api:day", limit=1_000)]
    lease = add_running(snapshot, worker=worker, attempt=1, max_attempts=1, rate=rates)

    decisions, _ = reduce(
        snapshot, report(worker, done(lease, ok=False, snooze_ms=500, rate_limited=True))
    )

    again = requeued([one for one in decisions if isinstance(one, RequeueTask)])
    assert (again.attempt, again.due_at_ms) == (0, NOW_MS + 500)
    assert CloseRates(("api", "api:day"), NOW_MS + 500) in decisions


def test_a_rate_is_closed_for_a_day_at_most() -> None:
    snapshot = situation()
    worker = add_worker(snapshot)
    lease = add_running(snapshot, worker=worker, rate=Rate("api", limit=10))
    result = done(lease, ok=False, snooze_ms=limits.MAX_DELAY_MS, rate_limited=True)

    decisions, _ = reduce(snapshot, report(worker, result))

    assert CloseRates(("api",), NOW_MS + limits.MAX_RATE_CLOSED_MS) in decisions


@pytest.mark.parametrize("snooze_ms", [None, 500])
def test_a_task_without_a_rate_closes_nothing(snooze_ms: int | None) -> None:
    snapshot = situation()
    worker = add_worker(snapshot)
    lease = add_running(snapshot, worker=worker)
    result = done(lease, ok=False, snooze_ms=snooze_ms, rate_limited=True)

    decisions, _ = reduce(snapshot, report(worker, result))

    assert not [one for one in decisions if isinstance(one, CloseRates)]


# --- results that are not accepted --------------------------------------------------------------


def test_a_result_for_a_task_nobody_knows_is_unknown() -> None:
    snapshot = situation()
    worker = add_worker(snapshot)

    decisions, outcomes = reported(snapshot, worker, Result(TaskId(99), 1))

    assert (decisions, outcomes) == ([], ["unknown"])


@pytest.mark.parametrize("fence", [0, 1, 3, 2**70])
def test_a_result_under_another_fence_is_stale(fence: int) -> None:
    snapshot = situation()
    worker = add_worker(snapshot)
    add_running(snapshot, worker=worker, fence=2)

    decisions, outcomes = reported(snapshot, worker, Result(TaskId(1), fence))

    assert (decisions, outcomes) == ([], ["stale"])


def test_a_result_by_another_worker_is_stale_even_under_the_right_fence() -> None:
    snapshot = situation()
    holder, other = add_worker(snapshot, "w1"), add_worker(snapshot, "w2")
    lease = add_running(snapshot, worker=holder)

    decisions, outcomes = reported(snapshot, other, done(lease))

    assert (decisions, outcomes) == ([], ["stale"])


REPORTS: dict[str, dict[str, Any]] = {
    "success": {},
    "failure": {"ok": False, "error": BOOM},
    "last failure": {"ok": False, "error": TaskError(retryable=False)},
    "snooze": {"ok": False, "snooze_ms": 5},
    "snooze said with ok": {"snooze_ms": 5},
    "immediate retry": {"ok": False, "retry_in_ms": 0},
}


@pytest.mark.parametrize("changes", REPORTS.values(), ids=REPORTS.keys())
@pytest.mark.parametrize("is_loaded", [True, False])
def test_the_same_result_twice_is_a_duplicate_in_one_batch(
    changes: dict[str, Any],
    is_loaded: bool,  # noqa: FBT001 - a parameter of a test
) -> None:
    snapshot = situation()
    worker = add_worker(snapshot)
    lease = add_running(snapshot, worker=worker)
    if not is_loaded and (changes.get("ok", True) or "snooze_ms" in changes):
        # Only a failure needs the task itself; without it the answer must be the same.
        del snapshot.tasks[lease.id]

    first, outcomes = reported(snapshot, worker, done(lease, **changes), done(lease, **changes))
    second, later = reported(snapshot, worker, done(lease, **changes))

    assert len(first) == 1
    assert second == []
    assert (outcomes, later) == (["accepted", "duplicate"], ["duplicate"])


@pytest.mark.parametrize("state", [TaskState.SUCCEEDED, TaskState.FAILED])
def test_the_same_result_is_a_duplicate_in_a_later_batch(state: TaskState) -> None:
    snapshot = situation()
    worker = add_worker(snapshot)
    add_task(snapshot, state=state, fence=2, worker_id="w1", finished_at_ms=1)
    is_success = state is TaskState.SUCCEEDED

    _, outcomes = reported(
        snapshot,
        worker,
        Result(TaskId(1), 2, ok=is_success),
        Result(TaskId(1), 2, ok=not is_success),
        Result(TaskId(1), 1, ok=is_success),
    )

    assert outcomes == ["duplicate", "stale", "stale"]


@pytest.mark.parametrize("ending", list(Ending))
def test_an_attempt_is_a_duplicate_only_if_the_worker_itself_ended_it(ending: Ending) -> None:
    snapshot = situation()
    worker = add_worker(snapshot)
    line = EndedAttempt(
        attempt=1,
        fence=1,
        ending=ending,
        worker_id="w1",
        ended_at_ms=1,
        next_state=TaskState.QUEUED,
    )
    add_task(snapshot, fence=1, log=(line,))

    _, by_another = reported(snapshot, add_worker(snapshot, "w2"), Result(TaskId(1), 1, ok=False))
    _, outcomes = reported(
        snapshot,
        worker,
        Result(TaskId(1), 1, ok=False),
        Result(TaskId(1), 1, snooze_ms=1),
        Result(TaskId(1), 1),
    )

    assert outcomes == [
        "duplicate" if ending is Ending.FAILED else "stale",
        "duplicate" if ending is Ending.SNOOZED else "stale",
        "stale",
    ]
    assert by_another == ["stale"]


def test_a_success_after_the_time_ran_out_is_stale_and_not_taken_for_accepted() -> None:
    snapshot = situation()
    worker = add_worker(snapshot)
    lease = add_running(snapshot, worker=worker, deadline_ms=NOW_MS, max_attempts=1)
    snapshot.overdue = [lease.id]

    attempts.expire(snapshot, snapshot.context)
    _, outcomes = reported(snapshot, worker, done(lease))

    assert outcomes == ["stale"]


def test_a_result_for_a_cancelled_task_is_stale() -> None:
    snapshot = situation()
    worker = add_worker(snapshot)
    lease = add_running(snapshot, worker=worker)

    reduce(snapshot, CancelTasks((lease.id,)))
    decisions, outcomes = reported(snapshot, worker, done(lease))

    assert (decisions, outcomes) == ([], ["stale"])


def test_a_repeated_failure_is_a_duplicate_even_if_the_task_was_cancelled_since() -> None:
    snapshot = situation()
    worker = add_worker(snapshot)
    lease = add_running(snapshot, worker=worker)
    failure = done(lease, ok=False, error=BOOM)

    reported(snapshot, worker, failure)
    reduce(snapshot, CancelTasks((lease.id,)))
    _, in_this_batch = reported(snapshot, worker, failure)
    snapshot.finished.clear()
    snapshot.requeued.clear()
    _, later = reported(snapshot, worker, failure)

    assert (in_this_batch, later) == (["duplicate"], ["duplicate"])


@given(
    st.permutations(["accepted", "duplicate", "stale", "unknown"]),
    st.lists(st.sampled_from(["accepted", "stale", "unknown"]), max_size=4),
)
def test_each_result_of_a_report_has_its_own_outcome_in_any_order(
    wanted: list[str], more: list[str]
) -> None:
    snapshot = situation()
    worker = add_worker(snapshot)
    results = []
    for number, outcome in enumerate([*wanted, *more], start=1):
        if outcome == "accepted":
            results.append(done(add_running(snapshot, number, worker=worker)))
        elif outcome == "duplicate":
            lease = add_running(snapshot, number, worker=worker)
            reported(snapshot, worker, done(lease))
            results.append(done(lease))
        elif outcome == "stale":
            results.append(done(add_running(snapshot, number, worker=worker), fence=0))
        else:
            results.append(Result(TaskId(number), 1))

    decisions, outcomes = reported(snapshot, worker, *results)

    assert outcomes == [*wanted, *more]
    assert len(decisions) == outcomes.count("accepted")


@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.integers(0, 3), st.sampled_from(list(REPORTS))),
        max_size=12,
    ),
    st.integers(1, 4),
)
def test_at_most_one_result_a_lease_is_accepted_however_often_it_comes(
    said: list[tuple[int, int, str]], per_call: int
) -> None:
    snapshot = situation()
    worker = add_worker(snapshot)
    fences = {1: 1, 2: 2, 3: 2}
    for number, fence in fences.items():
        add_running(snapshot, number, worker=worker, fence=fence, attempt=1)
    accepted: list[tuple[int, int]] = []

    for start in range(0, len(said), per_call):
        results = [
            Result(TaskId(number), fence, **REPORTS[kind])
            for number, fence, kind in said[start : start + per_call]
        ]
        _, outcomes = reported(snapshot, worker, *results)
        accepted += [
            (result.task_id, result.fence)
            for result, outcome in zip(results, outcomes, strict=True)
            if outcome == "accepted"
        ]
        assert "unknown" not in outcomes

    assert len(accepted) == len(set(accepted))
    assert set(accepted) == {
        (number, fence) for number, fence, _ in said if fences[number] == fence
    }


# --- ends that are not reported -----------------------------------------------------------------


def test_a_lost_worker_uses_up_an_attempt_and_its_work_is_queued_at_once() -> None:
    snapshot = situation()
    worker = add_worker(snapshot)
    add_running(snapshot, 1, worker=worker, attempt=1, max_attempts=2)
    add_running(snapshot, 2, worker=worker, attempt=2, max_attempts=2)
    add_running(snapshot, 3, worker=add_worker(snapshot, "w2"))

    again, dead = attempts.lose(snapshot, worker.incarnation, snapshot.context, worker_id="w1")

    assert isinstance(again, RequeueTask)
    assert isinstance(dead, FinishTask)
    assert (again.attempt, again.due_at_ms, again.ended.ending) == (1, None, Ending.LOST)
    assert dead.state is TaskState.FAILED
    assert dead.error is not None
    assert dead.error.type == "worker_lost"


def test_leases_given_back_use_up_no_attempt() -> None:
    snapshot = situation()
    worker = add_worker(snapshot)
    lease = add_running(snapshot, worker=worker, fence=3, attempt=2)

    (again,) = attempts.release(snapshot, [lease], snapshot.context, worker_id="w1")

    assert isinstance(again, RequeueTask)
    assert (again.attempt, again.due_at_ms, again.ended.ending) == (1, None, Ending.RELEASED)
    assert snapshot.tasks[lease.id].state is TaskState.QUEUED
    assert snapshot.held[worker.incarnation] == 0


def test_only_leases_that_are_still_the_callers_are_taken_back() -> None:
    snapshot = situation()
    worker, other = add_worker(snapshot), add_worker(snapshot, "w2")
    add_running(snapshot, 1, worker=worker, fence=1)
    add_running(snapshot, 2, worker=worker, fence=5)
    add_running(snapshot, 3, worker=other, fence=1)
    leases = tuple((TaskId(number), 1) for number in (1, 2, 3, 4))

    decisions, reply = attempts.return_leases(
        snapshot,
        ReturnLeases(worker_id="w1", incarnation=worker.incarnation, leases=leases),
        snapshot.context,
    )

    assert requeued(decisions).id == 1
    assert reply == Done(1)


def overdue(snapshot: Situation, **options: Any) -> Lease:
    worker = add_worker(snapshot)
    lease = add_running(
        snapshot, worker=worker, started_at_ms=NOW_MS - 50, deadline_ms=NOW_MS, **options
    )
    snapshot.overdue = [lease.id]
    return lease


def test_an_attempt_past_its_deadline_has_failed_and_says_whose_it_was() -> None:
    snapshot = situation()
    overdue(snapshot)

    decisions, reply = reduce(snapshot, ExpireAttempts())

    again = requeued(decisions)
    assert reply == Done(1)
    assert (again.attempt, again.due_at_ms) == (1, NOW_MS + 1_000)
    assert (again.ended.ending, again.ended.worker_id) == (Ending.TIMED_OUT, "w1")
    assert again.ended.error is not None
    assert again.ended.error.type == "timeout"
    assert "50 ms" in again.ended.error.message


def test_the_worker_of_a_timed_out_attempt_is_named_even_if_only_its_task_is_known() -> None:
    snapshot = situation()
    overdue(snapshot, max_attempts=1)
    snapshot.workers.clear()

    decisions, _ = reduce(snapshot, ExpireAttempts())

    assert finished(decisions).worker_id == "w1"


def test_a_deadline_that_was_met_in_the_same_batch_is_none() -> None:
    snapshot = situation()
    lease = overdue(snapshot)

    reported(snapshot, snapshot.workers["w1"], done(lease))

    assert reduce(snapshot, ExpireAttempts()) == ([], Done(0))


def test_a_deadline_still_ahead_is_left_alone() -> None:
    snapshot = situation()
    lease = overdue(snapshot)
    snapshot.leases[lease.id] = msgspec.structs.replace(lease, deadline_ms=NOW_MS + 1)

    assert reduce(snapshot, ExpireAttempts()) == ([], Done(0))


@pytest.mark.parametrize("state", [TaskState.QUEUED, TaskState.SCHEDULED])
def test_a_task_that_did_not_start_in_time_has_failed_for_good(state: TaskState) -> None:
    snapshot = situation()
    task = add_task(snapshot, state=state, start_within_ms=40)
    snapshot.unstarted = [task.id]

    decisions, _ = reduce(snapshot, ExpireAttempts())

    end = finished(decisions)
    assert (end.was, end.state, end.attempt) == (state, TaskState.FAILED, 0)
    assert end.error is not None
    assert (end.error.type, end.error.retryable) == ("start_timeout", False)
    assert "40 ms" in end.error.message


def line(ending: Ending) -> EndedAttempt:
    return EndedAttempt(
        attempt=1, fence=1, ending=ending, ended_at_ms=1, next_state=TaskState.QUEUED
    )


def test_a_task_that_has_started_once_has_met_its_time_to_start() -> None:
    snapshot = situation()
    worker = add_worker(snapshot)
    add_running(snapshot, 1, worker=worker, start_within_ms=40)
    add_task(snapshot, 2, start_within_ms=40, log=(line(Ending.FAILED),))
    add_task(snapshot, 3, TaskState.CANCELLED, start_within_ms=40)
    snapshot.unstarted = [TaskId(number) for number in (1, 2, 3, 4)]

    assert reduce(snapshot, ExpireAttempts()) == ([], Done(0))


def test_a_retry_begins_the_time_to_start_again() -> None:
    snapshot = situation()
    add_task(snapshot, state=TaskState.CANCELLED, start_within_ms=40, finished_at_ms=1)

    decisions, _ = reduce(snapshot, RetryTasks((TaskId(1),)))
    snapshot.unstarted = [TaskId(1)]
    before_limit, _ = reduce(snapshot, ExpireAttempts())
    snapshot.now_ms += 40
    at_limit, _ = reduce(snapshot, ExpireAttempts())

    options = TaskOptions(start_within_ms=40, retried_at_ms=NOW_MS)
    assert decisions == [ReviveTask(TaskId(1), options)]
    assert before_limit == []
    assert finished(at_limit).state is TaskState.FAILED


@pytest.mark.parametrize("ending", [Ending.FAILED, Ending.SNOOZED])
@pytest.mark.parametrize("is_after_retry", [True, False])
def test_of_a_retried_task_only_starts_after_the_retry_count(
    ending: Ending,
    is_after_retry: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    snapshot = situation()
    started_at_ms = 500 if is_after_retry else 499
    log = (msgspec.structs.replace(line(ending), started_at_ms=started_at_ms),)
    add_task(snapshot, start_within_ms=40, retried_at_ms=500, log=log)
    snapshot.unstarted = [TaskId(1)]

    decisions, _ = reduce(snapshot, ExpireAttempts())

    assert bool(decisions) is not is_after_retry


def test_a_lease_that_was_only_given_back_is_no_start() -> None:
    snapshot = situation()
    task = add_task(snapshot, start_within_ms=40, log=(line(Ending.RELEASED),))
    snapshot.unstarted = [task.id]

    decisions, _ = reduce(snapshot, ExpireAttempts())

    assert finished(decisions).state is TaskState.FAILED


# --- progress -----------------------------------------------------------------------------------


def test_progress_under_the_lease_is_noted_and_the_rest_refused() -> None:
    snapshot = situation()
    worker = add_worker(snapshot)
    add_running(snapshot, 1, worker=worker, fence=2)
    add_task(snapshot, 2)
    items = [
        Progress(TaskId(1), 2, progress=Raw(b"0.5")),
        Progress(TaskId(1), 2),
        Progress(TaskId(1), 1, progress=Raw(b"0.4")),
        Progress(TaskId(2), 1, progress=Raw(b"0.4")),
        Progress(TaskId(3), 1, progress=Raw(b"0.4")),
    ]

    decisions, reply = reduce(
        snapshot, ReportProgress(worker_id="w1", incarnation=worker.incarnation, items=items)
    )

    assert reply == Outcomes(["accepted", "accepted", "stale", "stale", "unknown"])
    (note,) = decisions
    assert note == NoteProgress(TaskId(1), 2, Raw(b"0.5"), None)


def test_progress_of_another_incarnation_is_stale_and_without_one_the_fence_decides() -> None:
    snapshot = situation()
    worker = add_worker(snapshot)
    add_running(snapshot, 1, worker=worker)
    items = [Progress(TaskId(1), 1, progress=Raw(b"1"))]

    _, zombie = reduce(snapshot, ReportProgress(worker_id="w1", incarnation=99, items=items))
    _, anybody = reduce(snapshot, ReportProgress(worker_id="w1", incarnation=None, items=items))

    assert (zombie, anybody) == (Outcomes(["stale"]), Outcomes(["accepted"]))


@pytest.mark.parametrize("changes", [{}, {"snooze_ms": 5}], ids=["finished", "requeued"])
def test_progress_after_the_end_is_stale_in_the_same_batch(changes: dict[str, Any]) -> None:
    snapshot = situation()
    worker = add_worker(snapshot)
    lease = add_running(snapshot, worker=worker)
    del snapshot.tasks[lease.id]
    items = [Progress(lease.id, lease.fence, progress=Raw(b"1"))]

    reported(snapshot, worker, done(lease, **changes))
    decisions, reply = reduce(
        snapshot, ReportProgress(worker_id="w1", incarnation=worker.incarnation, items=items)
    )

    assert (decisions, reply) == ([], Outcomes(["stale"]))
