import pytest

from rota.core.access import AccessToken, Scope
from rota.core.commands import (
    AddToken,
    CancelTasks,
    PauseQueue,
    PruneHistory,
    QueueDueTasks,
    RetryTasks,
    RevokeToken,
)
from rota.core.decisions import (
    ChangeQueue,
    DropToken,
    FinishTask,
    ForgetCancelled,
    ForgetHistory,
    PutToken,
    QueueTask,
    ReviveTask,
    TellCancelled,
)
from rota.core.ids import TaskId, to_text
from rota.core.replies import Beat, Changed, Done
from rota.core.tasks.model import FINISHED, TaskState
from rota.core.tasks.operations import PRUNED_PER_STEP
from rota.errors import IllegalState, QueueNotFound, TaskNotFound, TokenNotFound
from tests.core.snapshots import (
    NOW_MS,
    Situation,
    add_running,
    add_task,
    add_worker,
    beat,
    reduce,
    situation,
)

ONE = TaskId(1)


def one_of(state: TaskState) -> Situation:
    """A snapshot with one task, in this state."""
    snapshot = situation()
    if state is TaskState.RUNNING:
        add_running(snapshot, worker=add_worker(snapshot), fence=3, attempt=2)
    else:
        ended = {"finished_at_ms": 1} if state in FINISHED else {}
        add_task(snapshot, state=state, fence=3, attempt=2, **ended)
    return snapshot


# --- cancelling ---------------------------------------------------------------------------------


@pytest.mark.parametrize("state", sorted(set(TaskState) - FINISHED))
def test_a_live_task_is_cancelled_at_once(state: TaskState) -> None:
    snapshot = one_of(state)

    decisions, reply = reduce(snapshot, CancelTasks((ONE,)))

    end = decisions[0]
    assert isinstance(end, FinishTask)
    assert (end.was, end.state, end.fence, end.attempt) == (state, TaskState.CANCELLED, 3, 2)
    assert end.finished_at_ms == NOW_MS
    assert reply == Changed((ONE,), {})
    assert snapshot.tasks[ONE].state is TaskState.CANCELLED
    assert snapshot.leases == {}


def test_the_worker_that_runs_a_cancelled_task_is_to_be_told() -> None:
    snapshot = one_of(TaskState.RUNNING)

    decisions, _ = reduce(snapshot, CancelTasks((ONE,)))

    assert decisions[1:] == [TellCancelled(1, ONE)]
    assert snapshot.to_cancel == {1: {ONE}}
    assert snapshot.held == {1: 0}


@pytest.mark.parametrize("state", [TaskState.QUEUED, TaskState.SCHEDULED])
def test_nobody_is_told_of_a_cancelled_task_that_did_not_run(state: TaskState) -> None:
    decisions, _ = reduce(one_of(state), CancelTasks((ONE,)))

    assert len(decisions) == 1


def test_a_caller_of_the_jobs_api_finds_out_by_itself() -> None:
    snapshot = situation()
    add_running(snapshot, holder="me")

    decisions, _ = reduce(snapshot, CancelTasks((ONE,)))

    assert len(decisions) == 1


@pytest.mark.parametrize("state", sorted(FINISHED))
def test_a_finished_task_cannot_be_cancelled(state: TaskState) -> None:
    decisions, reply = reduce(one_of(state), CancelTasks((ONE,)))

    assert decisions == []
    assert isinstance(reply, Changed)
    assert isinstance(reply.refused[ONE], IllegalState)
    assert reply.refused[ONE].facts == {"task_id": to_text(ONE), "state": state}


def test_each_of_several_tasks_is_cancelled_or_refused_for_itself() -> None:
    snapshot = one_of(TaskState.QUEUED)
    add_task(snapshot, 2, TaskState.SUCCEEDED)

    decisions, reply = reduce(snapshot, CancelTasks((ONE, TaskId(2), TaskId(3))))

    assert isinstance(reply, Changed)
    assert len(decisions) == 1
    assert reply.changed == (ONE,)
    assert {number: type(error) for number, error in reply.refused.items()} == {
        2: IllegalState,
        3: TaskNotFound,
    }


