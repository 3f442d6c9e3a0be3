import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import pytest
from msgspec import Raw

from rota.core.commands import Command
from rota.core.shards import assignments
from rota.core.shards.commands import DrainMember, SaveCheckpoint, SweepServices
from rota.core.shards.members import Assignment
from rota.engine.commit.request import QueuedCommand
from rota.errors import Invalid, MemberNotFound, ServiceNotFound, Unavailable
from tests.engine.running import TIMEOUT_S, Engine, running
from tests.engine.sharding import SERVICE, Peer, owned, service, settled, sweep, two

T = TypeVar("T")


async def at_once(*calls: Awaitable[T]) -> list[T | BaseException]:
    return await asyncio.gather(*calls, return_exceptions=True)


async def test_a_refused_event_fails_alone(engine: Engine) -> None:
    a = Peer(engine, "a")
    commits = engine.database.commits

    first, refused, last = await at_once(
        a.register(),
        engine.execute(DrainMember(service=SERVICE, worker_id="none")),
        Peer(engine, "b").register(),
    )

    assert isinstance(first, Assignment)
    assert isinstance(refused, MemberNotFound)
    assert isinstance(last, Assignment)
    assert engine.database.commits == commits + 1
    assert (await owned(engine)).keys() == {"a", "b"}


async def test_an_event_that_is_refused_half_way_leaves_nothing_of_itself(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = await two(engine)
    before = await service(engine)

    def refuses(*_: Any, **__: Any) -> NoReturn:
        raise Invalid("refused too late")

    monkeypatch.setattr(assignments, "begin_waiting", refuses)
    told, refused, left = await at_once(a.beat(), Peer(engine, "c").register(), b.beat())

    assert isinstance(told, Assignment)
    assert isinstance(left, Assignment)
    assert isinstance(refused, Invalid)
    assert engine.coordinator.metrics().failed_batches == 2
    after = await service(engine)
    assert [one.worker_id for one in after.members] == ["a", "b"]
    assert after.generation == before.generation


async def test_a_batch_that_is_rolled_back_never_happened(engine: Engine) -> None:
    a, b = await two(engine)
    before = await service(engine)

    engine.database.commit_problem = OSError("disk full")
    with pytest.raises(Unavailable):
        await a.leave()
    engine.database.commit_problem = None

    assert await service(engine) == before
    assert (await a.beat()).shards == a.holds == (0, 1, 2, 3, 4)
    await settled(engine, a, b)
    assert await owned(engine) == {"a": (0, 1, 2, 3, 4), "b": (5, 6, 7, 8, 9)}


async def test_a_service_whose_making_was_rolled_back_is_not_there(engine: Engine) -> None:
    engine.database.commit_problem = OSError("disk full")
    with pytest.raises(Unavailable):
        await Peer(engine, "a").register()
    engine.database.commit_problem = None
    await sweep(engine)

    assert await engine.coordinator.queries.services.all() == []
    with pytest.raises(ServiceNotFound):
        await engine.coordinator.execute(DrainMember(service=SERVICE, worker_id="a"))
    assert (await Peer(engine, "a").register()).generation == 1


async def test_answers_may_be_given_by_calls_and_one_that_breaks_is_alone(engine: Engine) -> None:
    coordinator, given = engine.coordinator, asyncio.Queue[Any]()
    peers = [Peer(engine, name) for name in "ab"]

    def break_down(_: object) -> None:
        raise ZeroDivisionError

    coordinator.execute(peers[0].said(), on_reply=break_down)
    coordinator.execute(DrainMember(service=SERVICE, worker_id="z"), on_reply=given.put_nowait)
    coordinator.execute(peers[1].said(), on_reply=given.put_nowait)
    async with asyncio.timeout(TIMEOUT_S):
        refused, answer = await given.get(), await given.get()

    assert isinstance(refused, MemberNotFound)
    assert answer.worker_id == "b"
    assert [one["event"] for one in engine.log].count("reply_failed") == 1


async def test_nothing_is_heard_after_the_stop(engine: Engine) -> None:
    await engine.coordinator.stop()

    with pytest.raises(Unavailable):
        engine.coordinator.execute(Peer(engine, "a").said(), on_reply=print)


async def test_a_beat_is_a_matter_of_the_loop_and_a_sweep_is_not(engine: Engine) -> None:
    beat = Peer(engine, "a").said()
    long = Peer(engine, "b").said(holds=tuple(range(100_000)))
    checkpoint = SaveCheckpoint(service=SERVICE, shard=0, epoch=1, value=Raw(b"1"))
    future = asyncio.get_running_loop().create_future()

    def is_cheap(event: Command) -> bool:
        return QueuedCommand(event, future, can_wait=False).is_cheap

    assert is_cheap(beat)
    assert is_cheap(checkpoint)
    assert not is_cheap(long)
    assert not is_cheap(SweepServices())


async def test_services_are_kept_by_a_writer_with_a_thread_too(tmp_path: Path) -> None:
    async with running(tmp_path / "rota.db", inline=False, duties=True) as engine:
        peers = [Peer(engine, name) for name in "abc"]

        await asyncio.gather(*[peer.register() for peer in peers])
        await asyncio.gather(*[peer.beat() for peer in peers * 20])
        await engine.coordinator.execute(SweepServices())

        assert len(await owned(engine)) == 3
        assert (await service(engine)).unowned == 0
