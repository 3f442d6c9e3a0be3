"""Does the gateway live through whatever is sent to it, and tell only those who can understand?"""

import asyncio
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import zmq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rota.errors import RotaError, StoreError
from rota.gateways.zeromq import binding, flow_control
from rota.gateways.zeromq.decoder import read
from tests.gateways.zeromq.dealers import (
    EVERYTHING,
    TIMEOUT_S,
    Gateway,
    assigned,
    heartbeat,
    opened,
    register,
    written,
)
from tests.sdk.serving import Server

GOOD = {"serviceName": "s", "workerId": "w", "maxShardCount": 100}
MALFORMED = {
    "nothing": [b""],
    "no JSON": [b"hello"],
    "half of it": [register("w")[:-2]],
    "two documents": [register("w") * 2],
    "bytes": [bytes(range(256))],
    "broken text": [register("w").replace(b"my-service", b"\xff\xfe")],
    "half a surrogate": [register("w").replace(b"my-service", rb"\ud800")],
    "too deep": [register("w")[:-1] + b',"x":' + b"[" * 10_000 + b"]" * 10_000 + b"}"],
    "an empty delimiter": [b"", register("w")],
    "many frames": [register("w")] * 100,
}
INVALID = {
    "a number": [b"5"],
    "an empty object": [b"{}"],
    "no data": [b'{"type":"register"}'],
    "an unknown type": [written("assignment", GOOD)],
    "no worker": [written("register", {"serviceName": "s", "maxShardCount": 1})],
    "an empty name": [written("register", {**GOOD, "workerId": ""})],
    "a long name": [written("register", {**GOOD, "workerId": "w" * 201})],
    "a name that is a number": [written("register", {**GOOD, "workerId": 5})],
    "no shards": [written("register", {**GOOD, "maxShardCount": 0})],
    "too many shards": [written("register", {**GOOD, "maxShardCount": 200_001})],
    "a fraction": [written("register", {**GOOD, "maxShardCount": 1.5})],
    "infinity": [register("w").replace(b":100", b":1e999")],
    "a huge number": [register("w").replace(b":100", b":" + b"9" * 5_000)],
    "no list": [written("heartbeat", GOOD)],
    "a negative shard": [written("heartbeat", {**GOOD, "assignedShards": [-1]})],
    "a shard beyond all": [written("heartbeat", {**GOOD, "assignedShards": [200_000]})],
    "shards as text": [written("heartbeat", {**GOOD, "assignedShards": ["1"]})],
    "protocol 0": [written("register", {**GOOD, "protocol": 0})],
}
BAD = {**MALFORMED, **INVALID}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("hostile")) as running:
        yield running


@pytest.fixture
def dealer(server: Server) -> Iterator[zmq.Socket[bytes]]:
    """A client of one coordinator for all tests that ask for nothing else."""
    assert server.node.shards_url is not None
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with context.socket(zmq.DEALER) as client:
        client.linger = 0
        client.rcvtimeo = int(TIMEOUT_S * 1000)
        client.connect(server.node.shards_url)
        yield client
    context.term()


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_message_is_counted_and_an_old_client_hears_nothing_of_it(
    server: Server, dealer: zmq.Socket[bytes], name: str
) -> None:
    metrics = server.node.coordinator.metrics().wire
    code = "malformed" if name in MALFORMED else "invalid"
    before = metrics.refused[code]

    dealer.send_multipart(BAD[name])
    dealer.send(register("old", service=name))

    assert dealer.recv() == assigned(EVERYTHING)
    assert metrics.refused[code] == before + 1


@pytest.mark.parametrize("name", BAD)
def test_a_client_of_protocol_2_is_told_what_was_wrong(
    dealer: zmq.Socket[bytes], name: str
) -> None:
    dealer.send(register("new", service=f"{name} (2)", protocol=2, incarnation=1))
    assert json.loads(dealer.recv())["type"] == "assignment"

    dealer.send_multipart(BAD[name])
    error = json.loads(dealer.recv())

    assert error["type"] == "error"
    assert error["data"]["code"] == ("malformed" if name in MALFORMED else "invalid")
    assert error["data"]["message"]


@pytest.mark.parametrize("hint", [{"protocol": 2}, {"protocol": 3}, {"incarnation": "i"}])
async def test_a_message_that_says_protocol_2_is_told_what_is_wrong_with_it(
    gateway: Gateway, hint: dict[str, Any]
) -> None:
    dealer = gateway.connect()

    error = json.loads(await dealer.ask(register("", **hint)))

    assert error["data"]["code"] == "invalid"
    assert "workerId" in error["data"]["message"] or "protocol" in error["data"]["message"]


async def test_a_message_over_its_size_costs_its_sender_the_connection_and_nobody_else(
    gateway: Gateway,
) -> None:
    other, rude = gateway.connect(), gateway.connect()
    await other.ask(register("other"))

    await rude.say(b" " * (binding.MAX_MESSAGE_BYTES + 1))

    assert await other.ask(heartbeat("other", EVERYTHING)) == assigned(EVERYTHING)
    assert await gateway.connect().ask(register("w", service="another")) == assigned(EVERYTHING)
    assert gateway.metrics.received == {"register": 2, "heartbeat": 1}


