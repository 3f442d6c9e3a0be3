import asyncio

import pytest

from rota.core.workers.model import Health
from rota.errors import Unavailable
from tests.engine.running import Engine
from tests.engine.sharding import Peer, service, sweep, two


async def seen_ms(engine: Engine) -> dict[str, int]:
    return {one.worker_id: one.seen_ms for one in (await service(engine)).members}


@pytest.mark.only("sqlite")  # see test_shared_services
async def test_beats_that_change_nothing_are_written_together_within_a_second(
    engine: Engine,
) -> None:
    a, b = await two(engine)
    await sweep(engine, 1_000)
    before = await seen_ms(engine)

    engine.clock.turn(100)
    heard_ms = engine.clock.now_ms()
    await a.beat()
    engine.clock.turn(100)
    await asyncio.gather(a.beat(), b.beat())
    assert await seen_ms(engine) == before
    await sweep(engine, 500)

    assert await seen_ms(engine) == {"a": heard_ms + 100, "b": heard_ms + 100}


async def test_beats_go_with_whatever_is_written_anyway(engine: Engine) -> None:
    a, _ = await two(engine)
    await sweep(engine, 1_000)
    await a.beat()

    await Peer(engine, "c").register()

    assert (await seen_ms(engine))["a"] == engine.clock.now_ms()


async def test_beats_that_were_to_be_written_with_a_broken_batch_are_not_forgotten(
    engine: Engine,
) -> None:
    a, _ = await two(engine)
    await sweep(engine, 1_000)
    await a.beat()
    heard_ms = engine.clock.now_ms()
    engine.database.commit_problem = OSError("disk full")
    with pytest.raises(Unavailable):
        await Peer(engine, "z").register(service="other")
    engine.database.commit_problem = None

    await sweep(engine, 1_000)

    assert (await seen_ms(engine))["a"] == heard_ms


async def test_health_is_judged_by_the_one_rule(engine: Engine) -> None:
    await Peer(engine, "a").register()

    verdicts = []
    for by_ms in (10_000, 1, 4_999, 1):
        engine.clock.turn(by_ms)
        verdicts.append((await service(engine)).members[0].health)

    assert verdicts == [Health.HEALTHY, Health.DEGRADED, Health.DEGRADED, Health.UNHEALTHY]
