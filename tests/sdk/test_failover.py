"""With several coordinators to speak to: one that is away costs nobody more than a moment."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from rota import Rota
from rota.core.shards.commands import BeatMember, LeaveMember
from rota.core.tasks.model import NewTask
from rota.errors import Invalid, RotaError, Unavailable
from rota.messages import RunRequest
from rota.messages.shards import AssignmentData
from rota.sdk.client import calls, run_calls
from rota.sdk.client.client import Client, open_transport
from rota.sdk.shards.zeromq import ZeroMqShardTransport
from rota.sdk.transport.http import FailoverTransport, HttpTransport
from rota.sdk.transport.transport import NotSent, Response, TransportRequest
from tests.sdk.listening import OK, free_url, listening, read_request
from tests.sdk.replicas import Replica, replicas, urls
from tests.sdk.serving import PATIENCE_S, working
from tests.sdk.sharing import Diary, keeper

Send = Callable[[FailoverTransport, TransportRequest], Response]
QUESTION = TransportRequest(method="GET", path="/api/tasks", timeout_s=PATIENCE_S)
SUBMISSION = TransportRequest(method="POST", path="/api/tasks", body=b"{}", timeout_s=PATIENCE_S)
LEASE_MS = 10_000  # a busy machine may be late by seconds
GONE = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 2\r\n\r\n{}"


@pytest.fixture(params=["blocking", "looping"])
def send(request: pytest.FixtureRequest) -> Send:
    def blocking(transport: FailoverTransport, request: TransportRequest) -> Response:
        return transport.send(request)

    def looping(transport: FailoverTransport, request: TransportRequest) -> Response:
        return asyncio.run(transport.asend(request))

    return blocking if request.param == "blocking" else looping


def answering(connection: socket.socket) -> None:
    assert read_request(connection)
    connection.sendall(OK)


def breaking(connection: socket.socket) -> None:
    assert read_request(connection)


def transport_at(*addresses: str) -> FailoverTransport:
    """One that begins with the first of them."""
    transport = FailoverTransport(addresses)
    transport._current = 0
    return transport


# --- one call -------------------------------------------------------------------------------------


def test_several_addresses_have_commas_between_them() -> None:
    several = open_transport("http://a:1, https://b:2/base")

    assert isinstance(several, FailoverTransport)
    assert {one.address for one in several._transports} == {"http://a:1", "https://b:2/base"}
    assert isinstance(open_transport("http://a:1,"), HttpTransport)


def test_an_address_that_stands_twice_is_a_mistake() -> None:
    with pytest.raises(Invalid, match="twice"):
        open_transport("http://a:1,http://a:1")


def test_programs_begin_with_different_ones() -> None:
    addresses = ("http://a:1", "http://b:1", "http://c:1")

    begun = {FailoverTransport(addresses).address for _ in range(100)}

    assert begun == set(addresses)


def test_what_one_cannot_have_seen_is_sent_to_the_next_at_once(send: Send) -> None:
    with listening(answering) as there:
        transport = transport_at(free_url(), free_url(), there)

        assert send(transport, SUBMISSION).status == 200
        assert transport.address == there
        transport.close()


def test_when_nobody_is_there_that_is_said_after_one_round(send: Send) -> None:
    transport = transport_at(free_url(), free_url())

    with pytest.raises(NotSent):
        send(transport, QUESTION)


def test_what_one_may_have_seen_is_not_sent_to_another_by_itself(send: Send) -> None:
    with listening(breaking) as first, listening() as second:
        transport = transport_at(first, second)

        with pytest.raises(Unavailable, match="unknown"):
            send(transport, SUBMISSION)

        assert transport.address == second, "but what comes next goes there"
        transport.close()


def test_one_that_says_it_cannot_serve_is_left(send: Send) -> None:
    def gone(connection: socket.socket) -> None:
        assert read_request(connection)
        connection.sendall(GONE)

    with listening(gone) as first:
        transport = transport_at(first, free_url())

        assert send(transport, QUESTION).status == 503
        assert transport.address != first
        transport.close()


def test_many_that_find_one_away_go_on_with_the_same_next_one() -> None:
    transport = transport_at("http://a:1", "http://b:1", "http://c:1")
    away = transport.endpoint

    for _ in range(5):
        transport.leave(away)

    assert transport.address == "http://b:1"


# --- a submission whose outcome is not known ------------------------------------------------------


def test_a_submission_without_a_key_gets_one_where_there_are_several_to_ask() -> None:
    keyed = calls.submit_for_receipts([NewTask(name="x"), NewTask(name="y", key="mine")])

    assert not keyed.is_repeatable
    assert keyed.made_repeatable is not None
    safe = keyed.made_repeatable()
    assert safe.is_repeatable
    assert safe.body is not None
    assert safe.body.count(b"once-") == 1
    assert b'"mine"' in safe.body


def test_one_found_by_a_key_of_ours_is_no_duplicate_to_its_submitter() -> None:
    call = calls.submit_for_receipts([NewTask(name="x"), NewTask(name="y", key="mine")])
    assert call.made_repeatable is not None
    known = b'{"id":"1","state":"queued","duplicate":true}'
    answer = b"[%b,%b]" % (known, known)

    receipts = call.made_repeatable().decoder.decode(answer)

    assert [one.duplicate for one in receipts] == [False, True]


def test_a_run_without_a_key_gets_one_too() -> None:
    call = run_calls.start_run(RunRequest(workflow="w"))

    assert call.made_repeatable is not None
    assert b"once-" in (call.made_repeatable().body or b"")


def test_with_one_address_nothing_gets_a_key_that_nobody_gave() -> None:
    seen: list[bytes] = []

    def script(connection: socket.socket) -> None:
        seen.append(read_request(connection))
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]")

    with listening(script) as there, Client.connect(there) as client:
        client.run(calls.submit([NewTask(name="x")]))

    assert b"once-" not in seen[0]


def test_a_submission_that_breaks_off_is_asked_again_elsewhere_and_happens_once() -> None:
    with replicas(1) as (server,):

        def forwarding(connection: socket.socket) -> None:
            """The request arrives and is carried out; its answer does not come back."""
            request = read_request(connection)
            host, port = server.url.removeprefix("http://").split(":")
            with socket.create_connection((host, int(port))) as there:
                there.sendall(request)
                assert there.recv(65_536)

        with listening(forwarding) as first:
            transport = transport_at(first, server.url)
            with Rota() as app:
                app.use(Client(transport))
                handle = app.enqueue("work")
                page = app.client.run(calls.list_tasks())
                assert [one.id for one in page.items] == [handle.id]
                assert not handle.is_duplicate
            transport.close()


# --- real coordinators ----------------------------------------------------------------------------


@pytest.fixture
def pair() -> Iterator[list[Replica]]:
    with replicas() as servers:
        yield servers


def at(servers: list[Replica], current: Replica) -> Rota:
    """An app that speaks to one of them first."""
    app = Rota(urls(servers))
    transport = app.client.transport
    assert isinstance(transport, FailoverTransport)
    transport._current = servers.index(current)
    return app


def test_who_waits_at_one_coordinator_is_answered_when_a_worker_of_another_is_done(
    pair: list[Replica],
) -> None:
    a, b = pair
    with Rota(a.url) as here, Rota(b.url) as there:

        @there.task
        def size(items: list[int]) -> int:
            return len(items)

        with working(there):
            assert here.enqueue("size", {"items": [1, 2, 3]}).result(timeout=PATIENCE_S) == 3


def test_a_wait_outlives_the_coordinator_it_was_with(pair: list[Replica]) -> None:
    a, b = pair
    may_go, has_begun = threading.Event(), threading.Event()
    with at(pair, a) as app, Rota(b.url) as there:

        @there.task
        def slow() -> str:
            has_begun.set()
            assert may_go.wait(PATIENCE_S)
            return "done"

        with working(there):
            handle = app.enqueue("slow")
            results: list[object] = []
            waiter = threading.Thread(
                target=lambda: results.append(handle.result(timeout=PATIENCE_S))
            )
            waiter.start()
            assert has_begun.wait(PATIENCE_S)
            a.stop()
            may_go.set()
            waiter.join(PATIENCE_S)

    assert results == ["done"]


@pytest.mark.parametrize("line", ["http", "websocket"])
def test_a_worker_goes_on_at_another_coordinator_with_what_it_holds(
    pair: list[Replica], line: str
) -> None:
    a, b = pair
    may_go, has_begun = threading.Event(), threading.Event()
    runs: list[int] = []
    with at(pair, a) as app, Rota(b.url) as client:

        @app.task
        def slow(number: int) -> int:
            runs.append(number)
            has_begun.set()
            assert may_go.wait(PATIENCE_S)
            return number

        with working(app, transport=line, heartbeat_interval_ms=1_000) as running:
            held = client.enqueue("slow", {"number": 1})
            assert has_begun.wait(PATIENCE_S)
            a.stop()
            may_go.set()
            assert held.result(timeout=PATIENCE_S) == 1
            more = client.enqueue("slow", {"number": 2})
            assert more.result(timeout=PATIENCE_S) == 2
            assert not running.registered.acquire(blocking=False), "it stayed the same incarnation"

    assert runs == [1, 2]


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("wire", ["http", "zeromq"])
def test_a_member_of_a_service_keeps_its_shards_when_its_coordinator_dies(wire: str) -> None:
    with replicas(shard_lease_ms=LEASE_MS) as pair:
        a, b = pair
        diary = Diary()
        zmq = ",".join(one.shards_url for one in pair) if wire == "zeromq" else ""
        with keeper(diary, "w1", url=urls(pair), zmq=zmq):
            diary.wait_for(*(f"w1 assigned {shard}" for shard in range(4)))
            gone_ms = b.members()["w1"].last_heartbeat_ms
            a.stop()
            _until(lambda: b.members()["w1"].last_heartbeat_ms > gone_ms + LEASE_MS)

            assert b.members()["w1"].shards == (0, 1, 2, 3)
            assert sorted(diary.lines) == [f"w1 assigned {shard}" for shard in range(4)]


def _until(is_so: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + 4 * PATIENCE_S
    while not is_so():
        assert time.monotonic() < ends_at
        threading.Event().wait(0.05)


async def test_a_line_that_left_one_that_is_away_with_words_unsent_can_still_be_closed() -> None:
    nobody = [free_url().replace("http", "tcp") for _ in range(2)]
    line = ZeroMqShardTransport(",".join(nobody), None, _Deaf())
    for _ in range(3):  # each goes to the next, and the one before never gets it
        line.send(LeaveMember(service="feed", worker_id="w1", incarnation="1"))

    await asyncio.wait_for(line.close(), PATIENCE_S)


class _Deaf:
    """Nobody at the worker's end."""

    def receive(self, data: AssignmentData) -> None:
        del data

    def note_error(self, error: RotaError) -> None:
        del error

    def repeated_beat(self) -> BeatMember | None:
        return None
