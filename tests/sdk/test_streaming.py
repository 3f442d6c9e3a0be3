"""A worker gets its work over a stream, changes streams, and does without one."""

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from rota import Rota, StopReason, Worker, current
from rota.core.tasks.model import NewTask, TaskState
from rota.errors import Invalid, Unavailable
from rota.messages import HeartbeatRequest, LeaseView, ResultItem, WorkerRegistration
from rota.node import Node
from rota.sdk.client import calls
from rota.sdk.transport.http import endpoint_of
from rota.sdk.worker.session import WorkerSession
from rota.sdk.worker.streaming import manager, stream
from rota.sdk.worker.streaming.socket import open_socket
from tests.sdk.relaying import Relay, relayed
from tests.sdk.serving import PATIENCE_S, Server, working
from tests.sdk.test_runtime import Gate

SELDOM_MS = 60_000  # between beats: what is told sooner was told by something else
STREAMING = {"transport": "websocket", "heartbeat_interval_ms": SELDOM_MS}


@pytest.fixture(autouse=True)
def streaming_where_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_TRANSPORT", "auto")


@pytest.fixture
def relay(server: Server) -> Iterator[Relay]:
    with relayed(server.url) as one:
        yield one


@pytest.fixture
def far(relay: Relay) -> Iterator[Rota]:
    """An app that speaks to the server through the relay."""
    with Rota(relay.url) as one:
        yield one


def streams(server: Server) -> int:
    async def count(node: Node) -> int:
        return len(node.sockets.services.streams)

    return server.ask(count)


def wait_streaming(server: Server, number: int = 1) -> None:
    async def streamed(node: Node) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while len(node.sockets.services.streams) != number:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0)

    server.ask(streamed)


class NoLeases:
    """Takes no lease."""

    free_slots = 0

    def begin(self, leases: list[LeaseView]) -> None:
        raise AssertionError(leases)


class OneLease:
    """Takes one lease."""

    def __init__(self) -> None:
        self.leases: list[LeaseView] = []

    @property
    def free_slots(self) -> int:
        return 1 - len(self.leases)

    def begin(self, leases: list[LeaseView]) -> None:
        self.leases += leases


def duplicates(server: Server) -> int:
    async def count(node: Node) -> int:
        return node.coordinator.metrics().refused_results["duplicate"]

    return server.ask(count)


# --- over a stream ------------------------------------------------------------------------------


def test_a_worker_streams_if_it_can(server: Server, app: Rota) -> None:
    @app.task
    async def work() -> None: ...

    with working(app):
        wait_streaming(server)
    wait_streaming(server, 0)  # the server hears of a closed socket a moment after its worker


def test_many_tasks_are_worked_off_each_with_its_own_result(server: Server, app: Rota) -> None:
    @app.task
    async def double(number: int) -> int:
        return number * 2

    with working(app, concurrency=100, **STREAMING):
        handles = app.enqueue_many([double.bind(number) for number in range(2_000)])
        results = [handle.result(PATIENCE_S) for handle in handles]

    assert results == [2 * number for number in range(2_000)]
    assert duplicates(server) == 0


def test_no_more_run_than_there_is_room_for_however_slow_they_are(app: Rota) -> None:
    gate = Gate()
    most, running, lock = 0, 0, threading.Lock()

    @app.task
    def slow() -> None:
        nonlocal most, running
        with lock:
            running += 1
            most = max(most, running)
        gate.pass_through()
        with lock:
            running -= 1

    with working(app, concurrency=3, **STREAMING):
        handles = [slow.enqueue() for _ in range(9)]
        for _ in range(3):
            gate.wait_reached()
        waiting = [handle.status() for handle in handles].count(TaskState.QUEUED)
        gate.open()
        for handle in handles:
            handle.result(PATIENCE_S)

    assert waiting == 6
    assert most == 3


