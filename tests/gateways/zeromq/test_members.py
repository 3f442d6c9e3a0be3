"""Do members get their shards over ZeroMQ, in the very words that clients of old know?"""

import json
from pathlib import Path
from typing import Any

from tests.gateways.zeromq.dealers import (
    COUNT,
    EVERYTHING,
    Dealer,
    Gateway,
    Json,
    assigned,
    heartbeat,
    leave,
    opened,
    register,
)

NEW: dict[str, Any] = {"protocol": 2, "incarnation": 1}


async def newcomer(gateway: Gateway, worker_id: str, **more: Json) -> tuple[Dealer, Json]:
    """A member of protocol 2, and what it was told first."""
    dealer = gateway.connect()
    return dealer, await dealer.told(register(worker_id, **{**NEW, **more}))


# --- the old protocol ---------------------------------------------------------------------------


async def test_a_lone_worker_is_given_everything_at_once_and_told_nothing_else(
    gateway: Gateway,
) -> None:
    dealer = gateway.connect()

    assert await dealer.ask(register("worker-1")) == assigned(EVERYTHING)


async def test_every_heartbeat_is_answered(gateway: Gateway) -> None:
    dealer = gateway.connect()
    await dealer.ask(register("worker-1"))

    answers = [await dealer.ask(heartbeat("worker-1", EVERYTHING)) for _ in range(5)]

    assert answers == [assigned(EVERYTHING)] * 5
    assert gateway.metrics.received == {"register": 1, "heartbeat": 5}
    assert gateway.metrics.sent == 6


async def test_a_second_register_is_answered_with_what_the_worker_has(gateway: Gateway) -> None:
    dealer = gateway.connect()
    await dealer.ask(register("worker-1"))

    assert await dealer.ask(register("worker-1")) == assigned(EVERYTHING)


async def test_a_newcomer_hears_nothing_until_shards_were_given_up_for_it(gateway: Gateway) -> None:
    first, second = gateway.connect(), gateway.connect()
    await first.ask(register("A"))
    await second.say(register("B"))
    await gateway.until_members_are("A", "B")
    await gateway.pass_time(500)

    assert await first.hear() == assigned(EVERYTHING[:50])
    assert await first.ask(heartbeat("A", EVERYTHING[:50])) == assigned(EVERYTHING[:50])
    assert await gateway.owned() == {"A": EVERYTHING, "B": []}
    assert await first.ask(heartbeat("A", EVERYTHING[:50])) == assigned(EVERYTHING[:50])

    assert await second.hear() == assigned(EVERYTHING[50:])
    assert await second.ask(heartbeat("B", EVERYTHING[50:])) == assigned(EVERYTHING[50:])
    assert await gateway.owned() == {"A": EVERYTHING[:50], "B": EVERYTHING[50:]}


async def test_a_worker_that_leaves_is_not_answered_and_the_others_are_told(
    gateway: Gateway,
) -> None:
    first, second = gateway.connect(), gateway.connect()
    await first.ask(register("A"))
    await second.say(register("B"))
    await gateway.until_members_are("A", "B")
    await gateway.pass_time(500)
    await first.hear()
    for _ in range(2):
        await first.ask(heartbeat("A", EVERYTHING[:50]))

    await second.say(leave("B"))
    await gateway.until_members_are("A")
    await gateway.pass_time(500)

    assert await first.hear() == assigned(EVERYTHING)
    assert await second.hear() == assigned(EVERYTHING[50:])  # from before; nothing follows it
    assert await second.ask(register("B", service="other")) == assigned(EVERYTHING)


async def test_an_unknown_worker_that_beats_keeps_what_nobody_else_owns(gateway: Gateway) -> None:
    dealer = gateway.connect()

    told = await dealer.told(heartbeat("worker-1", [3, 4]))

    assert {3, 4} <= set(told["assignedShards"])


async def test_the_same_name_in_two_services_is_two_members(gateway: Gateway) -> None:
    dealer = gateway.connect()

    assert await dealer.ask(register("w", service="one")) == assigned(EVERYTHING)
    assert await dealer.ask(register("w", service="two")) == assigned(EVERYTHING)


async def test_a_service_that_takes_no_old_workers_gives_them_nothing(gateway: Gateway) -> None:
    await gateway.api.client.put("/api/services/my-service", json={"min_protocol": 2})
    dealer = gateway.connect()

    assert await dealer.ask(register("old")) == assigned([])
    assert await dealer.ask(heartbeat("old", EVERYTHING)) == assigned([])


