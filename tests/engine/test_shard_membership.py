from typing import Any

import pytest
from msgspec import Raw

from rota.core.shards.commands import ConfigureService, DrainMember, LeaveMember, SaveCheckpoint
from rota.core.workers.model import Health
from rota.errors import MemberNotFound, RotaError, ServiceNotFound, TooMany
from tests.engine.running import Engine, settle
from tests.engine.sharding import EVERYTHING, SERVICE, Peer, owned, service, settled, sweep, two


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

    await engine.coordinator.execute(DrainMember(service=SERVICE, worker_id="a"))
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
    before = await engine.coordinator.queries.services.all()

    with pytest.raises(error):
        await engine.coordinator.execute(event)

    assert await engine.coordinator.queries.services.all() == before


async def test_a_leave_from_a_service_that_never_was_makes_none(engine: Engine) -> None:
    await engine.coordinator.execute(LeaveMember(service="none", worker_id="a"))

    assert await engine.coordinator.queries.services.all() == []


async def test_an_operator_makes_and_changes_a_service(engine: Engine) -> None:
    await engine.coordinator.execute(
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

    names = {one.name: one.members for one in await engine.coordinator.queries.services.all()}
    assert names == {SERVICE: 0, "other": 1}
