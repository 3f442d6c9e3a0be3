"""What a client may send before it is known who it is, and how long it may take, over sockets."""

import asyncio
import json
import secrets
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from rota.core import limits
from rota.gateways.auth import authenticator
from rota.gateways.http.routing import bodies
from rota.gateways.http.server import connection
from rota.gateways.http.server.connection import HttpConnection
from rota.gateways.http.server.connection_limits import ConnectionLimits
from rota.gateways.websocket.protocol import SocketProtocol
from rota.tls import client_context
from tests.certificates import Authority, Certificate
from tests.gateways.raw_http import LIVE, answer, fields_of, socket_to, status_of
from tests.gateways.serving import Api, served, until
from tests.gateways.test_access import token
from tests.gateways.working import Bench

MIB = 1024 * 1024
SUBMIT = b"POST /api/tasks HTTP/1.1\r\nhost: localhost\r\n"
CHUNKED = SUBMIT + b"transfer-encoding: chunked\r\n\r\n"
SOON_S = 0.5
SHORT = ConnectionLimits(head_s=SOON_S, body_s=SOON_S, idle_s=SOON_S, unread_s=SOON_S)


@pytest.fixture(params=["plain", "tls"])
async def api(
    request: pytest.FixtureRequest, tmp_path: Path, authority: Authority, certificate: Certificate
) -> AsyncIterator[Api]:
    """Every limit holds with TLS and without."""
    tls = {} if request.param == "plain" else certificate.settings()
    async with served(tmp_path, client_context(authority.ca), **tls) as running:
        yield running


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """All times of a connection are short."""
    monkeypatch.setattr(HttpConnection, "limits", SHORT)
    monkeypatch.setattr(bodies, "BODY_TIMEOUT_S", SOON_S)


def connections(api: Api) -> list[Any]:
    """The open connections, as the server sees them."""
    server = api.node._server
    assert server is not None
    return list(server.open.connections)


async def flood(writer: asyncio.StreamWriter, piece: bytes, most_bytes: int) -> None:
    """Send the same again and again, until the other end has had enough."""
    with suppress(ConnectionError):
        for _ in range(most_bytes // len(piece)):
            writer.write(piece)
            await writer.drain()


async def trickle(writer: asyncio.StreamWriter, piece: bytes, done: "asyncio.Task[Any]") -> None:
    """Send a piece now and then, until `done`."""
    while not done.done():
        with suppress(ConnectionError):
            writer.write(piece)
        await asyncio.wait((done,), timeout=SOON_S / 10)


def problem_of(body: bytes) -> tuple[int, str]:
    problem = json.loads(body)
    return problem["status"], problem["code"]


# --- how much -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "piece", "expected"),
    [
        (b"GET /health/live HTTP/1.1\r\n", b"x-a: %b\r\n" % (b"b" * 90), (431, "head_too_large")),
        (b"GET /health/live HTTP/1.1\r\nx-a: ", b"b" * 1_000, (431, "head_too_large")),
        (b"GET /health/live HTTP/1.1\r\nx-a:", b" " * 1_000, (431, "head_too_large")),
        (b"GET /health/live HTTP/1.1\r\n", b"b" * 1_000, (431, "head_too_large")),
        (b"GET /", b"b" * 1_000, (414, "target_too_long")),
        (b"GET /?", b"b=c&" * 250, (414, "target_too_long")),
        (CHUNKED + b"1;a=", b"b" * 1_000, (431, "head_too_large")),
        (CHUNKED + b"2\r\n{}\r\n0\r\n", b"x-a: %b\r\n" % (b"b" * 90), (431, "head_too_large")),
        (CHUNKED + b"2\r\n{}\r\n0\r\nx-a: ", b"b" * 1_000, (431, "head_too_large")),
    ],
    ids=[
        "fields",
        "value",
        "space",
        "name",
        "path",
        "query",
        "chunk extension",
        "trailer fields",
        "trailer value",
    ],
)
async def test_what_never_ends_is_refused_and_takes_no_memory(
    api: Api, start: bytes, piece: bytes, expected: tuple[int, str]
) -> None:
    await api.get("/health/live")
    tracemalloc.start()
    try:
        async with socket_to(api) as (reader, writer):
            before, _ = tracemalloc.get_traced_memory()
            writer.write(start)
            flooding = asyncio.create_task(flood(writer, piece * 64, 20 * MIB))
            head, body = await answer(reader)
            assert await reader.read() == b""
            await flooding
            _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert problem_of(body) == expected
    assert fields_of(head)[b"connection"] == b"close"
    assert most - before < 4 * MIB


