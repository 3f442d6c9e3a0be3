"""Peers that finish their messages keep their connections, however much they send."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rota.gateways.zeromq import binding, byte_meter
from rota.gateways.zeromq.auth.keys import add_client, create_keys
from tests.gateways.zeromq.dealers import Dealer, Gateway, assigned, heartbeat, opened, register
from tests.gateways.zeromq.test_curve import curve

COUNT = 120  # shards; the heartbeats with few of them have short frames, the others long ones
PING_EVERY_MS = 100
SMALL_LIMIT_BYTES = 20_000
LARGE_BYTES = binding.MAX_MESSAGE_BYTES - 100  # as a body, and with what surrounds it


@asynccontextmanager
async def connected(
    folder: Path, *, is_encrypted: bool, **options: Any
) -> AsyncIterator[tuple[Gateway, Dealer]]:
    """A member of a gateway with keys or without, with all shards."""
    settings = {}
    if is_encrypted:
        path = folder / "keys.toml"
        create_keys(path)
        options |= curve(add_client(path, name="busy", services=["*"], workers=["*"]))
        settings = {"zmq_keys": str(path)}
    async with opened(folder, **settings) as gateway:
        dealer = gateway.connect(**options)
        assert await dealer.ask(register("w", count=COUNT)) == assigned(range(COUNT))
        yield gateway, dealer


async def exchange(dealer: Dealer, beats: list[bytes], *, in_flight: int) -> None:
    """Send them all, some ahead of the answers."""
    for beat in beats[:in_flight]:
        await dealer.say(beat)
    for beat in [*beats[in_flight:], *[b""] * in_flight]:
        assert await dealer.hear() == assigned(range(COUNT))
        if beat:
            await dealer.say(beat)


@pytest.mark.parametrize("is_encrypted", [False, True])
async def test_thousands_of_small_messages_do_not_bring_a_peer_to_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_encrypted: bool
) -> None:
    monkeypatch.setattr(binding, "MAX_UNFINISHED_BYTES", SMALL_LIMIT_BYTES)
    monkeypatch.setattr(binding, "MAX_UNFINISHED_BYTES_TOTAL", SMALL_LIMIT_BYTES)
    monkeypatch.setattr(byte_meter, "BACKLOG_FACTOR", 1)
    monkeypatch.setattr(byte_meter, "MEASURE_EVERY_S", 0.001)
    beats = [heartbeat("w", range(held), count=COUNT) for held in range(COUNT)] * 60
    async with connected(tmp_path, is_encrypted=is_encrypted, heartbeat_ivl=PING_EVERY_MS) as (
        gateway,
        dealer,
    ):
        await exchange(dealer, beats, in_flight=20)

        assert gateway.metrics.dropped_peers == {}
    assert sum(map(len, beats)) > 50 * SMALL_LIMIT_BYTES


@pytest.mark.slow
@pytest.mark.parametrize("is_encrypted", [False, True])
@pytest.mark.parametrize("in_flight", [1, 3, 10])
async def test_messages_as_large_as_is_allowed_do_not_bring_a_peer_to_the_limit(
    tmp_path: Path, in_flight: int, *, is_encrypted: bool
) -> None:
    beat = heartbeat("w", range(COUNT), count=COUNT).ljust(LARGE_BYTES)
    async with connected(tmp_path, is_encrypted=is_encrypted) as (gateway, dealer):
        await exchange(dealer, [beat] * 60, in_flight=in_flight)

        assert gateway.metrics.dropped_peers == {}


@pytest.mark.slow
async def test_large_and_small_messages_in_turn_do_not_bring_a_peer_to_the_limit(
    tmp_path: Path,
) -> None:
    small = heartbeat("w", range(COUNT), count=COUNT)
    async with connected(tmp_path, is_encrypted=False) as (gateway, dealer):
        await exchange(dealer, [small, small.ljust(LARGE_BYTES)] * 60, in_flight=6)

        assert gateway.metrics.dropped_peers == {}
