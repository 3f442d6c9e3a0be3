"""A shard worker keeps to the rules, whatever its callbacks and the network do. In virtual time."""

import asyncio

import pytest

from rota.core.shards.commands import LeaveMember, RegisterMember
from rota.core.shards.member_client import MemberClient
from rota.core.shards.members import PROTOCOL, Assignment, ShardPolicy
from rota.errors import Forbidden, StaleEpoch
from rota.sdk.shards.held import HeldShard
from rota.sdk.worker.stopping import StopReason
from tests.sdk.shard_world import (
    LEASE_S,
    SERVICE,
    Shop,
    World,
    after,
    in_virtual_time,
    no_client,
    until,
)

ALL = [0, 1, 2, 3]


@in_virtual_time
async def test_a_lone_worker_is_handed_every_shard() -> None:
    world = World()

    shop = Shop(world, "a")

    await until(lambda: shop.held == ALL)
    assert sorted(world.diary) == [f"a assigned {shard}" for shard in ALL]
    assert all(held.is_held and held.epoch == 1 for held in shop.seen)


@in_virtual_time
async def test_a_shard_goes_on_only_when_its_revoking_callback_has_returned() -> None:
    world = World()
    one = Shop(world, "a")
    await until(lambda: one.held == ALL)
    may_end = asyncio.Event()

    async def hold_on(held: HeldShard) -> None:
        await may_end.wait()
        assert held.is_held

    one.when_revoked = hold_on
    other = Shop(world, "b")
    await until(lambda: "a revoked 3" in world.diary)
    await after(2 * LEASE_S - 5)

    assert other.held == []
    may_end.set()
    await until(lambda: other.held == [2, 3])
    assert world.diary.index("a revoked 3 done") < world.diary.index("b assigned 3")
    assert [held.is_held for held in one.seen if held.shard == 3] == [False, False]


@in_virtual_time
async def test_a_worker_that_is_cut_off_stops_before_others_begin() -> None:
    world = World()
    one, other = Shop(world, "a"), Shop(world, "b")
    await until(lambda: one.held == [0, 1] and other.held == [2, 3])

    world.cut_off.add("a")
    await until(lambda: "a lost 0" in world.diary)

    assert world.owner_of(0) == "a"
    assert not any(held.is_held for held in one.seen)
    await until(lambda: other.held == ALL)
    assert world.diary.index("a lost 1") < world.diary.index("b assigned 1")


def test_a_shard_is_held_by_the_clock_and_not_by_what_was_noticed() -> None:
    now_ms = 0
    applicant = RegisterMember(service=SERVICE, worker_id="a", shard_count=1, protocol=PROTOCOL)
    holding = MemberClient(applicant, now_ms=0)
    holding.tick(now_ms)
    told = Assignment(
        service=SERVICE,
        worker_id="a",
        incarnation="",
        protocol=PROTOCOL,
        shards=(0,),
        epochs=(1,),
        lease_ms=15_000,
        heartbeat_interval_ms=5_000,
        seq=0,
    )
    holding.receive(told, 10)
    held = HeldShard(holding, 0, 1, now_ms=lambda: now_ms, connect=no_client)

    seen = [held.is_held]
    now_ms = 15_000
    seen.append(held.is_held)

    assert seen == [True, False]
    with pytest.raises(StaleEpoch):
        held.save("too late, whoever has the shard")


@in_virtual_time
async def test_a_worker_that_was_cut_off_comes_back_as_a_new_incarnation() -> None:
    world = World()
    shop = Shop(world, "a")
    await until(lambda: shop.held == ALL)

    world.cut_off.add("a")
    await until(lambda: shop.held == [])
    await after(LEASE_S)
    world.cut_off.clear()

    await until(lambda: shop.held == ALL)
    incarnations = {one.incarnation for one in world.said if isinstance(one, RegisterMember)}
    assert len(incarnations) == 2
    assert shop.seen[-1].epoch > 1


