import pytest

from rota.core.dispatch.wait_reasons import (
    READY,
    Explanation,
    WorkerSlot,
    explain_lane,
    explain_task,
)
from rota.core.ids import TaskId
from rota.core.tasks.model import EndedAttempt, Ending, Lane, TaskError, TaskRecord, TaskState
from rota.core.workers.model import Health, WorkerRecord, WorkerState

NOW_MS = 1_800_000_000_000


def worker(**options: object) -> WorkerRecord:
    fields = {"id": "w1", "incarnation": 1, "node_id": "n1", "max_concurrent_tasks": 2}
    return WorkerRecord(**{**fields, "last_heartbeat_ms": NOW_MS, "started_at_ms": 0, **options})  # type: ignore[arg-type]  # fields by name


def seat(
    *, health: Health = Health.HEALTHY, held: int = 0, breaker: str | None = None, **options: object
) -> WorkerSlot:
    open_breakers = frozenset() if breaker is None else frozenset({breaker})
    return WorkerSlot(
        worker=worker(**options), health=health, held=held, open_breakers=open_breakers
    )


def why(*seats: WorkerSlot, requires: tuple[str, ...] = (), is_paused: bool = False) -> Explanation:
    return explain_lane(Lane("mail", "send", requires), seats, is_paused=is_paused)


@pytest.mark.parametrize(
    ("explanation", "code"),
    [
        (why(seat(), is_paused=True), "queue_paused"),
        (why(), "no_workers"),
        (why(seat(queues=("video",))), "no_worker_for_queue"),
        (why(seat(tasks=("read",))), "no_worker_for_task"),
        (why(seat(capabilities=("cpu",)), requires=("gpu",)), "no_worker_with_capability"),
        (
            why(seat(capabilities=("a",)), seat(capabilities=("b",)), requires=("a", "b")),
            "no_worker_with_capabilities",
        ),
        (why(seat(state=WorkerState.DRAINING)), "workers_held_back"),
        (why(seat(health=Health.DEGRADED)), "workers_silent"),
    ],
)
def test_what_will_not_go_on_by_itself_is_stuck(explanation: Explanation, code: str) -> None:
    assert explanation.code == code
    assert explanation.is_stuck


@pytest.mark.parametrize(
    ("explanation", "code"),
    [
        (why(seat(held=2), seat(held=2)), "workers_busy"),
        (why(seat(breaker="send")), "breaker_open"),
        (why(seat(breaker="read")), "ready"),
        (why(seat(held=2), seat(held=1)), "ready"),
        (why(seat(state=WorkerState.QUARANTINED), seat()), "ready"),
    ],
)
def test_what_goes_on_by_itself_is_not_stuck(explanation: Explanation, code: str) -> None:
    assert explanation.code == code
    assert not explanation.is_stuck


def test_the_missing_capability_is_named() -> None:
    assert "'gpu'" in why(seat(), requires=("gpu",)).text


def task(state: TaskState, **options: object) -> TaskRecord:
    fields = {
        "id": TaskId(7),
        "lane": Lane("mail", "send"),
        "state": state,
        "created_at_ms": NOW_MS,
    }
    return TaskRecord(**{**fields, **options})  # type: ignore[arg-type]  # fields by name


def told(one: TaskRecord, lane: Explanation = READY, position: int | None = 1) -> Explanation:
    return explain_task(one, lane, position=position, now_ms=NOW_MS + 1_500)


def test_a_queued_task_waits_for_what_its_lane_waits_for() -> None:
    queued = task(TaskState.QUEUED)

    assert told(queued, why()).code == "no_workers"
    assert told(queued).code == "ready"
    assert told(queued, position=4).text.startswith("3 of its kind are before it")
    assert told(queued, position=None).text.startswith("more than a thousand")
    assert told(queued, why(seat(held=2)), position=3).code == "workers_busy"


def test_a_scheduled_task_says_what_its_last_attempt_failed_of() -> None:
    failed = EndedAttempt(
        attempt=1,
        fence=1,
        ending=Ending.FAILED,
        ended_at_ms=NOW_MS,
        next_state=TaskState.SCHEDULED,
        error=TaskError(type="OSError", message="no route"),
    )

    assert told(task(TaskState.SCHEDULED)).code == "not_due"
    explanation = told(task(TaskState.SCHEDULED, attempt=1, log=(failed,)))
    assert explanation.code == "retry_later"
    assert "attempt 1 of 3 failed with OSError: no route" in explanation.text


def test_running_and_ended_tasks_say_so() -> None:
    error = TaskError(type="ValueError", message="odd")

    running = told(task(TaskState.RUNNING, worker_id="w1", started_at_ms=NOW_MS))
    assert running.text == "has been running on 'w1' for 1.5 s"
    assert told(task(TaskState.SUCCEEDED)).code == "succeeded"
    assert told(task(TaskState.CANCELLED)).code == "cancelled"
    assert told(task(TaskState.FAILED, error=error)).text == "ValueError: odd"
    assert told(task(TaskState.FAILED)).text == "failed"


def test_a_task_that_no_worker_knows_names_the_one_that_was_probably_meant() -> None:
    near = why(seat(tasks=("read", "sent")))
    far = why(seat(tasks=("read", "archive")))

    assert near.text == "no worker of queue 'mail' knows 'send'; did you mean 'sent'?"
    assert far.text == "no worker of queue 'mail' knows 'send'"