async def test_an_old_client_that_keeps_what_it_was_asked_for_is_put_out(tmp_path: Path) -> None:
    async with opened(tmp_path, shard_stuck_ms=2_000) as gateway:
        stubborn, other = gateway.connect(), gateway.connect()
        await stubborn.ask(register("A"))
        await other.say(register("B"))
        await gateway.until_members_are("A", "B")

        for _ in range(6):  # it never reads, and lists everything for ever
            await gateway.pass_time(500)
            await stubborn.say(heartbeat("A", EVERYTHING))

        assert await other.hear() == assigned(EVERYTHING)
        assert await gateway.owned() == {"B": EVERYTHING}
        await stubborn.say(heartbeat("A", EVERYTHING))
        while (heard := await stubborn.hear()) != assigned([]):
            assert heard == assigned(EVERYTHING[:50])


# --- the new protocol ---------------------------------------------------------------------------


async def test_a_worker_of_protocol_2_is_told_everything_there_is_to_know(gateway: Gateway) -> None:
    _, told = await newcomer(gateway, "w", seq=7)

    assert told == {
        "assignedShards": EVERYTHING,
        "shardEpochs": [1] * COUNT,
        "revoking": [],
        "generation": told["generation"],
        "leaseTtlMs": 15_000,
        "heartbeatIntervalMs": 5_000,
        "protocol": 2,
        "seq": 7,
        "status": "ok",
        "reason": None,
    }


async def test_a_release_is_one_beat_that_has_seen_the_revoke(gateway: Gateway) -> None:
    first, _ = await newcomer(gateway, "A")
    second, told = await newcomer(gateway, "B")
    assert told["assignedShards"] == []
    await gateway.pass_time(500)
    pushed = json.loads(await first.hear())["data"]
    assert (pushed["assignedShards"], pushed["revoking"]) == (EVERYTHING[:50], EVERYTHING[50:])
    assert pushed["seq"] is None

    seen = {"generation": pushed["generation"], "seq": 1}
    answer = await first.told(heartbeat("A", EVERYTHING[:50], **NEW, **seen))

    assert (answer["revoking"], answer["seq"]) == ([], 1)
    granted = json.loads(await second.hear())["data"]
    assert (granted["assignedShards"], granted["shardEpochs"]) == (EVERYTHING[50:], [2] * 50)


async def test_a_replaced_incarnation_is_fenced_and_gets_nothing_meant_for_the_new_one(
    gateway: Gateway,
) -> None:
    old, _ = await newcomer(gateway, "w")
    new, told = await newcomer(gateway, "w", incarnation=2)
    assert told["shardEpochs"] == [2] * COUNT

    fenced = await old.told(heartbeat("w", EVERYTHING, **NEW, seq=1))
    assert (fenced["status"], fenced["assignedShards"]) == ("fenced", [])

    await newcomer(gateway, "x")
    await gateway.pass_time(500)
    pushed = json.loads(await new.hear())["data"]
    assert pushed["revoking"] == EVERYTHING[50:]
    assert (await old.told(heartbeat("w", [], **NEW, seq=2)))["seq"] == 2  # nothing came before it


async def test_an_old_client_cannot_draw_the_pushes_of_a_new_one_to_itself(
    gateway: Gateway,
) -> None:
    new, _ = await newcomer(gateway, "w")
    old = gateway.connect()

    assert await old.ask(register("w")) == assigned([])

    await newcomer(gateway, "x")
    await gateway.pass_time(500)
    assert json.loads(await new.hear())["data"]["revoking"] == EVERYTHING[50:]
    assert await old.ask(heartbeat("w", [])) == assigned([])


async def test_pushes_follow_a_member_to_its_newest_connection(gateway: Gateway) -> None:
    first, told = await newcomer(gateway, "A")
    first.socket.close()
    again = gateway.connect()
    beat = heartbeat("A", EVERYTHING, **NEW, generation=told["generation"], seq=1)
    assert (await again.told(beat))["shardEpochs"] == [1] * COUNT

    await newcomer(gateway, "B")
    await gateway.pass_time(500)

    assert json.loads(await again.hear())["data"]["revoking"] == EVERYTHING[50:]


async def test_a_drained_member_is_told_to_give_up_everything(gateway: Gateway) -> None:
    first, _ = await newcomer(gateway, "A")
    await newcomer(gateway, "B")

    await gateway.api.post("/api/services/my-service/members/A/drain", {})
    await gateway.pass_time(500)

    pushed = json.loads(await first.hear())["data"]
    assert (pushed["assignedShards"], pushed["revoking"]) == ([], EVERYTHING)


async def test_a_member_that_is_gone_loses_its_shards_after_its_lease(tmp_path: Path) -> None:
    async with opened(tmp_path, shard_lease_ms=2_000) as gateway:
        gone, _ = await newcomer(gateway, "A")
        gone.socket.close()
        other, _ = await newcomer(gateway, "B")

        for seq in range(6):
            await gateway.pass_time(500)
            told = await other.told(heartbeat("B", [], **NEW, seq=seq))
            assert told["leaseTtlMs"] == 2_000

        assert await gateway.owned() == {"B": EVERYTHING}
