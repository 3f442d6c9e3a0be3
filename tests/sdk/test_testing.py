"""What users test their tasks with."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from rota import Discard, Retry, Rota, Snooze, TaskFailed, current
from rota.core.tasks.model import TaskState
from rota.errors import IllegalState, Invalid
from rota.sdk.arguments import InvalidArguments
from rota.sdk.client import calls
from rota.testing import TestCoordinator, aperform, perform, perform_attempt

app = Rota("http://127.0.0.1:1")
sent: list[str] = []


@app.task(queue="mail", max_attempts=2)
def send_mail(to: str, subject: str = "hello") -> str:
    sent.append(to)
    return f"{subject} {to}"


@app.task
async def welcome(name: str) -> str:
    await asyncio.sleep(0)
    await send_mail.aenqueue(name)
    return (await send_mail.aenqueue("office", subject=name)).id


@app.task(max_attempts=3, backoff={"initial_ms": 60_000, "jitter": False})
def flaky() -> str:
    if current().attempt < 3:
        raise RuntimeError("not yet")
    return "at last"


@app.task
def patient(times: list[int]) -> str:
    if len(sent) < 2:
        sent.append("snoozed")
        raise Snooze(60_000)
    return "awake"


@app.task(requires=["gpu"])
def reports() -> None:
    current().progress(0.5)
    current().progress({"rows": 3}, partial=[1])


@pytest.fixture
def coordinator() -> Iterator[TestCoordinator]:
    sent.clear()
    with TestCoordinator() as one:
        one.attach(app)
        yield one


def test_what_was_enqueued_is_found_by_task_and_arguments(coordinator: TestCoordinator) -> None:
    send_mail.enqueue("ada", subject="hi")
    send_mail.using(priority=9).enqueue("bob")

    coordinator.assert_enqueued(send_mail)
    coordinator.assert_enqueued(send_mail, count=2)
    coordinator.assert_enqueued("send_mail", args={"to": "ada"}, count=1)
    coordinator.assert_enqueued(send_mail, args={"to": "bob"}, priority=9, queue="mail")
    coordinator.refute_enqueued(send_mail, args={"to": "eve"})
    coordinator.refute_enqueued(welcome)
    assert sent == []


def test_a_failed_assertion_says_what_is_there_instead(coordinator: TestCoordinator) -> None:
    send_mail.enqueue("ada")

    with pytest.raises(AssertionError, match=r"send_mail \{\"to\":\"ada\"\}"):
        coordinator.assert_enqueued(send_mail, args={"to": "bob"})
    with pytest.raises(AssertionError, match="0 enqueued 'send_mail' expected, 1 found"):
        coordinator.refute_enqueued(send_mail)


def test_draining_runs_everything_also_what_handlers_enqueue(coordinator: TestCoordinator) -> None:
    handle = welcome.enqueue("ada")

    drained = coordinator.drain()

    assert drained.succeeded == len(drained) == 3
    assert sent == ["ada", "office"]
    assert drained.results("send_mail") == ["hello ada", "ada office"]
    assert app.handle(handle.result()).result() == "ada office"
    coordinator.refute_enqueued(send_mail)


def test_no_thread_is_started_by_a_test_that_is_not_async(coordinator: TestCoordinator) -> None:
    before = threading.active_count()
    welcome.enqueue("ada")

    coordinator.drain()

    assert threading.active_count() == before


async def test_async_tests_drain_on_their_own_loop(coordinator: TestCoordinator) -> None:
    loops: list[object] = []

    @app.task(name="loop_of_the_test")
    async def probe() -> None:
        loops.append(asyncio.get_running_loop())

    await probe.aenqueue()
    await welcome.aenqueue("ada")
    drained = await coordinator.adrain()

    assert drained.succeeded == 4
    assert loops == [asyncio.get_running_loop()]
    del app.tasks["loop_of_the_test"]


def test_the_clock_brings_what_is_due(coordinator: TestCoordinator) -> None:
    handle = send_mail.using(delay_ms=60_000).enqueue("ada")
    assert len(coordinator.drain()) == 0

    coordinator.clock.advance(ms=59_999)
    assert handle.status() is TaskState.SCHEDULED
    coordinator.clock.advance(ms=1)

    assert handle.status() is TaskState.QUEUED
    assert coordinator.drain().succeeded == 1


def test_draining_until_finished_turns_the_clock_itself(coordinator: TestCoordinator) -> None:
    handle = flaky.enqueue()
    before_ms = coordinator.clock.now_ms()

    drained = coordinator.drain(until_finished=True)

    assert (drained.failed, drained.succeeded) == (2, 1)
    assert handle.result() == "at last"
    assert coordinator.clock.now_ms() - before_ms == 60_000 + 120_000


def test_snoozed_work_comes_back(coordinator: TestCoordinator) -> None:
    patient.enqueue([])

    drained = coordinator.drain(until_finished=True)

    assert (drained.snoozed, drained.succeeded) == (2, 1)


def test_a_result_that_is_waited_for_is_brought_about(coordinator: TestCoordinator) -> None:
    assert send_mail.enqueue("ada").result(timeout=30) == "hello ada"


def test_a_result_that_no_waiting_brings_is_told_so(coordinator: TestCoordinator) -> None:
    handle = send_mail.using(delay_ms=1_000).enqueue("ada")

    with pytest.raises(IllegalState, match="a test cannot wait for it"):
        handle.result()


def test_failures_reach_the_submitter(coordinator: TestCoordinator) -> None:
    @app.task(name="broken", max_attempts=1)
    def broken() -> None:
        raise LookupError("gone")

    handle = broken.enqueue()
    coordinator.drain()
    del app.tasks["broken"]

    with pytest.raises(TaskFailed, match="LookupError: gone"):
        handle.result()


def test_progress_is_kept(coordinator: TestCoordinator) -> None:
    handle = reports.enqueue()

    drained = coordinator.drain()

    assert drained.performed[0].progress == (0.5, {"rows": 3})
    assert handle.status() is TaskState.SUCCEEDED


def test_logs_are_kept(coordinator: TestCoordinator) -> None:
    @app.task(name="talks")
    def talks() -> None:
        current().log.debug("all of %s", "it", extra={"size": 3})

    handle = talks.enqueue()
    drained = coordinator.drain()
    alone = perform(talks)
    del app.tasks["talks"]

    (line,) = drained.performed[0].logs
    assert (line.level, line.message, line.fields) == ("debug", "all of it", b'{"size":3}')
    assert [one.message for one in alone.logs] == ["all of it"]
    page = app.client.run(calls.get_logs(handle.id))
    assert [(one.number, one.message) for one in page.items] == [(1, "all of it")]


def test_arguments_are_checked_in_tests_too(coordinator: TestCoordinator) -> None:
    with pytest.raises(InvalidArguments):
        send_mail.enqueue(3)  # type: ignore[call-overload]  # what this test is about


def test_a_coordinator_without_an_app_has_nothing_to_drain() -> None:
    with TestCoordinator() as one, pytest.raises(Invalid, match="no app is attached"):
        one.drain()


def test_one_test_does_not_see_the_work_of_another() -> None:
    for _ in range(2):
        with TestCoordinator() as one:
            one.attach(app)
            one.refute_enqueued(send_mail)
            send_mail.enqueue("ada")


def test_performing_runs_a_handler_without_a_coordinator() -> None:
    performed = perform(send_mail, "ada", subject="hi")

    assert performed.outcome == "succeeded"
    assert performed.result == "hi ada"


def test_performing_tells_every_way_a_handler_can_end() -> None:
    @app.task(name="ending")
    def ending(how: str) -> None:
        if how == "snooze":
            raise Snooze(5)
        if how == "retry":
            raise Retry("later", in_ms=7)
        if how == "discard":
            raise Discard("never")
        raise ValueError(how)

    snoozed, retried = perform(ending, "snooze"), perform(ending, "retry")
    discarded, failed = perform(ending, "discard"), perform(ending, "broken")
    last = perform_attempt(3, ending, "broken")
    del app.tasks["ending"]

    assert (snoozed.outcome, snoozed.snooze_ms, snoozed.is_final) == ("snoozed", 5, False)
    assert (retried.outcome, retried.retry_in_ms, retried.is_final) == ("failed", 7, False)
    assert (discarded.outcome, discarded.is_final) == ("failed", True)
    assert failed.error is not None
    assert (failed.error.type, failed.error.message) == ("ValueError", "broken")
    assert (failed.is_final, last.is_final) == (False, True)


async def test_performing_works_within_a_loop() -> None:
    @app.task(name="on_loop")
    async def on_loop() -> int:
        return id(asyncio.get_running_loop())

    performed = await aperform(on_loop)
    apart = perform(on_loop)
    del app.tasks["on_loop"]

    assert performed.result == id(asyncio.get_running_loop())
    assert apart.result != performed.result
