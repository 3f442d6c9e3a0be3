"""Locks that a leader holds in memory between batches."""

import asyncio

import pytest

from rota.core.locks import AcquireLock, LockAnswer, ReleaseLock
from rota.errors import Unavailable
from tests.conftest import TurnedClock
from tests.engine.running import Engine, settle
from tests.engine.sharing import replicas


def acquire(owner: str, wait_ms: int = 0) -> AcquireLock:
    return AcquireLock(name="door", owner=owner, ttl_ms=60_000, wait_ms=wait_ms)


def release(answer: LockAnswer) -> ReleaseLock:
    assert answer.fence is not None
    return ReleaseLock(name="door", owner=answer.owner, fence=answer.fence)


async def test_fences_rise_through_locks_that_are_held_in_memory(engine: Engine) -> None:
    first = await engine.execute(acquire("ann"))
    await engine.execute(release(first))
    second = await engine.execute(acquire("bob"))

    assert first.acquired
    assert second.acquired
    assert (second.fence or 0) > (first.fence or 0)
    assert len(engine.coordinator.leading.pipeline._locks) == 1


async def test_a_lock_of_a_failed_batch_is_read_again(engine: Engine) -> None:
    first = await engine.execute(acquire("ann"))
    engine.database.commit_problem = Unavailable("the disk is gone")
    with pytest.raises(Unavailable):
        await engine.execute(release(first))
    engine.database.commit_problem = None

    refused = await engine.execute(acquire("bob"))

    assert not refused.acquired
    assert refused.holder == "ann"


async def test_a_lock_that_is_free_again_can_be_acquired_by_a_waiter(engine: Engine) -> None:
    first = await engine.execute(acquire("ann"))
    waiting = asyncio.ensure_future(engine.execute(acquire("bob", wait_ms=60_000)))
    await asyncio.sleep(0)
    await engine.execute(release(first))

    assert (await waiting).acquired


async def test_waiters_of_a_coordinator_that_left_are_not_held_as_present(
    clock: TurnedClock,
) -> None:
    async with replicas(clock) as (leader, follower):
        first = await leader.execute(acquire("ann"))
        waiting = asyncio.ensure_future(follower.execute(acquire("bob", wait_ms=60_000)))
        await settle()
        assert (await leader.coordinator.queries.locks.status("door")).waiting == 1
        waiting.cancel()
        await follower.coordinator.execute(follower.coordinator.membership.presence.goodbye)
        await leader.execute(release(first))

        assert (await leader.execute(acquire("cy"))).acquired
