import asyncio
from pathlib import Path
from typing import Any

import pytest

from rota.core import limits
from tests.gateways.membership import EVERYTHING, FEED, SERVICE, Member, pass_time, two
from tests.gateways.serving import Api, Json, served, until

PATIENT_LEASE_MS = 180_000  # a third of it is how long a poll waits: not over before a test is


async def shown(api: Api) -> Json:
    return (await api.get(FEED)).json()


async def parked(api: Api, member: Member, **changes: Any) -> "asyncio.Task[Json]":
    """A beat of a member that waits for news, once it has been heard."""
    beats = api.node.coordinator.metrics().services[SERVICE].beats
    poll = asyncio.create_task(member.beat(wait_ms=60_000, **changes))
    await until(api, f'rota_service_beats_total{{service="{SERVICE}"}}', beats + 1.0)
    return poll


# --- what members say -----------------------------------------------------------------------------


async def test_the_first_member_is_told_everything_at_once(api: Api) -> None:
    told = await Member(api, "a").register(seq=7)

    assert told == {
        "assignedShards": EVERYTHING,
        "shardEpochs": [1] * 10,
        "revoking": [],
        "generation": told["generation"],
        "leaseTtlMs": 15_000,
        "heartbeatIntervalMs": 5_000,
        "protocol": 2,
        "seq": 7,
        "status": "ok",
        "reason": None,
    }


async def test_two_members_hand_over_without_ever_holding_the_same(api: Api) -> None:
    a, b = Member(api, "a"), Member(api, "b")
    await a.register()

    assert (await b.register())["assignedShards"] == []
    await pass_time(api, 2_500)
    assert (await b.beat())["assignedShards"] == []
    asked = await a.beat(assignedShards=EVERYTHING)
    assert (asked["assignedShards"], asked["revoking"]) == (EVERYTHING[:5], EVERYTHING[5:])
    assert (await b.beat())["assignedShards"] == []
    await a.beat()

    told = await b.beat()
    assert (told["assignedShards"], told["shardEpochs"]) == (EVERYTHING[5:], [2] * 5)
    assert a.told["shardEpochs"] == [1] * 5


async def test_an_old_client_that_would_have_to_wait_is_told_that_it_has_nothing(api: Api) -> None:
    await Member(api, "a").register()

    told = await Member(api, "b").register(protocol=1, incarnation=None)

    assert (told["assignedShards"], told["status"], told["protocol"]) == ([], "ok", 1)


async def test_an_earlier_incarnation_is_fenced_and_told_so(api: Api) -> None:
    old, new = Member(api, "a", incarnation=1), Member(api, "a", incarnation=2)
    await old.register()
    told = await new.register()
    assert (told["assignedShards"], told["shardEpochs"]) == (EVERYTHING, [2] * 10)

    for answer in (await old.beat(), await old.register(), await old.beat(wait_ms=60_000)):
        assert (answer["status"], answer["assignedShards"]) == ("fenced", [])
        assert "incarnation" in answer["reason"]


async def test_a_member_that_the_service_does_not_take_is_fenced(api: Api) -> None:
    await api.client.put(FEED, json={"min_protocol": 2})

    told = await Member(api, "a").register(protocol=1, incarnation=None)

    assert (told["status"], told["assignedShards"]) == ("fenced", [])


async def test_a_beat_without_a_register_is_one(api: Api) -> None:
    told = await Member(api, "a").beat(assignedShards=[])

    assert told["assignedShards"] == EVERYTHING


