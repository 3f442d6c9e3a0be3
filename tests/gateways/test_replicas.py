"""What the API says of the coordinators on a store, and of their leader."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from rota.core.replicas import SILENT_MS, Replica
from rota.engine.replicas.leadership import Leadership, ToLeader
from rota.store.replicas import ReplicaStore
from tests.databases.schemas import url
from tests.faults.proxy import proxied
from tests.gateways.membership import two
from tests.gateways.replicas import served_pair
from tests.gateways.serving import Api
from tests.gateways.test_operations import part, samples


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[Api, Api]]:
    async with served_pair(tmp_path) as pair:
        yield pair


def leadership_of(api: Api) -> Leadership:
    leadership = api.node.coordinator.membership.leadership
    assert leadership is not None
    return leadership


async def cut_off(a: Api, b: Api) -> None:
    """Break the link of a follower for good, while the leader lives."""

    async def refuse(*_arguments: object) -> ToLeader:
        raise ConnectionRefusedError("no way there")

    leadership_of(b).dial = refuse
    a.node.coordinator.membership.followers.close()
    await until(b, lambda: not b.node.coordinator.has_leader)


def is_leader(api: Api) -> bool:
    return api.node.coordinator.membership.figures.is_leader


async def until(api: Api, condition: Callable[[], bool]) -> None:
    """Wait for a condition; each look is a round trip."""
    for _ in range(10_000):
        if condition():
            return
        await api.get("/health/live")
    raise AssertionError("it never held")


async def system(api: Api) -> Any:
    return (await api.get("/api/system")).json()


async def test_every_coordinator_says_who_leads_and_its_own_role(pair: tuple[Api, Api]) -> None:
    a, b = pair
    at_a, at_b = await system(a), await system(b)

    assert (at_a["role"], at_b["role"]) == ("leader", "follower")
    assert at_a["leader"]["is_here"] is True
    assert at_b["leader"] == {
        "name": "a",
        "address": str(a.client.base_url).rstrip("/"),
        "epoch": at_a["leader"]["epoch"],
        "since_ms": at_b["leader"]["since_ms"],
        "is_here": False,
    }
    assert abs(at_a["leader"]["since_ms"] - at_b["leader"]["since_ms"]) < 5_000
    assert (await b.get("/api/overview")).json()["leader"] == at_b["leader"]


async def test_all_coordinators_are_listed_with_their_roles(pair: tuple[Api, Api]) -> None:
    a, b = pair
    coordinator = a.node.coordinator
    for one in pair:
        await one.node.coordinator.membership.beat()
    silent_ms = coordinator.clock.now_ms() - SILENT_MS - 1
    gone = Replica(name="c", host="h", version="0", started_at_ms=0, seen_ms=silent_ms)
    a.node.database.administer(lambda tx: ReplicaStore(tx).record_heartbeat(gone))

    found = (await system(b))["replicas"]

    assert [(one["name"], one["role"], one["is_here"], one["is_away"]) for one in found] == [
        ("a", "leader", False, False),
        ("b", "follower", True, False),
        ("c", None, False, True),
    ]


async def test_a_follower_without_a_leader_is_not_ready_and_says_when_to_ask_again(
    pair: tuple[Api, Api],
) -> None:
    a, b = pair
    assert "follows the leader, epoch " in (await part(b, "leader"))["detail"]

    await cut_off(a, b)
    ready, health = await b.get("/health/ready"), await b.get("/health")

    assert (ready.status_code, ready.headers["retry-after"]) == (503, "1")
    assert "no coordinator leads" in ready.json()["detail"]
    assert (health.status_code, health.headers["retry-after"]) == (503, "1")
    ill = [one for one in health.json()["checks"] if not one["isHealthy"]]
    assert [one["component"] for one in ill] == ["leader"]
    assert "no leader is reached" in ill[0]["detail"]
    assert (await system(b))["role"] == "seeking"
    assert (await a.get("/health")).status_code == 200


async def test_a_follower_that_cannot_read_the_store_is_not_ready(tmp_path: Path) -> None:
    place = conninfo_to_dict(url())
    if not str(place["host"]).startswith("/"):
        pytest.skip("the server was given, and is not reached by a socket")
    with proxied(f"{place['host']}/.s.PGSQL.{place['port']}") as proxy:
        store = f"postgresql://{place['user']}@{proxy.host}:{proxy.port}/{place['dbname']}"
        async with served_pair(tmp_path, store_of_b=store) as (_, b):
            assert (await b.get("/health/ready")).status_code == 200

            proxy.drop()
            leadership_of(b).look_soon()
            await until(b, lambda: b.node.coordinator.store_problem is not None)
            ready = await b.get("/health/ready")
            proxy.heal()
            await until(b, lambda: b.node.coordinator.store_problem is None)

            assert (ready.status_code, ready.headers["retry-after"]) == (503, "1")
            assert "the store cannot be used" in ready.json()["detail"]
            assert (await b.get("/health/ready")).status_code == 200


async def test_a_change_that_no_leader_can_make_is_refused_with_retry_after(
    pair: tuple[Api, Api],
) -> None:
    a, b = pair
    await cut_off(a, b)

    refused = await b.post("/api/tasks", {"name": "work"})

    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert refused.json()["code"] == "unavailable"
    assert "nothing was changed" in refused.json()["detail"]


async def test_metrics_show_who_leads_and_how_often_that_changed(pair: tuple[Api, Api]) -> None:
    a, b = pair
    at_a, at_b = await samples(a), await samples(b)

    assert (at_a["rota_leader",], at_b["rota_leader",]) == (1, 0)
    assert at_a["rota_leader_epoch",] == at_b["rota_leader_epoch",] >= 1
    assert (at_a["rota_followers",], at_b["rota_followers",]) == (1, 0)
    assert at_b["rota_leader_changes_total",] == 0
    assert at_b["rota_commands_held",] == 0


async def test_metrics_count_what_links_carry_also_those_that_have_ended(
    pair: tuple[Api, Api],
) -> None:
    a, b = pair
    await b.submit()
    before = await samples(b)
    assert before["rota_link_frames_total", "out"] > 0
    assert before["rota_link_bytes_total", "in"] > 0
    assert (await samples(a))["rota_link_frames_total", "in"] > 0

    await cut_off(a, b)

    after = await samples(b)
    assert after["rota_link_bytes_total", "in"] >= before["rota_link_bytes_total", "in"]


async def test_a_task_is_counted_once_and_has_the_same_rate_at_every_coordinator(
    pair: tuple[Api, Api],
) -> None:
    a, b = pair
    await b.submit()
    await until(b, lambda: bool(b.node.coordinator.metrics().rates))

    counted = [(await samples(one)).get(("rota_tasks_submitted_total", "default")) for one in pair]
    rates = [(await one.get("/api/queues")).json()["items"][0]["submitted_per_s"] for one in pair]

    assert counted == [1, None]
    assert rates[0] == rates[1] > 0
    assert is_leader(a)


async def test_the_successor_of_a_leader_is_seen_at_the_next_epoch(pair: tuple[Api, Api]) -> None:
    a, b = pair
    epoch = (await system(a))["leader"]["epoch"]
    await a.node.coordinator.stop()
    await until(b, lambda: is_leader(b))

    found = await system(b)

    assert found["role"] == "leader"
    assert (found["leader"]["name"], found["leader"]["epoch"]) == ("b", epoch + 1)
    assert (await samples(b))["rota_leader_changes_total",] == 1


async def test_a_leader_that_has_stepped_down_is_not_blamed_for_duties_it_no_longer_has(
    pair: tuple[Api, Api],
) -> None:
    a, b = pair
    await a.node.coordinator.tick()
    assert [one for one in (await a.get("/health")).json()["checks"] if "duty:" in one["component"]]
    leadership_of(a)._elections.resign()
    leadership_of(b).look_soon()
    await until(b, lambda: is_leader(b))
    leadership_of(a).look_soon()
    await until(a, lambda: a.node.coordinator.has_leader and not is_leader(a))

    components = [one["component"] for one in (await a.get("/health")).json()["checks"]]

    assert components == ["store", "engine", "leader", "shards"]


async def test_a_follower_counts_the_shards_of_all_services(pair: tuple[Api, Api]) -> None:
    leader, _ = pair
    await two(leader)
    await leader.node.coordinator.tick()

    at_a, at_b = [(await one.get("/api/overview")).json()["shards"] for one in pair]

    assert at_b == at_a
    assert at_b["services"] == 1


async def test_a_coordinator_that_shares_its_store_with_nobody_leads_and_lists_itself(
    api: Api,
) -> None:
    found = await system(api)

    assert (found["role"], found["leader"]) == ("leader", None)
    assert [(one["is_here"], one["role"]) for one in found["replicas"]] == [(True, "leader")]
    assert "leader" not in [one["component"] for one in (await api.get("/health")).json()["checks"]]
    assert (await samples(api))["rota_leader",] == 1
    assert ("rota_leader_epoch",) not in await samples(api)