@in_virtual_time
async def test_nothing_begins_anew_before_every_callback_has_returned() -> None:
    world = World()
    shop = Shop(world, "a")
    await until(lambda: shop.held == ALL)
    may_end = asyncio.Event()

    async def hold_on(held: HeldShard) -> None:
        await may_end.wait()

    shop.when_lost = hold_on
    world.cut_off.add("a")
    await until(lambda: "a lost 0" in world.diary)
    world.cut_off.clear()
    await after(2 * LEASE_S)

    assert world.diary.count("a assigned 0") == 1
    may_end.set()
    await until(lambda: shop.held == ALL)


@in_virtual_time
async def test_a_shard_lost_while_it_is_taken_up_is_told_of_afterwards() -> None:
    world = World()
    shop = Shop(world, "a", shards=1)
    may_end = asyncio.Event()

    async def hold_on(held: HeldShard) -> None:
        await may_end.wait()

    shop.when_assigned = hold_on
    await until(lambda: "a assigned 0" in world.diary)
    world.cut_off.add("a")
    await after(LEASE_S)
    assert not shop.seen[0].is_held
    may_end.set()

    await until(lambda: "a lost 0" in world.diary)
    assert world.diary == ["a assigned 0", "a assigned 0 done", "a lost 0"]


# --- callbacks that fail -------------------------------------------------------------------------


@in_virtual_time
async def test_a_shard_that_cannot_be_taken_up_rests_and_is_tried_again() -> None:
    world = World()
    shop = Shop(world, "a", shards=2)

    async def fail(held: HeldShard) -> None:
        if held.shard == 1:
            raise ConnectionError("no database")

    shop.when_assigned = fail
    await until(lambda: world.diary.count("a assigned 1") == 3)

    assert shop.held == [0]
    assert not any(held.is_held for held in shop.seen if held.shard == 1)
    assert shop.driver.membership is not None
    assert "no database" in str(shop.driver.membership.slots.failing()[1])
    shop.when_assigned = None
    await until(lambda: shop.held == [0, 1])
    assert shop.driver.membership.slots.failing() == {}
    assert world.owner_of(1) == "a"


@in_virtual_time
async def test_a_shard_that_was_never_taken_up_is_given_back_without_a_word() -> None:
    world = World()
    one = Shop(world, "a", shards=2)

    async def fail(held: HeldShard) -> None:
        raise ConnectionError("no database")

    one.when_assigned = fail
    await until(lambda: world.diary.count("a assigned 1") == 1)
    other = Shop(world, "b", shards=2)

    await until(lambda: other.held == [1])
    assert "a revoked 1" not in world.diary


@in_virtual_time
async def test_a_revoking_callback_that_raises_has_returned() -> None:
    world = World()
    one = Shop(world, "a", shards=2)
    await until(lambda: one.held == [0, 1])

    async def fail(held: HeldShard) -> None:
        raise ConnectionError("no database")

    one.when_revoked = fail
    other = Shop(world, "b", shards=2)

    await until(lambda: other.held == [1])
    assert one.held == [0]


@in_virtual_time
async def test_a_losing_callback_that_raises_keeps_nobody_from_coming_back() -> None:
    world = World()
    shop = Shop(world, "a", shards=2)
    await until(lambda: shop.held == [0, 1])

    async def fail(held: HeldShard) -> None:
        raise ConnectionError("no database")

    shop.when_lost = fail
    world.cut_off.add("a")
    await until(lambda: "a lost 0" in world.diary)
    world.cut_off.clear()

    await until(lambda: shop.held == [0, 1])


@in_virtual_time
async def test_a_worker_that_keeps_a_shard_for_too_long_is_fenced_and_comes_back() -> None:
    world = World(ShardPolicy(stuck_ms=5_000))
    one = Shop(world, "a", shards=2)
    await until(lambda: one.held == [0, 1])
    may_end = asyncio.Event()

    async def hold_on(held: HeldShard) -> None:
        await may_end.wait()

    one.when_revoked = hold_on
    other = Shop(world, "b", shards=2)
    await until(lambda: other.held == [0, 1])
    one.when_revoked = None
    may_end.set()

    await until(lambda: len(one.held) == len(other.held) == 1)
    assert not one.running.done()
    assert world.diary.index("a lost 0") < world.diary.index("b assigned 0")