@pytest.mark.parametrize(("count", "status"), [(99, 200), (100, 431)])
async def test_a_head_has_at_most_a_hundred_fields(api: Api, count: int, status: int) -> None:
    fields = b"".join(b"x-%d: a\r\n" % number for number in range(count))
    async with socket_to(api) as (reader, writer):
        writer.write(LIVE[:-2] + fields + b"\r\n")
        head, _ = await answer(reader)

    assert status_of(head) == status


@pytest.mark.parametrize("size", [1_000_000, 10_000])
@pytest.mark.parametrize(("spare", "status"), [(200, 200), (-200, 431)])
async def test_a_head_has_at_most_64_kib_however_it_is_cut(
    api: Api, spare: int, status: int, size: int
) -> None:
    start = LIVE[:-2] + b"x-long: "
    request = start + b"a" * (limits.MAX_HEAD_BYTES - len(start) - spare) + b"\r\n\r\n"
    async with socket_to(api) as (reader, writer):
        for begin in range(0, len(request), size):
            writer.write(request[begin : begin + size])
            await writer.drain()
        head, _ = await answer(reader)

    assert status_of(head) == status


async def test_a_long_target_within_the_limit_is_answered(api: Api) -> None:
    async with socket_to(api) as (reader, writer):
        path = b"/api/tasks/" + b"a" * (limits.MAX_TARGET_BYTES - 20)
        writer.write(b"GET %b HTTP/1.1\r\nhost: localhost\r\n\r\n" % path)
        head, _ = await answer(reader)

    assert status_of(head) == 404


async def test_long_targets_and_hosts_are_not_remembered(api: Api) -> None:
    await api.get("/api/tasks")
    paths = connection._split_short_target.cache_info().misses
    hosts = authenticator._host_name.cache_info().misses

    for _ in range(3):
        long = secrets.token_hex(5_000)
        missing = await api.get(f"/api/tasks/{long}")
        refused = await api.get("/api/tasks", headers={"host": long})
        assert (missing.status_code, refused.status_code) == (404, 403)

    assert connection._split_short_target.cache_info().misses == paths
    assert authenticator._host_name.cache_info().misses == hosts


async def test_a_body_in_tiny_chunks_is_taken(api: Api) -> None:
    body = b'{"name": "work", "payload": "%b"}' % (b"a" * 20_000)
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    async with socket_to(api) as (reader, writer):
        writer.write(CHUNKED + chunks + b"0\r\n\r\n")
        head, _ = await answer(reader)

    assert status_of(head) == 201


# --- requests that come together ----------------------------------------------------------------


async def test_requests_that_come_without_end_take_no_memory(api: Api) -> None:
    """The client reads no answer, and requests are far shorter than what is kept of them."""
    await api.get("/health/live")
    tracemalloc.start()
    try:
        async with socket_to(api) as (_, writer):
            before, _ = tracemalloc.get_traced_memory()
            flooding = asyncio.create_task(flood(writer, LIVE * 1_000, 40 * MIB))
            longest = 0
            for _ in range(100):
                await api.get("/health/live")
                longest = max(longest, *(len(one.pipeline) for one in connections(api)))
            _, most = tracemalloc.get_traced_memory()
            flooding.cancel()
    finally:
        tracemalloc.stop()

    assert 0 < longest < 1_000
    assert most - before < 20 * MIB


async def test_very_many_requests_that_come_together_are_all_answered(api: Api) -> None:
    async with socket_to(api) as (reader, writer):
        sending = asyncio.create_task(flood(writer, LIVE * 1_000, 4_000 * len(LIVE)))
        statuses = [status_of((await answer(reader))[0]) for _ in range(4_000)]
        await sending

    assert set(statuses) == {200}


async def test_a_request_before_a_broken_one_is_answered_first(api: Api) -> None:
    body = b'{"name":"work"}'
    async with socket_to(api) as (reader, writer):
        submit = SUBMIT + b"content-length: %d\r\n\r\n%b" % (len(body), body)
        writer.write(LIVE + submit + b"no request at all\r\n\r\n")
        statuses = [status_of((await answer(reader))[0]) for _ in range(3)]
        assert await reader.read() == b""

    assert statuses == [200, 201, 400]
    assert len((await api.get("/api/tasks")).json()["items"]) == 1


