"""The byte meter on real connections, with the bytes that libzmq would read."""

import asyncio
import socket
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager

import pytest
import structlog

from rota.gateways.throttled_log import ThrottledLog
from rota.gateways.zeromq import byte_meter
from rota.gateways.zeromq.borrowed_socket import BorrowedSocket
from rota.gateways.zeromq.byte_meter import BACKLOG_FACTOR, ByteMeter

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="counts bytes as Linux does")

MOST_BYTES = 10_000
MOST_TOTAL_BYTES = 30_000
MOST_GROWTH_BYTES = 1024 * 1024 * 1024
MOST_MESSAGE_S = 15.0
TIMEOUT_S = 20.0
ROUTING_ID = b"\0\0\0\0\1"


class Metering:
    """A meter, its connections, and whether whole messages wait."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.is_behind = False
        self.later_s = 0.0  # than it is
        self.asked = 0
        self.dropped: Counter[str] = Counter()
        self.meter = ByteMeter(
            self.dropped,
            ThrottledLog(structlog.get_logger()),
            most_bytes=MOST_BYTES,
            most_total_bytes=MOST_TOTAL_BYTES,
            most_growth_bytes=MOST_GROWTH_BYTES,
            most_message_s=MOST_MESSAGE_S,
            most_silence_s=60.0,
            now_s=lambda: time.monotonic() + self.later_s,
        )
        stack.callback(self.meter.close)
        self.meter.start(self._listening.getsockname()[1], self._ask)

    def _ask(self) -> bool:
        self.asked += 1
        return self.is_behind

    def connect(self) -> tuple[socket.socket, socket.socket]:
        near = self._stack.enter_context(socket.create_connection(self._listening.getsockname()))
        far = self._stack.enter_context(self._listening.accept()[0])
        self.meter.opened(far.fileno())
        return near, far

    async def measured(self, times: int = 3) -> None:
        """Wait until all peers were measured a few times more."""
        end = self.asked + times
        async with asyncio.timeout(TIMEOUT_S):
            while self.asked < end:  # noqa: ASYNC110 - a measurement has no event
                await asyncio.sleep(0)

    async def until_dropped(self, **reasons: int) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while self.dropped != reasons:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0)


@pytest.fixture
async def metering() -> AsyncIterator[Metering]:
    with ExitStack() as stack:
        yield Metering(stack)


def send(near: socket.socket, far: socket.socket, length: int) -> None:
    """Send so many bytes, which libzmq reads."""
    near.sendall(bytes(length))
    while length:
        length -= len(far.recv(length))


async def test_what_waits_for_us_is_no_flood_until_everything_is_read(metering: Metering) -> None:
    near, far = metering.connect()
    metering.is_behind = True
    send(near, far, 100 + 2 * MOST_BYTES)
    metering.meter.note_message(far.fileno(), ROUTING_ID, 100)

    await metering.measured()
    assert metering.dropped == {}

    metering.is_behind = False  # and it was no whole message that waited
    await metering.until_dropped(unfinished_message=1)


async def test_while_messages_wait_all_peers_together_have_a_limit_as_well(
    metering: Metering,
) -> None:
    metering.is_behind = True
    for _ in range(10):
        near, far = metering.connect()
        send(near, far, 100 + MOST_TOTAL_BYTES * BACKLOG_FACTOR // 8)
        metering.meter.note_message(far.fileno(), ROUTING_ID, 100)

    await metering.until_dropped(unfinished_message=2)
    await metering.measured()
    assert metering.dropped == {"unfinished_message": 2}


async def test_a_peer_without_whole_messages_is_dropped_also_while_those_of_others_wait(
    metering: Metering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(byte_meter, "BACKLOG_S", 0.0)
    metering.is_behind = True
    near, far = metering.connect()
    send(near, far, BACKLOG_FACTOR * MOST_BYTES + 1)

    await metering.until_dropped(unfinished_message=1)


async def test_bytes_that_libzmq_has_not_read_are_not_held_against_one_peer(
    metering: Metering,
) -> None:
    near, far = metering.connect()
    near.sendall(bytes(2 * MOST_BYTES))
    await metering.measured()
    assert metering.dropped == {}

    far.recv(MOST_BYTES // 2)
    await metering.measured()
    assert metering.dropped == {}

    far.recv(MOST_BYTES)
    await metering.until_dropped(unfinished_message=1)


async def test_a_message_that_is_delivered_leaves_room_for_another(metering: Metering) -> None:
    near, far = metering.connect()
    for _ in range(20):
        send(near, far, MOST_BYTES - 100)
        await metering.measured(1)
        metering.meter.note_message(far.fileno(), ROUTING_ID, MOST_BYTES - 100)

    assert metering.dropped == {}


async def test_a_message_that_is_not_finished_in_time_costs_its_sender_the_connection(
    metering: Metering,
) -> None:
    near, far = metering.connect()
    send(near, far, MOST_BYTES // 2)
    await metering.measured()
    metering.later_s += MOST_MESSAGE_S - 1.0
    send(near, far, 100)  # more of it, or a ping
    await metering.measured()
    assert metering.dropped == {}

    metering.later_s += 1.5
    await metering.until_dropped(message_timeout=1)


async def test_a_message_that_begins_after_a_pause_has_all_its_time(metering: Metering) -> None:
    near, far = metering.connect()
    send(near, far, 100)
    await metering.measured()
    metering.later_s += 2 * MOST_MESSAGE_S
    send(near, far, MOST_BYTES // 2)
    metering.meter.note_message(far.fileno(), ROUTING_ID, 100)
    await metering.measured()

    assert metering.dropped == {}


async def test_every_whole_message_gives_the_next_one_its_time(metering: Metering) -> None:
    near, far = metering.connect()
    send(near, far, MOST_BYTES // 2)
    for _ in range(5):
        metering.later_s += MOST_MESSAGE_S - 1.0
        send(near, far, 100)
        metering.meter.note_message(far.fileno(), ROUTING_ID, 100)
        await metering.measured()

    assert metering.dropped == {}


async def test_messages_that_wait_for_us_have_more_time_but_not_for_ever(
    metering: Metering,
) -> None:
    near, far = metering.connect()
    metering.is_behind = True
    send(near, far, MOST_BYTES // 2)
    await metering.measured()
    metering.later_s += 2 * MOST_MESSAGE_S
    await metering.measured()
    assert metering.dropped == {}

    metering.later_s += BACKLOG_FACTOR * MOST_MESSAGE_S
    await metering.until_dropped(message_timeout=1)


async def test_a_borrowed_descriptor_stays_open_when_it_is_not_needed_any_more(
    metering: Metering,
) -> None:
    near, far = metering.connect()
    forgotten = BorrowedSocket(far.fileno())
    del forgotten
    metering.meter.closed(far.fileno())

    near.sendall(b"x")
    assert far.recv(1) == b"x"


async def test_a_connection_that_is_gone_when_it_is_reported_is_ignored(metering: Metering) -> None:
    _, far = metering.connect()
    descriptor = far.fileno()
    far.close()

    metering.meter.opened(descriptor)
    metering.meter.note_message(descriptor, ROUTING_ID, 100)
    metering.meter.drop(descriptor, "silent")

    assert metering.dropped == {}


@contextmanager
def other_owner(far: socket.socket) -> Iterator[socket.socket]:
    """Give the number of a descriptor to another connection, as the kernel may at any moment."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        near = socket.create_connection(listening.getsockname())
        other, _ = listening.accept()
        descriptor = far.detach()
        with near, other:
            socket.close(descriptor)
            moved = socket.socket(fileno=socket.dup(other.fileno()))
            with moved:
                assert moved.fileno() == descriptor
                yield near


async def test_a_connection_that_got_the_number_of_another_is_not_dropped(
    metering: Metering,
) -> None:
    _, far = metering.connect()
    descriptor = far.fileno()
    with other_owner(far) as near:
        metering.meter.drop(descriptor, "silent")
        assert metering.dropped == {}

        near.sendall(b"x")
        with socket.socket(fileno=socket.dup(descriptor)) as same:
            assert same.recv(1) == b"x"
