"""Celery's interface on Rota: tasks, retries, results, chains, groups, chords."""

import inspect
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rota import GroupFailed, Rate, TaskCancelled, TaskFailed
from rota.compat.celery import (
    AsyncResult,
    Celery,
    Ignore,
    MaxRetriesExceededError,
    Reject,
    Signature,
    chain,
    chord,
    group,
    shared_task,
)
from rota.compat.celery.task import BoundTask, RetryRules
from rota.errors import Invalid
from rota.testing import TestCoordinator
from tests.sdk.serving import PATIENCE_S, Server, working

app = Celery("shop", broker="http://127.0.0.1:1")
called: list[Any] = []


class Temporary(Exception):  # noqa: N818 - a test's own
    pass


@app.task
def add(x: int, y: int = 0) -> int:
    called.append((x, y))
    return x + y


@app.task(bind=True, max_retries=2, default_retry_delay=30)
def flaky(self: BoundTask, fails: int) -> str:
    called.append((self.request.retries, self.request.args, self.name))
    if self.request.retries < fails:
        raise self.retry(exc=Temporary("not yet"), countdown=60)
    return f"after {self.request.retries}"


@app.task(autoretry_for=(Temporary,), max_retries=3, retry_backoff=2, retry_jitter=False)
def automatic(kind: str) -> None:
    called.append(kind)
    raise Temporary(kind) if kind == "temporary" else ValueError(kind)


@app.task
def total(numbers: list[int], plus: int = 0) -> int:
    return sum(numbers) + plus


@app.task
def note(outcomes: list[dict[str, Any]]) -> int:
    called.append([one["index"] for one in outcomes])
    return len(outcomes)


@app.task(max_retries=0)
def fail(x: int) -> int:
    raise ValueError(f"no {x}")


@app.task
def stop(how: str) -> None:
    raise Ignore("not mine") if how == "ignore" else Reject("not mine", requeue=False)


@shared_task(name="shared.double")
def double(number: int) -> int:
    return 2 * number


@pytest.fixture
def coordinator() -> Iterator[TestCoordinator]:
    called.clear()
    Celery.current = app
    with TestCoordinator() as one:
        one.attach(app)
        yield one


# --- tasks --------------------------------------------------------------------------------------


def test_a_task_has_celerys_name_and_is_called_as_a_function() -> None:
    assert add.name == f"{__name__}.add"
    assert add(2, y=3) == 5
    assert list(inspect.signature(add.function).parameters) == ["x", "y"]


def test_delay_and_apply_async_return_results(coordinator: TestCoordinator) -> None:
    first = add.delay(1, y=2)
    second = add.apply_async((3,), {"y": 4}, queue="sums", priority=5)
    assert first.state == "PENDING"

    coordinator.drain()

    assert (first.get(timeout=1), second.get(timeout=1)) == (3, 7)
    assert (first.state, first.successful(), first.failed()) == ("SUCCESS", True, False)
    view = second.handle.view()
    assert (view.queue, view.priority) == ("sums", 5)


def test_a_countdown_is_a_delay(coordinator: TestCoordinator) -> None:
    late = add.apply_async((1, 1), countdown=90)
    at = datetime.fromtimestamp(coordinator.clock.now_ms() / 1000, UTC) + timedelta(seconds=90)
    dated = add.apply_async((2, 2), eta=at)

    coordinator.drain()
    assert not late.ready()
    coordinator.clock.advance(seconds=90)
    coordinator.drain()

    assert [late.get(), dated.get()] == [2, 4]


def test_an_error_outside_autoretry_for_fails_the_task_at_once(
    coordinator: TestCoordinator,
) -> None:
    result = automatic.delay("broken")

    coordinator.drain(until_finished=True)

    assert called == ["broken"]
    with pytest.raises(TaskFailed, match="ValueError: broken"):
        result.get()
    assert "raise Temporary(kind) if" in (result.traceback or "")
    assert isinstance(result.get(propagate=False), TaskFailed)


def test_an_error_of_autoretry_for_is_retried_with_its_backoff(
    coordinator: TestCoordinator,
) -> None:
    started_ms = coordinator.clock.now_ms()
    result = automatic.delay("temporary")

    coordinator.drain(until_finished=True)

    assert called == ["temporary"] * 4
    assert coordinator.clock.now_ms() - started_ms == 1000 * (2 + 4 + 8)
    with pytest.raises(TaskFailed, match="Temporary"):
        result.get()