async def test_a_request_that_breaks_off_behind_another_is_not_carried_out(api: Api) -> None:
    async with socket_to(api) as (reader, writer):
        writer.write(LIVE + CHUNKED + b'f\r\n{"name":"work"}\r\nno size\r\n')
        statuses = [status_of((await answer(reader))[0]) for _ in range(2)]
        assert await reader.read() == b""

    assert statuses == [200, 400]
    assert (await api.get("/api/tasks")).json()["items"] == []


async def test_a_stream_ends_when_a_caller_leaves_with_a_request_behind_it(api: Api) -> None:
    stream = LIVE.replace(b"/health/live", b"/api/events") + LIVE
    async with socket_to(api) as (reader, writer):
        writer.write(stream.replace(b"\r\n\r\n", b"\r\naccept: text/event-stream\r\n\r\n", 1))
        await reader.readuntil(b"retry:")
        await until(api, "rota_event_watchers", 1.0)

    await until(api, "rota_event_watchers", 0.0)


# --- how long -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("start", [b"G", LIVE[:-2], b"\r\n" + LIVE[:30], LIVE + LIVE[:-1]])
async def test_half_a_head_is_refused_in_time(api: Api, start: bytes) -> None:
    async with socket_to(api) as (reader, writer):
        writer.write(start)
        if start.startswith(LIVE):
            await answer(reader)
        head, body = await answer(reader)

        assert problem_of(body) == (408, "request_timeout")
        assert fields_of(head)[b"connection"] == b"close"
        assert await reader.read() == b""


async def test_half_a_head_is_not_kept_as_long_as_an_idle_connection(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HttpConnection, "limits", ConnectionLimits(head_s=SOON_S))
    async with socket_to(api) as (reader, writer):
        writer.write(LIVE)
        await answer(reader)
        worker = await api.register()
        await worker.lease(wait_ms=600)  # meanwhile the idle time is what is waited for
        writer.write(LIVE[:-1])
        _, body = await answer(reader)

    assert problem_of(body) == (408, "request_timeout")


@pytest.mark.usefixtures("impatient")
async def test_a_head_that_trickles_in_is_refused_in_time(api: Api) -> None:
    async with socket_to(api) as (reader, writer):
        writer.write(LIVE[:-2] + b"x-slow: ")
        answering = asyncio.create_task(answer(reader))
        await trickle(writer, b"a", answering)
        _, body = await answering

    assert problem_of(body) == (408, "request_timeout")


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("piece", [b"", b"\r\n"], ids=["nothing", "empty lines"])
async def test_a_connection_that_asks_for_nothing_is_closed(api: Api, piece: bytes) -> None:
    async with socket_to(api) as (reader, writer):
        reading = asyncio.create_task(reader.read())
        await trickle(writer, piece, reading)

        with suppress(ConnectionError):
            assert await reading == b""


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("piece", [b"", b"\r\n"], ids=["nothing", "empty lines"])
async def test_a_connection_that_asks_for_nothing_more_is_closed(api: Api, piece: bytes) -> None:
    async with socket_to(api) as (reader, writer):
        writer.write(LIVE)
        await answer(reader)
        reading = asyncio.create_task(reader.read())
        await trickle(writer, piece, reading)

        with suppress(ConnectionError):
            assert await reading == b""


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (SUBMIT + b"content-length: 100\r\n\r\n", b""),
        (SUBMIT + b"content-length: 100\r\n\r\n{", b""),
        (SUBMIT + b"content-length: 1000000\r\n\r\n{", b" "),
        (CHUNKED, b""),
        (CHUNKED + b"2\r\n{", b""),
        (CHUNKED, b"1\r\n \r\n"),
        (CHUNKED + b"2\r\n{}\r\n0\r\nx-a: ", b"a"),
    ],
)
async def test_a_body_that_stalls_is_refused_in_time(api: Api, start: bytes, piece: bytes) -> None:
    async with socket_to(api) as (reader, writer):
        writer.write(start)
        answering = asyncio.create_task(answer(reader))
        await trickle(writer, piece, answering)
        head, body = await answering

        assert problem_of(body) == (408, "request_timeout")
        assert fields_of(head)[b"connection"] == b"close"
        assert await reader.read() == b""
    assert (await api.get("/api/tasks")).json()["items"] == []


