"""Does a key open the door, only for whom it is meant, and nothing else?"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import zmq
import zmq.asyncio

from rota.errors import Invalid, Unavailable
from rota.gateways.zeromq.auth.keys import NewClient, add_client, create_keys
from tests.gateways.serving import served
from tests.gateways.zeromq.dealers import (
    EVERYTHING,
    TIMEOUT_S,
    Dealer,
    Gateway,
    assigned,
    heartbeat,
    leave,
    opened,
    register,
)


class Locked:
    """A gateway with keys, and one client that may speak for workers w-* of service feed."""

    def __init__(self, gateway: Gateway, path: Path, client: NewClient) -> None:
        self.gateway = gateway
        self.path = path
        self.client = client

    def connect(self, client: NewClient | None = None, **options: Any) -> Dealer:
        return self.gateway.connect(**curve(client or self.client), **options)


def curve(client: NewClient) -> dict[str, bytes]:
    assert client.secret is not None
    return {
        "curve_publickey": client.public.encode(),
        "curve_secretkey": client.secret.encode(),
        "curve_serverkey": client.coordinator.encode(),
    }


@pytest.fixture
async def locked(tmp_path: Path) -> AsyncIterator[Locked]:
    path = tmp_path / "keys.toml"
    create_keys(path)
    client = add_client(path, name="feeds", services=["feed"], workers=["w-*"])
    async with opened(tmp_path, zmq_keys=str(path)) as gateway:
        yield Locked(gateway, path, client)


async def test_the_right_key_may_speak_for_its_workers(locked: Locked) -> None:
    dealer = locked.connect()

    assert await dealer.ask(register("w-1", service="feed")) == assigned(EVERYTHING)
    beat = heartbeat("w-1", EVERYTHING, service="feed")
    assert await dealer.ask(beat) == assigned(EVERYTHING)


@pytest.mark.parametrize(("worker_id", "service"), [("v-1", "feed"), ("w-1", "mail")])
async def test_a_key_may_not_speak_for_others(locked: Locked, worker_id: str, service: str) -> None:
    dealer = locked.connect()
    message = register(worker_id, service=service, protocol=2, incarnation=1)

    error = json.loads(await dealer.ask(message))

    assert error["data"]["code"] == "forbidden"
    assert locked.gateway.metrics.refused == {"forbidden": 1}
    assert locked.gateway.metrics.received == {}


async def test_an_old_client_that_speaks_for_others_hears_nothing(locked: Locked) -> None:
    dealer = locked.connect()

    await dealer.say(register("boss", service="feed"))

    assert await dealer.ask(register("w-1", service="feed")) == assigned(EVERYTHING)
    assert locked.gateway.metrics.refused == {"forbidden": 1}


async def test_a_key_that_is_not_known_stays_outside(locked: Locked, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.toml"
    create_keys(elsewhere)
    stranger = add_client(elsewhere, name="stranger", services=["*"], workers=["*"])
    known = {**curve(stranger), "curve_serverkey": locked.client.coordinator.encode()}

    await locked.gateway.connect(**known).say(register("w-1", service="feed"))
    await locked.gateway.until("refused_connections", 1, of="unknown_key")

    assert await locked.connect().ask(register("w-2", service="feed")) == assigned(EVERYTHING)
    assert await locked.gateway.owned("feed") == {"w-2": EVERYTHING}


@pytest.mark.parametrize("how", ["without a key", "with the key of another coordinator"])
async def test_whoever_does_not_know_the_coordinators_key_stays_outside(
    locked: Locked, how: str
) -> None:
    wrong = {**curve(locked.client), "curve_serverkey": zmq.curve_keypair()[0]}
    stranger = locked.gateway.dealer(**({} if how == "without a key" else wrong), reconnect_ivl=-1)
    # Before it connects: it may be turned away sooner than we get to look.
    ended = stranger.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    stranger.socket.connect(locked.gateway.url)

    with contextlib.suppress(zmq.Again):  # it may have been turned away before it could speak
        await stranger.socket.send_multipart([register("w-1", service="feed")], flags=zmq.NOBLOCK)
    async with asyncio.timeout(TIMEOUT_S):
        await ended.recv_multipart()
    stranger.socket.disable_monitor()
    ended.close()

    assert await locked.connect().ask(register("w-2", service="feed")) == assigned(EVERYTHING)
    assert await locked.gateway.owned("feed") == {"w-2": EVERYTHING}


async def test_a_client_with_a_key_must_not_choose_its_address(locked: Locked) -> None:
    dealer = locked.connect(routing_id=b"w-2")

    error = json.loads(await dealer.ask(register("w-1", service="feed", protocol=2)))

    assert error["data"]["code"] == "forbidden"
    assert "routing id" in error["data"]["message"]


async def test_a_key_cannot_take_over_the_member_of_another_key(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    create_keys(path)
    first = add_client(path, name="first", services=["feed"], workers=["w-*"])
    wider = add_client(path, name="wider", services=["feed", "mail"], workers=["*"])
    same = add_client(path, name="same", services=["feed"], workers=["w-*"])
    async with opened(tmp_path, zmq_keys=str(path)) as gateway:
        owner = gateway.connect(**curve(first))
        other = gateway.connect(**curve(wider))
        rotated = gateway.connect(**curve(same))
        said: dict[str, Any] = {"service": "feed", "protocol": 2}
        await owner.ask(register("w-1", incarnation=1, **said))

        refused = [
            await other.ask(register("w-1", incarnation=2, **said)),
            await other.ask(heartbeat("w-1", EVERYTHING, incarnation=1, seq=9, **said)),
            await other.ask(leave("w-1", service="feed", incarnation=1)),
        ]
        taken = await rotated.ask(register("w-1", incarnation=2, **said))

    assert [json.loads(one)["data"]["code"] for one in refused] == ["forbidden"] * 3
    assert json.loads(taken)["data"]["assignedShards"] == EVERYTHING


# --- where it may listen ------------------------------------------------------------------------


async def refusal(folder: Path, **settings: Any) -> str:
    with pytest.raises((Invalid, Unavailable)) as refused:
        async with served(folder, **settings):
            pass
    return refused.value.detail


async def test_strangers_are_not_let_near_without_keys(tmp_path: Path) -> None:
    assert "--zmq-keys" in await refusal(tmp_path, zmq_host="0.0.0.0")
    assert "--zmq-keys" in await refusal(tmp_path, require_token=True)
    async with served(tmp_path, zmq_host="0.0.0.0", insecure=True) as api:
        assert "ZeroMQ on 0.0.0.0" in api.node.authenticator.warnings()[-1]


async def test_with_keys_strangers_may_be_near(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    create_keys(path)

    async with opened(tmp_path, zmq_host="*", zmq_keys=str(path)) as gateway:
        assert gateway.url.startswith("tcp://0.0.0.0:")
        assert gateway.api.node.authenticator.warnings() == []


async def test_where_a_token_is_required_there_is_no_open_door_beside(tmp_path: Path) -> None:
    async with served(tmp_path, require_token=True, zmq_port=None) as api:
        assert api.node.shards_url is None


async def test_keys_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    assert "none.toml" in await refusal(tmp_path, zmq_keys=str(tmp_path / "none.toml"))
