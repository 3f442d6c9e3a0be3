"""Options as programs write them: durations, and names known from other systems."""

import contextlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota import (
    Backoff,
    Batch,
    Debounce,
    Invalid,
    LockNotAcquired,
    Rate,
    Retry,
    Rota,
    ShardWorker,
    Snooze,
    Unique,
    Worker,
)
from rota.core.schedules.durations import milliseconds
from rota.sdk.options.other_names import APP_ELSEWHERE, HANDLE_ELSEWHERE, KNOWN_ELSEWHERE

MINUTE_MS = 60_000


def made(**options: Any) -> Any:
    """The task that a call with these options makes."""
    app = Rota("http://127.0.0.1:1")

    def work() -> None: ...

    return app.task(**options)(work).template


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("500ms", 500),
        ("30s", 30_000),
        ("5m", 5 * MINUTE_MS),
        ("1h30m", 90 * MINUTE_MS),
        ("1.5d", 36 * 60 * MINUTE_MS),
        (" 2w ", 14 * 24 * 60 * MINUTE_MS),
        (timedelta(minutes=5), 5 * MINUTE_MS),
    ],
)
def test_a_duration_is_a_timedelta_or_a_text(text: str | timedelta, expected_ms: int) -> None:
    assert milliseconds(text, "delay") == expected_ms


@pytest.mark.parametrize(
    "wrong", ["", "5", "soon", "5 parsecs", "m5", "-5m", "5m!", "1" * 99 + "s"]
)
def test_a_text_without_a_unit_is_no_duration(wrong: str) -> None:
    with pytest.raises(Invalid, match="is not a duration; write it as 30s"):
        milliseconds(wrong, "delay")


@pytest.mark.parametrize("number", [5, 0.5])
def test_a_number_says_under_which_name_it_would_be_milliseconds(number: float) -> None:
    with pytest.raises(Invalid, match="a number of milliseconds is given as delay_ms"):
        milliseconds(number, "delay")


@given(st.text(max_size=20))
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    with contextlib.suppress(Invalid):
        assert milliseconds(text, "delay") >= 0


def test_every_duration_of_a_task_can_be_written() -> None:
    task = made(
        delay="5m",
        timeout=timedelta(seconds=30),
        start_within="1h",
        backoff={"initial": "2s", "max": timedelta(minutes=1)},
        unique={"for": "10s"},
    )

    assert (task.delay_ms, task.timeout_ms) == (5 * MINUTE_MS, 30_000)
    assert task.start_within_ms == 60 * MINUTE_MS
    assert (task.backoff.initial_ms, task.backoff.max_ms) == (2_000, MINUTE_MS)
    assert task.unique.for_ms == 10_000


def test_a_moment_can_be_a_datetime() -> None:
    moment = datetime(2026, 12, 31, tzinfo=UTC)

    assert made(run_at=moment).run_at_ms == moment.timestamp() * 1000
    with pytest.raises(Invalid, match="run_at is a datetime"):
        made(run_at=5)


def test_a_duration_is_given_once() -> None:
    with pytest.raises(Invalid, match="give delay or delay_ms, not both"):
        made(delay="5m", delay_ms=5)


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("countdown", "it is called `delay`"),
        ("autoretry_for", "every exception is retried"),
        ("bind", "rota.current"),
        ("prioritty", "did you mean 'priority'?"),
        ("max_attempt", "did you mean 'max_attempts'?"),
    ],
)
def test_an_unknown_option_says_what_was_meant(option: str, hint: str) -> None:
    with pytest.raises(Invalid, match=f"there is no option {option!r}") as refused:
        made(**{option: 1})

    assert hint in refused.value.detail


def test_a_misspelt_field_of_an_option_says_what_was_meant() -> None:
    with pytest.raises(Invalid, match=r"backoff: there is no 'initail'; did you mean 'initial'\?"):
        made(backoff={"initail": 5})
    with pytest.raises(Invalid, match=r"unique: there is no 'for_sec'; did you mean 'for_ms'\?"):
        made(unique={"for_sec": 5})


@pytest.mark.parametrize("option", KNOWN_ELSEWHERE)
def test_options_of_other_systems_are_none_of_ours(option: str) -> None:
    with pytest.raises(Invalid, match=f"there is no option {option!r}: "):
        made(**{option: 1})


def test_schedules_and_workflows_take_durations() -> None:
    app = Rota("http://127.0.0.1:1")

    @app.schedule(every="15m", jitter=timedelta(seconds=5))
    @app.task
    def work() -> None: ...

    flow = app.workflow("flow", timeout="1h")
    flow.node("pause", sleep="5m")
    flow.node("ask", wait_for={"event": "go", "timeout": "1d"})
    flow.node("input", task="work", input={"max": "1"}, timeout=timedelta(seconds=9))
    flow.transition("pause", "ask")
    flow.transition("ask", "input")

    spec = app.schedules["work"].spec
    assert (spec.every_ms, spec.jitter_ms) == (15 * MINUTE_MS, 5_000)
    definition = flow.definition
    assert definition.timeout_ms == 60 * MINUTE_MS
    assert definition.nodes["pause"].sleep_ms == 5 * MINUTE_MS
    assert definition.nodes["ask"].patience_ms == 24 * 60 * MINUTE_MS
    assert definition.nodes["input"].input == {"max": "1"}
    with pytest.raises(Invalid, match="there is no option 'evry'; did you mean 'every'"):
        app.schedule(evry="5m")(work)  # type: ignore[call-arg]  # the mistake


