import pytest

from tests.gateways.serving import Api


async def ids(api: Api, query: str) -> list[str]:
    answer = await api.get(f"/api/workers?{query}")
    assert answer.status_code == 200, answer.text
    return [worker["id"] for worker in answer.json()["items"]]


async def test_a_worker_is_shown_with_all_its_fields(api: Api) -> None:
    await api.register("w1", capabilities=["gpu"], heartbeat_interval_ms=1_000)

    worker = (await api.get("/api/workers/w1")).json()

    assert (worker["id"], worker["node_id"], worker["capabilities"]) == ("w1", "n1", ["gpu"])
    assert (worker["last_heartbeat_ms"], worker["started_at_ms"]) == (api.clock.now_ms(),) * 2
    assert worker["metrics"] == {
        "tasks_completed": 0,
        "tasks_failed": 0,
        "average_task_duration_ms": 0.0,
        "p50_ms": None,
        "p95_ms": None,
        "p99_ms": None,
    }


async def test_an_id_may_have_a_slash_in_it(api: Api) -> None:
    await api.register("rack/1 ö")

    answer = await api.get("/api/workers/rack%2F1%20%C3%B6")

    assert (answer.status_code, answer.json()["id"]) == (200, "rack/1 ö")


async def test_health_follows_the_age_of_the_last_beat(api: Api) -> None:
    await api.register("w1", heartbeat_interval_ms=10_000)

    async def health() -> str:
        return str((await api.get("/api/workers/w1")).json()["health"])

    assert await health() == "healthy"
    api.clock.turn(20_001)
    assert await health() == "degraded"


async def test_metrics_tell_how_a_worker_did(api: Api) -> None:
    worker = await api.register("w1")
    await api.submit()
    await api.submit(max_attempts=1)
    first, second = await worker.lease()
    api.clock.turn(400)
    await worker.finish(first)
    await worker.fail(second)

    metrics = (await api.get("/api/workers/w1")).json()["metrics"]

    assert (metrics["tasks_completed"], metrics["tasks_failed"]) == (1, 1)
    assert metrics["average_task_duration_ms"] == pytest.approx(400, abs=1)
    assert metrics["p50_ms"] == pytest.approx(400, rel=0.2)


async def test_workers_are_found_by_all_capabilities_and_any_health(api: Api) -> None:
    await api.register("a", capabilities=["gpu", "llm"], heartbeat_interval_ms=10_000)
    api.clock.turn(25_000)
    await api.register("b", capabilities=["gpu"], group="blue")

    assert await ids(api, "") == ["a", "b"]
    assert await ids(api, "capability=gpu") == ["a", "b"]
    assert await ids(api, "capability=gpu&capability=llm") == ["a"]
    assert await ids(api, "health=healthy") == ["b"]
    assert await ids(api, "health=healthy&health=degraded") == ["a", "b"]
    assert await ids(api, "health=healthy,degraded") == ["a", "b"]
    assert await ids(api, "group=blue") == ["b"]
    assert await ids(api, "group=red") == []


async def test_workers_are_found_by_free_capacity(api: Api) -> None:
    await api.register("small", max_concurrent_tasks=1)
    await api.register("large", max_concurrent_tasks=10)
    await api.register("drained", max_concurrent_tasks=10)
    await api.post("/api/workers/drained/drain")

    assert await ids(api, "min_available=1") == ["large", "small"]
    assert await ids(api, "min_available=5") == ["large"]


async def test_ranked_workers_come_best_first_with_the_parts_of_their_score(api: Api) -> None:
    busy = await api.register("busy", max_concurrent_tasks=2)
    await api.register("free", max_concurrent_tasks=2)
    await api.submit()
    await busy.lease(most=1)

    answer = await api.get("/api/workers?rank=true")

    best, other = answer.json()["items"]
    assert (best["id"], other["id"]) == ("free", "busy")
    assert best["priority"] > other["priority"]
    assert (best["available_capacity"], other["available_capacity"]) == (2, 1)
    assert other["score"]["capacity"] == 0.5
    assert best["success_rate"] == 1.0
    assert set(best["score"]) == {"capacity", "success", "speed", "slow_start"}


async def test_workers_are_paged(api: Api) -> None:
    for name in ("a", "b", "c"):
        await api.register(name)

    for rank in ("false", "true"):
        seen: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            page = (await api.get(f"/api/workers?limit=2&rank={rank}&cursor={cursor}")).json()
            seen += [worker["id"] for worker in page["items"]]
            cursor = page["next_cursor"]
        assert seen == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("health=fine", "health"),
        ("min_available=some", "min_available"),
        ("rank=maybe", "rank"),
        ("cursor=%21", "cursor"),
        ("kind=x", "kind"),
    ],
)
async def test_a_bad_parameter_is_refused_by_name(api: Api, query: str, field: str) -> None:
    answer = await api.get(f"/api/workers?{query}")

    assert (answer.status_code, answer.json()["field"]) == (400, field)


async def test_a_worker_that_leaves_gives_its_leases_back_at_once(api: Api) -> None:
    worker = await api.register("w1")
    task = await api.submit()
    await worker.lease()

    answer = await api.delete("/api/workers/w1")

    assert (answer.status_code, answer.json()) == (200, {"id": "w1", "released": 1})
    back = await api.task(task["id"])
    assert (back["state"], back["attempt"]) == ("queued", 0)
    assert (await api.get("/api/workers/w1")).status_code == 404
    assert (await api.delete("/api/workers/w1")).json()["code"] == "worker_not_found"


async def test_a_replaced_worker_cannot_make_its_successor_leave(api: Api) -> None:
    old = await api.register("w1")
    await api.register("w1")

    answer = await api.delete(f"/api/workers/w1?incarnation={old.incarnation}")

    assert (answer.status_code, answer.json()["code"]) == (409, "stale_incarnation")
    assert (await api.get("/api/workers/w1")).status_code == 200


@pytest.mark.parametrize(
    ("verb", "state"),
    [("drain", "draining"), ("quarantine", "quarantined"), ("resume", "active")],
)
async def test_operators_set_a_workers_state(api: Api, verb: str, state: str) -> None:
    worker = await api.register("w1")
    await api.submit()

    answer = await api.post(f"/api/workers/w1/{verb}")

    assert (answer.status_code, answer.json()["state"]) == (200, state)
    assert len(await worker.lease()) == (1 if state == "active" else 0)
    missing = await api.post(f"/api/workers/nobody/{verb}")
    assert (missing.status_code, missing.json()["code"]) == (404, "worker_not_found")
