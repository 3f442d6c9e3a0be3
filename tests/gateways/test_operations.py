from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rota.engine.shards.changes import ServiceGauges
from rota.gateways.http.prometheus import services
from rota.gateways.http.resources.health import shards_check
from rota.node import Node
from tests.gateways.membership import SERVICE, Member, pass_time, two
from tests.gateways.serving import Api, Json, called, held, served, settings_in

Samples = dict[tuple[str, ...], float]


async def samples(api: Api) -> Samples:
    """All figures, by name and the values of their labels."""
    answer = await api.get("/metrics")
    assert answer.status_code == 200
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


async def part(api: Api, component: str) -> Json:
    (found,) = [
        check
        for check in (await api.get("/health")).json()["checks"]
        if check["component"] == component
    ]
    return found


async def test_a_healthy_coordinator_says_so_of_all_its_parts(api: Api) -> None:
    await api.node.coordinator.tick()

    answer = await api.get("/health")

    health = answer.json()
    assert (answer.status_code, health["status"]) == (200, "healthy")
    assert health["checks"] == health["components"]
    parts = {check["component"]: check["isHealthy"] for check in health["checks"]}
    assert parts["store"] is True
    assert parts["engine"] is True
    assert any(part.startswith("duty:") for part in parts)
    assert all(parts.values())
    assert health["timestamp"] == api.clock.now_ms()
    assert health["uptime"] == 0.0
    assert health["warnings"] == []


async def test_a_coordinator_that_stops_is_alive_but_not_ready(api: Api) -> None:
    api.node.coordinator.begin_stop()

    live = await api.get("/health/live")
    ready = await api.get("/health/ready")
    health = await api.get("/health")

    assert live.status_code == 200
    assert (ready.status_code, ready.json()["code"]) == (503, "unavailable")
    assert int(ready.headers["retry-after"]) >= 1
    assert (health.status_code, health.json()["status"]) == (503, "unhealthy")


async def test_a_duty_that_does_not_run_any_more_is_unhealthy(tmp_path: Path) -> None:
    async with called(tmp_path) as api:
        coordinator = api.node.coordinator
        await coordinator.tick()
        stuck_ms = api.clock.now_ms() - 61_000
        coordinator.metrics().duty_runs_ms["stuck"] = stuck_ms

        answer = await api.get("/health", headers={"host": "localhost"})

    unwell = [check for check in answer.json()["checks"] if not check["isHealthy"]]
    assert answer.status_code == 503
    assert [check["component"] for check in unwell] == ["duty:stuck"]


async def test_shards_are_unwell_while_a_member_does_not_give_up_what_it_should(api: Api) -> None:
    a, b = Member(api, "a"), Member(api, "b")
    held_back = (await a.register())["assignedShards"]
    await b.register()
    await pass_time(api, 2_500)
    verdicts = []

    for _ in range(10):
        verdicts.append((await part(api, "shards"))["isHealthy"])
        await a.beat(assignedShards=held_back)
        await b.beat()
        await pass_time(api, 5_000)

    # Stuck after 30 s, fenced, and a lease later its shards are another's.
    assert verdicts == [True] * 6 + [False] * 3 + [True]
    assert (await b.beat())["assignedShards"] == held_back


async def test_shards_that_wait_for_somebody_who_could_have_them_are_unwell(tmp_path: Path) -> None:
    node = Node(settings_in(tmp_path))
    coordinator = node.coordinator
    now_ms = coordinator.clock.now_ms()
    feed = coordinator.metrics().service(SERVICE)
    details = []

    for age_ms, stranded in ((20_000, 0), (15_000, 3), (20_000, 3)):
        feed.stranded_since_ms = now_ms - age_ms if stranded else None
        feed.gauges = gauges(stranded=stranded)
        details.append(shards_check(coordinator, now_ms).detail)

    node.database.close()
    assert details == [None, None, "shards without an owner for more than 15000 ms: 3"]


def gauges(*, stranded: int) -> ServiceGauges:
    return ServiceGauges(
        swept_ms=0,
        generation=1,
        shard_count=10,
        members=1,
        unowned=3,
        stranded=stranded,
        revoking=0,
        oldest_revoke_ms=0,
        imbalance=0.0,
        lease_margin_ms=None,
    )


async def test_shards_that_nobody_may_have_are_no_trouble_of_ours(api: Api) -> None:
    a = Member(api, "a")
    await a.register(maxShards=4)
    await pass_time(api, 500)
    figures = api.node.coordinator.metrics().services[SERVICE]

    assert figures.gauges is not None
    assert (figures.gauges.unowned, figures.gauges.stranded) == (6, 0)
    assert (await part(api, "shards")) == {
        "component": "shards",
        "isHealthy": True,
        "detail": None,
    }


async def test_an_insecure_coordinator_warns(tmp_path: Path) -> None:
    async with called(tmp_path, host="0.0.0.0", insecure=True) as api:
        answer = await api.get("/health")

    assert "insecure" in answer.json()["warnings"][0]


async def test_metrics_are_prometheus_text_with_what_was_done(api: Api) -> None:
    worker = await api.register()
    await api.submit(queue="mail")
    await worker.finish((await worker.lease())[0])
    await api.submit(queue='odd"name\n')

    answer = await api.get("/metrics")

    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    found = await samples(api)
    assert found["rota_tasks_submitted_total", "mail"] == 1
    assert found["rota_tasks_finished_total", "mail", "succeeded"] == 1
    assert found["rota_leases_granted_total",] == 1
    assert found["rota_workers", "active", "healthy"] == 1
    assert found["rota_queue_depth", "mail"] == 0
    assert found["rota_queue_depth", 'odd"name\n'] == 1
    assert found["rota_http_answers_total", "/api/tasks", "201", "POST"] == 2


