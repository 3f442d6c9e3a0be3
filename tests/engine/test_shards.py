import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from msgspec import Raw

from rota.core.events import Result, ShardClaim
from rota.core.shards import decide as rules
from rota.core.shards.events import (
    ConfigureService,
    DrainMember,
    LeaveMember,
    RegisterMember,
    SaveCheckpoint,
    ShardEvent,
    SweepServices,
)
from rota.core.shards.members import Assignment, ShardPolicy
from rota.core.shards.service import Service
from rota.core.tasks import TaskState
from rota.core.workers import Health
from rota.engine import shards
from rota.engine.batch import Anything
from rota.engine.entries import Entry
from rota.errors import (
    Invalid,
    MemberNotFound,
    RotaError,
    ServiceNotFound,
    StaleEpoch,
    TooMany,
    Unavailable,
)
from tests.conftest import TurnedClock
from tests.engine.running import TIMEOUT_S, Engine, done, running, settle, soon
from tests.engine.sharding import SERVICE, Peer, owned, service, settled, sweep
from tests.engine.virtual import in_virtual_time, let_pass

T = TypeVar("T")

EVERYTHING = tuple(range(10))


async def two(engine: Engine) -> tuple[Peer, Peer]:
    """Two members that share ten shards."""
    one, other = Peer(engine, "a"), Peer(engine, "b")
    await one.register()
    await other.register()
    await settled(engine, one, other)
    return one, other


# --- joining and leaving --------------------------------------------------------------------------


async def test_a_lone_member_is_given_everything_at_once(engine: Engine) -> None:
    answer = await Peer(engine, "a").register()

    assert answer.shards == EVERYTHING
    assert answer.epochs == (1,) * 10
    found = await service(engine)
    assert (found.shard_count, found.unowned, found.moving) == (10, 0, 0)
    assert found.generation == answer.generation
    (member,) = found.members
    assert (member.shards, member.epochs, member.target) == (EVERYTHING, (1,) * 10, EVERYTHING)
    assert (member.weight, member.draining, member.health) == (1_000, False, Health.HEALTHY)


async def test_members_share_what_there_is(engine: Engine) -> None:
    a, b = await two(engine)

    assert await owned(engine) == {"a": (0, 1, 2, 3, 4), "b": (5, 6, 7, 8, 9)}
    assert a.holds == (0, 1, 2, 3, 4)
    assert b.holds == (5, 6, 7, 8, 9)
    assert b.told is not None
    assert b.told.epochs == (2,) * 5


async def test_a_shard_is_granted_only_when_its_owner_has_let_go(engine: Engine) -> None:
    a, b = Peer(engine, "a"), Peer(engine, "b")
    await a.register()
    await b.register()

    await sweep(engine, 2_500)

    assert (a.holds, b.holds) == ((0, 1, 2, 3, 4), ())
    found = await service(engine)
    assert found.moving == 5
    assert await owned(engine) == {"a": EVERYTHING, "b": ()}
    await a.beat(holds=(0, 1, 2, 3, 4, 9))
    await settle()
    assert b.holds == (5, 6, 7, 8)
    assert await owned(engine) == {"a": (0, 1, 2, 3, 4, 9), "b": (5, 6, 7, 8)}


async def test_who_leaves_hands_over_and_is_no_member_any_more(engine: Engine) -> None:
    a, b = await two(engine)

    await a.leave()
    await sweep(engine, 100)
    await settle()

    assert b.holds == EVERYTHING
    assert await owned(engine) == {"b": EVERYTHING}
    await a.leave()  # twice is no mistake


async def test_who_drains_is_given_nothing_more(engine: Engine) -> None:
    a, b = await two(engine)

    await engine.coordinator.shard(DrainMember(service=SERVICE, worker_id="a"))
    await settled(engine, a, b)

    assert await owned(engine) == {"a": (), "b": EVERYTHING}
    found = await service(engine)
    assert [one.draining for one in found.members] == [True, False]


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (DrainMember(service="none", worker_id="a"), ServiceNotFound),
        (DrainMember(service=SERVICE, worker_id="none"), MemberNotFound),
        (SaveCheckpoint(service="none", shard=0, epoch=1, value=Raw(b"1")), ServiceNotFound),
    ],
)
async def test_nothing_is_done_for_those_who_are_not_there(
    engine: Engine, event: Any, error: type[RotaError]
) -> None:
    await Peer(engine, "a").register()
    before = await engine.coordinator.queries.services()

    with pytest.raises(error):
        await engine.coordinator.shard(event)

    assert await engine.coordinator.queries.services() == before


