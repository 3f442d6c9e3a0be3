"""Peers that send without end, or connect without end, are dropped; the others notice nothing."""

import asyncio
import json
import resource
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx
import pytest
import zmq

from rota.gateways.zeromq import binding, byte_meter, descriptors
from rota.gateways.zeromq.memory_watch import FLOOR_BYTES
from tests.cli.processes import Running, coordinator
from tests.gateways.serving import CERTIFICATES
from tests.gateways.zeromq import raw_peers
from tests.gateways.zeromq.dealers import EVERYTHING, assigned, heartbeat, opened, register
from tests.gateways.zeromq.raw_peers import MORE, frame

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="counts bytes and memory as Linux does"),
]

MEBIBYTE = 1024 * 1024
# Tiny frames take a gigabyte a second inside libzmq, whose thread reads on while the event loop is
# busy or waits for a processor: 50 ms between two measurements are 148 MiB at the peak, 100 ms are
# 231. Without the limit, the smallest flood here takes 317.
MOST_PEAK_BYTES = 250 * MEBIBYTE
FLOOD_BYTES = 1024 * MEBIBYTE  # what a peer would send, were it not dropped
SOME = 256 * 1024  # sent at once
BURSTING = 40  # peers
LOOK_AGAIN_S = 0.02  # after so long: each look is a request, which the event loop has to answer
DEAF_AFTER = 8  # answers of half a megabyte that it does not read


class Serving(NamedTuple):
    process: Running
    url: str
    address: str  # of ZeroMQ


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    with coordinator(tmp_path, "--log-format", "json") as (process, url):
        announced = json.loads(process.wait_for('"url"'))
        yield Serving(process, url, announced["shards"])


