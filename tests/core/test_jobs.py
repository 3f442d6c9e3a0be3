from typing import Any

import msgspec
import pytest
from msgspec import Raw

from rota.core.access import LOCAL, Caller, Scope
from rota.core.commands import CompleteJob, FailJob, RetryTasks, StartJob, TaskCommand
from rota.core.decisions import Decision, FinishTask, LeaseTask, RequeueTask
from rota.core.ids import TaskId
from rota.core.replies import JobChanged
from rota.core.tasks.model import FINISHED, JOB_INCARNATION, TaskError, TaskRecord, TaskState
from rota.errors import Forbidden, IllegalState, ResultConflict, StaleLease, TaskNotFound
from tests.core.snapshots import (
    NOW_MS,
    Situation,
    add_running,
    add_task,
    add_worker,
    reduce,
    situation,
)

JOB = TaskId(1)
BOOM = TaskError(message="boom")


def start(holder: str = "me") -> StartJob:
    return StartJob(task_id=JOB, holder=holder)


def complete(result: bytes = b"1") -> CompleteJob:
    return CompleteJob(task_id=JOB, result=Raw(result))


def fail(error: TaskError = BOOM) -> FailJob:
    return FailJob(task_id=JOB, error=error)


def changed(snapshot: Situation, event: TaskCommand) -> tuple[list[Decision], TaskRecord]:
    decisions, reply = reduce(snapshot, event)
    assert isinstance(reply, JobChanged)
    return decisions, reply.task


@pytest.mark.parametrize("state", [TaskState.QUEUED, TaskState.SCHEDULED])
def test_a_waiting_job_is_started_at_once_whatever_it_waits_for(state: TaskState) -> None:
    snapshot = situation()
    add_task(snapshot, state=state, fence=4, attempt=1, due_at_ms=NOW_MS + 99)

    decisions, task = changed(snapshot, start())

    assert decisions == [
        LeaseTask(
            id=JOB,
            was=state,
            incarnation=JOB_INCARNATION,
            fence=5,
            attempt=2,
            started_at_ms=NOW_MS,
            deadline_ms=NOW_MS + 15 * 60 * 1000,
            holder="me",
            owner="",
        )
    ]
    assert (task.state, task.fence, task.attempt) == (TaskState.RUNNING, 5, 2)
    assert (task.worker_id, task.started_at_ms, task.due_at_ms) == ("me", NOW_MS, None)


def test_a_job_with_a_time_limit_of_its_own_has_that() -> None:
    snapshot = situation()
    add_task(snapshot, timeout_ms=70)

    _, task = changed(snapshot, start())

    assert task.deadline_ms == NOW_MS + 70


def test_the_same_caller_again_gets_the_same_answer() -> None:
    snapshot = situation()
    add_task(snapshot)

    _, first = changed(snapshot, start())
    decisions, second = changed(snapshot, start())

    assert (decisions, second) == ([], first)


def test_another_caller_is_refused_while_the_job_is_leased() -> None:
    snapshot = situation()
    add_running(snapshot, holder="me")

    with pytest.raises(StaleLease, match="is leased to 'me'"):
        reduce(snapshot, start("you"))


@pytest.mark.parametrize("event", [start("w1"), complete(), fail()], ids=["start", "end", "fail"])
def test_a_job_that_a_worker_runs_is_out_of_reach(event: TaskCommand) -> None:
    snapshot = situation()
    add_running(snapshot, worker=add_worker(snapshot, "w1"))

    with pytest.raises(StaleLease, match="is leased to"):
        reduce(snapshot, event)


@pytest.mark.parametrize("state", sorted(FINISHED))
def test_a_finished_job_cannot_start(state: TaskState) -> None:
    snapshot = situation()
    add_task(snapshot, state=state, finished_at_ms=1)

    with pytest.raises(IllegalState, match=f"is {state}"):
        reduce(snapshot, start())