async def test_metrics_tell_how_services_do(api: Api) -> None:
    a, b = await two(api)
    worker = await api.register(heartbeat_interval_ms=60_000)
    await api.submit()
    (lease,) = await worker.lease()
    stale = {"service": SERVICE, "shard": 0, "epoch": 99}
    await worker.report({**held(lease), "ok": True, "shard": stale})
    await worker.report({**held(lease), "ok": True, "shard": {**stale, "service": "none"}})
    await api.post(f"{b.path}/drain")
    await pass_time(api, 3_000)

    found = await samples(api)

    assert {name[0]: value for name, value in found.items() if name[1:] == (SERVICE,)} == {
        "rota_service_beats_total": a.seq + b.seq,
        "rota_service_rebalances_total": 3,
        "rota_service_shards_moved_total": 10,
        "rota_service_shards_granted_total": 15,
        "rota_service_shards_forced_total": 0,
        "rota_service_effects_fenced_total": 1,
        "rota_service_generation": (await api.get(f"/api/services/{SERVICE}")).json()["generation"],
        "rota_service_members": 2,
        "rota_service_shards": 10,
        "rota_service_shards_unowned": 0,
        "rota_service_shards_moving": 5,
        "rota_service_oldest_revoke_age_seconds": 2.5,
        "rota_service_imbalance": 0,
        "rota_service_lease_margin_seconds": 12,
    }
    assert found["rota_services",] == 1
    assert found["rota_effects_fenced_total",] == 2
    assert found["rota_results_refused_total", "stale_epoch"] == 2


async def test_metrics_tell_how_members_went(api: Api) -> None:
    a, b = await two(api)
    await a.leave()
    await pass_time(api, 15_500)

    found = await samples(api)

    assert found["rota_service_members_gone_total", SERVICE, "left"] == 1
    assert found["rota_service_members_gone_total", "expired", SERVICE] == 1
    assert found["rota_service_members", SERVICE] == 0
    assert found["rota_service_shards_unowned", SERVICE] == 10
    assert ("rota_service_lease_margin_seconds", SERVICE) not in found
    assert b.holds


async def test_metrics_label_no_more_services_than_they_may(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "MOST_LABELLED", 2)
    for name in ("c", "a", "b"):
        await api.client.put(f"/api/services/{name}", json={"shard_count": 1})
    await pass_time(api, 500)

    found = await samples(api)

    assert found["rota_services",] == 3
    assert [name for name in "abc" if ("rota_service_shards", name) in found] == ["a", "b"]
    assert ("rota_service_beats_total", "c") not in found


async def test_metrics_have_the_figures_of_the_socket(api: Api) -> None:
    wire = api.node.coordinator.metrics().wire
    before = await samples(api)
    wire.received["heartbeat"] += 3
    wire.refused["malformed"] += 1
    wire.refused_connections["too_many"] += 2
    wire.dropped += 4

    found = await samples(api)

    assert {"rota_zeromq_sent_total", "rota_zeromq_connections"} <= {name[0] for name in before}
    assert found["rota_zeromq_messages_total", "heartbeat"] == 3
    assert found["rota_zeromq_messages_refused_total", "malformed"] == 1
    assert found["rota_zeromq_connections_refused_total", "too_many"] == 2
    assert found["rota_zeromq_dropped_total",] == before["rota_zeromq_dropped_total",] + 4


async def test_the_reference_brings_all_it_needs_and_may_load_nothing_else(api: Api) -> None:
    answer = await api.get("/docs")

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "http://" not in answer.text
    assert "https://" not in answer.text
    assert "src=" not in answer.text
    assert "innerHTML" not in answer.text
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


async def test_an_unknown_path_is_a_problem_that_says_not_found(api: Api) -> None:
    for path in ("/nowhere", "/api/nowhere", "/api/tasks/", "/api/tasks/x/y/z"):
        answer = await api.get(path)

        assert answer.status_code == 404
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["code"] == "not_found"
        assert "not found" in answer.json()["detail"]


async def test_a_wrong_method_is_a_problem_that_names_the_right_ones(api: Api) -> None:
    tasks = await api.client.put("/api/tasks", json={})
    docs = await api.client.post("/docs")

    assert (tasks.status_code, tasks.headers["allow"]) == (405, "GET, POST")
    assert (tasks.json()["code"], tasks.json()["status"]) == ("method_not_allowed", 405)
    assert docs.status_code == 405
    assert "GET" in docs.headers["allow"]


async def test_head_is_answered_like_get_without_a_body(api: Api) -> None:
    answer = await api.client.head("/health")

    assert (answer.status_code, answer.content) == (200, b"")


async def test_an_unexpected_error_is_a_500_that_tells_nothing(tmp_path: Path) -> None:
    async with served(tmp_path) as api:

        async def break_down() -> None:
            raise RuntimeError("secret: the plan is in drawer 3")

        api.node.coordinator.queries.queues.all = break_down  # type: ignore[assignment,method-assign] # a fault, put in by hand
        answer = await api.get("/api/queues")

    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert "drawer" not in answer.text
    assert "Traceback" not in answer.text