@pytest.fixture
def member(serving: Serving) -> Iterator[zmq.Socket[bytes]]:
    """An ordinary member, which is there before and after."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.linger = 0
        dealer.rcvtimeo = int(raw_peers.TIMEOUT_S * 1000)
        dealer.connect(serving.address)
        dealer.send(register("w"))
        assert dealer.recv() == assigned(EVERYTHING)
        yield dealer


def check(member: zmq.Socket[bytes]) -> None:
    member.send(heartbeat("w", EVERYTHING))
    assert member.recv() == assigned(EVERYTHING)


def dropped(serving: Serving, reason: str) -> int:
    return figure(serving, f'rota_zeromq_peers_dropped_total{{reason="{reason}"}}')


def dropped_unfinished(serving: Serving) -> int:
    return dropped(serving, "unfinished_message") + dropped(serving, "unfinished_messages")


def figure(serving: Serving, name: str) -> int:
    try:
        metrics = httpx.get(f"{serving.url}/metrics", verify=CERTIFICATES).text
    except httpx.TransportError:
        return 0  # without a descriptor for a moment
    for line in metrics.splitlines():
        if line.startswith(name):
            return int(float(line.split()[-1]))
    return 0


@pytest.mark.parametrize("size", [0, 1_000, 1_000_000])
def test_a_message_without_end_costs_its_sender_the_connection_and_little_memory(
    serving: Serving, member: zmq.Socket[bytes], size: int
) -> None:
    # Empty frames are found out by the memory they take, or by their bytes if that is seen first.
    reasons = {"unfinished_message"} if size else {"memory_growth", "unfinished_message"}
    most_bytes = 64 * MEBIBYTE if size else MOST_PEAK_BYTES
    endless = frame(b"x" * size, flags=MORE)
    before = raw_peers.resident_bytes(serving.process.pid)

    with raw_peers.connect(serving.address) as rude:
        data = endless * max(1, SOME // len(endless))
        sent = raw_peers.flood(rude, data, most_bytes=FLOOD_BYTES)
        grown = raw_peers.resident_bytes(serving.process.pid) - before

    assert sent < FLOOD_BYTES
    assert grown < most_bytes
    check(member)
    assert sum(dropped(serving, reason) for reason in reasons) == 1
    told = json.loads(serving.process.wait_for("peer_dropped"))
    assert told["code"] in reasons
    assert told["unfinished_bytes"] > (binding.MAX_UNFINISHED_BYTES if size else FLOOR_BYTES)


# An empty frame takes two bytes on the wire and 64 inside libzmq.
@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize(("count", "rounds"), [(8, 1), (40, 1), (8, 6)])
def test_many_peers_with_tiny_frames_take_little_memory(
    serving: Serving, member: zmq.Socket[bytes], count: int, rounds: int, size: int
) -> None:
    tiny = frame(b"x" * size, flags=MORE)
    flood = tiny * (2_000_000 // len(tiny))
    before = raw_peers.resident_bytes(serving.process.pid)

    for number in range(1, rounds + 1):
        with ExitStack() as stack:
            for _ in range(count):
                plug = stack.enter_context(raw_peers.connect(serving.address))
                raw_peers.flood(plug, flood, most_bytes=1)
            if number == 1:
                until(lambda: dropped(serving, "memory_growth") >= count // 2)
            check(member)

    assert raw_peers.peak_bytes(serving.process.pid) - before < MOST_PEAK_BYTES


def test_many_peers_with_unfinished_messages_share_one_limit(
    serving: Serving, member: zmq.Socket[bytes]
) -> None:
    part = frame(b"x" * SOME, flags=MORE)
    below = binding.MAX_UNFINISHED_BYTES - len(part)
    count = 2 * binding.MAX_UNFINISHED_BYTES_TOTAL // below

    with ExitStack() as stack:
        for _ in range(count):
            plug = stack.enter_context(raw_peers.connect(serving.address))
            raw_peers.flood(plug, part, most_bytes=below - len(part))
        until(lambda: dropped(serving, "unfinished_messages") >= count // 4)

        check(member)


# Forty peers each send a message, and right behind it the beginning of another.
@pytest.mark.parametrize("burst_bytes", [2_000_000, 10_000_000])
def test_a_burst_behind_a_whole_message_counts_as_unfinished(
    serving: Serving, member: zmq.Socket[bytes], burst_bytes: int
) -> None:
    part = frame(b"x" * 250_000, flags=MORE)
    burst = frame(b"{}") + part * (burst_bytes // len(part))
    most_left = binding.MAX_UNFINISHED_BYTES_TOTAL // len(burst)
    if len(burst) > binding.MAX_UNFINISHED_BYTES:
        most_left = 0
    before = raw_peers.resident_bytes(serving.process.pid)

    with ExitStack() as stack:
        for _ in range(BURSTING):
            plug = stack.enter_context(raw_peers.connect(serving.address))
            raw_peers.flood(plug, burst, most_bytes=1)
        until(lambda: dropped_unfinished(serving) >= BURSTING - most_left)
        grown = raw_peers.peak_bytes(serving.process.pid) - before

        check(member)
        assert grown < 64 * MEBIBYTE


def test_peers_that_do_not_read_are_measured_as_well(
    serving: Serving, member: zmq.Socket[bytes]
) -> None:
    part = frame(b"x" * 100_000, flags=MORE)
    parts = binding.MAX_UNFINISHED_BYTES // len(part)
    count = 2 * binding.MAX_UNFINISHED_BYTES_TOTAL // (parts * len(part))

    with ExitStack() as stack:
        deaf = [
            stack.enter_context(raw_peers.connect(serving.address, receive_buffer_bytes=2_048))
            for _ in range(count)
        ]
        for number, plug in enumerate(deaf):
            # Then there is no space left to write answers to.
            plug.sendall(frame(register("w", service=f"s-{number}", count=100_000)) * DEAF_AFTER)
        until(lambda: figure(serving, "rota_zeromq_sent_total") >= DEAF_AFTER * count)
        for _ in range(parts):
            for plug in deaf:
                raw_peers.flood(plug, part, most_bytes=1)
                check(member)  # and meanwhile the part is read

        until(lambda: dropped_unfinished(serving) >= count // 4)


def until(is_so: Callable[[], bool]) -> None:
    end_s = time.monotonic() + raw_peers.TIMEOUT_S
    while not is_so():
        assert time.monotonic() < end_s
        time.sleep(LOOK_AGAIN_S)


def test_a_whole_message_of_very_many_frames_costs_its_sender_the_connection(
    serving: Serving, member: zmq.Socket[bytes]
) -> None:
    with raw_peers.connect(serving.address) as rude:
        rude.sendall(frame(b"", flags=MORE) * 100_000 + frame(b""))

        assert raw_peers.is_ended(rude)

    check(member)
    assert dropped(serving, "too_many_frames") == 1


async def test_a_connection_that_has_sent_no_message_for_long_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binding, "MAX_SILENCE_MS", 100)
    monkeypatch.setattr(byte_meter, "SWEEP_EVERY_S", 0.05)
    async with opened(tmp_path, shard_lease_ms=100) as gateway:
        plug = await asyncio.to_thread(raw_peers.connect, gateway.url)
        with plug:
            assert await asyncio.to_thread(raw_peers.is_ended, plug)
        await gateway.until_connections_are(0)
        assert gateway.metrics.dropped_peers == {"silent": 1}


async def test_a_message_that_is_not_finished_in_time_is_dropped_although_its_sender_pings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binding, "MAX_MESSAGE_MS", 100)
    async with opened(tmp_path, shard_lease_ms=100) as gateway:
        plug = await asyncio.to_thread(raw_peers.connect, gateway.url)
        with plug:
            plug.sendall(frame(b"x" * 5_000, flags=MORE))
            assert await asyncio.to_thread(raw_peers.ping, plug)
        await gateway.until_connections_are(0)
        assert gateway.metrics.dropped_peers == {"message_timeout": 1}


async def test_messages_that_end_are_not_counted_against_their_sender(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binding, "MAX_UNFINISHED_BYTES", 20_000)
    monkeypatch.setattr(binding, "MAX_UNFINISHED_BYTES_TOTAL", 20_000)
    monkeypatch.setattr(byte_meter, "MEASURE_EVERY_S", 0.001)
    async with opened(tmp_path) as gateway:
        dealer = gateway.connect()
        await dealer.ask(register("w", count=1_000))
        beat = heartbeat("w", range(1_000), count=1_000)

        for _ in range(50):
            assert await dealer.ask(beat) == assigned(range(1_000))

        assert len(beat) * 50 > 100_000
        assert gateway.metrics.dropped_peers == {}


# --- file descriptors -----------------------------------------------------------------------------

FEW = 96  # descriptors that the coordinator may have
SPINNING_S = 2.0  # for so long it is looked at how busy it is


@contextmanager
def few_descriptors(process: Running) -> Iterator[None]:
    before = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (FEW, before[1]))
    try:
        yield
    finally:
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, before)


@contextmanager
def connections(url: str, count: int) -> Iterator[None]:
    """Connections that say nothing."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    with ExitStack() as stack:
        for _ in range(count):
            address = parts.hostname, parts.port
            with suppress(ConnectionError):  # turned away already
                plug = socket.create_connection(address, timeout=raw_peers.TIMEOUT_S)
                stack.enter_context(plug)
        yield