# --- retrying -----------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [TaskState.FAILED, TaskState.CANCELLED])
def test_a_dead_letter_is_sent_round_again(state: TaskState) -> None:
    snapshot = one_of(state)

    decisions, reply = reduce(snapshot, RetryTasks((ONE,)))

    assert decisions == [ReviveTask(ONE)]
    assert reply == Changed((ONE,), {})
    task = snapshot.tasks[ONE]
    assert (task.state, task.attempt, task.fence) == (TaskState.QUEUED, 0, 3)


def test_a_task_that_waits_for_its_time_runs_now() -> None:
    snapshot = one_of(TaskState.SCHEDULED)

    decisions, _ = reduce(snapshot, RetryTasks((ONE,)))

    assert decisions == [QueueTask(ONE)]
    assert snapshot.tasks[ONE].state is TaskState.QUEUED
    assert snapshot.tasks[ONE].attempt == 2


@pytest.mark.parametrize("state", [TaskState.QUEUED, TaskState.RUNNING, TaskState.SUCCEEDED])
def test_a_task_that_waits_runs_or_succeeded_cannot_be_retried(state: TaskState) -> None:
    decisions, reply = reduce(one_of(state), RetryTasks((ONE,)))

    assert decisions == []
    assert isinstance(reply, Changed)
    assert isinstance(reply.refused[ONE], IllegalState)


def test_a_task_is_revived_once_in_one_batch() -> None:
    snapshot = one_of(TaskState.FAILED)

    reduce(snapshot, RetryTasks((ONE,)))
    decisions, reply = reduce(snapshot, RetryTasks((ONE, TaskId(9))))

    assert decisions == []
    assert isinstance(reply, Changed)
    assert reply.changed == ()
    assert isinstance(reply.refused[TaskId(9)], TaskNotFound)


def test_a_task_cancelled_and_retried_in_one_batch_is_queued() -> None:
    snapshot = one_of(TaskState.RUNNING)

    first, _ = reduce(snapshot, CancelTasks((ONE,)))
    second, _ = reduce(snapshot, RetryTasks((ONE,)))

    assert [type(one) for one in first] == [FinishTask, TellCancelled]
    assert second == [ReviveTask(ONE), ForgetCancelled(1, ONE)]
    assert snapshot.tasks[ONE].state is TaskState.QUEUED
    assert ONE not in snapshot.finished


def test_a_worker_is_not_told_to_drop_a_task_that_lives_again() -> None:
    snapshot = one_of(TaskState.RUNNING)
    worker = snapshot.workers["w1"]

    reduce(snapshot, CancelTasks((ONE,)))
    reduce(snapshot, RetryTasks((ONE,)))
    _, reply = reduce(snapshot, beat(worker, ONE))

    assert isinstance(reply, Beat)
    assert (reply.cancel, reply.lost) == ((), (ONE,))


# --- the rest -----------------------------------------------------------------------------------


def test_due_tasks_are_queued() -> None:
    snapshot = situation()
    snapshot.due = [TaskId(4), TaskId(2)]

    assert reduce(snapshot, QueueDueTasks()) == (
        [QueueTask(TaskId(4)), QueueTask(TaskId(2))],
        Done(2),
    )


def test_a_queue_may_be_paused_before_its_first_task() -> None:
    decisions, _ = reduce(situation(), PauseQueue("new", paused=True))

    assert decisions == [ChangeQueue("new", paused=True, at_ms=NOW_MS)]


def test_only_a_queue_that_never_was_cannot_be_resumed() -> None:
    snapshot = situation()
    snapshot.known_queues = {"mail"}

    decisions, _ = reduce(snapshot, PauseQueue("mail", paused=False))

    assert decisions == [ChangeQueue("mail", paused=False, at_ms=NOW_MS)]
    with pytest.raises(QueueNotFound, match="'film' not found"):
        reduce(snapshot, PauseQueue("film", paused=False))


def test_history_is_forgotten_in_steps() -> None:
    decisions, _ = reduce(situation(), PruneHistory(500))

    assert decisions == [ForgetHistory(500, PRUNED_PER_STEP)]


def test_tokens_come_and_go() -> None:
    snapshot = situation()
    snapshot.token_ids = {"t1"}
    token = AccessToken(id="t2", hash="h", name="n", scopes=(Scope.READ,), created_at_ms=0)

    assert reduce(snapshot, AddToken(token)) == ([PutToken(token)], Done())
    assert reduce(snapshot, RevokeToken("t1")) == ([DropToken("t1")], Done())
    with pytest.raises(TokenNotFound, match="not found"):
        reduce(snapshot, RevokeToken("t3"))
