"""The limit that is the reason why a queued task waits."""

import pytest

from rota.core.dispatch.limit_reasons import explain_limits, explain_queue, limit_keys
from rota.core.dispatch.wait_reasons import READY, Explanation, explain_task
from rota.core.flows.commands import LimitState
from rota.core.flows.model import Concurrency, LimitKind, LimitRecord, Rate
from rota.core.flows.queue_settings import (
    DEFAULT_SETTINGS,
    QueueRate,
    QueueSettings,
    limits_of_queue,
)
from rota.core.ids import TaskId
from rota.core.tasks.model import (
    EndedAttempt,
    Ending,
    Lane,
    TaskOptions,
    TaskRecord,
    TaskState,
)

NOW_MS = 1_800_000_000_000  # 08:00:00 UTC
USER = Concurrency(key="user:1", limit=2)
OPENAI = Rate(key="openai", limit=2)


def queued(*log: EndedAttempt, **options: object) -> TaskRecord:
    return TaskRecord(
        id=TaskId(7),
        lane=Lane("mail", "send"),
        state=TaskState.QUEUED,
        created_at_ms=NOW_MS,
        options=TaskOptions(**options),  # type: ignore[arg-type]  # fields by name
        log=log,
    )


def state(
    key: str = "user:1",
    kind: LimitKind = "concurrency",
    *,
    limit: int = 2,
    running: int = 0,
    opens_in_ms: int = 0,
) -> LimitState:
    record = LimitRecord(
        key=key,
        kind=kind,
        limit=limit,
        per_ms=1_000,
        closed_until_ms=NOW_MS + opens_in_ms if opens_in_ms else 0,
    )
    return LimitState(record=record, running=running, waiting=9)


def why(
    task: TaskRecord,
    *states: LimitState,
    position: int | None = 1,
    shows_counts: bool = True,
) -> Explanation | None:
    return explain_limits(task, states, position=position, now_ms=NOW_MS, shows_counts=shows_counts)


def text_of(explanation: Explanation | None) -> str:
    assert explanation is not None
    return explanation.text


def test_a_full_limit_is_named_with_its_counts_and_who_is_before() -> None:
    found = why(queued(concurrency=USER), state(running=2), position=313)

    assert found is not None
    assert (found.code, found.limit_key, found.is_stuck) == ("limit_full", "user:1", False)
    assert found.text == "limit 'user:1': 2 of 2 running, 312 before it"


@pytest.mark.parametrize(
    ("position", "end"),
    [(1, "2 running"), (2, ", 1 before it"), (None, "more than a thousand before it")],
)
def test_the_tasks_before_it_are_counted_up_to_a_thousand(position: int | None, end: str) -> None:
    found = why(queued(concurrency=USER), state(running=2), position=position)

    assert text_of(found).endswith(end)


def test_a_closed_rate_says_when_the_next_start_is() -> None:
    closed = state("openai", "rate", opens_in_ms=6_001)

    found = why(queued(rate=OPENAI), closed)

    assert found is not None
    assert (found.code, found.limit_key) == ("rate_closed", "openai")
    assert found.opens_at_ms == NOW_MS + 6_001
    assert found.text == "rate 'openai': next start at 08:00:07 UTC"


def test_a_limit_of_zero_waits_for_an_operator() -> None:
    for task, paused in (
        (queued(concurrency=USER), state(limit=0)),
        (queued(rate=OPENAI), state("openai", "rate", limit=0)),
    ):
        found = why(task, paused)

        assert found is not None
        assert (found.code, found.is_stuck) == ("limit_paused", True)
        assert "is 0" in found.text


def test_limits_with_room_are_no_reason() -> None:
    task = queued(concurrency=USER, rate=OPENAI)

    assert why(task, state(running=1), state("openai", "rate")) is None
    assert why(task) is None  # a limit that is not known


def test_the_first_limit_that_refuses_is_the_reason() -> None:
    task = queued(concurrency=[USER, Concurrency(key="all", limit=2)], rate=OPENAI)
    closed = state("openai", "rate", opens_in_ms=500)

    found = why(task, state(running=1), state("all", running=2), closed)

    assert text_of(found).startswith("limit 'all'")


def test_a_task_that_has_kept_its_slot_does_not_wait_for_it() -> None:
    def ended(next_state: TaskState) -> EndedAttempt:
        return EndedAttempt(
            attempt=1, fence=1, ending=Ending.FAILED, ended_at_ms=NOW_MS, next_state=next_state
        )

    strict = Concurrency(key="user:1", limit=2, hold="task")
    full = state(running=2)

    assert why(queued(ended(TaskState.SCHEDULED), concurrency=strict), full) is None
    assert why(queued(ended(TaskState.SCHEDULED), concurrency=USER), full) is not None
    assert why(queued(ended(TaskState.FAILED), concurrency=strict), full) is not None
    assert why(queued(concurrency=strict), full) is not None


def test_a_bound_caller_is_not_shown_how_many_run_elsewhere() -> None:
    found = why(queued(concurrency=USER), state(running=2), shows_counts=False)

    assert text_of(found) == "limit 'user:1': no slot is free"


def test_settings_of_the_queue_are_limits_of_each_of_its_tasks() -> None:
    settings = QueueSettings(max_running=5, rate=QueueRate(limit=3))
    running, rate = limits_of_queue("mail", settings)
    task = queued(concurrency=USER)

    assert limit_keys(task, settings) == (running.key, rate.key, "user:1")
    assert limit_keys(queued(), DEFAULT_SETTINGS) == ()

    full = why(task, LimitState(record=running, running=5), state(running=2), shows_counts=False)
    assert text_of(full) == "max_running of queue 'mail': 5 of 5 running"
    assert full is not None
    assert full.limit_key is None
    rate.closed_until_ms = NOW_MS + 1_000
    closed = why(task, LimitState(record=running, running=4), LimitState(record=rate))
    assert text_of(closed) == "rate of queue 'mail': next start at 08:00:01 UTC"


def test_a_queue_says_whether_its_tasks_may_run() -> None:
    settings = QueueSettings(max_running=2)

    assert explain_queue("mail", DEFAULT_SETTINGS, running=9) is None
    assert explain_queue("mail", settings, running=1) is None
    full = explain_queue("mail", settings, running=2)
    assert text_of(full) == "max_running of queue 'mail': 2 of 2 running"
    paused = explain_queue("mail", QueueSettings(max_running=0), running=0)
    assert paused is not None
    assert paused.is_stuck


def test_a_limit_is_the_reason_unless_no_worker_can_take_the_task() -> None:
    task = queued(concurrency=USER)
    limit = why(task, state(running=2))
    busy = Explanation(code="workers_busy", text="busy")
    stuck = Explanation(code="no_workers", text="none", is_stuck=True)

    def told(lane: Explanation) -> str:
        return explain_task(task, lane, limit=limit, position=1, now_ms=NOW_MS).code

    assert [told(one) for one in (READY, busy, stuck)] == ["limit_full", "limit_full", "no_workers"]
