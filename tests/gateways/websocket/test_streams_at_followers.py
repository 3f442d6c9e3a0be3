"""Streaming workers at a coordinator that follows: the leader encodes their leases."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.gateways.replicas import served_pair
from tests.gateways.serving import Api
from tests.gateways.websocket.streaming import StreamPeer, number_of, numbers, streaming_peer

Pair = tuple[Api, Api]


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with served_pair(tmp_path) as (leader, follower):
        yield leader, follower


@pytest.fixture
async def worker(pair: Pair) -> AsyncIterator[StreamPeer]:
    _, follower = pair
    async with streaming_peer(follower) as one:
        yield one


async def test_a_lease_carries_what_its_task_has(pair: Pair, worker: StreamPeer) -> None:
    leader, follower = pair
    wanted = {"queue": "q", "priority": 7, "timeout_ms": 60_000, "key": "k", "labels": ["a"]}
    task = await leader.submit(payload={"n": 1}, max_attempts=5, **wanted)
    created_at_ms = (await follower.task(task["id"]))["created_at_ms"]
    await worker.open()

    await worker.credit(1)
    (lease,) = await worker.leases()

    assert lease[:9] == [
        number_of(task["id"]), 1, "work", b'{"n":1}', 1, 5, "q", 7, created_at_ms
    ]  # fmt: skip
    assert lease[10:] == [60_000, "k", ["a"], None]


async def test_work_comes_as_far_as_there_is_room_and_its_results_are_kept(
    pair: Pair, worker: StreamPeer
) -> None:
    leader, follower = pair
    tasks = [await leader.submit() for _ in range(5)]
    await worker.open()

    await worker.credit(3)
    leases = await worker.leases()
    noted = await worker.report(*([lease[0], lease[1]] for lease in leases), free=3)

    assert [lease[0] for lease in leases] == numbers(*tasks[:3])
    assert noted["count"] == 3
    assert [lease[0] for lease in await worker.leases()] == numbers(*tasks[3:])
    assert (await follower.task(tasks[0]["id"]))["state"] == "succeeded"


async def test_large_payloads_come_in_several_frames_and_none_is_lost(
    pair: Pair, worker: StreamPeer
) -> None:
    leader, _ = pair
    tasks = [await leader.submit(payload="x" * 700_000) for _ in range(3)]
    await worker.open()

    await worker.credit(3)
    frames = [await worker.leases() for _ in range(3)]

    assert [[lease[0] for lease in frame] for frame in frames] == [[one] for one in numbers(*tasks)]