@pytest.mark.parametrize("piece", [b"", b"a"], ids=["stalls", "trickles"])
async def test_a_body_that_nobody_waits_for_is_not_read_for_ever(
    api: Api, piece: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HttpConnection, "limits", ConnectionLimits(head_s=60, body_s=SOON_S))
    async with socket_to(api) as (reader, writer):
        writer.write(LIVE[:-2] + b"content-length: 1000000\r\n\r\n")
        head, _ = await answer(reader)
        reading = asyncio.create_task(reader.read())
        await trickle(writer, piece, reading)

        assert status_of(head) == 200
        with suppress(ConnectionError):
            assert await reading == b""


@pytest.mark.usefixtures("impatient")
async def test_a_client_that_reads_no_answer_is_cut_off(api: Api) -> None:
    pages = LIVE.replace(b"/health/live", b"/openapi.json") * 200
    async with socket_to(api) as (_, writer):
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # a transport that reads
        writer.write(pages)
        address = writer.get_extra_info("sockname")
        await until_gone(api, lambda one: client_of(one) == address)


def client_of(connection: Any) -> Any:
    """The other end of a connection; None: its handshake is not complete."""
    endpoints = getattr(connection, "endpoints", None)
    return None if endpoints is None else endpoints.client


async def until_gone(api: Api, is_meant: Callable[[Any], bool]) -> None:
    for _ in range(5_000):
        if not any(map(is_meant, connections(api))):
            return
        # The client's own connection may be closed as idle, just when it sends the next request.
        with suppress(httpx.RemoteProtocolError):
            await api.get("/health/live")
    raise AssertionError("the connection is still open")


# --- what is slow, and lawful -------------------------------------------------------------------


@pytest.mark.usefixtures("impatient")
async def test_a_slow_upload_is_taken_as_long_as_it_goes_on(api: Api) -> None:
    bench = await Bench.at(api)
    await bench.put("name: one\ninitial_node: a\nnodes: {a: {task: work}}\n")
    run_id = await bench.start("one")
    (lease,) = await bench.worker.lease()
    query = f"task_id={lease['task_id']}&fence={lease['fence']}"
    head = f"PUT /api/runs/{run_id}/artifacts/slow?{query} HTTP/1.1\r\nhost: localhost\r\n"
    async with socket_to(api) as (reader, writer):
        writer.write(head.encode() + b"content-length: 40\r\n\r\n")
        for _ in range(40):  # twice as long as one piece may take
            writer.write(b"a")
            await asyncio.wait((asyncio.create_task(writer.drain()),))
            await asyncio.wait((asyncio.get_running_loop().create_future(),), timeout=SOON_S / 20)
        answered, body = await answer(reader)

    assert status_of(answered) == 201
    assert json.loads(body)["size"] == 40


@pytest.mark.usefixtures("impatient")
async def test_long_polls_and_streams_are_not_cut(api: Api) -> None:
    worker = await api.register()
    ask = json.dumps({"incarnation": worker.incarnation, "max": 1, "wait_ms": 600}).encode()
    lease = b"POST /api/workers/%b/lease HTTP/1.1\r\nhost: localhost\r\n" % worker.id.encode()
    stream = LIVE.replace(b"/health/live", b"/api/events")
    async with socket_to(api) as (events, listener), socket_to(api) as (reader, writer):
        listener.write(stream[:-2] + b"accept: text/event-stream\r\n\r\n")
        await events.readuntil(b"\n\n")
        writer.write(lease + b"content-length: %d\r\n\r\n%b" % (len(ask), ask))
        head, body = await answer(reader)
        await api.submit()
        await events.readuntil(b"event: task-submitted")

    assert status_of(head) == 200
    assert json.loads(body)["leases"] == []


# --- trailers -----------------------------------------------------------------------------------


async def test_a_trailer_is_no_header(tmp_path: Path) -> None:
    async with served(tmp_path, require_token=True, zmq_port=None) as api:
        who = (await token(api, "admin"))["authorization"].encode()
        trailer = b'f\r\n{"name":"work"}\r\n0\r\nauthorization: %b\r\n' % who
        more = b"host: elsewhere\r\norigin: http://elsewhere\r\nexpect: 100-continue\r\n\r\n"
        async with socket_to(api) as (reader, writer):
            writer.write(CHUNKED + trailer + more)
            refused, _ = await answer(reader)
            writer.write(LIVE.replace(b"/health/live", b"/api/tasks"))
            still_refused, _ = await answer(reader)
            writer.write(CHUNKED[:-2] + b"authorization: %b\r\n\r\n" % who + trailer + more)
            taken, _ = await answer(reader)

    assert (status_of(refused), status_of(still_refused), status_of(taken)) == (401, 401, 201)


