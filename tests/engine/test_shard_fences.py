import asyncio

import pytest
from msgspec import Raw

from rota.core.commands import EpochClaim, Result
from rota.core.shards.commands import DrainMember, SaveCheckpoint
from rota.core.tasks.model import TaskState
from rota.errors import StaleEpoch
from tests.engine.running import Engine, done, settle
from tests.engine.sharding import SERVICE, Peer, settled, sweep, two


def claim(peer: Peer, shard: int) -> EpochClaim:
    assert peer.told is not None
    return EpochClaim(SERVICE, shard, peer.told.epochs[peer.told.shards.index(shard)])


async def test_a_result_under_the_current_epoch_is_accepted(engine: Engine) -> None:
    a, _ = await two(engine)
    worker = await engine.register()
    (task_id,) = await engine.submit()
    (task,) = await engine.lease(worker)

    outcomes = await engine.report(worker, done(task, claim=claim(a, 0)))

    assert outcomes == ["accepted"]
    assert (await engine.task(task_id)).state is TaskState.SUCCEEDED


@pytest.mark.parametrize(
    "stale",
    [
        EpochClaim(SERVICE, 5, 1),
        EpochClaim(SERVICE, 5, 3),
        EpochClaim(SERVICE, 10, 1),
        EpochClaim(SERVICE, -1, 1),
        EpochClaim("none", 0, 1),
    ],
    ids=["old", "never was", "no such shard", "below zero", "no such service"],
)
async def test_a_result_under_another_epoch_is_refused_and_the_lease_stays(
    engine: Engine, stale: EpochClaim
) -> None:
    await two(engine)
    worker = await engine.register()
    (task_id,) = await engine.submit()
    (task,) = await engine.lease(worker)

    assert await engine.report(worker, done(task, claim=stale)) == ["stale_epoch"]

    assert (await engine.task(task_id)).state is TaskState.RUNNING
    figures = engine.coordinator.metrics()
    assert figures.refused_results == {"stale_epoch": 1}
    assert figures.fenced_effects == 1
    assert figures.services[SERVICE].fenced_effects == (stale.service == SERVICE)
    assert "none" not in figures.services
    assert await engine.report(worker, done(task)) == ["accepted"]


async def test_a_result_is_held_against_what_the_same_batch_has_changed(engine: Engine) -> None:
    a, b = await two(engine)
    await engine.coordinator.execute(DrainMember(service=SERVICE, worker_id="a"))
    worker = await engine.register()
    await engine.submit("one", "two")
    tasks = await engine.lease(worker)
    mine, theirs = claim(a, 0), claim(b, 9)
    await sweep(engine, 100)
    await settle()

    outcomes, _ = await asyncio.gather(
        engine.report(worker, done(tasks[0], claim=mine), done(tasks[1], claim=theirs)), a.beat()
    )

    assert outcomes == ["stale_epoch", "accepted"]


async def test_a_lease_that_has_moved_on_is_named_before_an_epoch_that_has(engine: Engine) -> None:
    await two(engine)
    worker = await engine.register()
    await engine.submit()
    (task,) = await engine.lease(worker)

    outcomes = await engine.report(
        worker, Result(task.id, task.fence + 1, claim=EpochClaim(SERVICE, 0, 99))
    )

    assert outcomes == ["stale"]


async def test_a_checkpoint_is_kept_with_the_epoch_it_was_saved_under(engine: Engine) -> None:
    a, b = await two(engine)
    shard, queries = engine.coordinator.execute, engine.coordinator.queries

    for value in (b"1", b'{"offset":2}'):
        await shard(SaveCheckpoint(service=SERVICE, shard=5, epoch=2, value=Raw(value)))
    with pytest.raises(StaleEpoch) as refusal:
        await shard(SaveCheckpoint(service=SERVICE, shard=5, epoch=1, value=Raw(b"9")))

    assert refusal.value.facts == {"service": SERVICE, "shard": 5, "epoch": 1}
    found = await queries.services.checkpoint(SERVICE, 5)
    assert found is not None
    assert (found.epoch, found.value, found.saved_at_ms) == (
        2,
        Raw(b'{"offset":2}'),
        engine.clock.now_ms(),
    )
    assert await queries.services.checkpoint(SERVICE, 4) is None
    assert engine.coordinator.metrics().services[SERVICE].fenced_effects == 1
    await b.leave()
    await settled(engine, a)
    with pytest.raises(StaleEpoch):
        await shard(SaveCheckpoint(service=SERVICE, shard=5, epoch=2, value=Raw(b"9")))
    assert await queries.services.checkpoint(SERVICE, 5) == found
