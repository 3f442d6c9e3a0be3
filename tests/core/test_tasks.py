import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core import limits
from rota.core.snapshot import logged, revived
from rota.core.tasks.model import (
    FINISHED,
    TASK_TRANSITIONS,
    Backoff,
    EndedAttempt,
    Ending,
    Lane,
    NewTask,
    TaskError,
    TaskState,
    due_at_ms,
    lane_of,
    normalised_labels,
    options_of,
    retry_delay_ms,
    shortened,
)
from tests.core.snapshots import NOW_MS, add_task, new_task, situation

BACKOFFS = st.builds(
    Backoff,
    kind=st.sampled_from(["exponential", "linear", "none"]),
    initial_ms=st.integers(0, limits.MAX_DELAY_MS),
    max_ms=st.integers(0, limits.MAX_DELAY_MS),
    jitter=st.booleans() | st.floats(0, 1),
)
DICE = st.floats(0, 1, exclude_max=True)


def line(number: int, *, error: TaskError | None = None) -> EndedAttempt:
    return EndedAttempt(
        attempt=number,
        fence=number,
        ending=Ending.FAILED,
        ended_at_ms=number,
        next_state=TaskState.QUEUED,
        error=error,
    )


def test_every_state_has_its_transitions() -> None:
    assert set(TASK_TRANSITIONS) == set(TaskState)


def test_a_succeeded_task_never_changes_again() -> None:
    assert TASK_TRANSITIONS[TaskState.SUCCEEDED] == frozenset()


def test_the_other_finished_ones_come_back_only_to_the_queue() -> None:
    for state in FINISHED - {TaskState.SUCCEEDED}:
        assert TASK_TRANSITIONS[state] == {TaskState.QUEUED}


@given(BACKOFFS, st.integers(1, limits.MAX_ATTEMPTS), DICE)
def test_a_back_off_is_never_above_its_maximum_and_never_negative(
    backoff: Backoff, failed_attempts: int, dice: float
) -> None:
    wait_ms = retry_delay_ms(backoff, failed_attempts=failed_attempts, dice=dice)

    assert 0 <= wait_ms <= backoff.max_ms


@given(BACKOFFS, st.integers(1, limits.MAX_ATTEMPTS - 1))
def test_a_back_off_without_jitter_never_shrinks(backoff: Backoff, failed_attempts: int) -> None:
    steady = msgspec.structs.replace(backoff, jitter=False)

    now_ms = retry_delay_ms(steady, failed_attempts=failed_attempts, dice=0.9)
    next_ms = retry_delay_ms(steady, failed_attempts=failed_attempts + 1, dice=0.9)

    assert now_ms <= next_ms


@given(BACKOFFS, st.integers(1, limits.MAX_ATTEMPTS), DICE)
def test_jitter_shortens_by_no_more_than_its_share(
    backoff: Backoff, failed_attempts: int, dice: float
) -> None:
    full_ms = retry_delay_ms(backoff, failed_attempts=failed_attempts, dice=0.0)
    wait_ms = retry_delay_ms(backoff, failed_attempts=failed_attempts, dice=dice)
    share = float(backoff.jitter)

    assert full_ms * (1 - share) - 1 <= wait_ms <= full_ms


@pytest.mark.parametrize(
    ("kind", "expected_ms"),
    [
        ("exponential", [100, 200, 400, 800, 1_000]),
        ("linear", [100, 200, 300, 400, 500]),
        ("none", [0, 0, 0, 0, 0]),
    ],
)
def test_the_three_kinds_of_back_off(kind: str, expected_ms: list[int]) -> None:
    backoff = msgspec.convert(
        {"kind": kind, "initial_ms": 100, "max_ms": 1_000, "jitter": False}, Backoff
    )

    waits = [retry_delay_ms(backoff, failed_attempts=n, dice=0.5) for n in range(1, 6)]

    assert waits == expected_ms


def test_a_task_is_due_at_once_unless_it_says_otherwise() -> None:
    assert due_at_ms(new_task(), now_ms=NOW_MS) is None
    assert due_at_ms(new_task(delay_ms=0), now_ms=NOW_MS) is None
    assert due_at_ms(new_task(delay_ms=5), now_ms=NOW_MS) == NOW_MS + 5