def test_self_retry_counts_and_waits(coordinator: TestCoordinator) -> None:
    started_ms = coordinator.clock.now_ms()
    result = flaky.delay(2)

    coordinator.drain()
    assert result.state == "RETRY"
    coordinator.drain(until_finished=True)

    assert result.get() == "after 2"
    assert [retries for retries, _args, _name in called] == [0, 1, 2]
    assert called[0][1:] == ([2], f"{__name__}.flaky")
    assert coordinator.clock.now_ms() - started_ms == 120_000


def test_retries_end_with_the_error_they_were_for(coordinator: TestCoordinator) -> None:
    result = flaky.delay(9)

    coordinator.drain(until_finished=True)

    assert len(called) == 3
    with pytest.raises(TaskFailed, match="not yet"):
        result.get()


@pytest.mark.parametrize("how", ["ignore", "reject"])
def test_ignore_and_reject_end_a_task(coordinator: TestCoordinator, how: str) -> None:
    result = stop.delay(how)

    coordinator.drain()

    with pytest.raises(TaskFailed, match="not mine"):
        result.get()


def test_a_revoked_task_does_not_run(coordinator: TestCoordinator) -> None:
    result = add.delay(1)

    result.revoke(terminate=True)
    result.revoke()
    coordinator.drain()

    assert (called, result.state) == ([], "REVOKED")
    with pytest.raises(TaskCancelled):
        result.get()


def test_a_result_is_found_by_its_id(coordinator: TestCoordinator) -> None:
    result = add.delay(2, 2)
    coordinator.drain()

    assert app.AsyncResult(result.id).get() == 4


def test_a_shared_task_belongs_to_the_app(coordinator: TestCoordinator) -> None:
    result = double.delay(21)

    coordinator.drain()

    assert result.get() == 42
    assert "shared.double" in app.tasks
    assert double(4) == 8


def test_a_task_is_sent_by_name(coordinator: TestCoordinator) -> None:
    known = app.send_task(add.name, (1, 2))
    other = app.send_task("elsewhere.task", kwargs={"x": 1}, queue="far")

    coordinator.drain()

    assert known.get() == 3
    assert other.handle.view().queue == "far"
    with pytest.raises(Invalid, match="arguments are given by name"):
        app.send_task("elsewhere.task", (1,))


# --- compositions -------------------------------------------------------------------------------


def test_a_chain_passes_results_and_immutable_calls_ignore_them(
    coordinator: TestCoordinator,
) -> None:
    plain = chain(add.s(1, 2), add.s(10), add.s(y=100))()
    piped = (add.s(1, 2) | add.si(5, 5) | add.s(1)).apply_async()
    linked = add.apply_async((2, 2), link=add.s(4))

    coordinator.drain()

    assert plain.get(timeout=1) == 113
    assert piped.get(timeout=1) == 11
    assert linked.get(timeout=1) == 8
    assert (plain.state, plain.ready(), plain.successful()) == ("SUCCESS", True, True)


def test_a_group_has_the_results_of_its_calls_in_order(coordinator: TestCoordinator) -> None:
    result = group(add.s(number, number) for number in range(3))()

    coordinator.drain()

    assert result.get() == [0, 2, 4]
    assert (result.completed_count(), result.successful(), len(result)) == (3, True, 3)


@pytest.mark.parametrize(
    "make",
    [
        lambda: chord([add.s(1), add.s(2)])(total.s(plus=10)),
        (group(add.s(1), add.s(2)) | total.s(10)).apply_async,
        chain(group(add.s(1), add.s(2)), total.s(10)),
    ],
)
def test_a_chord_runs_its_body_with_all_results(coordinator: TestCoordinator, make: Any) -> None:
    result = make()

    coordinator.drain()

    assert result.get(timeout=1) == 13


def test_a_failed_chord_runs_its_errback_and_not_its_body(coordinator: TestCoordinator) -> None:
    result = chord([add.s(1), fail.s(2)], total.s()).on_error(note.s())()

    coordinator.drain()

    assert [1] in called
    with pytest.raises(GroupFailed, match="no 2"):
        result.get(timeout=1)


def test_compositions_that_go_deeper_name_durable_functions(coordinator: TestCoordinator) -> None:
    with pytest.raises(Invalid, match="durable function"):
        _ = add.s(1) | group(add.s(1), add.s(2))
    with pytest.raises(Invalid, match="durable function"):
        group(chain(add.s(1)))
    with pytest.raises(Invalid, match="no further argument"):
        chain(add.s(1), add.s(1, 2, 3))()