@pytest.mark.parametrize("event", [start(), complete(), fail()], ids=["start", "end", "fail"])
def test_a_job_that_nobody_knows_is_not_found(event: TaskCommand) -> None:
    with pytest.raises(TaskNotFound, match="not found"):
        reduce(situation(), event)


@pytest.mark.parametrize("state", [TaskState.QUEUED, TaskState.SCHEDULED, TaskState.CANCELLED])
@pytest.mark.parametrize("event", [complete(), fail()], ids=["complete", "fail"])
def test_a_job_that_does_not_run_cannot_end(state: TaskState, event: TaskCommand) -> None:
    snapshot = situation()
    add_task(snapshot, state=state)

    with pytest.raises(IllegalState, match="not started"):
        reduce(snapshot, event)


def test_a_completed_job_has_succeeded() -> None:
    snapshot = situation()
    add_running(snapshot, holder="me", fence=2)

    decisions, task = changed(snapshot, complete(b'{"a": 1}'))

    (end,) = decisions
    assert isinstance(end, FinishTask)
    assert (end.state, end.fence, end.worker_id) == (TaskState.SUCCEEDED, 2, "me")
    assert (task.state, task.result) == (TaskState.SUCCEEDED, b'{"a": 1}')


@pytest.mark.parametrize(
    ("first", "second"),
    [(b"1", b"1"), (b"null", b"null"), (b'{"a":1,"b":[2]}', b'{ "b": [2], "a": 1 }')],
)
def test_the_same_result_twice_is_fine(first: bytes, second: bytes) -> None:
    snapshot = situation()
    add_running(snapshot, holder="me")

    changed(snapshot, complete(first))
    decisions, task = changed(snapshot, complete(second))

    assert (decisions, task.result) == ([], first)


@pytest.mark.parametrize(("first", "second"), [(b"1", b"2"), (b"1", b"true"), (b"null", b"0")])
def test_another_result_is_a_conflict(first: bytes, second: bytes) -> None:
    snapshot = situation()
    add_running(snapshot, holder="me")
    changed(snapshot, complete(first))

    with pytest.raises(ResultConflict, match="another result"):
        reduce(snapshot, complete(second))


def test_a_failed_job_waits_and_starting_it_is_the_retry() -> None:
    snapshot = situation()
    add_running(snapshot, holder="me", fence=1, attempt=1)

    decisions, waiting = changed(snapshot, fail())
    started, again = changed(snapshot, start("you"))

    (requeue,) = decisions
    assert isinstance(requeue, RequeueTask)
    assert (waiting.state, waiting.attempt, waiting.last_error) == (TaskState.SCHEDULED, 1, BOOM)
    assert len(started) == 1
    assert (again.state, again.fence, again.attempt) == (TaskState.RUNNING, 2, 2)


def test_a_job_that_fails_at_its_last_attempt_is_the_dead_letter() -> None:
    snapshot = situation()
    add_running(snapshot, holder="me", attempt=3)

    _, task = changed(snapshot, fail())

    assert (task.state, task.error) == (TaskState.FAILED, BOOM)


@pytest.mark.parametrize("attempt", [1, 3])
@pytest.mark.parametrize("error", [BOOM, TaskError(message="x" * 90_000, details=[1])])
def test_the_same_failure_twice_is_one(attempt: int, error: TaskError) -> None:
    snapshot = situation()
    add_running(snapshot, holder="me", attempt=attempt)

    _, first = changed(snapshot, fail(error))
    decisions, second = changed(snapshot, fail(error))

    assert (decisions, second) == ([], first)


def test_another_failure_of_a_job_that_does_not_run_is_refused() -> None:
    snapshot = situation()
    add_running(snapshot, holder="me", attempt=3)
    changed(snapshot, fail())

    with pytest.raises(IllegalState):
        reduce(snapshot, fail(TaskError(message="something else")))


