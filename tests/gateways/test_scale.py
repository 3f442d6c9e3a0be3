from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml  # type: ignore[import-untyped]  # comes without types

from tests.gateways.serving import Api, Json, called
from tests.gateways.test_access import token

KEDA = Path(__file__).parents[2] / "examples" / "keda" / "worker.yaml"


@pytest.fixture
async def closed(tmp_path: Path) -> AsyncIterator[Api]:
    """A coordinator that anybody may reach, so everybody needs a token."""
    async with called(tmp_path, host="0.0.0.0") as running:
        yield running


async def scale(api: Api, query: str = "") -> Json:
    answer = await api.get(f"/api/scale{query}")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def measured(api: Api, *, duration_ms: int, **options: Json) -> None:
    """Let the coordinator see how long a task takes, and forget the minute it came in."""
    worker = await api.register(heartbeat_interval_ms=3_600_000, **options)
    await api.submit()
    (lease,) = await worker.lease()
    api.clock.turn(duration_ms)
    await worker.finish(lease)
    api.clock.turn(60_000)


async def test_nothing_ever_submitted_wants_nobody(api: Api) -> None:
    assert await scale(api) == {
        "items": [],
        "depth": 0,
        "running": 0,
        "wanted_capacity": 0.0,
        "wanted_workers": 0,
        "next_cursor": None,
    }


async def test_each_queue_and_capability_set_says_what_it_wants_and_why(api: Api) -> None:
    await measured(api, duration_ms=1_000, max_concurrent_tasks=10)
    await api.post("/api/tasks", [{"name": "work"}] * 600)
    await api.submit(requires=["gpu"], queue="films")
    api.clock.turn(2_000)

    answer = await scale(api)

    plain, films = answer["items"]
    assert plain == {
        "queue": "default",
        "requires": [],
        "paused": False,
        "depth": 600,
        "oldest_age_ms": 2_000,
        "running": 0,
        "submitted_per_s": 10.0,
        "finished_per_s": 0.0,
        "duration_ms": 1_000.0,
        "workers": 1,
        "capacity": 10,
        "available_capacity": 10,
        "utilisation": 0.0,
        "drain_ms": None,
        "wanted_capacity": pytest.approx(600 / 30 + 10 / 0.8),
        "wanted_workers": 4,
        "decided_by": "backlog",
        "explanation": "600 waiting, 1000 ms each, wanted within 30000 ms",
    }
    assert (films["queue"], films["requires"], films["workers"]) == ("films", ["gpu"], 0)
    assert answer["depth"] == 601
    assert answer["wanted_capacity"] == plain["wanted_capacity"] + films["wanted_capacity"]


async def test_the_caller_may_say_what_it_serves_and_how(api: Api) -> None:
    await measured(api, duration_ms=1_000)
    await api.post("/api/tasks", [{"name": "work"}] * 30)
    await api.post("/api/tasks", [{"name": "other"}] * 40)
    await api.submit(queue="mail")
    api.clock.turn(60_000)

    everything = await scale(api)
    some = await scale(api, "?queue=default&queue=nowhere&task=work&target_ms=15000&concurrency=2")

    assert [item["queue"] for item in everything["items"]] == ["default", "mail"]
    assert [(item["queue"], item["depth"]) for item in some["items"]] == [("default", 30)]
    assert some["wanted_workers"] == 4


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("?queues=a", "queues"),
        ("?target_ms=0", "target_ms"),
        ("?concurrency=many", "concurrency"),
        (f"?queue={'x' * 201}", "queue"),
    ],
)
async def test_what_cannot_be_meant_is_refused_by_name(api: Api, query: str, field: str) -> None:
    answer = await api.get(f"/api/scale{query}")

    assert answer.status_code == 400
    assert answer.json()["field"].startswith(field)


async def test_metrics_tell_the_same(api: Api) -> None:
    await measured(api, duration_ms=1_000)
    await api.post("/api/tasks", [{"name": "work", "requires": ["gpu", "big"]}] * 60)
    api.clock.turn(60_000)

    lines = (await api.get("/metrics")).text.splitlines()

    group = '{queue="default",requires="big,gpu"}'
    assert f"rota_scale_depth{group} 60.0" in lines
    assert f"rota_scale_wanted_capacity{group} 4.0" in lines
    assert f"rota_scale_wanted_workers{group} 1.0" in lines
    assert f"rota_scale_oldest_age_seconds{group} 60.0" in lines
    assert 'rota_scale_utilisation{queue="default",requires=""} 0.0' in lines
    # Nobody can serve it: there is no share of no capacity, and no end of the wait.
    assert not any(line.startswith(f"rota_scale_utilisation{group}") for line in lines)
    assert not any(line.startswith(f"rota_scale_drain_seconds{group}") for line in lines)


async def test_the_example_for_keda_finds_its_number(api: Api) -> None:
    parts = {part["kind"]: part for part in yaml.safe_load_all(KEDA.read_text())}
    trigger = parts["ScaledObject"]["spec"]["triggers"][0]["metadata"]
    arguments = parts["Deployment"]["spec"]["template"]["spec"]["containers"][0]["args"]
    url = urlsplit(trigger["url"])

    before = (await scale(api, f"?{url.query}"))[trigger["valueLocation"]]
    await api.submit(queue="images")
    api.clock.turn(1_000)
    after = (await scale(api, f"?{url.query}"))[trigger["valueLocation"]]

    assert (url.path, before, after) == ("/api/scale", 0, 1)
    assert f"concurrency={arguments[arguments.index('--concurrency') + 1]}" in url.query


@pytest.mark.parametrize("scope", ["admin", "submit", "read", "worker"])
async def test_every_scope_may_ask(closed: Api, scope: str) -> None:
    who = await token(closed, scope)

    assert (await closed.get("/api/scale", headers=who)).status_code == 200
    assert (await closed.get("/api/scale")).status_code == 401


async def test_a_token_bound_to_queues_sees_no_others(closed: Api) -> None:
    admin, who = await token(closed, "admin"), await token(closed, "worker", queues=("a",))
    for queue in ("a", "b"):
        await closed.post("/api/tasks", {"name": "work", "queue": queue}, headers=admin)

    own = await closed.get("/api/scale", headers=who)
    others = await closed.get("/api/scale?queue=b", headers=who)

    assert [item["queue"] for item in own.json()["items"]] == ["a"]
    assert (others.status_code, others.json()["code"]) == (403, "forbidden")