# --- ends ----------------------------------------------------------------------------------------


@in_virtual_time
async def test_a_stop_gives_every_shard_up_and_leaves() -> None:
    world = World()
    one, other = Shop(world, "a"), Shop(world, "b")
    await until(lambda: one.held == [0, 1] and other.held == [2, 3])

    one.driver.stop()

    assert await one.running is StopReason.STOPPED
    await until(lambda: other.held == ALL, within_s=1.0)
    ends = [line for line in world.diary if line.startswith("a ")][-2:]
    assert sorted(ends) == ["a revoked 0", "a revoked 1"]
    assert sum(isinstance(said, LeaveMember) for said in world.said) == 1


@in_virtual_time
async def test_the_last_worker_gives_its_shards_up_too() -> None:
    world = World()
    shop = Shop(world, "a")
    await until(lambda: shop.held == ALL)

    shop.driver.stop()

    assert await shop.running is StopReason.STOPPED
    assert sorted(world.diary[4:]) == [f"a revoked {shard}" for shard in ALL]
    await until(lambda: not world.service.members)


@in_virtual_time
async def test_a_worker_that_was_never_answered_stops_at_once() -> None:
    world = World()
    world.cut_off.add("a")
    shop = Shop(world, "a")
    await after(5)

    shop.driver.stop()

    async with asyncio.timeout(1):
        assert await shop.running is StopReason.STOPPED


@in_virtual_time
async def test_what_is_not_given_up_in_time_is_lost_and_left_to_the_lease() -> None:
    world = World(ShardPolicy(stuck_ms=600_000))
    one, other = Shop(world, "a", drain_s=5), Shop(world, "b")
    await until(lambda: one.held == [0, 1] and other.held == [2, 3])

    async def never(held: HeldShard) -> None:
        await asyncio.Event().wait()

    one.when_revoked = never
    one.driver.stop()

    assert await one.running is StopReason.STOPPED
    assert not any(held.is_held for held in one.seen)
    # For all we know the callbacks still act, so nobody is told to go on.
    assert not any(isinstance(said, LeaveMember) for said in world.said)
    assert world.owner_of(0) == "a"
    await until(lambda: other.held == ALL)


@in_virtual_time
async def test_a_hurried_worker_loses_what_it_holds_and_leaves() -> None:
    world = World()
    one, other = Shop(world, "a"), Shop(world, "b")
    await until(lambda: one.held == [0, 1] and other.held == [2, 3])

    one.driver.hurry()

    async with asyncio.timeout(1):
        assert await one.running is StopReason.STOPPED
    assert world.diary[-2:] == ["a lost 0", "a lost 1"]
    await until(lambda: other.held == ALL, within_s=1.0)


@in_virtual_time
async def test_of_two_workers_with_one_id_one_gives_way() -> None:
    world = World()
    one = Shop(world, "a")
    await until(lambda: one.held == ALL)
    other = Shop(world, "a")

    done, _ = await asyncio.wait([one.running, other.running], return_when="FIRST_COMPLETED")

    assert done == {one.running}
    assert one.running.result() is StopReason.REPLACED
    await until(lambda: other.held == ALL)


@in_virtual_time
async def test_a_worker_that_is_not_let_in_ends_with_the_reason() -> None:
    world = World()
    world.refusal = Forbidden("not for you")

    with pytest.raises(Forbidden, match="not for you"):
        await Shop(world, "a").running


@in_virtual_time
async def test_a_refused_beat_is_said_again_as_long_as_the_lease_lasts() -> None:
    world = World()
    shop = Shop(world, "a")
    await until(lambda: shop.held == ALL)

    world.refusal = Forbidden("not for you")
    await after(LEASE_S / 2)
    assert shop.held == ALL
    world.refusal = None

    await after(2 * LEASE_S)
    assert shop.held == ALL
    assert world.diary.count("a assigned 0") == 1
