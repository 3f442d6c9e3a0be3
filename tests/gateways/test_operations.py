from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.gateways.serving import Api, called, served


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
    api.node.coordinator.is_ready = False

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
        coordinator.figures().duty_runs_ms["stuck"] = stuck_ms

        answer = await api.get("/health", headers={"host": "localhost"})

    unwell = [check for check in answer.json()["checks"] if not check["isHealthy"]]
    assert answer.status_code == 503
    assert [check["component"] for check in unwell] == ["duty:stuck"]


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
    samples = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    assert samples["rota_tasks_submitted_total", "mail"] == 1
    assert samples["rota_tasks_finished_total", "mail", "succeeded"] == 1
    assert samples["rota_leases_granted_total",] == 1
    assert samples["rota_workers", "active", "healthy"] == 1
    assert samples["rota_queue_depth", "mail"] == 0
    assert samples["rota_queue_depth", 'odd"name\n'] == 1
    assert samples["rota_http_answers_total", "/api/tasks", "201", "POST"] == 2


async def test_the_pages_bring_all_they_need_and_may_load_nothing_else(api: Api) -> None:
    for path in ("/", "/docs"):
        answer = await api.get(path)

        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert "http://" not in answer.text
        assert "https://" not in answer.text
        assert "src=" not in answer.text
        assert "innerHTML" not in answer.text
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
    index = (await api.get("/")).text
    for link in ("/docs", "/openapi.json", "/health", "/metrics"):
        assert f'href="{link}"' in index


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

        api.node.coordinator.queries.queues = break_down  # type: ignore[assignment,method-assign] # a fault, put in by hand
        answer = await api.get("/api/queues")

    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert "drawer" not in answer.text
    assert "Traceback" not in answer.text
