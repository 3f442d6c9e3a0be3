from pathlib import Path

from rota.core.workers.model import Health
from tests.conftest import TurnedClock
from tests.engine.running import running
from tests.engine.sharding import EVERYTHING, Peer, owned, service, sweep, two


async def test_a_restart_costs_nobody_a_shard(tmp_path: Path, clock: TurnedClock) -> None:
    async with running(tmp_path / "rota.db", clock) as engine:
        a, b = await two(engine)
        before = await service(engine)
    clock.turn(3_600_000)

    async with running(tmp_path / "rota.db", clock) as engine:
        await sweep(engine)
        assert await owned(engine) == {"a": a.holds, "b": b.holds}
        assert {one.health for one in (await service(engine)).members} == {Health.HEALTHY}
        for peer in (a, b):
            peer.engine = engine
            peer.seq = 0
            told = await peer.beat()
            assert (told.status, told.shards) == ("ok", peer.holds)
        await sweep(engine, 10_000)
        assert await owned(engine) == {"a": (0, 1, 2, 3, 4), "b": (5, 6, 7, 8, 9)}
        assert (await service(engine)).generation == before.generation
        await a.leave()
        await sweep(engine, 100)
        assert (await service(engine)).generation > before.generation
        assert (await service(engine)).members[0].epochs == (2,) * 10


async def test_what_was_under_way_goes_on_after_a_restart(
    tmp_path: Path, clock: TurnedClock
) -> None:
    async with running(tmp_path / "rota.db", clock) as engine:
        a, b = Peer(engine, "a"), Peer(engine, "b")
        await a.register()
        await b.register()
        await sweep(engine, 2_500)
        assert (await service(engine)).moving == 5

    async with running(tmp_path / "rota.db", clock) as engine:
        assert (await service(engine)).moving == 5
        a.engine = b.engine = engine
        await a.beat()
        told = await b.beat()

    assert (a.holds, told.shards) == ((0, 1, 2, 3, 4), (5, 6, 7, 8, 9))


async def test_who_does_not_come_back_after_a_restart_loses_its_shards_a_lease_later(
    tmp_path: Path, clock: TurnedClock
) -> None:
    async with running(tmp_path / "rota.db", clock) as engine:
        a, _ = await two(engine)

    async with running(tmp_path / "rota.db", clock) as engine:
        a.engine = engine
        for _ in range(4):
            await a.beat()
            await sweep(engine, 4_000)

        assert await owned(engine) == {"a": EVERYTHING}