async def test_a_leave_from_a_service_that_never_was_makes_none(engine: Engine) -> None:
    await engine.coordinator.shard(LeaveMember(service="none", worker_id="a"))

    assert await engine.coordinator.queries.services() == []


async def test_an_operator_makes_and_changes_a_service(engine: Engine) -> None:
    await engine.coordinator.shard(
        ConfigureService(service=SERVICE, shard_count=4, pinned=True, min_protocol=2)
    )

    found = await service(engine)
    assert (found.shard_count, found.pinned, found.min_protocol) == (4, True, 2)
    assert (found.unowned, found.members) == (4, ())
    assert (await Peer(engine, "a", count=99).register()).shards == (0, 1, 2, 3)


async def test_there_are_only_so_many_services(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.core.limits.MAX_SERVICES", 1)
    await Peer(engine, "a").register()

    with pytest.raises(TooMany, match="1 services already"):
        await Peer(engine, "a").register(service="other")

    assert (await Peer(engine, "b").register()).status == "ok"


async def test_the_same_worker_in_two_services_is_two_members(engine: Engine) -> None:
    a = Peer(engine, "a")
    await a.register()
    await a.register(service="other", shard_count=3)
    await a.leave()

    names = {one.name: one.members for one in await engine.coordinator.queries.services()}
    assert names == {SERVICE: 0, "other": 1}


# --- one transaction ------------------------------------------------------------------------------


async def at_once(*calls: Awaitable[T]) -> list[T | BaseException]:
    return await asyncio.gather(*calls, return_exceptions=True)


async def test_a_refused_event_fails_alone(engine: Engine) -> None:
    a = Peer(engine, "a")
    commits = engine.database.commits

    first, refused, last = await at_once(
        a.register(),
        engine.coordinator.shard(DrainMember(service=SERVICE, worker_id="none")),
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

    def breaks(it: Service, event: Any, **context: Any) -> Assignment | None:
        answer = rules.decide(it, event, **context)
        if isinstance(event, RegisterMember):
            raise Invalid("refused too late")
        return answer

    monkeypatch.setattr(shards, "decide", breaks)
    told, refused, left = await at_once(a.beat(), Peer(engine, "c").register(), b.beat())

    assert isinstance(told, Assignment)
    assert isinstance(left, Assignment)
    assert isinstance(refused, Invalid)
    assert engine.coordinator.figures().failed_batches == 2
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

    assert await engine.coordinator.queries.services() == []
    with pytest.raises(ServiceNotFound):
        await engine.coordinator.shard(DrainMember(service=SERVICE, worker_id="a"))
    assert (await Peer(engine, "a").register()).generation == 1


async def test_answers_may_be_given_by_calls_and_one_that_breaks_is_alone(engine: Engine) -> None:
    coordinator, given = engine.coordinator, asyncio.Queue[Any]()
    peers = [Peer(engine, name) for name in "ab"]

    def break_down(_: object) -> None:
        raise ZeroDivisionError

    coordinator.hear(peers[0].said(), break_down)
    coordinator.hear(DrainMember(service=SERVICE, worker_id="z"), given.put_nowait)
    coordinator.hear(peers[1].said(), given.put_nowait)
    async with asyncio.timeout(TIMEOUT_S):
        refused, answer = await given.get(), await given.get()

    assert isinstance(refused, MemberNotFound)
    assert answer.worker_id == "b"
    assert [one["event"] for one in engine.log].count("an answer could not be given") == 1


async def test_nothing_is_heard_after_the_stop(engine: Engine) -> None:
    await engine.coordinator.stop()

    with pytest.raises(Unavailable):
        engine.coordinator.hear(Peer(engine, "a").said(), print)


# --- time -----------------------------------------------------------------------------------------


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
        assert engine.coordinator.figures().services[SERVICE].rebalances == 2
        for one in living:
            one.cancel()

    in_virtual_time(body)


async def test_those_who_come_with_a_sweep_are_heard_before_it(engine: Engine) -> None:
    await two(engine)
    await Peer(engine, "c").register()
    before = engine.coordinator.figures().services[SERVICE].rebalances
    engine.clock.turn(ShardPolicy().join_quiet_ms)

    joins: list[ShardEvent] = [SweepServices()]
    joins += [RegisterMember(service=SERVICE, worker_id=name, shard_count=10) for name in "def"]
    together = [engine.coordinator.submit_shard(one) for one in joins]
    await asyncio.gather(*together)

    assert engine.coordinator.figures().services[SERVICE].rebalances == before
    await sweep(engine, ShardPolicy().join_quiet_ms)
    assert engine.coordinator.figures().services[SERVICE].rebalances == before + 1


async def test_a_long_commit_is_no_quiet_time(engine: Engine) -> None:
    policy = ShardPolicy()
    a, b = await two(engine)
    await Peer(engine, "c").register()
    before = engine.coordinator.figures().services[SERVICE].rebalances
    engine.database.on_commit = lambda: engine.clock.turn(policy.join_quiet_ms)
    await a.beat()
    engine.database.on_commit = None

    await sweep(engine)
    assert engine.coordinator.figures().services[SERVICE].rebalances == before
    engine.database.on_commit = lambda: engine.clock.turn(policy.deaf_ms)
    await b.beat()
    engine.database.on_commit = None
    await sweep(engine, policy.join_quiet_ms - policy.deaf_ms)

    # A commit that is not that long is nothing out of the ordinary.
    assert engine.coordinator.figures().services[SERVICE].rebalances == before + 1


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
        figures = engine.coordinator.figures().services[SERVICE]
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
        runs = engine.coordinator.figures().duty_runs_ms
        swept = set()
        for _ in range(100):
            await let_pass(100)
            swept.add(runs["shards"])
        assert 10 <= len(swept) <= 11

    in_virtual_time(body)


def test_with_services_time_is_looked_at_every_half_second() -> None:
    async def body(engine: Engine) -> None:
        await engine.coordinator.shard(ConfigureService(service=SERVICE, shard_count=1))
        await let_pass(1_500)
        runs = engine.coordinator.figures().duty_runs_ms
        swept = set()
        for _ in range(100):
            await let_pass(100)
            swept.add(runs["shards"])
        assert 20 <= len(swept) <= 21

    in_virtual_time(body)


# --- beats ----------------------------------------------------------------------------------------


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


# --- telling --------------------------------------------------------------------------------------


async def test_who_asked_is_answered_and_the_others_are_pushed(engine: Engine) -> None:
    a, b = await two(engine)
    a.pushes.clear()
    b.pushes.clear()
    await engine.coordinator.shard(DrainMember(service=SERVICE, worker_id="a"))
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
    await engine.coordinator.shard(DrainMember(service=SERVICE, worker_id="a"))
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
        engine.coordinator.wait_assignment(
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

    answer = await engine.coordinator.wait_assignment(
        SERVICE, "b", after_generation=known, wait_ms=60_000
    )

    assert answer is not None
    assert answer.shards == EVERYTHING


async def test_a_poll_ends_when_its_time_is_over_or_the_coordinator_stops(engine: Engine) -> None:
    _, b = await two(engine)
    assert b.told is not None
    wait = engine.coordinator.wait_assignment

    assert await wait(SERVICE, "b", after_generation=b.told.generation, wait_ms=0) is None
    poll = asyncio.create_task(
        wait(SERVICE, "b", after_generation=b.told.generation, wait_ms=60_000)
    )
    await settle()
    engine.coordinator.release_parked()
    assert await soon(poll) is None


# --- restarts -------------------------------------------------------------------------------------


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


# --- fences ---------------------------------------------------------------------------------------


def claim(peer: Peer, shard: int) -> ShardClaim:
    assert peer.told is not None
    return ShardClaim(SERVICE, shard, peer.told.epochs[peer.told.shards.index(shard)])


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
        ShardClaim(SERVICE, 5, 1),
        ShardClaim(SERVICE, 5, 3),
        ShardClaim(SERVICE, 10, 1),
        ShardClaim(SERVICE, -1, 1),
        ShardClaim("none", 0, 1),
    ],
    ids=["old", "never was", "no such shard", "below zero", "no such service"],
)
async def test_a_result_under_another_epoch_is_refused_and_the_lease_stays(
    engine: Engine, stale: ShardClaim
) -> None:
    await two(engine)
    worker = await engine.register()
    (task_id,) = await engine.submit()
    (task,) = await engine.lease(worker)

    assert await engine.report(worker, done(task, claim=stale)) == ["stale_epoch"]

    assert (await engine.task(task_id)).state is TaskState.RUNNING
    figures = engine.coordinator.figures()
    assert figures.refused_results == {"stale_epoch": 1}
    assert figures.fenced_effects == 1
    assert figures.services[SERVICE].fenced_effects == (stale.service == SERVICE)
    assert "none" not in figures.services
    assert await engine.report(worker, done(task)) == ["accepted"]


async def test_a_result_is_held_against_what_the_same_batch_has_changed(engine: Engine) -> None:
    a, b = await two(engine)
    await engine.coordinator.shard(DrainMember(service=SERVICE, worker_id="a"))
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
        worker, Result(task.id, task.fence + 1, claim=ShardClaim(SERVICE, 0, 99))
    )

    assert outcomes == ["stale"]


