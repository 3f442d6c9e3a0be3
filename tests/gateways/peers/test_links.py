"""Links between coordinators, over real sockets."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec import Raw

from rota.core.commands import PauseQueue, SubmitTasks
from rota.core.decisions import AddTask
from rota.core.ids import TaskId
from rota.core.replies import Done, Submitted
from rota.core.tasks.model import NewTask
from rota.engine.replicas.link.frames import (
    Abandon,
    Committed,
    FollowerFrame,
    Forward,
    Refused,
    Replied,
    Resigning,
)
from rota.errors import TaskNotFound, TooLarge
from rota.gateways.peers.handshake import LinkRefused
from rota.gateways.peers.link import LinkLimits
from tests.gateways.peers.linking import Leader, leading


@pytest.fixture
async def leader(tmp_path: Path) -> AsyncIterator[Leader]:
    async with leading(tmp_path) as running:
        yield running


async def test_many_frames_arrive_in_order_in_both_directions(leader: Leader) -> None:
    link, received = await leader.link()
    forwards: list[FollowerFrame] = [
        Forward(n, PauseQueue(f"q{n}", paused=True)) for n in range(5_000)
    ]
    for frame in forwards:
        link.send(frame)
    assert await leader.received["f1"].have(5_000) == forwards

    replies = [Replied(n, Done(n)) for n in range(5_000)]
    for reply in replies:
        leader.links["f1"].send(reply)
        if reply.number % 100 == 0:
            await asyncio.sleep(0)
    assert await received.have(5_000) == replies


async def test_large_frames_arrive_between_small_ones(leader: Leader) -> None:
    link, received = await leader.link()
    large = SubmitTasks([NewTask(name="a", payload=Raw(b'"%b"' % (b"x" * 5_000_000)))])
    frames: list[FollowerFrame] = [Abandon(1), Forward(2, large), Abandon(3), Forward(4, large)]
    for frame in frames:
        link.send(frame)
    assert await leader.received["f1"].have(4) == frames

    forward = leader.received["f1"].frames[1]
    assert isinstance(forward, Forward)
    assert isinstance(forward.command, SubmitTasks)
    reply = Replied(2, Submitted([AddTask(TaskId(5), forward.command.tasks[0], 6)]))
    leader.links["f1"].send(reply)
    assert await received.have(1) == [reply]


async def test_errors_arrive_as_they_were_raised(leader: Leader) -> None:
    _, received = await leader.link()
    leader.links["f1"].send(Refused(1, TaskNotFound("00ff")))

    (frame,) = await received.have(1)

    assert isinstance(frame, Refused)
    assert isinstance(frame.error, TaskNotFound)
    assert frame.error.facts == {"task_id": "00ff"}


async def test_the_frames_of_one_turn_of_the_loop_travel_as_one_message(leader: Leader) -> None:
    link, _ = await leader.link()
    for number in range(1_000):
        link.send(Abandon(number))
    assert link.traffic.messages_out == 0
    assert link.backlog > 0
    await leader.received["f1"].have(1_000)

    assert link.traffic.messages_out == 1
    assert link.traffic.frames_out == leader.links["f1"].traffic.frames_in == 1_000
    assert link.traffic.bytes_out == leader.links["f1"].traffic.bytes_in
    assert link.backlog == 0


async def test_more_frames_than_a_message_takes_travel_as_several(leader: Leader) -> None:
    link, _ = await leader.link()
    for number in range(70_000):
        link.send(Abandon(number))

    frames = await leader.received["f1"].have(70_000)

    assert frames == [Abandon(number) for number in range(70_000)]
    assert link.traffic.messages_out == 2


async def test_a_leader_serves_several_followers(leader: Leader) -> None:
    links = [await leader.link(f"f{n}") for n in range(3)]
    for number, (link, _) in enumerate(links):
        link.send(Abandon(number))
    for number, (_, received) in enumerate(links):
        assert await leader.received[f"f{number}"].have(1) == [Abandon(number)]
        leader.links[f"f{number}"].send(Committed(now_ms=1, last_seq=number))
        assert await received.have(1) == [Committed(now_ms=1, last_seq=number)]


async def test_what_the_leader_says_at_once_is_received(leader: Leader) -> None:
    leader.on_accepted = lambda connection: connection.send(Resigning())
    _, received = await leader.link()

    assert await received.have(1) == [Resigning()]


async def test_a_closed_link_delivers_what_was_sent_and_is_lost_once_at_both_ends(
    leader: Leader,
) -> None:
    link, received = await leader.link()
    link.send(Abandon(1))
    link.close()
    link.close()
    link.send(Abandon(2))

    assert await received.lost() is None
    assert await leader.received["f1"].lost() is None
    assert leader.received["f1"].frames == [Abandon(1)]
    assert link.backlog == 0


async def test_the_leader_may_close_a_link(leader: Leader) -> None:
    _, received = await leader.link()
    leader.links["f1"].send(Resigning())
    leader.links["f1"].close()

    assert await received.lost() is None
    assert received.frames == [Resigning()]
    assert await leader.received["f1"].lost() is None


async def test_a_link_goes_on_while_the_server_stops_until_the_leader_closes_it(
    leader: Leader,
) -> None:
    link, received = await leader.link()
    await leader.server.stop()
    link.send(Abandon(1))
    await leader.received["f1"].have(1)
    leader.links["f1"].close()

    assert await received.lost() is None
    assert not leader.server.open.connections


async def test_a_frame_over_the_limit_is_refused_to_its_sender_and_the_link_goes_on(
    tmp_path: Path,
) -> None:
    small = LinkLimits(message_bytes=1_000)
    async with leading(tmp_path, link_limits=small) as leader:
        link, received = await leader.link(link_limits=small)
        with pytest.raises(TooLarge):
            link.send(Forward(1, PauseQueue("q" * 1_000, paused=True)))
        with pytest.raises(TooLarge):
            leader.links["f1"].send(Committed(now_ms=1, last_seq=1, sessions=["s" * 1_000]))
        link.send(Abandon(1))
        leader.links["f1"].send(Resigning())

        assert await leader.received["f1"].have(1) == [Abandon(1)]
        assert await received.have(1) == [Resigning()]


async def test_a_receiver_that_fails_at_a_frame_gets_the_next_one(leader: Leader) -> None:
    link, _ = await leader.link()
    received = leader.received["f1"]

    def fail(frame: FollowerFrame) -> None:
        received.on_frame(frame)
        raise RuntimeError("a bug")

    leader.links["f1"]._on_frame = fail
    link.send(Abandon(1))
    link.send(Abandon(2))

    assert await received.have(2) == [Abandon(1), Abandon(2)]


async def test_a_link_is_opened_while_requests_wait_for_their_turn(leader: Leader) -> None:
    leader.server.turns._direct_left = 0
    link, _ = await leader.link()
    link.send(Abandon(1))

    assert await leader.received["f1"].have(1) == [Abandon(1)]


@pytest.mark.parametrize(
    "url", ["", "nonsense", "http://a:b", "ftp://a", "http://[", "http://\u00fc"]
)
async def test_dialing_what_is_no_address_is_refused(leader: Leader, url: str) -> None:
    leader.url = url
    with pytest.raises(LinkRefused, match="not an address"):
        await leader.link()


def test_links_work_on_the_event_loop_of_coordinators(tmp_path: Path) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def exchange() -> None:
        async with leading(tmp_path) as leader:
            link, received = await leader.link()
            for number in range(1_000):
                link.send(Abandon(number))
            await leader.received["f1"].have(1_000)
            leader.links["f1"].send(Resigning())
            assert await received.have(1) == [Resigning()]
            link.close()
            assert await received.lost() is None
            assert await leader.received["f1"].lost() is None

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(exchange())
