"""HTTP and WebSocket over TLS, over sockets: what is served, and what ends before it begins."""

import asyncio
import random
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs
from websockets.asyncio.client import connect

from rota.cli import process
from rota.errors import Invalid
from rota.gateways.http.server.tls import ServerTls, TlsConnection
from rota.gateways.quotas import Quota
from rota.tls import client_context
from tests.certificates import Authority, Certificate
from tests.gateways.raw_http import LIVE, PATIENCE_S, answer, socket_to, status_of
from tests.gateways.serving import Api, served
from tests.gateways.test_events import streamed
from tests.gateways.test_login import token_in
from tests.gateways.websocket.talking import address_of

SOON_S = 0.5
MIB = 1024 * 1024

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture
def trust(authority: Authority) -> ssl.SSLContext:
    return client_context(authority.ca)


@pytest.fixture
async def api(
    tmp_path: Path, certificate: Certificate, trust: ssl.SSLContext
) -> AsyncIterator[Api]:
    async with served(tmp_path, trust, **certificate.settings()) as running:
        yield running


@asynccontextmanager
async def plain_socket(
    api: Api,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection on which no TLS is spoken."""
    reader, writer = await asyncio.open_connection(
        api.client.base_url.host, api.client.base_url.port
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield reader, writer
    finally:
        writer.close()


def client_hello(trust: ssl.SSLContext) -> bytes:
    """The first bytes that a TLS client sends."""
    outgoing = ssl.MemoryBIO()
    client = trust.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def tls_of(api: Api) -> ServerTls:
    tls = api.node._tls
    assert tls is not None
    return tls


# --- what is served -----------------------------------------------------------------------------


async def test_http_is_served_over_tls_and_the_coordinator_says_so(api: Api) -> None:
    task = await api.submit(payload={"n": 1})
    found = await api.task(task["id"])

    assert found["payload"] == {"n": 1}
    assert api.client.base_url.scheme == "https"
    assert str(api.client.base_url) == api.node.coordinator.membership.presence.url


async def test_requests_in_one_record_and_in_many_are_answered_in_their_order(api: Api) -> None:
    missing = LIVE.replace(b"/health/live", b"/api/tasks/none")
    async with socket_to(api) as (reader, writer):
        writer.write(LIVE + missing + LIVE)
        together = [status_of((await answer(reader))[0]) for _ in range(3)]
        for byte in missing:
            writer.write(bytes([byte]))  # a record each
        alone = status_of((await answer(reader))[0])

    assert (together, alone) == ([200, 404, 200], 404)


async def test_large_bodies_arrive_whole_in_both_directions(api: Api) -> None:
    payload = "x" * (3 * MIB)

    task = await api.submit(payload=payload)
    found = await api.task(task["id"])

    assert found["payload"] == payload


async def test_a_websocket_is_served_over_tls(api: Api, trust: ssl.SSLContext) -> None:
    async with connect(address_of(api), ssl=trust) as socket, asyncio.timeout(PATIENCE_S):
        await socket.send('{"type": "ping"}')
        received = [str(await socket.recv()) for _ in range(2)]

    assert address_of(api).startswith("wss://")
    assert any('"pong"' in one for one in received)


async def test_events_are_streamed_over_tls(api: Api) -> None:
    async with streamed(api) as stream:
        await api.submit()
        block = await stream.block()

    assert block["event"] == "task-submitted"


async def test_no_version_before_1_2_is_spoken(api: Api, trust: ssl.SSLContext) -> None:
    trust.set_ciphers("DEFAULT:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        trust.minimum_version = ssl.TLSVersion.TLSv1_1
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        trust.maximum_version = ssl.TLSVersion.TLSv1_1
    url = api.client.base_url

    with pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"):
        await asyncio.open_connection(url.host, url.port, ssl=trust)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_the_connection_ends_with_a_word_of_tls(
    api: Api, trust: ssl.SSLContext, version: ssl.TLSVersion
) -> None:
    """Without it, a client cannot tell the end of an answer from an attacker that cuts it off."""
    trust.maximum_version = trust.minimum_version = version
    async with socket_to(api) as (reader, writer):
        writer.write(LIVE[:-2] + b"connection: close\r\n\r\n")
        await answer(reader)
        assert await reader.read() == b""
        assert writer.get_extra_info("ssl_object").version() == version.name.replace("_", ".")


# --- browsers -----------------------------------------------------------------------------------


async def test_the_cookie_of_the_dashboard_is_for_tls_alone(
    tmp_path: Path, certificate: Certificate, trust: ssl.SSLContext
) -> None:
    secret = token_in(tmp_path, "admin")
    settings = {"require_token": True, "zmq_port": None, **certificate.settings()}
    async with served(tmp_path, trust, **settings) as api:
        origin = str(api.client.base_url).rstrip("/")
        login = await api.post("/api/login", {"token": secret}, headers={"origin": origin})
        me = await api.get("/api/me")
        change = await api.post("/api/queues/mail/pause", headers={"origin": origin})

    assert "; Secure" in login.headers["set-cookie"]
    assert (me.json()["name"], change.status_code) == ("ada", 200)


async def test_a_page_that_came_without_tls_may_change_nothing(api: Api) -> None:
    own = str(api.client.base_url).rstrip("/")
    foreign = own.replace("https://", "http://")

    allowed = await api.post("/api/queues/mail/pause", headers={"origin": own})
    refused = await api.post("/api/queues/mail/pause", headers={"origin": foreign})

    assert (allowed.status_code, refused.status_code) == (200, 403)


# --- handshakes that fail -----------------------------------------------------------------------


async def test_a_client_that_does_not_trust_the_certificate_leaves_nothing_behind(
    api: Api,
) -> None:
    async with httpx.AsyncClient(verify=client_context()) as stranger:
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await stranger.get(str(api.client.base_url))

    await until_no_handshake(api)
    assert (await api.get("/health/live")).status_code == 200


@pytest.mark.parametrize("first", [LIVE, b"\x00\x01\x02", b"\x80\x2e\x01"])
async def test_plain_http_is_answered_that_the_port_speaks_tls(api: Api, first: bytes) -> None:
    async with plain_socket(api) as (reader, writer):
        writer.write(first)
        head, body = await answer(reader)
        assert await reader.read() == b""

    assert status_of(head) == 400
    assert b"this port speaks TLS: call it with https://" in body
    await until_no_handshake(api)
    assert (await api.get("/health/live")).status_code == 200


async def test_a_plain_caller_that_stays_is_ended(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.gateways.http.server.tls.LINGER_S", SOON_S)
    async with plain_socket(api) as (_, writer):
        writer.write(LIVE)
        await until_no_handshake(api, at_least_one=True)


async def test_broken_records_end_a_connection_and_nothing_else(api: Api) -> None:
    async with plain_socket(api) as (reader, writer):
        writer.write(b"\x16\x03\x01\x00\x05hello")
        await reader.read()  # an alert, and the end

    await until_no_handshake(api)
    assert (await api.get("/health/live")).status_code == 200


async def test_mutated_handshakes_leave_nothing_behind(api: Api, trust: ssl.SSLContext) -> None:
    dice = random.Random(7)
    mistakes: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, found: mistakes.append(found))
    for _ in range(200):
        hello = bytearray(client_hello(trust))
        for _ in range(dice.randrange(4)):
            hello[dice.randrange(1, len(hello))] = dice.randrange(256)
        async with plain_socket(api) as (_, writer):
            writer.write(bytes(hello[: dice.randrange(1, len(hello) + 1)]))
            writer.write(dice.randbytes(dice.randrange(100)))
            if dice.random() < 0.5:
                writer.write_eof()

    await until_no_handshake(api)
    assert mistakes == []
    assert (await api.get("/health/live")).status_code == 200


@pytest.mark.parametrize("share", [0, 10, None], ids=["silent", "half a hello", "no answer"])
async def test_a_handshake_that_does_not_end_is_ended_in_time(
    api: Api, trust: ssl.SSLContext, share: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.get("/health/live")
    monkeypatch.setattr(TlsConnection, "handshake_s", SOON_S)
    async with plain_socket(api) as (reader, writer):
        writer.write(client_hello(trust)[:share])
        await ended(reader)

    await until_no_handshake(api)


async def test_handshakes_of_one_address_are_limited(api: Api) -> None:
    await api.get("/health/live")
    tls_of(api).handshakes = Quota("TLS handshakes", 10, share=2, name="MAX_TLS_HANDSHAKES")
    async with plain_socket(api), plain_socket(api), plain_socket(api) as (reader, _):
        await ended(reader)  # the third is one too many
        assert (await api.get("/health/live")).status_code == 200  # on the open connection

    await until_no_handshake(api)
    async with socket_to(api) as (reader, writer):
        writer.write(LIVE)
        head, _ = await answer(reader)
    assert status_of(head) == 200


async def test_a_stop_does_not_wait_for_handshakes(
    tmp_path: Path, certificate: Certificate, trust: ssl.SSLContext
) -> None:
    async with served(tmp_path, trust, **certificate.settings()) as api:
        reader, writer = await asyncio.open_connection(
            api.client.base_url.host, api.client.base_url.port
        )
        while not tls_of(api).handshakes.taken:  # noqa: ASYNC110 - what is counted has no event
            await asyncio.sleep(0)
        with capture_logs() as lines:
            api.node.ask_to_stop()
            async with asyncio.timeout(PATIENCE_S):
                await ended(reader)
        writer.close()

    assert "stop_grace_exceeded" not in [line["event"] for line in lines]


async def ended(reader: asyncio.StreamReader) -> None:
    """Wait for the end of a connection, which may be a reset."""
    try:
        while await reader.read(65_536):
            pass
    except ConnectionError:
        pass


async def until_no_handshake(api: Api, *, at_least_one: bool = False) -> None:
    """Wait until no connection is silent or in its handshake."""
    quota = tls_of(api).handshakes
    async with asyncio.timeout(PATIENCE_S):
        while at_least_one and not quota.taken:  # noqa: ASYNC110 - what is counted has no event
            await asyncio.sleep(0)
        while quota.taken:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0)


# --- a new certificate --------------------------------------------------------------------------


async def test_a_certificate_is_replaced_for_new_connections(
    tmp_path: Path, authority: Authority, trust: ssl.SSLContext
) -> None:
    first, second = authority.issue("first"), authority.issue("second")
    live = Certificate(str(tmp_path / "live.pem"), str(tmp_path / "live.key"))
    copy(first, live)
    async with served(tmp_path, trust, **live.settings()) as api, socket_to(api) as (r, w):
        before = await name_served(api)
        copy(second, live)
        with capture_logs() as lines:
            api.node.reload_certificate()
        after = await name_served(api)
        w.write(LIVE)
        head, _ = await answer(r)

    assert (before, after) == ("first", "second")
    assert status_of(head) == 200  # on the connection from before
    assert [line["event"] for line in lines] == ["certificate_reloaded"]


async def test_a_certificate_that_cannot_be_used_does_not_replace_another(
    tmp_path: Path, authority: Authority, trust: ssl.SSLContext
) -> None:
    live = Certificate(str(tmp_path / "live.pem"), str(tmp_path / "live.key"))
    copy(authority.issue("first"), live)
    async with served(tmp_path, trust, **live.settings()) as api:
        copy(Certificate("/dev/null", "/dev/null"), live)
        with capture_logs() as lines:
            api.node.reload_certificate()
        after = await name_served(api)

    assert after == "first"
    assert [line["event"] for line in lines] == ["certificate_not_reloaded"]
    assert "live.pem has no certificate" in lines[0]["error"]


def copy(certificate: Certificate, to: Certificate) -> None:
    for source, target in zip(certificate, to, strict=True):
        Path(target).write_bytes(Path(source).read_bytes())


async def name_served(api: Api) -> str:
    """The name in the certificate that a new connection is shown."""
    async with socket_to(api) as (_, writer):
        shown = writer.get_extra_info("peercert")
    (((_, name),),) = shown["subject"]
    return str(name)


# --- starting -----------------------------------------------------------------------------------


async def test_a_certificate_that_cannot_be_used_stops_the_start(
    tmp_path: Path, certificate: Certificate
) -> None:
    settings = {**certificate.settings(), "tls_key": str(tmp_path / "none.key")}

    with pytest.raises(Invalid, match=r"tls_key: .*none\.key cannot be read"):
        async with served(tmp_path, **settings):
            raise AssertionError("it serves")


@pytest.mark.parametrize("run", [process.run, asyncio.run], ids=["uvloop", "asyncio"])
def test_every_event_loop_serves_over_tls(
    tmp_path: Path, certificate: Certificate, trust: ssl.SSLContext, run: Run
) -> None:
    async def main() -> None:
        async with served(tmp_path, trust, **certificate.settings()) as api:
            task = await api.submit(payload="x" * MIB)
            assert len((await api.task(task["id"]))["payload"]) == MIB
            async with connect(address_of(api), ssl=trust) as socket:
                await socket.send('{"type": "ping"}')
                assert [await socket.recv() for _ in range(2)]
            async with plain_socket(api) as (reader, writer):
                writer.write(LIVE)
                assert status_of((await answer(reader))[0]) == 400
            async with socket_to(api) as (reader, writer):
                writer.write(LIVE + b"no request at all\r\n\r\n")
                assert [status_of((await answer(reader))[0]) for _ in range(2)] == [200, 400]
                assert await reader.read() == b""

    run(main())
