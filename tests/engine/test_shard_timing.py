import asyncio

from rota.core.shards.commands import ConfigureService, RegisterMember, ShardCommand, SweepServices
from rota.core.shards.members import ShardPolicy
from tests.engine.running import Engine
from tests.engine.sharding import EVERYTHING, SERVICE, Peer, sweep, two
from tests.engine.virtual import in_virtual_time, let_pass


def test_joins_in_a_short_while_are_one_rebalance_and_it_comes_in_time() -> None:
    async def body(engine: Engine) -> None:
        peers = [Peer(engine, name) for name in "abc"]
        await peers[0].register()
        living = [asyncio.create_task(peers[0].live())]
        await let_pass(10_000)
        for peer in peers[1:]:
            await peer.register()
            living.append(asyncio.create_task(peer.live()))
            await let_pass(100)

        await let_pass(ShardPolicy().join_quiet_ms + 60 - 100)

        assert [peer.holds for peer in peers] == [(0, 1, 2, 3), (4, 5, 6), (7, 8, 9)]
        assert engine.coordinator.metrics().services[SERVICE].rebalances == 2
        for one in living:
            one.cancel()

    in_virtual_time(body)


async def test_those_who_come_with_a_sweep_are_heard_before_it(engine: Engine) -> None:
    await two(engine)
    await Peer(engine, "c").register()
    before = engine.coordinator.metrics().services[SERVICE].rebalances
    engine.clock.turn(ShardPolicy().join_quiet_ms)

    joins: list[ShardCommand] = [SweepServices()]
    joins += [RegisterMember(service=SERVICE, worker_id=name, shard_count=10) for name in "def"]
    together = [engine.coordinator.execute(one) for one in joins]
    await asyncio.gather(*together)

    assert engine.coordinator.metrics().services[SERVICE].rebalances == before
    await sweep(engine, ShardPolicy().join_quiet_ms)
    assert engine.coordinator.metrics().services[SERVICE].rebalances == before + 1


async def test_a_long_commit_is_no_quiet_time(engine: Engine) -> None:
    policy = ShardPolicy()
    a, b = await two(engine)
    await Peer(engine, "c").register()
    before = engine.coordinator.metrics().services[SERVICE].rebalances
    engine.database.on_commit = lambda: engine.clock.turn(policy.join_quiet_ms)
    await a.beat()
    engine.database.on_commit = None

    await sweep(engine)
    assert engine.coordinator.metrics().services[SERVICE].rebalances == before
    engine.database.on_commit = lambda: engine.clock.turn(policy.deaf_ms)
    await b.beat()
    engine.database.on_commit = None
    await sweep(engine, policy.join_quiet_ms - policy.deaf_ms)

    # A commit that is not that long is nothing out of the ordinary.
    assert engine.coordinator.metrics().services[SERVICE].rebalances == before + 1


def test_a_planned_leave_hands_over_in_well_under_a_second() -> None:
    async def body(engine: Engine) -> None:
        peers = [Peer(engine, name) for name in "ab"]
        for peer in peers:
            await peer.register()
        living = [asyncio.create_task(peer.live()) for peer in peers]
        await let_pass(20_000)
        assert len(peers[1].holds) == 5
        living[0].cancel()

        await peers[0].leave()
        await let_pass(60)

        assert peers[1].holds == EVERYTHING
        living[1].cancel()

    in_virtual_time(body)


def test_several_losses_are_one_rebalance_within_a_lease_and_a_second() -> None:
    async def body(engine: Engine) -> None:
        peers = [Peer(engine, name) for name in "abcd"]
        for peer in peers:
            await peer.register()
        living = [asyncio.create_task(peer.live()) for peer in peers]
        await let_pass(20_000)
        figures = engine.coordinator.metrics().services[SERVICE]
        before = figures.rebalances
        assert [len(peer.holds) for peer in peers] == [3, 3, 2, 2]

        for one, peer in zip(living[:2], peers[:2], strict=True):
            one.cancel()
            await peer.beat()
        await let_pass(14_900)
        assert len(peers[3].holds) == 2
        await let_pass(1_100)

        assert figures.rebalances == before + 1
        assert figures.departures == {"expired": 2}
        assert sorted(peers[2].holds + peers[3].holds) == [*EVERYTHING]
        for one in living[2:]:
            one.cancel()

    in_virtual_time(body)


def test_without_services_time_is_looked_at_once_a_second_and_nothing_is_written() -> None:
    async def body(engine: Engine) -> None:
        await let_pass(500)
        runs = engine.coordinator.metrics().duty_runs_ms
        swept = set()
        for _ in range(100):
            await let_pass(100)
            swept.add(runs["shards"])
        assert 10 <= len(swept) <= 11

    in_virtual_time(body)


def test_with_services_time_is_looked_at_every_half_second() -> None:
    async def body(engine: Engine) -> None:
        await engine.coordinator.execute(ConfigureService(service=SERVICE, shard_count=1))
        await let_pass(1_500)
        runs = engine.coordinator.metrics().duty_runs_ms
        swept = set()
        for _ in range(100):
            await let_pass(100)
            swept.add(runs["shards"])
        assert 20 <= len(swept) <= 21

    in_virtual_time(body)