async def test_a_checkpoint_is_kept_with_the_epoch_it_was_saved_under(engine: Engine) -> None:
    a, b = await two(engine)
    shard, queries = engine.coordinator.shard, engine.coordinator.queries

    for value in (b"1", b'{"offset":2}'):
        await shard(SaveCheckpoint(service=SERVICE, shard=5, epoch=2, value=Raw(value)))
    with pytest.raises(StaleEpoch) as refusal:
        await shard(SaveCheckpoint(service=SERVICE, shard=5, epoch=1, value=Raw(b"9")))

    assert refusal.value.facts == {"service": SERVICE, "shard": 5, "epoch": 1}
    found = await queries.checkpoint(SERVICE, 5)
    assert found is not None
    assert (found.epoch, found.value, found.saved_at_ms) == (
        2,
        Raw(b'{"offset":2}'),
        engine.clock.now_ms(),
    )
    assert await queries.checkpoint(SERVICE, 4) is None
    assert engine.coordinator.figures().services[SERVICE].fenced_effects == 1
    await b.leave()
    await settled(engine, a)
    with pytest.raises(StaleEpoch):
        await shard(SaveCheckpoint(service=SERVICE, shard=5, epoch=2, value=Raw(b"9")))
    assert await queries.checkpoint(SERVICE, 5) == found