@pytest.mark.parametrize("timeout", [0.01, "10ms", timedelta(milliseconds=10)])
def test_waits_and_times_to_live_take_durations(
    tmp_path: Path, timeout: float | str | timedelta
) -> None:
    with Rota(f"sqlite:///{tmp_path}/rota.db") as app:
        app.memory.put("a", 1, ttl_s=timeout)
        with (
            app.lock("a", ttl_s="1m"),
            pytest.raises(LockNotAcquired),
            app.lock("a", wait_s=timeout),
        ):
            pass
        handle = app.enqueue("nobody")
        with pytest.raises(TimeoutError, match=r"is still queued after 0\.01 s"):
            handle.result(timeout)
        with pytest.raises(Invalid, match="'soon' is not a duration"):
            handle.result("soon")


def test_the_classes_of_options_take_durations() -> None:
    assert Rate("api", limit=10, per="1m").per_ms == MINUTE_MS
    assert Unique(key="a", for_=timedelta(seconds=10)).for_ms == 10_000
    assert Debounce(key="a", wait="2s", max_wait="1m") == Debounce(
        key="a", wait_ms=2_000, max_wait_ms=MINUTE_MS
    )
    assert Backoff(initial="2s", max=timedelta(minutes=1)).max_ms == MINUTE_MS
    assert Batch(size=5, wait="200ms").wait_ms == 200
    with pytest.raises(Invalid, match="a number of milliseconds is given as per_ms"):
        Rate("api", limit=10, per=5)  # type: ignore[arg-type]  # the mistake
    with pytest.raises(Invalid, match="give per or per_ms, not both"):
        Rate("api", limit=10, per="5s", per_ms=5_000)


def test_workers_take_durations() -> None:
    app = Rota("http://127.0.0.1:1")

    @app.task
    def work() -> None: ...

    Worker(app, drain_s="1m", heartbeat_interval_ms="10s")
    with pytest.raises(Invalid, match="'soon' is not a duration"):
        Worker(app, drain_s="soon")
    with pytest.raises(Invalid, match="drain_s is a time in seconds: 0 or more"):
        ShardWorker("orders", shards=4, on_assigned=print, drain_s=timedelta(seconds=-1))


def test_answers_of_handlers_take_durations() -> None:
    assert Snooze("5m").ms == 5 * MINUTE_MS
    assert Retry("later", after=timedelta(seconds=2)).in_ms == 2_000


def test_celerys_apply_async_enqueues_with_our_options(tmp_path: Path) -> None:
    with Rota(f"sqlite:///{tmp_path}/rota.db", concurrency=0) as app:

        @app.task
        def add(a: int, b: int = 0) -> int:
            return a + b

        view = add.apply_async(
            (1,), {"b": 2}, countdown=60, expires=90, time_limit=5, queue="sums", task_id="k"
        ).view()

    assert bytes(view.payload) == b'{"a":1,"b":2}'
    assert (view.delay_ms, view.start_within_ms) == (MINUTE_MS, 90_000)
    assert (view.timeout_ms, view.queue, view.key) == (5_000, "sums", "k")


def test_celerys_other_names_say_what_ours_are() -> None:
    app = Rota("http://127.0.0.1:1")

    @app.task
    def work() -> None: ...

    with pytest.raises(Invalid, match="apply_async: there is no option 'link': follow-up tasks"):
        work.apply_async(link=work)
    with pytest.raises(Invalid, match=r"'coutdown'; did you mean 'countdown'\?"):
        work.apply_async(coutdown=5)
    with pytest.raises(Invalid, match="expires is in the past"):
        work.apply_async(expires=datetime(2020, 1, 1, tzinfo=UTC))
    with pytest.raises(AttributeError, match=r"a task has no 's': bind"):
        work.s()
    with pytest.raises(AttributeError, match="a task has no 'nonsense'"):
        work.nonsense()
    assert not hasattr(work, "retry")


@pytest.mark.parametrize("name", HANDLE_ELSEWHERE)
def test_celerys_names_of_a_result_say_what_ours_are(name: str) -> None:
    handle = Rota("http://127.0.0.1:1").handle("a1")

    with pytest.raises(AttributeError, match=f"a handle of a task has no {name!r}: "):
        getattr(handle, name)
    assert not hasattr(handle, "nonsense")


@pytest.mark.parametrize("name", APP_ELSEWHERE)
def test_celerys_names_of_an_app_say_what_ours_are(name: str) -> None:
    app = Rota("http://127.0.0.1:1")

    with pytest.raises(AttributeError, match=f"an app has no {name!r}: "):
        getattr(app, name)
    assert not hasattr(app, "nonsense")
