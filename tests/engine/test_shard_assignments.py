import asyncio

from rota.core.shards.commands import DrainMember
from tests.engine.running import Engine, settle, soon
from tests.engine.sharding import EVERYTHING, SERVICE, Peer, owned, sweep, two


async def test_who_asked_is_answered_and_the_others_are_pushed(engine: Engine) -> None:
    a, b = await two(engine)
    a.pushes.clear()
    b.pushes.clear()
    await engine.coordinator.execute(DrainMember(service=SERVICE, worker_id="a"))
    await sweep(engine, 100)
    await settle()
    assert [one.revoking for one in a.pushes] == [(0, 1, 2, 3, 4)]
    a.pushes.clear()

    await a.beat()
    await settle()

    assert a.pushes == []
    assert [one.shards for one in b.pushes] == [EVERYTHING]
    assert b.pushes[0].seq is None


async def test_what_changes_later_in_the_batch_goes_into_the_answer(engine: Engine) -> None:
    a, b = await two(engine)
    await engine.coordinator.execute(DrainMember(service=SERVICE, worker_id="a"))
    await sweep(engine, 100)
    await settle()
    b.pushes.clear()

    told, _ = await asyncio.gather(b.beat(), a.beat())
    await settle()

    assert told.shards == EVERYTHING
    assert told.seq == b.seq
    assert b.pushes == []


async def test_an_answer_that_has_to_wait_is_pushed(engine: Engine) -> None:
    a, old = Peer(engine, "a"), Peer(engine, "old", incarnation="")
    await a.register()
    answer = await old.register(protocol=1)
    assert answer.is_pending

    await sweep(engine, 2_500)
    await settle()
    assert old.pushes == []
    await a.beat()
    await settle()

    assert [one.shards for one in old.pushes] == [(5, 6, 7, 8, 9)]


async def test_an_unsubscribed_watcher_hears_no_more(engine: Engine) -> None:
    a, b = await two(engine)
    b.pushes.clear()

    b.unsubscribe()
    b.unsubscribe()
    await a.leave()
    await sweep(engine, 100)
    await settle()

    assert b.pushes == []
    assert await owned(engine) == {"b": EVERYTHING}


async def test_a_poll_is_answered_by_the_commit_that_changes_something(engine: Engine) -> None:
    a, b = await two(engine)
    assert b.told is not None
    poll = asyncio.create_task(
        engine.coordinator.wait_for_assignment(
            SERVICE, "b", after_generation=b.told.generation, wait_ms=60_000
        )
    )
    await settle()
    assert not poll.done()

    await a.leave()
    await sweep(engine, 100)

    answer = await soon(poll)
    assert answer is not None
    assert answer.shards == EVERYTHING


async def test_a_poll_that_comes_after_the_change_is_answered_at_once(engine: Engine) -> None:
    a, b = await two(engine)
    assert b.told is not None
    known = b.told.generation
    await a.leave()
    await sweep(engine, 100)
    await settle()

    answer = await engine.coordinator.wait_for_assignment(
        SERVICE, "b", after_generation=known, wait_ms=60_000
    )

    assert answer is not None
    assert answer.shards == EVERYTHING


async def test_a_poll_ends_when_its_time_is_over_or_the_coordinator_stops(engine: Engine) -> None:
    _, b = await two(engine)
    assert b.told is not None
    wait = engine.coordinator.wait_for_assignment

    assert await wait(SERVICE, "b", after_generation=b.told.generation, wait_ms=0) is None
    poll = asyncio.create_task(
        wait(SERVICE, "b", after_generation=b.told.generation, wait_ms=60_000)
    )
    await settle()
    engine.coordinator.release_waiting()
    assert await soon(poll) is None
