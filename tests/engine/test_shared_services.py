"""Services with several coordinators: a member may talk to any of them."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec import Raw

from rota.core.shards.commands import BeatMember, DrainMember, RegisterMember, SaveCheckpoint
from rota.core.shards.members import OLD_PROTOCOL, Assignment
from rota.engine.topics import Assignments
from rota.errors import StaleEpoch
from tests.conftest import TurnedClock
from tests.engine.recording import told
from tests.engine.running import Engine, settle, soon
from tests.engine.sharding import SERVICE, Peer, owned, sweep
from tests.engine.sharing import Replica, SharedStore, leader_of, replica, replicas

Pair = tuple[Replica, Replica]


@pytest.fixture(params=[0, 1], ids=["first-leads", "second-leads"])
async def pair(clock: TurnedClock, request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    async with replicas(clock, leader=request.param) as engines:
        yield tuple(engines)


def moved(peer: Peer, engine: Engine) -> Peer:
    """The same member, speaking to another coordinator from now on."""
    there = Peer(engine, peer.worker_id, count=peer.count, incarnation=peer.incarnation)
    there.seq, there.told = peer.seq, peer.told
    return there


async def passed(by_ms: int, *engines: Engine) -> None:
    """Let time pass in steps, and all see it."""
    for _ in range(by_ms // 500):
        engines[0].clock.turn(500)
        for one in engines:
            await sweep(one)
        await settle()


async def test_members_of_one_service_at_two_replicas_share_its_shards(pair: Pair) -> None:
    a, b = pair
    first, second = Peer(a, "w1"), Peer(b, "w2")
    await first.register()
    await second.register()
    for _ in range(8):
        await passed(500, a, b)
        await first.beat()
        await second.beat()

    assert {len(one) for one in (await owned(a)).values()} == {5}
    assert sorted((*first.holds, *second.holds)) == list(range(10))


async def test_a_member_that_one_replica_hears_is_not_thought_gone_by_another(pair: Pair) -> None:
    a, b = pair
    member = Peer(a, "w1")
    await member.register()
    await sweep(b)
    for _ in range(20):
        await passed(2_000, b)
        await member.beat()
        await sweep(b)

    assert (await owned(b))["w1"] == tuple(range(10))


async def test_a_beat_that_was_answered_counts_for_a_replica_that_looks_just_then(
    pair: Pair,
) -> None:
    a, b = pair
    member = Peer(a, "w1")
    await member.register()
    await passed(15_000, b)
    await member.beat()  # in the last moment, and no sweep of the first replica follows
    await passed(1_000, b)

    assert "w1" in await owned(b)


async def test_a_silent_member_is_let_go_of_once_when_both_replicas_look(pair: Pair) -> None:
    a, b = pair
    first, second = Peer(a, "w1"), Peer(b, "w2")
    await first.register()
    await second.register()
    for _ in range(45):
        await passed(500, a, b)
        await second.beat()

    assert await owned(a) == {"w2": tuple(range(10))}
    assert second.told is not None
    assert (await _count(a, "member-left")) == 1


async def test_a_member_may_go_on_at_another_replica_with_what_it_holds(pair: Pair) -> None:
    a, b = pair
    here = Peer(a, "w1")
    await here.register()
    before = await here.beat()

    after = await moved(here, b).beat()

    assert (after.status, after.shards, after.epochs) == ("ok", before.shards, before.epochs)
    assert after.generation == before.generation


async def test_a_shard_asked_back_at_one_replica_is_given_up_at_another_and_granted_once(
    pair: Pair,
) -> None:
    a, b = pair
    old, new = Peer(a, "w1"), Peer(b, "w2")
    await old.register()
    await new.register()
    await passed(1_000, b)  # asks half of it back, for the second replica alone has looked
    await settle()
    await settle()
    assert old.told is not None
    assert len(old.told.revoking) == 5, "it was pushed what others ask back"

    there = moved(old, b)
    await there.beat()
    await new.beat()
    await settle()

    assert len(new.holds) == 5
    assert len((await owned(a))["w1"]) == 5


async def test_what_others_grant_is_pushed_to_members_that_are_connected_here(pair: Pair) -> None:
    a, b = pair
    first, second = Peer(a, "w1"), Peer(b, "w2")
    await first.register()
    await second.register()
    await passed(1_000, a, b)
    await first.beat()  # gives half of it up, here

    await settle()
    await settle()
    await settle()

    assert len(second.holds) == 5


async def test_a_poll_here_is_answered_by_a_change_elsewhere(pair: Pair) -> None:
    a, b = pair
    first = Peer(a, "w1")
    told = await first.register()
    poll = asyncio.create_task(
        a.coordinator.wait_for_assignment(
            SERVICE, "w1", after_generation=told.generation, wait_ms=600_000
        )
    )
    await settle()
    await Peer(b, "w2").register()
    await passed(1_000, b)

    await settle()

    answer = await soon(poll)
    assert answer is not None
    assert len(answer.shards) == 5


async def test_joins_are_gathered_also_if_each_comes_to_another_replica(pair: Pair) -> None:
    a, b = pair
    await Peer(a, "w0").register()
    for number in range(1, 7):
        await Peer((a, b)[number % 2], f"w{number}").register()
        a.clock.turn(100)
        await settle()
        await sweep(a)
        await sweep(b)
    await passed(2_000, a, b)

    assert await _count(a, "shards-rebalanced") == 2  # the first member's, and one for all others


async def test_a_member_that_left_elsewhere_is_not_let_in_by_a_late_beat(pair: Pair) -> None:
    a, b = pair
    other, gone = Peer(b, "w0"), Peer(a, "w1", incarnation="7")
    await other.register()
    await gone.register()
    await gone.beat()
    late = gone.said()
    await moved(gone, b).leave()

    answer = await a.coordinator.execute(late)

    assert answer is not None
    assert answer.status == "fenced"


async def test_an_older_incarnation_is_fenced_by_a_newer_one_elsewhere(pair: Pair) -> None:
    a, b = pair
    old = Peer(a, "w1", incarnation="1")
    await old.register()
    await Peer(b, "w1", incarnation="2").register()

    answer = await a.coordinator.execute(old.said())

    assert answer is not None
    assert answer.status == "fenced"


async def test_an_old_epoch_is_refused_whichever_replica_it_comes_to(pair: Pair) -> None:
    a, b = pair
    old = Peer(a, "w1", incarnation="1")
    told = await old.register()
    await Peer(b, "w1", incarnation="2").register()

    with pytest.raises(StaleEpoch):
        await a.coordinator.execute(
            SaveCheckpoint(service=SERVICE, shard=0, epoch=told.epochs[0], value=Raw(b"1"))
        )


async def test_a_drain_at_one_replica_reaches_a_member_at_another(pair: Pair) -> None:
    a, b = pair
    first, second = Peer(a, "w1"), Peer(a, "w2")
    await first.register()
    await second.register()
    await b.coordinator.execute(DrainMember(service=SERVICE, worker_id="w1"))
    for _ in range(6):
        await passed(500, a, b)
        await first.beat()
        await second.beat()

    assert (await owned(b))["w2"] == tuple(range(10))


async def test_steering_at_one_replica_does_not_undo_what_another_has_heard(pair: Pair) -> None:
    a, b = pair
    first, second = Peer(a, "w1"), Peer(a, "w2")
    await first.register()
    await second.register()
    await sweep(b)
    for _ in range(7):
        await passed(2_000, b)
        for one in (first, second):
            await one.beat()
    await b.coordinator.execute(DrainMember(service=SERVICE, worker_id="w1"))
    await passed(14_500, a)

    assert "w1" in await owned(a)


async def test_an_old_client_that_waits_here_is_answered_when_others_have_decided(
    pair: Pair,
) -> None:
    a, b = pair
    await Peer(b, "w1").register()
    pushes: list[Assignment] = []
    a.coordinator.subscribe(Assignments(pushes.extend))
    event = RegisterMember(
        service=SERVICE, worker_id="old", shard_count=10, protocol=OLD_PROTOCOL, incarnation=""
    )
    answer = await a.coordinator.execute(event)
    assert answer is not None
    assert answer.is_pending

    await passed(1_000, b)
    keeper = Peer(b, "w1")
    await keeper.beat()
    await keeper.beat()
    await settle()
    await settle()

    assert [len(one.shards) for one in pushes if one.worker_id == "old"][-1] == 5


async def test_an_old_client_that_waits_for_its_answer_elsewhere_is_not_thought_gone(
    pair: Pair,
) -> None:
    a, b = pair
    first = Peer(b, "w1")
    await first.register()
    await a.coordinator.execute(
        RegisterMember(
            service=SERVICE, worker_id="old", shard_count=10, protocol=OLD_PROTOCOL, incarnation=""
        )
    )
    for _ in range(28):  # nothing is given up, so there is nothing to say to it for a lease
        await passed(500, b)
        await first.beat(holds=tuple(range(10)))

    service = await b.coordinator.queries.services.by_name(SERVICE)
    assert service is not None
    assert "old" in {one.worker_id for one in service.members}


async def test_a_beat_from_before_the_asking_does_not_release_for_an_old_client(
    pair: Pair,
) -> None:
    a, b = pair
    for _ in range(5):  # it has beaten here for long
        await a.coordinator.execute(_old_beat(()))
    held = (await a.coordinator.execute(_old_beat(()))).shards
    await Peer(b, "w2").register()
    await passed(1_000, b)
    await settle()

    answer = await a.coordinator.execute(_old_beat(()))

    assert answer is not None
    assert len(held) == 10
    assert len((await owned(a))["old"]) == 10, "one beat without them is not enough"


async def test_the_start_of_a_replica_does_not_lengthen_the_leases_that_others_count(
    clock: TurnedClock,
) -> None:
    store = SharedStore(clock)
    async with replica(store, "a") as a:
        await Peer(a, "w1").register()
        await sweep(a)
        for _ in range(32):
            clock.turn(500)
            async with replica(store, "passing") as other:
                await sweep(other)
            await sweep(a)

        assert await owned(a) == {}
    store.close()


async def test_a_service_that_breaks_a_batch_is_still_told_of(pair: Pair) -> None:
    a, b = pair
    first = Peer(a, "w1")
    await first.register()
    await Peer(b, "w2").register()
    await passed(1_000, b)
    leader = leader_of(a, b)
    leader.database.commit_problem = ValueError("a mistake of ours")
    with pytest.raises(ValueError, match="mistake"):
        await leader.submit()
    leader.database.commit_problem = None

    await a.submit()
    await settle()

    assert first.told is not None
    assert len(first.told.revoking) == 5


def _old_beat(holds: tuple[int, ...]) -> BeatMember:
    return BeatMember(
        service=SERVICE,
        worker_id="old",
        shard_count=10,
        protocol=OLD_PROTOCOL,
        incarnation="",
        holds=holds,
    )


async def _count(engine: Engine, kind: str) -> int:
    return len(await told(engine, kind))


async def test_a_member_heard_elsewhere_counts_also_when_the_batch_before_was_about_tasks(
    pair: Pair,
) -> None:
    a, b = pair
    member = Peer(a, "w1")
    await member.register()
    await sweep(b)
    for _ in range(20):
        b.clock.turn(1_000)
        await member.beat()
        await b.submit()  # by this the second replica knows what others wrote
        await sweep(b)

    assert "w1" in await owned(b)