def test_a_cancelled_task_is_stopped_at_once(app: Rota) -> None:
    started, stopped = threading.Event(), threading.Event()

    @app.task
    async def endless() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    with working(app, **STREAMING):
        handle = endless.enqueue()
        assert started.wait(PATIENCE_S)
        handle.cancel()

        assert stopped.wait(PATIENCE_S)


def test_progress_is_told_over_the_stream(app: Rota) -> None:
    gate = Gate()

    @app.task
    def work() -> None:
        current().progress(0.5, partial={"so": "far"})
        gate.pass_through()

    with working(app, **STREAMING):
        handle = work.enqueue()
        gate.wait_reached()
        while handle.view().progress is None:
            pass
        gate.open()
        handle.result(PATIENCE_S)


def test_a_stopping_worker_hands_back_what_is_still_on_its_way(server: Server, app: Rota) -> None:
    gate = Gate()

    @app.task
    def work() -> None:
        gate.pass_through()

    with working(app, concurrency=2, **STREAMING) as running:
        handles = [work.enqueue() for _ in range(4)]
        for _ in range(2):
            gate.wait_reached()
        running.worker.stop()
        gate.open()

        assert running.ended() is StopReason.STOPPED
    assert sorted(handle.status() for handle in handles) == ["queued"] * 2 + ["succeeded"] * 2
    assert {handle.view().attempt for handle in handles} == {0, 1}
    assert streams(server) == 0


async def test_a_socket_that_is_given_up_while_it_says_goodbye_is_closed_all_the_same(
    server: Server,
) -> None:
    socket = await open_socket(endpoint_of(server.url, None), timeout_s=PATIENCE_S)
    transport = socket._transport
    assert transport is not None
    ending = asyncio.ensure_future(socket.end())
    await asyncio.sleep(0)

    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending

    assert transport.is_closing()


# --- from one stream to another -----------------------------------------------------------------


def test_what_runs_goes_on_when_the_stream_breaks(server: Server, relay: Relay, far: Rota) -> None:
    gate = Gate()

    @far.task
    def work() -> int:
        gate.pass_through()
        return current().attempt

    with working(far, **STREAMING) as running:
        handle = work.enqueue()
        gate.wait_reached()
        relay.cut()
        wait_streaming(server, 1)
        gate.open()

        assert handle.result(PATIENCE_S) == 1
        assert running.registered.acquire(blocking=False) is False  # not a second time
    assert relay.sockets > 1


def test_a_coordinator_that_comes_back_finds_its_worker_at_work(tmp_path: Path) -> None:
    gate = Gate()
    with Server(tmp_path) as server, Rota(server.url) as app:

        @app.task
        def work() -> int:
            gate.pass_through()
            return current().attempt

        with working(app, **STREAMING):
            handle = work.enqueue()
            gate.wait_reached()
            server.stop()
            server.start()
            gate.open()

            assert handle.result(PATIENCE_S) == 1
            wait_streaming(server)
            assert work.enqueue().result(PATIENCE_S) == 1


def test_results_whose_answer_was_lost_are_sent_again_and_count_once(
    server: Server, relay: Relay, far: Rota
) -> None:
    gate = Gate()

    @far.task
    def work() -> int:
        gate.pass_through()
        return current().attempt

    with working(far, **STREAMING) as running:
        handle = work.enqueue()
        gate.wait_reached()
        relay.lose_next_answer()
        gate.open()

        assert relay.lost_answer.wait(PATIENCE_S)
        assert handle.result(PATIENCE_S) == 1
        assert running.stop() is StopReason.STOPPED
    assert duplicates(server) == 1


