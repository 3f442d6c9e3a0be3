"""A peer that is silent, does not read or sends garbage loses its own link, and nothing else."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from rota.core.commands import PauseQueue
from rota.core.kv import KvEntry
from rota.engine.replicas.link.codec import FollowerCodec, join_frames
from rota.engine.replicas.link.frames import (
    Abandon,
    Committed,
    FollowerFrame,
    Forward,
    Replied,
    Resigning,
)
from rota.gateways.peers.dialer import dial
from rota.gateways.peers.link import LinkLimits
from tests.gateways.peers.linking import EPOCH, SECRET, Leader, Received, leading
from tests.gateways.peers.raw_peers import raw_peer, silent_leader

QUICK = LinkLimits(keepalive_s=0.02, silence_s=0.3)
LARGE_REPLY = KvEntry(key="k", value=b"x" * 10_000, version=1, updated_at_ms=1)


async def test_an_idle_link_stays_open(tmp_path: Path) -> None:
    async with leading(tmp_path, link_limits=QUICK) as leader:
        link, received = await leader.link(link_limits=QUICK)
        # For longer than the time of silence.
        while link.traffic.messages_in < 40:  # noqa: ASYNC110 - what is counted has no event
            await asyncio.sleep(QUICK.keepalive_s)
        assert not received.losses
        link.send(Abandon(1))

        assert await leader.received["f1"].have(1) == [Abandon(1)]
        assert link.traffic.frames_in == 0


async def test_the_leader_drops_a_silent_follower(tmp_path: Path) -> None:
    async with leading(tmp_path, link_limits=QUICK) as leader, raw_peer(leader) as peer:
        await peer.shake_hands()

        assert await peer.is_closed()
        assert isinstance(await leader.received["raw"].lost(), TimeoutError)


async def test_a_follower_drops_a_silent_leader() -> None:
    received = Received[object]()
    async with silent_leader() as url:
        link = await dial(
            url,
            secret=SECRET,
            name="f1",
            epoch=EPOCH,
            tls=None,
            on_frame=received.on_frame,
            on_lost=received.on_lost,
            link_limits=QUICK,
        )

        assert isinstance(await received.lost(), TimeoutError)
        link.send(Abandon(1))
        assert link.backlog == 0


async def test_a_link_that_is_reset_is_lost_at_once(tmp_path: Path) -> None:
    async with leading(tmp_path) as leader:
        link, received = await leader.link()
        leader.links["f1"].abort()

        await received.lost()
        await leader.received["f1"].lost()
        link.close()


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff\xff\xff\xff",
        (3).to_bytes(4) + b"\xc1\xc1\xc1",
        (1).to_bytes(4) + b"\x01",
        (5).to_bytes(4) + b"\xdd\xff\xff\xff\xff",
        (4).to_bytes(4) + msgspec.msgpack.encode([["z"]]),
    ],
    ids=["an endless message", "no MessagePack", "no array", "an endless array", "not its frame"],
)
async def test_garbage_ends_only_the_link_that_it_came_on(tmp_path: Path, garbage: bytes) -> None:
    async with leading(tmp_path) as leader, raw_peer(leader) as peer:
        link, received = await leader.link()
        await peer.shake_hands()
        peer.writer.write(garbage)

        assert await peer.is_closed()
        assert await leader.received["raw"].lost() is not None
        link.send(Abandon(1))
        assert await leader.received["f1"].have(1) == [Abandon(1)]
        assert not received.losses


async def test_an_unknown_command_is_refused_and_the_link_goes_on(tmp_path: Path) -> None:
    async with leading(tmp_path) as leader, raw_peer(leader) as peer:
        await peer.shake_hands()
        peer.send(msgspec.msgpack.encode([["f", 5, msgspec.msgpack.encode({"type": "Unheard"})]]))
        tag, number, (code, *_) = msgspec.msgpack.decode(await peer.receive())[0]
        peer.send(msgspec.msgpack.encode([["a", 6]]))

        assert (tag, number, code) == ("x", 5, "unknown_command")
        assert await leader.received["raw"].have(1) == [Abandon(6)]


def echo_to(leader: Leader, name: str) -> None:
    """Answer every command of a follower with a large reply."""
    link = leader.links[name]

    def reply(frame: FollowerFrame) -> None:
        leader.received[name].on_frame(frame)
        assert isinstance(frame, Forward)
        link.send(Replied(frame.number, LARGE_REPLY))

    link._on_frame = reply


async def test_a_follower_that_does_not_read_its_replies_is_not_read_either(
    tmp_path: Path,
) -> None:
    full = 100_000
    count = 3_000
    codec = FollowerCodec()
    forwards = [
        join_frames([codec.encode(Forward(n, PauseQueue("q" * 1_000, paused=True)))])
        for n in range(count)
    ]
    limited = LinkLimits(full_bytes=full)
    async with leading(tmp_path, link_limits=limited) as leader, raw_peer(leader) as peer:
        await peer.shake_hands()
        echo_to(leader, "raw")
        link, transport = leader.links["raw"], leader.links["raw"]._transport
        for forward in forwards:
            peer.send(forward)
        while transport.is_reading():  # noqa: ASYNC110 - the transport has no event for it
            await asyncio.sleep(0)
        # What one read of the socket may hold is answered; the kernel keeps the rest.
        assert link.traffic.frames_in < count
        assert link.backlog < full + 300 * 20_000

        replies = 0
        while replies < count:
            replies += len(msgspec.msgpack.decode(await peer.receive()))
        assert len(leader.received["raw"].frames) == count
        assert not leader.received["raw"].losses


async def test_commits_for_a_follower_that_does_not_read_are_bounded(tmp_path: Path) -> None:
    most = 3_000_000
    few = LinkLimits(full_bytes=100_000, backlog_bytes=most)
    async with leading(tmp_path, link_limits=few) as leader, raw_peer(leader) as peer:
        await peer.shake_hands()
        link, (other, received) = leader.links["raw"], await leader.link(link_limits=few)
        commit = Committed(now_ms=1, last_seq=1, sessions=["s" * 100_000])
        while not leader.received["raw"].losses:
            link.send(commit)
            assert link.backlog < most + 200_000
            await asyncio.sleep(0)

        assert isinstance(await leader.received["raw"].lost(), ConnectionError)
        leader.links["f1"].send(Resigning())
        assert await received.have(1) == [Resigning()]
        other.close()


async def test_a_follower_that_reads_slowly_is_kept(tmp_path: Path) -> None:
    slow = LinkLimits(full_bytes=100_000, keepalive_s=0.02, silence_s=0.2)
    async with leading(tmp_path, link_limits=slow) as leader, raw_peer(leader) as peer:
        await peer.shake_hands()
        link = leader.links["raw"]
        for number in range(200):
            link.send(Committed(now_ms=1, last_seq=number, sessions=["s" * 100_000]))
        # The leader does not read, and hears nothing of the follower but that its data leave.
        for _ in range(20):
            await peer.reader.readexactly(500_000)
            await asyncio.sleep(slow.keepalive_s)

        assert not leader.received["raw"].losses


async def test_a_pause_of_this_process_is_not_taken_for_silence_of_its_peer(
    tmp_path: Path,
) -> None:
    async with leading(tmp_path, link_limits=QUICK) as leader:
        link, received = await leader.link(link_limits=QUICK)
        for one in (link, leader.links["f1"]):
            one._heard_at_s -= 1_000
            one._checked_at_s -= 1_000
            one._check()
        link.send(Abandon(1))

        assert await leader.received["f1"].have(1) == [Abandon(1)]
        assert not received.losses