async def test_the_largest_beat_there_can_be_is_taken(gateway: Gateway) -> None:
    most = 200_000
    dealer = gateway.connect()
    await dealer.ask(register("w", count=most))

    beat = heartbeat("w", range(most), count=most)

    assert await dealer.ask(beat) == assigned(range(most))


async def test_a_peer_that_never_reads_loses_its_answers_and_holds_nobody_up(
    gateway: Gateway,
) -> None:
    most = 20_000
    deaf = gateway.connect(rcvhwm=1, rcvbuf=4_096)
    other = gateway.connect()
    await deaf.say(register("deaf", count=most, service="large"))
    await other.ask(register("w"))
    rounds = 0

    while not gateway.metrics.dropped:
        for _ in range(50):
            await deaf.say(heartbeat("deaf", [], count=most, service="large"))
        assert await other.ask(heartbeat("w", EVERYTHING)) == assigned(EVERYTHING)
        rounds += 1
        assert rounds < 100

    assert await other.ask(heartbeat("w", EVERYTHING)) == assigned(EVERYTHING)
    assert await gateway.owned("large") == {"deaf": list(range(most))}


async def test_while_much_waits_for_its_commit_nothing_is_read_and_nothing_is_lost(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_control, "MAX_IN_FLIGHT_BYTES", 5_000)
    dealer = gateway.connect()
    await dealer.ask(register("w"))

    for _ in range(200):
        await dealer.say(heartbeat("w", EVERYTHING))

    assert {await dealer.hear() for _ in range(200)} == {assigned(EVERYTHING)}
    assert gateway.metrics.dropped == 0


async def test_a_peer_that_has_gone_is_forgotten_when_it_is_to_be_told_something(
    gateway: Gateway,
) -> None:
    gone = gateway.connect()
    await gone.ask(register("A", protocol=2, incarnation=1))
    gone.socket.close()
    await gateway.until_connections_are(0)

    other = gateway.connect()
    await other.ask(register("B", protocol=2, incarnation=1))
    assert gateway.metrics.peers == 2
    await gateway.pass_time(500)
    await other.ask(heartbeat("B", [], protocol=2, incarnation=1))

    assert (gateway.metrics.peers, gateway.metrics.dropped) == (1, 1)


async def test_connections_over_their_limit_wait_outside_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binding, "HANDSHAKE_MS", 50)
    async with opened(tmp_path, zmq_max_connections=2) as gateway:
        first, second, third = (gateway.connect() for _ in range(3))
        await first.ask(register("A"))
        await second.ask(register("B", service="other"))
        await third.say(register("C", service="third"))
        await gateway.until("refused_connections", 1, of="connections_full")

        first.socket.close()

        assert await third.hear() == assigned(EVERYTHING)


async def test_a_connection_that_says_nothing_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binding, "HANDSHAKE_MS", 50)
    async with opened(tmp_path) as gateway:
        address = urlsplit(gateway.url)
        with socket.create_connection((address.hostname, address.port)):
            await gateway.until("connections", 1)

            await gateway.until_connections_are(0)


async def test_whoever_chooses_an_address_has_it_until_another_comes_with_it(
    gateway: Gateway,
) -> None:
    old = gateway.connect(routing_id=b"worker-1")
    await old.ask(register("w"))

    new = gateway.connect(routing_id=b"worker-1")

    assert await new.ask(heartbeat("w", EVERYTHING)) == assigned(EVERYTHING)


# --- anything at all ----------------------------------------------------------------------------

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=10,
)
FIELDS = ["serviceName", "workerId", "maxShardCount", "assignedShards", "weight", "seq"]
ALMOST = st.builds(
    lambda kind, data, wrong: written(kind, {**GOOD, "assignedShards": [1], **data, **wrong}),
    st.sampled_from(["register", "heartbeat", "leave", "assignment"]),
    st.dictionaries(st.sampled_from(FIELDS), ANYTHING, max_size=3),
    st.dictionaries(st.sampled_from(["serviceName", "workerId"]), st.none(), min_size=1),
)
BODIES = st.binary(max_size=200) | ANYTHING.map(lambda one: json.dumps(one).encode()) | ALMOST


def is_bad(frames: list[bytes]) -> bool:
    if len(frames) > 1:
        return True
    try:
        read(frames[0])
    except RotaError:
        return True
    return False


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # it may be used again
@given(messages=st.lists(st.lists(BODIES, min_size=1, max_size=3).filter(is_bad), max_size=5))
def test_after_any_garbage_the_next_beat_is_answered_and_nothing_else(
    dealer: zmq.Socket[bytes], messages: list[list[bytes]]
) -> None:
    for frames in messages:
        dealer.send_multipart(frames)
    dealer.send(heartbeat("w", EVERYTHING))

    assert dealer.recv() == assigned(EVERYTHING)


async def test_a_failure_of_the_store_is_refused_without_its_text(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_command: Any, *, on_reply: Callable[[Exception], None]) -> None:
        asyncio.get_running_loop().call_soon(on_reply, StoreError("disk /secret is full"))

    dealer = gateway.connect()
    with monkeypatch.context() as patched:
        patched.setattr(gateway.api.node.coordinator, "execute", fail)
        answer = json.loads(await dealer.ask(register("w", protocol=2, incarnation=1)))

    assert answer["type"] == "error"
    assert answer["data"]["code"] == "unavailable"
    assert "secret" not in answer["data"]["message"]