@pytest.mark.parametrize("swallows_requests", [False, True])
def test_a_stream_that_is_not_answered_any_more_is_replaced(
    server: Server,
    relay: Relay,
    far: Rota,
    monkeypatch: pytest.MonkeyPatch,
    *,
    swallows_requests: bool,
) -> None:
    monkeypatch.setattr(stream, "CALL_TIMEOUT_S", 1.0)
    gate = Gate()

    @far.task
    def work() -> int:
        gate.pass_through()
        return current().attempt

    with working(far, concurrency=1, **STREAMING) as running:
        wait_streaming(server)
        first, second = work.enqueue(), work.enqueue()
        gate.wait_reached()
        relay.swallow(requests=swallows_requests)
        gate.open()

        assert relay.swallowed.wait(PATIENCE_S)
        assert first.result(PATIENCE_S) == 1
        # The coordinator may have sent it into the connection that swallows: its lease is handed
        # out again over the next stream, and no attempt is used up.
        assert second.result(PATIENCE_S) == 1
        assert running.stop() is StopReason.STOPPED
    assert relay.sockets >= 2


async def test_calls_on_a_stream_fail_when_the_oldest_is_overdue_and_at_once_after_that(
    monkeypatch: pytest.MonkeyPatch, relay: Relay, far: Rota
) -> None:
    monkeypatch.setattr(stream, "CALL_TIMEOUT_S", 0.2)
    view = await far.client.arun(calls.register_worker(WorkerRegistration()))
    socket = await open_socket(endpoint_of(relay.url, None), timeout_s=PATIENCE_S)
    relay.swallow(requests=True)
    session = WorkerSession(view, sent_at=0.0)
    opened = stream.CoordinatorStream(
        socket, session, NoLeases(), on_refused=lambda *_: None, on_cancelled=lambda _: None
    )

    answers = [opened.beat(HeartbeatRequest(incarnation=1)) for _ in range(3)]
    await asyncio.wait(answers, timeout=PATIENCE_S)
    late = opened.beat(HeartbeatRequest(incarnation=1))

    for one in (*answers, late):
        with pytest.raises(Unavailable, match=r"did not answer stream_beat within 0\.2 s"):
            await one
    async with asyncio.timeout(PATIENCE_S):
        await socket.lost


@pytest.mark.slow
async def test_a_large_report_may_take_longer_than_its_answer_on_a_slow_connection(
    monkeypatch: pytest.MonkeyPatch, relay: Relay, far: Rota
) -> None:
    timeout_s = 1.5
    monkeypatch.setattr(stream, "CALL_TIMEOUT_S", timeout_s)
    view = await far.client.arun(calls.register_worker(WorkerRegistration()))
    socket = await open_socket(endpoint_of(relay.url, None), timeout_s=PATIENCE_S)
    session = WorkerSession(view, sent_at=0.0)
    opened = stream.CoordinatorStream(
        socket, session, NoLeases(), on_refused=lambda *_: None, on_cancelled=lambda _: None
    )
    opened.max_frame_bytes = (await opened.resume([])).max_frame_bytes
    relay.slow_down(0.01)
    large = Raw(b'"%b"' % (b"x" * 4_000_000))
    items = [ResultItem(task_id=f"{one}", fence=1, ok=True, result=large) for one in range(3)]
    began_s = time.monotonic()

    async with asyncio.timeout(PATIENCE_S):
        noted = await opened.report(items)
        took_s = time.monotonic() - began_s
        await socket.end()

    assert noted.count == 3
    assert took_s > timeout_s


@pytest.mark.slow
async def test_a_call_waits_while_a_large_lease_arrives_before_its_answer(
    monkeypatch: pytest.MonkeyPatch, relay: Relay, far: Rota
) -> None:
    timeout_s = 1.0
    monkeypatch.setattr(stream, "CALL_TIMEOUT_S", timeout_s)
    await far.client.arun(
        calls.submit([NewTask(name="work", payload=Raw(b'["%b"]' % (b"x" * 4_000_000)))])
    )
    view = await far.client.arun(calls.register_worker(WorkerRegistration()))
    socket = await open_socket(endpoint_of(relay.url, None), timeout_s=PATIENCE_S)
    session, sink = WorkerSession(view, sent_at=0.0), OneLease()
    opened = stream.CoordinatorStream(
        socket, session, sink, on_refused=lambda *_: None, on_cancelled=lambda _: None
    )
    await opened.resume([])
    relay.slow_answers_down(0.04)
    opened.credit()
    async with asyncio.timeout(PATIENCE_S):
        while socket.received_bytes < 100_000:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0)
        began_s = time.monotonic()

        await opened.beat(HeartbeatRequest(incarnation=view.incarnation))
        took_s = time.monotonic() - began_s
        await socket.end()

    assert len(sink.leases) == 1
    assert took_s > timeout_s


