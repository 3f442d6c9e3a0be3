"""A hundred peers that read, and beside them one that never does: they do not feel it."""

import asyncio
import statistics
import time
from contextlib import AsyncExitStack

import pytest

from tests.gateways.serving import Api
from tests.gateways.websocket.deaf_peers import DeafPeer, deaf_peer
from tests.gateways.websocket.talking import MAIN, Peer, peer, until

pytestmark = pytest.mark.slow

READERS = 100
PAIRS = 6  # of blocks, one with and one without the deaf peer, in turn
ROUNDS_A_BLOCK = 4
MOST_CHANGE = 1.10
TRIES = 8  # a machine that is busy with something else can spoil a measurement, not all of them
LARGE = "x" * 200_000


async def asked_ms(reader: Peer) -> float:
    began = time.perf_counter()
    await reader.ask("get_status")
    return (time.perf_counter() - began) * 1000


async def block(readers: list[Peer]) -> float:
    """All ask at once, several times; the usual time of an answer."""
    taken: list[float] = []
    for _ in range(ROUNDS_A_BLOCK):
        taken += await asyncio.gather(*map(asked_ms, readers))
    return statistics.median(taken)


async def block_beside_a_deaf_peer(api: Api, readers: list[Peer], number: int) -> float:
    """The same while more waits for one than its connection holds: tasks, events, answers."""
    async with deaf_peer(api, f"deaf-{number}") as deaf:
        worker = {"workerId": f"deaf-{number}", "maxConcurrentTasks": 100}
        await deaf.say("register_worker", worker, to="coordinator:deaf")
        await deaf.say("subscribe", {"types": [], "after": 0})
        asking = asyncio.create_task(ask_for_ever(deaf))
        await until(lambda: not all(one.has_capacity for one in api.node.sockets._open))
        taken = await block(readers)
        asking.cancel()
        return taken


async def ask_for_ever(deaf: DeafPeer) -> None:
    while True:
        await deaf.say("get_status", id="y" * 50_000)


async def change(api: Api, readers: list[Peer], attempt: int) -> float:
    """How many times longer the usual answer takes beside one that never reads."""
    alone: list[float] = []
    beside: list[float] = []
    for pair in range(PAIRS):
        alone.append(await block(readers))
        beside.append(await block_beside_a_deaf_peer(api, readers, attempt * PAIRS + pair))
        await until(lambda: api.node.sockets.open_sockets == READERS)
    # Whatever else the machine does only adds to a block: the least disturbed ones are compared.
    return min(beside) / min(alone)


async def test_a_hundred_peers_do_not_feel_one_that_never_reads(api: Api) -> None:
    async with AsyncExitStack() as stack:
        readers = [await stack.enter_async_context(peer(api)) for _ in range(READERS)]
        for number in range(20):
            task = {"taskId": f"large-{number}", "payload": LARGE}
            await readers[0].assign(task, "coordinator:deaf")
        assert (await readers[1].ask("get_status", MAIN))["queuedTasks"] == 0

        changes: list[float] = []
        while not changes or (min(changes) > MOST_CHANGE and len(changes) < TRIES):
            changes.append(await change(api, readers, len(changes)))

    assert min(changes) <= MOST_CHANGE, changes