def test_a_moment_that_has_passed_is_now() -> None:
    assert due_at_ms(new_task(run_at_ms=NOW_MS + 1), now_ms=NOW_MS) == NOW_MS + 1
    assert due_at_ms(new_task(run_at_ms=NOW_MS), now_ms=NOW_MS) is None
    assert due_at_ms(new_task(run_at_ms=1), now_ms=NOW_MS) is None


@given(st.permutations(["gpu", "big", "eu"]))
def test_a_lane_knows_no_order_and_no_repetition_of_capabilities(requires: list[str]) -> None:
    lane = lane_of(new_task(requires=(*requires, requires[0])))

    assert lane == Lane("default", "work", ("big", "eu", "gpu"))


def test_overlong_errors_are_cut_and_short_ones_are_left_alone() -> None:
    short = TaskError(type="t", message="m", details={"kept": [1]})
    long = TaskError(type="t" * 30_000, message="m" * 30_000, retryable=False, details=1)

    cut = shortened(long)

    assert shortened(short) is short
    assert len(cut.type) == len(cut.message) == limits.MAX_ERROR_LENGTH
    assert (cut.retryable, cut.details) == (False, 1)


def test_labels_are_searched_as_texts() -> None:
    assert normalised_labels(None) == ()
    assert normalised_labels(["b", "a", "b"]) == ("b", "a")
    assert normalised_labels({"team": "blue", "tier": "1"}) == ("team=blue", "tier=1")


def test_a_task_without_options_of_its_own_has_the_default_ones() -> None:
    decoded = msgspec.json.decode(b'{"name": "work"}', type=NewTask)

    assert options_of(decoded) == options_of(new_task())
    assert bytes(decoded.payload) == b"null"


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"name": ""}',
        b'{"name": "n", "colour": 1}',
        b'{"name": "n", "max_attempts": 0}',
        b'{"name": "n", "priority": 1e9}',
        b'{"name": "n", "timeout_ms": 0}',
        b'{"name": "n", "backoff": {"kind": "cubic"}}',
        b'{"name": "n", "labels": {"a": 1}}',
    ],
)
def test_a_task_that_makes_no_sense_is_refused(body: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(body, type=NewTask)


def test_the_log_keeps_the_newest_lines() -> None:
    log: tuple[EndedAttempt, ...] = ()

    for number in range(limits.MAX_LOGGED_ATTEMPTS + 5):
        log = logged(log, line(number))

    assert len(log) == limits.MAX_LOGGED_ATTEMPTS
    assert (log[0].attempt, log[-1].attempt) == (5, limits.MAX_LOGGED_ATTEMPTS + 4)
    assert logged(log, None) is log


def test_the_error_that_stands_is_the_newest_one() -> None:
    first, second, last = (TaskError(message=text) for text in ("first", "second", "last"))
    log = (line(1, error=first), line(2, error=second), line(3))
    snapshot = situation()

    assert add_task(snapshot).last_error is None
    assert add_task(snapshot, log=log).last_error == second
    assert add_task(snapshot, log=log, error=last).last_error == last


def test_a_revived_task_starts_anew_and_remembers_its_failure() -> None:
    error = TaskError(message="boom")
    failed = add_task(
        situation(),
        state=TaskState.FAILED,
        attempt=3,
        fence=7,
        worker_id="w1",
        finished_at_ms=5,
        error=error,
        log=(line(1), line(2)),
    )

    again = revived(failed, now_ms=9)

    assert (again.state, again.attempt, again.fence) == (TaskState.QUEUED, 0, 7)
    assert (again.error, again.finished_at_ms, again.worker_id) == (None, None, None)
    assert [one.attempt for one in again.log] == [1, 2, 3]
    assert (again.log[-1].error, again.log[-1].worker_id) == (error, "w1")


def test_a_revived_task_that_was_cancelled_has_no_failure_to_remember() -> None:
    cancelled = add_task(situation(), state=TaskState.CANCELLED, finished_at_ms=5)

    assert revived(cancelled, now_ms=9).log == ()