async def test_a_call_fails_whose_answer_cannot_be_read(relay: Relay, far: Rota) -> None:
    """A report that waited for ever would keep its worker from sending any result after it."""
    view = await far.client.arun(calls.register_worker(WorkerRegistration()))
    socket = await open_socket(endpoint_of(relay.url, None), timeout_s=PATIENCE_S)
    relay.swallow(requests=True)
    session = WorkerSession(view, sent_at=0.0)
    opened = stream.CoordinatorStream(
        socket, session, NoLeases(), on_refused=lambda *_: None, on_cancelled=lambda _: None
    )
    socket.lost.add_done_callback(lambda lost: opened.close(Unavailable(lost.result())))
    unknown = {"count": 1, "refused": [(1, "an outcome of a later version")]}

    answer = opened.report([])
    socket.on_message(msgspec.msgpack.encode({"type": "", "replyTo": 1, "payload": unknown}))

    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(Unavailable):
            await answer


# --- without one --------------------------------------------------------------------------------


def test_a_worker_polls_where_no_socket_is_let_through_and_tries_again(
    server: Server, relay: Relay, far: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager, "TRY_AGAIN_S", 0.05)
    relay.refuses_sockets = True

    @far.task
    async def work() -> str:
        return "done"

    with working(far):
        polled = work.enqueue().result(PATIENCE_S)
        without = streams(server)
        relay.refuses_sockets = False
        wait_streaming(server)
        streamed = work.enqueue().result(PATIENCE_S)

    assert (polled, without, streamed) == ("done", 0, "done")


def test_a_worker_polls_when_streams_break_again_and_again(
    server: Server, relay: Relay, far: Rota
) -> None:
    @far.task
    async def work() -> str:
        return "done"

    with working(far, heartbeat_interval_ms=SELDOM_MS):
        for _ in range(manager.MOST_SHORT_LIVED):
            relay.wait_opened()
            relay.cut()

        assert work.enqueue().result(PATIENCE_S) == "done"
        assert streams(server) == 0


def test_a_worker_that_is_to_poll_opens_no_socket(relay: Relay, far: Rota) -> None:
    @far.task
    async def work() -> str:
        return "done"

    with working(far, transport="http"):
        assert work.enqueue().result(PATIENCE_S) == "done"
    assert relay.sockets == 0


def test_a_worker_that_is_to_stream_waits_for_a_stream(
    server: Server, relay: Relay, far: Rota
) -> None:
    relay.refuses_sockets = True

    @far.task
    async def work() -> str:
        return "done"

    with working(far, transport="websocket"):
        handle = work.enqueue()
        while relay.sockets < 2:
            assert handle.status() == "queued"
        relay.refuses_sockets = False

        assert handle.result(PATIENCE_S) == "done"


def test_the_environment_chooses_where_the_program_does_not(
    relay: Relay, far: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_TRANSPORT", "http")

    @far.task
    async def work() -> str:
        return "done"

    with working(far):
        assert work.enqueue().result(PATIENCE_S) == "done"
    assert relay.sockets == 0


def test_a_transport_that_is_none_is_refused(app: Rota) -> None:
    @app.task
    async def work() -> None: ...

    with pytest.raises(Invalid, match="pigeon"):
        Worker(app, transport="pigeon")