async def test_a_beat_of_somebody_unknown_keeps_what_it_lists(api: Api) -> None:
    first = await Member(api, "a").beat(assignedShards=[3, 4])
    second = await Member(api, "b").beat(assignedShards=[4, 5])

    assert (first["assignedShards"], second["assignedShards"]) == ([3, 4], [5])


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "workerId"),
        ({"workerId": ""}, "workerId"),
        ({"maxShardCount": 0}, "maxShardCount"),
        ({"maxShardCount": "10"}, "maxShardCount"),
        ({"maxShardCount": limits.MAX_SHARDS + 1}, "maxShardCount"),
        ({"protocol": 3}, "protocol"),
        ({"incarnation": -1}, "incarnation"),
        ({"incarnation": ""}, "incarnation"),
        ({"weight": 0}, "weight"),
        ({"weight": 1e300}, "weight"),
        ({"maxShards": -1}, "maxShards"),
        ({"seq": 2**60}, "seq"),
        ({"serviceName": "other"}, "serviceName"),
        ({"worker_id": "a"}, "worker_id"),
    ],
    ids=str,
)
async def test_a_bad_registration_names_its_field(api: Api, body: Json, field: str) -> None:
    good = {"workerId": "a", "maxShardCount": 10} if body else {}

    answer = await api.post(f"{FEED}/members", {**good, **body})

    assert (answer.status_code, answer.json()["field"]) == (400, field)
    assert (await api.get(FEED)).status_code == 404


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"assignedShards": None}, "assignedShards"),
        ({"assignedShards": [-1]}, "assignedShards"),
        ({"assignedShards": [limits.MAX_SHARDS]}, "assignedShards"),
        ({"assignedShards": [1.5]}, "assignedShards"),
        ({"generation": -1}, "generation"),
        ({"draining": 1}, "draining"),
        ({"workerId": "b"}, "workerId"),
        ({"wait_ms": 1}, "wait_ms"),
    ],
    ids=str,
)
async def test_a_bad_beat_names_its_field_and_changes_nothing(
    api: Api, body: Json, field: str
) -> None:
    a = Member(api, "a")
    await a.register()
    before = await shown(api)
    await api.turn_clock(1_000)

    answer = await api.post(
        f"{a.path}/heartbeat", {"maxShardCount": 10, "assignedShards": [], **body}
    )

    assert (answer.status_code, answer.json()["field"]) == (400, field)
    assert await shown(api) == before


async def test_who_leaves_is_gone_and_the_others_have_its_shards(api: Api) -> None:
    a, b = await two(api)

    earlier = await a.leave(incarnation=7)
    assert len((await shown(api))["members"]) == 2
    left, again = await a.leave(), await a.leave()
    await pass_time(api, 500)

    for answer in (earlier, left, again):
        assert (answer.status_code, answer.json()) == (200, {"service": SERVICE, "worker_id": "a"})
    assert (await b.beat())["assignedShards"] == EVERYTHING
    assert (await a.beat())["status"] == "fenced"


async def test_to_leave_what_never_was_makes_nothing(api: Api) -> None:
    assert (await Member(api, "a").leave()).status_code == 200

    assert (await api.get(FEED)).status_code == 404


# --- waiting for news -----------------------------------------------------------------------------


async def test_a_poll_is_answered_when_another_member_gives_up_its_shards(api: Api) -> None:
    a, b = Member(api, "a"), Member(api, "b")
    await a.register()
    await b.register()
    await pass_time(api, 2_500)
    await a.beat(assignedShards=EVERYTHING)
    await b.beat()
    poll = await parked(api, b)

    await a.beat()

    told = await asyncio.wait_for(poll, 10)
    assert told["assignedShards"] == EVERYTHING[5:]
    assert told["seq"] == b.seq
    assert told["generation"] == (await shown(api))["generation"]


async def test_a_poll_is_answered_when_something_is_to_be_given_up(api: Api) -> None:
    a, _ = await two(api)
    await a.beat()
    poll = await parked(api, a)

    await api.post(f"{a.path}/drain")
    await pass_time(api, 500)

    assert (await asyncio.wait_for(poll, 10))["revoking"] == EVERYTHING[:5]


async def test_a_poll_that_knows_less_than_there_is_does_not_wait(api: Api) -> None:
    a = Member(api, "a")
    await a.register()

    for generation in (None, 0, a.told["generation"] + 1):
        poll = a.beat(wait_ms=60_000, generation=generation)
        assert (await asyncio.wait_for(poll, 10))["assignedShards"] == EVERYTHING