@pytest.mark.parametrize("trailer", [b"content-length: 3", b"transfer-encoding: identity"])
async def test_a_trailer_that_speaks_of_the_length_is_refused(api: Api, trailer: bytes) -> None:
    async with socket_to(api) as (reader, writer):
        writer.write(CHUNKED + b'f\r\n{"name":"work"}\r\n0\r\n%b\r\n\r\n' % trailer + LIVE)
        head, _ = await answer(reader)
        assert await reader.read() == b""

    assert status_of(head) == 400
    assert (await api.get("/api/tasks")).json()["items"] == []


@pytest.mark.parametrize("split", [1, 5, 1_000])
async def test_a_trailer_does_not_open_what_was_shut_however_it_is_cut(
    tmp_path: Path, split: int
) -> None:
    async with served(tmp_path, require_token=True, zmq_port=None) as api:
        who = (await token(api, "admin"))["authorization"].encode()
        request = CHUNKED + b'f\r\n{"name":"work"}\r\n0\r\nauthorization: %b\r\n\r\n' % who
        async with socket_to(api) as (reader, writer):
            for start in range(0, len(request), split):
                writer.write(request[start : start + split])
                await writer.drain()
            head, _ = await answer(reader)

    assert status_of(head) == 401


# --- upgrades -----------------------------------------------------------------------------------

UPGRADE = (
    b"GET /ws HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)


@pytest.mark.parametrize(
    ("more", "status"),
    [
        (b"", 101),
        (b"x-a: %b\r\n" % (b"a" * 9_000), 431),
        (b"x-a: %b\r\n" % (b"a" * 70_000), 431),
        (b"".join(b"x-%d: a\r\n" % number for number in range(100)), 431),
        (b"content-length: 5\r\n", 400),
        (b"transfer-encoding: chunked\r\n", 400),
    ],
)
async def test_the_head_of_a_handshake_has_limits_too(api: Api, more: bytes, status: int) -> None:
    async with socket_to(api) as (reader, writer):
        writer.write(UPGRADE + more + b"\r\n")
        head = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        if status != 101:
            await reader.read()

    assert status_of(head) == status


async def test_a_handshake_behind_an_unanswered_request_is_refused(api: Api) -> None:
    async with socket_to(api) as (reader, writer):
        writer.write(LIVE + UPGRADE + b"\r\n")
        statuses = [status_of((await answer(reader))[0]) for _ in range(2)]
        assert await reader.read() == b""

    assert statuses == [200, 400]


@pytest.mark.usefixtures("impatient")
async def test_an_open_socket_is_not_cut_by_the_times_of_http(api: Api) -> None:
    worker = await api.register()
    async with socket_to(api) as (reader, writer):
        writer.write(UPGRADE + b"\r\n")
        await reader.readuntil(b"\r\n\r\n")
        await reader.readuntil(b"SessionEstablished")
        await worker.lease(wait_ms=600)
        ping = b'{"type":"ping"}'
        writer.write(bytes((0x81, 0x80 | len(ping), 0, 0, 0, 0)) + ping)
        await reader.readuntil(b"pong")


async def test_a_handshake_that_is_not_completed_ends_in_time(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SocketProtocol, "handshake_s", SOON_S)
    who = (await token(api, "admin"))["authorization"].encode()
    async with api.node.authenticator._reloading, socket_to(api) as (reader, writer):
        writer.write(UPGRADE + b"authorization: %b\r\n\r\n" % who)

        with suppress(ConnectionError):
            assert await reader.read() == b""


async def test_a_wish_for_another_protocol_is_passed_over(api: Api) -> None:
    wish = LIVE[:-2] + b"connection: upgrade\r\nupgrade: h2c\r\n"
    async with socket_to(api) as (reader, writer):
        writer.write((wish + b"\r\n") * 3 + LIVE)
        statuses = [status_of((await answer(reader))[0]) for _ in range(4)]
        writer.write(wish + b"content-length: 47\r\n\r\n" + LIVE)
        refused, _ = await answer(reader)
        assert await reader.read() == b""

    assert statuses == [200, 200, 200, 200]
    assert status_of(refused) == 400
