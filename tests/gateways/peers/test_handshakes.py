"""Only a coordinator that knows the secret of the store opens a link, and only to the leader."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rota.engine.replicas.link.frames import Abandon
from rota.gateways.peers import handshake
from rota.gateways.peers.handshake import (
    MAX_HANDSHAKE_BYTES,
    AcceptorHandshake,
    Challenge,
    DialerHandshake,
    Hello,
    LinkRefused,
    Verdict,
)
from rota.gateways.peers.messages import MessageReader, MessageTooLong, with_length
from tests.gateways.peers.linking import EPOCH, HANDSHAKES, SECRET, Leader, leading
from tests.gateways.peers.raw_peers import REQUEST, raw_peer
from tests.gateways.raw_http import answer, fields_of, status_of

OTHER = b"o" * 32


@pytest.fixture
async def leader(tmp_path: Path) -> AsyncIterator[Leader]:
    async with leading(tmp_path) as running:
        yield running


async def refused(leader: Leader, **options: Any) -> LinkRefused:
    with pytest.raises(LinkRefused) as refusal:
        await leader.link(**options)
    assert not leader.links
    return refusal.value


# --- without sockets ------------------------------------------------------------------------------


def shaken(
    dialer: DialerHandshake, acceptor: AcceptorHandshake, leading_epoch: int | None = EPOCH
) -> tuple[Hello, str]:
    hello, verdict = acceptor.answer(dialer.hello(acceptor.challenge()), leading_epoch)
    return hello, dialer.conclude(verdict)


def test_both_ends_learn_the_name_of_the_other() -> None:
    dialer, acceptor = DialerHandshake(SECRET, "f1", EPOCH), AcceptorHandshake(SECRET, "leader")

    hello, name = shaken(dialer, acceptor)

    assert (hello.name, hello.epoch, name) == ("f1", EPOCH, "leader")


def test_a_proof_serves_for_nothing_else_that_could_be_said() -> None:
    acceptor = AcceptorHandshake(SECRET, "leader")
    hello = msgspec.msgpack.decode(
        DialerHandshake(SECRET, "f1", EPOCH).hello(acceptor.challenge()), type=Hello
    )
    changes = ({"name": "f2"}, {"epoch": EPOCH + 1}, {"nonce": bytes(32)}, {"proof": bytes(32)})
    for change in changes:
        forged = msgspec.msgpack.encode(msgspec.structs.replace(hello, **change))
        with pytest.raises(LinkRefused, match="forbidden"):
            acceptor.answer(forged, EPOCH)

    assert acceptor.answer(msgspec.msgpack.encode(hello), EPOCH)[0] == hello


def test_the_proof_of_one_end_is_none_for_the_other() -> None:
    dialer, acceptor = DialerHandshake(SECRET, "f1", EPOCH), AcceptorHandshake(SECRET, "leader")
    hello = msgspec.msgpack.decode(dialer.hello(acceptor.challenge()), type=Hello)
    reflected = Verdict(None, "leader", EPOCH, hello.proof)

    with pytest.raises(LinkRefused, match="forbidden"):
        dialer.conclude(msgspec.msgpack.encode(reflected))


@pytest.mark.parametrize("change", [{"name": "x"}, {"epoch": 1}, {"refusal": None}])
def test_a_verdict_cannot_be_changed_on_its_way(change: dict[str, Any]) -> None:
    dialer, acceptor = DialerHandshake(SECRET, "f1", EPOCH), AcceptorHandshake(SECRET, "leader")
    _, verdict = acceptor.answer(dialer.hello(acceptor.challenge()), EPOCH + 1)
    sent = msgspec.msgpack.decode(verdict, type=Verdict)
    assert sent.refusal == "not_leader"
    forged = msgspec.msgpack.encode(msgspec.structs.replace(sent, **change))

    with pytest.raises(LinkRefused, match="forbidden"):
        dialer.conclude(forged)


def test_the_older_of_two_versions_is_spoken(monkeypatch: pytest.MonkeyPatch) -> None:
    newer = msgspec.msgpack.encode(Challenge(handshake.PROTOCOL + 1, bytes(32)))
    hello = DialerHandshake(SECRET, "f1", EPOCH).hello(newer)
    assert msgspec.msgpack.decode(hello, type=Hello).version == handshake.PROTOCOL

    dialer = DialerHandshake(SECRET, "f1", EPOCH)
    monkeypatch.setattr(handshake, "PROTOCOL", handshake.PROTOCOL + 1)
    acceptor = AcceptorHandshake(SECRET, "leader")
    monkeypatch.undo()
    sent = dialer.hello(acceptor.challenge())
    monkeypatch.setattr(handshake, "PROTOCOL", handshake.PROTOCOL + 1)
    assert acceptor.answer(sent, EPOCH)[0].version == handshake.PROTOCOL - 1


def test_a_version_that_is_too_old_or_too_new_is_refused() -> None:
    too_old = msgspec.msgpack.encode(Challenge(handshake.OLDEST - 1, bytes(32)))
    with pytest.raises(LinkRefused, match="version"):
        DialerHandshake(SECRET, "f1", EPOCH).hello(too_old)

    for version in (handshake.OLDEST - 1, handshake.PROTOCOL + 1):
        hello = msgspec.msgpack.encode(Hello(version, "f1", EPOCH, bytes(32), bytes(32)))
        with pytest.raises(LinkRefused, match="version"):
            AcceptorHandshake(SECRET, "leader").answer(hello, EPOCH)


@pytest.mark.parametrize(
    "message",
    [b"", b"\xc1", b"\x90", msgspec.msgpack.encode([1, b"short"]), b"\x95\x01\xa1\x80\x01\x01\x01"],
)
def test_a_message_that_is_not_one_of_the_handshake_is_refused(message: bytes) -> None:
    dialer = DialerHandshake(SECRET, "f1", EPOCH)
    with pytest.raises(LinkRefused, match="malformed"):
        dialer.hello(message)
    with pytest.raises(LinkRefused, match="malformed"):
        dialer.conclude(message)
    with pytest.raises(LinkRefused, match="malformed"):
        AcceptorHandshake(SECRET, "leader").answer(message, EPOCH)


def test_a_length_over_the_limit_is_refused_before_its_message() -> None:
    reader = MessageReader(1_000)
    reader.feed(with_length(b"x" * 1_000) + (1_001).to_bytes(4))

    assert reader.take() == b"x" * 1_000
    with pytest.raises(MessageTooLong):
        reader.take()


def test_messages_are_found_however_the_stream_is_cut() -> None:
    messages = [b"", b"a", b"bc" * 300, b""]
    stream = b"".join(map(with_length, messages))
    for size in (1, 2, 3, 5, 100, len(stream)):
        reader, found = MessageReader(1_000), []
        for start in range(0, len(stream), size):
            reader.feed(stream[start : start + size])
            while (message := reader.take()) is not None:
                found.append(message)
        assert found == messages
        assert reader.take_rest() == b""


# --- over sockets ---------------------------------------------------------------------------------


async def test_a_follower_with_another_secret_is_refused(leader: Leader) -> None:
    assert (await refused(leader, secret=OTHER)).reason == "forbidden"


async def test_a_leader_with_another_secret_is_refused(leader: Leader) -> None:
    leader.secret = OTHER

    assert (await refused(leader)).reason == "forbidden"


async def test_a_coordinator_without_a_secret_has_no_links(leader: Leader) -> None:
    for nothing in (None, b""):
        leader.secret = nothing
        assert (await refused(leader)).reason == "not_a_peer"


@pytest.mark.parametrize("epoch", [None, EPOCH - 1, EPOCH + 1])
async def test_a_coordinator_that_does_not_lead_at_that_epoch_says_at_which_it_does(
    leader: Leader, epoch: int | None
) -> None:
    leader.epoch = epoch

    refusal = await refused(leader)

    assert (refusal.reason, refusal.epoch) == ("not_leader", epoch)


async def test_a_recorded_handshake_opens_no_second_link(leader: Leader) -> None:
    recorded = DialerHandshake(SECRET, "raw", EPOCH)
    async with raw_peer(leader) as first:
        hello = recorded.hello(await first.challenge())
        first.send(hello)
        recorded.conclude(await first.receive())
    leader.links.clear()
    async with raw_peer(leader) as second:
        await second.challenge()
        second.send(hello)

        verdict = msgspec.msgpack.decode(await second.receive(), type=Verdict)
        assert await second.is_closed()

    assert verdict == Verdict("forbidden")
    assert not leader.links


async def test_a_peer_without_proof_learns_no_name_and_no_epoch(leader: Leader) -> None:
    async with raw_peer(leader) as peer:
        challenge = await peer.challenge()
        peer.send(msgspec.msgpack.encode(Hello(1, "f1", EPOCH, bytes(32), bytes(32))))
        verdict = await peer.receive()

        assert await peer.is_closed()
    assert b"leader" not in challenge + verdict
    assert msgspec.msgpack.decode(verdict, type=Verdict) == Verdict("forbidden")


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        (MAX_HANDSHAKE_BYTES + 1).to_bytes(4),
        with_length(b"x" * MAX_HANDSHAKE_BYTES),
        with_length(b""),
        b"\xff" * 100_000,
    ],
    ids=["HTTP", "too long", "garbage", "empty", "flood"],
)
async def test_a_peer_that_sends_something_else_is_closed(leader: Leader, sent: bytes) -> None:
    async with raw_peer(leader) as peer:
        await peer.challenge()
        peer.writer.write(sent)

        assert await peer.is_closed()
    assert not leader.links


async def test_frames_before_the_proof_are_not_read(leader: Leader) -> None:
    async with raw_peer(leader) as peer:
        await peer.challenge()
        peer.send(msgspec.msgpack.encode([Abandon(1)]))

        assert await peer.is_closed()
    assert not leader.received


async def test_a_handshake_that_takes_too_long_is_closed(tmp_path: Path) -> None:
    async with leading(tmp_path, handshake_s=0.05) as leader, raw_peer(leader) as peer:
        await peer.challenge()
        peer.writer.write(b"\0")

        assert await peer.is_closed()
        while leader.server.open.connections:  # noqa: ASYNC110 - what is counted has no event
            await asyncio.sleep(0)


async def test_an_address_has_only_so_many_handshakes_at_once(leader: Leader) -> None:
    async with asyncio.TaskGroup() as group:
        release = asyncio.Event()
        ready: list[asyncio.Event] = []

        async def hold(is_open: asyncio.Event) -> None:
            async with raw_peer(leader) as peer:
                await peer.challenge()
                is_open.set()
                await release.wait()

        for _ in range(HANDSHAKES):
            ready.append(asyncio.Event())
            group.create_task(hold(ready[-1]))
        for is_open in ready:
            await is_open.wait()
        async with raw_peer(leader) as peer:
            peer.writer.write(REQUEST)
            head, _ = await answer(peer.reader)
            assert status_of(head) == 429
        release.set()
    for number in range(2 * HANDSHAKES):
        link, received = await leader.link(f"f{number}")  # an open link is no handshake
        link.close()
        await received.lost()


# --- as HTTP --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /internal/peer HTTP/1.1\r\nhost: a\r\n\r\n", 404),
        (REQUEST.replace(b"rota-peer/1", b"rota-peer/9"), 404),
        (REQUEST.replace(b"/internal/peer", b"/internal/other"), 404),
        (REQUEST.replace(b"GET", b"POST"), 405),
        (REQUEST[:-2] + b"content-length: 3\r\n\r\nabc", 400),
        (REQUEST[:-2] + b"x: %b\r\n\r\n" % (b"x" * 70_000), 431),
    ],
    ids=["no upgrade", "another protocol", "another path", "another method", "a body", "too large"],
)
async def test_a_request_that_is_not_for_a_link_is_answered_with_a_problem(
    leader: Leader, request_: bytes, status: int
) -> None:
    async with raw_peer(leader) as peer:
        peer.writer.write(request_)
        head, body = await answer(peer.reader)

    assert status_of(head) == status
    assert fields_of(head)[b"content-type"] == b"application/problem+json"
    assert msgspec.json.decode(body)["status"] == status
    assert not leader.links


async def test_dialing_what_is_no_coordinator_fails(leader: Leader) -> None:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x" * 2 * MAX_HANDSHAKE_BYTES)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        leader.url = "http://{}:{}".format(*server.sockets[0].getsockname())
        assert (await refused(leader)).reason == "not_a_peer"
    with pytest.raises(ConnectionRefusedError):
        await leader.link()


async def test_dialing_a_peer_that_does_not_answer_ends_in_time(leader: Leader) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        leader.url = "http://{}:{}".format(*server.sockets[0].getsockname())
        with pytest.raises(TimeoutError):
            await leader.link(timeout_s=0.05)