# --- figures --------------------------------------------------------------------------------------


async def test_figures_tell_how_a_service_does(engine: Engine) -> None:
    a, b = await two(engine)
    await engine.coordinator.shard(DrainMember(service=SERVICE, worker_id="b"))
    await sweep(engine, 3_000)
    await a.beat()
    await sweep(engine, 1_000)

    figures = engine.coordinator.figures().services[SERVICE]
    assert (figures.rebalances, figures.moved, figures.granted) == (3, 10, 15)
    assert (figures.forced, figures.departures, figures.fenced_effects) == (0, {}, 0)
    assert figures.beats == a.seq + b.seq
    gauges = figures.gauges
    assert gauges is not None
    assert (gauges.members, gauges.shard_count, gauges.unowned, gauges.revoking) == (2, 10, 0, 5)
    assert 3_000 <= gauges.oldest_revoke_ms <= 4_000
    assert gauges.lease_margin_ms == 15_000 - 4_000
    assert gauges.generation == (await service(engine)).generation
    assert gauges.imbalance == 0.0
    assert any(line["event"] == "shards rebalanced" for line in engine.log)


async def test_a_beat_is_a_matter_of_the_loop_and_a_sweep_is_not(engine: Engine) -> None:
    beat = Peer(engine, "a").said()
    long = Peer(engine, "b").said(holds=tuple(range(100_000)))
    checkpoint = SaveCheckpoint(service=SERVICE, shard=0, epoch=1, value=Raw(b"1"))
    future = asyncio.get_running_loop().create_future()

    def is_light(event: Anything) -> bool:
        return Entry(event, future, stays=False).is_light

    assert is_light(beat)
    assert is_light(checkpoint)
    assert not is_light(long)
    assert not is_light(SweepServices())


async def test_services_are_kept_by_a_writer_with_a_thread_too(tmp_path: Path) -> None:
    async with running(tmp_path / "rota.db", inline=False, duties=True) as engine:
        peers = [Peer(engine, name) for name in "abc"]

        await asyncio.gather(*[peer.register() for peer in peers])
        await asyncio.gather(*[peer.beat() for peer in peers * 20])
        await engine.coordinator.shard(SweepServices())

        assert len(await owned(engine)) == 3
        assert (await service(engine)).unowned == 0