def test_a_signature_is_called_cloned_and_shown() -> None:
    call = add.s(2).set(queue="sums")

    assert call(1) == 3
    assert call.clone((1,)).args == (1, 2)
    assert add.si(1).clone((9,)).args == (1,)
    assert repr(add.s(1, y=2)) == f"{__name__}.add(1, y=2)"
    assert isinstance(add.signature((1, 2), immutable=True), Signature)


# --- eager --------------------------------------------------------------------------------------


def test_eager_calls_run_here_with_their_retries() -> None:
    eager = Celery("eager", broker="http://127.0.0.1:1", task_always_eager=True)
    tries: list[int] = []

    @eager.task(bind=True, max_retries=3)
    def work(self: BoundTask, x: int) -> int:
        tries.append(self.request.retries)
        if self.request.retries < 2:
            raise self.retry(exc=Temporary("again"))
        return x

    @eager.task
    def wrong() -> None:
        raise ValueError("no")

    assert work.delay(7).get() == 7
    assert tries == [0, 1, 2]
    assert chain(work.s(1), work.si(2))().get() == 2
    assert group(work.s(1), work.s(2))().get() == [1, 2]
    assert chord([work.s(1), work.s(2)])(work.si(3)).get() == 3
    failed = wrong.delay()
    assert (failed.state, failed.failed()) == ("FAILURE", True)
    with pytest.raises(ValueError, match="no"):
        failed.get()
    eager.conf.task_eager_propagates = True
    with pytest.raises(ValueError, match="no"):
        wrong.delay()


# --- what is refused ----------------------------------------------------------------------------


def test_options_without_a_counterpart_are_named() -> None:
    one = Celery("one", broker="http://127.0.0.1:1")

    with pytest.raises(Invalid, match="soft_time_limit"):
        one.task(soft_time_limit=5)(print)
    with pytest.raises(Invalid, match="it is called `rate`"):
        one.task(rate_limit="10/s")(print)
    with pytest.raises(Invalid, match="the only serializer is json"):
        one.task(serializer="pickle")(print)
    with pytest.raises(Invalid, match="no parameter for the task"):
        one.task(bind=True)(lambda: None)


def test_options_of_rota_can_be_given() -> None:
    one = Celery("one", broker="http://127.0.0.1:1")

    @one.task(rate=Rate("api", limit=5), acks_late=True)
    def call_api() -> None: ...

    assert call_api.template.rate is not None


def test_a_retry_beyond_what_the_coordinator_counts_is_refused() -> None:
    bound = BoundTask(flaky, _request(retries=0))

    with pytest.raises(Invalid, match="counts 2 retries"):
        bound.retry(max_retries=5)
    with pytest.raises(Invalid, match="same arguments"):
        bound.retry(args=(1,))
    with pytest.raises(MaxRetriesExceededError):
        BoundTask(flaky, _request(retries=2)).retry()


def _request(retries: int) -> Any:
    from types import SimpleNamespace  # noqa: PLC0415 - of this helper only

    return SimpleNamespace(retries=retries, id="x", is_eager=True)


@pytest.mark.parametrize(
    ("policy", "delays"),
    [
        (RetryRules(), [180, 180]),
        (RetryRules(retry_kwargs={"countdown": 7}), [7, 7]),
        (RetryRules(retry_backoff=True, retry_jitter=False), [1, 2]),
        (RetryRules(retry_backoff=400, retry_jitter=False), [400, 600]),
        (RetryRules(retry_backoff=8), [4, 8]),
    ],
)
def test_the_delays_are_those_of_celery(policy: RetryRules, delays: list[float]) -> None:
    assert [policy.delay_s(retries, lambda: 0.5) for retries in (0, 1)] == delays


# --- with a real worker -------------------------------------------------------------------------


@pytest.mark.slow
def test_a_worker_runs_celery_tasks_and_reports_states(server: Server) -> None:
    real = Celery("real", broker=server.url)

    @real.task(bind=True)
    def count(self: BoundTask, to: int) -> int:
        self.update_state(state="COUNTING", meta={"of": to})
        return to

    sum_up = real.task(sum, name="sum_up")
    with real, working(real):
        result = count.delay(3)
        assert isinstance(result, AsyncResult)
        assert result.get(timeout=PATIENCE_S) == 3
        both = chord([count.s(1), count.s(2)])(sum_up.s())
        assert both.get(timeout=PATIENCE_S) == 3