def test_a_dead_letter_that_was_sent_round_again_can_be_started() -> None:
    snapshot = situation()
    add_running(snapshot, holder="me", fence=3, attempt=3)
    changed(snapshot, fail())

    reduce(snapshot, RetryTasks((JOB,)))
    _, task = changed(snapshot, start())

    assert (task.fence, task.attempt) == (4, 1)


def counted(decisions: list[Decision], kind: type[Any]) -> int:
    return sum(isinstance(one, kind) for one in decisions)


def test_a_whole_life_in_one_batch_keeps_its_order() -> None:
    snapshot = situation()
    add_task(snapshot)
    decisions: list[Decision] = []

    for event in (start(), fail(), start(), complete(b"7"), complete(b"7")):
        more, _ = changed(snapshot, event)
        decisions += more

    assert counted(decisions, LeaseTask) == 2
    assert counted(decisions, RequeueTask) == 1
    assert counted(decisions, FinishTask) == 1
    assert snapshot.leases == {}
    assert snapshot.tasks[JOB].attempt == 2


# --- who started it -----------------------------------------------------------------------------

OF_X = Caller(name="x", scopes=(Scope.WORKER,), worker_id="x")
OF_Y = Caller(name="y", scopes=(Scope.WORKER,), worker_id="y")
OF_MAIL = Caller(name="mail", scopes=(Scope.WORKER,), queues=("mail",), services=())
UNBOUND = Caller(name="any", scopes=(Scope.WORKER,))


def is_refused(snapshot: Situation, event: TaskCommand) -> bool:
    try:
        reduce(snapshot, event)
    except Forbidden:
        return True
    return False


@pytest.mark.parametrize("owner", [OF_X, OF_Y, OF_MAIL, UNBOUND])
@pytest.mark.parametrize("other", [OF_X, OF_Y, OF_MAIL, UNBOUND, LOCAL])
@pytest.mark.parametrize("ending", [complete(), fail()])
def test_a_job_is_ended_by_the_binding_that_started_it(
    owner: Caller, other: Caller, ending: CompleteJob | FailJob
) -> None:
    snapshot = situation()
    add_task(snapshot)
    reduce(snapshot, StartJob(task_id=JOB, holder=owner.worker_id or "me", by=owner))

    refused = is_refused(snapshot, msgspec.structs.replace(ending, by=other))

    assert refused is not (other is owner or other is LOCAL)
    assert (snapshot.tasks[JOB].state is TaskState.RUNNING) is refused


def test_starting_again_under_the_same_name_is_for_the_same_binding() -> None:
    snapshot = situation()
    add_task(snapshot)
    reduce(snapshot, StartJob(task_id=JOB, holder="me", by=OF_MAIL))

    assert is_refused(snapshot, StartJob(task_id=JOB, holder="me", by=UNBOUND))
    assert not is_refused(snapshot, StartJob(task_id=JOB, holder="me", by=OF_MAIL))


@pytest.mark.parametrize("ending", [complete(), fail()])
def test_a_job_from_before_owners_were_kept_is_judged_by_its_holder(
    ending: CompleteJob | FailJob,
) -> None:
    snapshot = situation()
    add_running(snapshot, holder="y")

    assert is_refused(snapshot, msgspec.structs.replace(ending, by=OF_X))
    assert not is_refused(snapshot, msgspec.structs.replace(ending, by=OF_Y))


@pytest.mark.parametrize("ending", [complete(), fail()])
@pytest.mark.parametrize("max_attempts", [1, 2])
def test_a_repeated_call_is_answered_to_the_holder_alone(
    ending: CompleteJob | FailJob, max_attempts: int
) -> None:
    snapshot = situation()
    add_task(snapshot, max_attempts=max_attempts)
    reduce(snapshot, StartJob(task_id=JOB, holder="y", by=OF_Y))
    reduce(snapshot, msgspec.structs.replace(ending, by=OF_Y))

    assert is_refused(snapshot, msgspec.structs.replace(ending, by=OF_X))
    assert not is_refused(snapshot, msgspec.structs.replace(ending, by=OF_Y))