def busy_s(serving: Serving) -> float:
    """The processor time that a coordinator takes within some seconds in which nothing is asked."""
    before = raw_peers.processor_s(serving.process.pid)
    time.sleep(SPINNING_S)  # that time passes is what is measured
    return raw_peers.processor_s(serving.process.pid) - before


def open_descriptors(serving: Serving) -> int:
    return len(list(Path(f"/proc/{serving.process.pid}/fd").iterdir()))


def test_without_descriptors_for_zeromq_nothing_spins_and_members_come_in_again(
    serving: Serving, member: zmq.Socket[bytes]
) -> None:
    with few_descriptors(serving.process):
        # HTTP takes all descriptors there are; then more want in over ZeroMQ.
        with connections(serving.url, FEW):
            until(lambda: open_descriptors(serving) >= FEW)
            with connections(serving.address, 20):
                assert busy_s(serving) < SPINNING_S / 2
                check(member)

        until(lambda: open_descriptors(serving) < FEW // 2)
        with raw_peers.connect(serving.address) as late:
            late.sendall(frame(register("late", service="other")))
            assert late.recv(1)
        check(member)


def test_some_descriptors_are_held_back_to_turn_connections_away_with(serving: Serving) -> None:
    soft, hard = resource.prlimit(serving.process.pid, resource.RLIMIT_NOFILE)

    assert hard == resource.RLIM_INFINITY or hard - soft >= descriptors.HELD_IN_RESERVE


def test_connections_over_zeromq_leave_descriptors_to_others(
    serving: Serving, member: zmq.Socket[bytes]
) -> None:
    with few_descriptors(serving.process), connections(serving.address, 2 * FEW):
        until(lambda: dropped(serving, "descriptors") > 0)

        assert httpx.get(f"{serving.url}/health").status_code == 200
        assert busy_s(serving) < SPINNING_S / 2
        check(member)