async def test_a_poll_does_not_end_because_others_are_told_something(tmp_path: Path) -> None:
    async with served(tmp_path, shard_lease_ms=PATIENT_LEASE_MS) as api:
        a, _ = await two(api)
        await a.beat()
        await Member(api, "b", incarnation=2).register()
        assert (await shown(api))["generation"] > a.told["generation"]

        poll = await parked(api, a)
        await Member(api, "b", incarnation=3).register()
        await api.post(f"{a.path}/drain")
        await pass_time(api, 500)

        # What it waited for came, and not what was there before.
        assert (await asyncio.wait_for(poll, 30))["revoking"] == EVERYTHING[:5]


async def test_after_a_restart_a_poll_is_told_how_things_stand_once(tmp_path: Path) -> None:
    async with served(tmp_path, shard_lease_ms=PATIENT_LEASE_MS) as api:
        a, _ = await two(api)
        await Member(api, "b", incarnation=2).register()
    async with served(tmp_path, shard_lease_ms=PATIENT_LEASE_MS) as api:
        a.api = api

        told = await asyncio.wait_for(a.beat(wait_ms=60_000), 30)
        assert told["generation"] == (await shown(api))["generation"]
        poll = await parked(api, a)
        await api.post(f"{a.path}/drain")
        await pass_time(api, 500)

        assert (await asyncio.wait_for(poll, 30))["revoking"] == EVERYTHING[:5]


async def test_a_poll_ends_with_what_there_is_when_its_time_is_over(api: Api) -> None:
    a = Member(api, "a")
    before = await a.register()

    told = await a.beat(wait_ms=1)

    assert told == {**before, "seq": a.seq}


async def test_a_poll_ends_in_time_for_the_next_beat(tmp_path: Path) -> None:
    async with served(tmp_path, shard_lease_ms=300) as api:
        a = Member(api, "a")
        await a.register()

        told = await asyncio.wait_for(a.beat(wait_ms=60_000), 20)

        assert told["assignedShards"] == EVERYTHING


async def test_a_beat_counts_when_it_comes_and_not_when_it_is_answered(api: Api) -> None:
    a, _ = await two(api)
    await a.beat()
    await api.turn_clock(100)
    heard_ms = api.clock.now_ms()
    poll = await parked(api, a)

    await pass_time(api, 1_000)

    assert (await shown(api))["members"][0]["last_heartbeat_ms"] == heard_ms
    await api.post(f"{a.path}/drain")
    await pass_time(api, 500)
    await asyncio.wait_for(poll, 10)
    assert (await shown(api))["members"][0]["last_heartbeat_ms"] == heard_ms


async def test_a_poll_never_hears_what_a_later_incarnation_is_told(api: Api) -> None:
    a, b = await two(api)
    await a.beat()
    poll = await parked(api, a)
    later = Member(api, "a", incarnation=2)
    await later.register()

    await b.leave()
    await pass_time(api, 500)

    told = await asyncio.wait_for(poll, 10)
    assert (told["status"], told["assignedShards"], told["revoking"]) == ("fenced", [], [])
    assert (await later.beat())["assignedShards"] == EVERYTHING


async def test_a_poll_ends_when_its_caller_hangs_up(api: Api) -> None:
    a = Member(api, "a")
    await a.register()
    poll = await parked(api, a)

    poll.cancel()

    await until(api, "rota_http_requests_in_flight", 1.0)  # the look itself
    assert (await a.beat())["assignedShards"] == EVERYTHING


async def test_polls_end_when_the_coordinator_stops(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        a = Member(api, "a")
        await a.register()
        poll = await parked(api, a)

        api.node.ask_to_stop()

        assert (await asyncio.wait_for(poll, 10))["assignedShards"] == EVERYTHING


@pytest.mark.parametrize("query", ["wait_ms=-1", "wait_ms=60001", "wait_ms=x", "wait=1"])
async def test_a_bad_wait_is_refused_and_is_no_beat(api: Api, query: str) -> None:
    body = {"maxShardCount": 10, "assignedShards": []}

    answer = await api.post(f"{FEED}/members/a/heartbeat?{query}", body)

    assert (answer.status_code, answer.json()["code"]) == (400, "invalid")
    assert (await api.get(FEED)).status_code == 404
