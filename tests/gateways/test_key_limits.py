"""Limits of keys and settings of queues over HTTP."""

from pathlib import Path

import pytest

from tests.gateways.serving import Api, Json, served
from tests.gateways.test_access import token

ONE = {"key": "user:1", "limit": 1}
OPENAI = {"key": "openai", "limit": 2, "per_ms": 1_000}


async def test_a_task_shows_the_limits_that_it_was_submitted_with(api: Api) -> None:
    made = await api.submit(concurrency=ONE, rate=[OPENAI], fair_key="ann")

    shown = await api.task(made["id"])

    for view in (made, shown):
        assert view["concurrency"] == {**ONE, "hold": "attempt", "on_full": "wait"}
        assert [one["key"] for one in view["rate"]] == ["openai"]
        assert view["fair_key"] == "ann"


async def test_limits_are_listed_with_what_runs_and_waits(api: Api) -> None:
    worker = await api.register()
    for _ in range(3):
        await api.submit(concurrency=ONE)
    await api.submit(rate=OPENAI)
    await worker.lease(most=100)

    everything = (await api.get("/api/limits")).json()
    rates = (await api.get("/api/limits", params={"kind": "rate"})).json()["items"]
    users = (await api.get("/api/limits", params={"prefix": "user:"})).json()["items"]
    first = (await api.get("/api/limits", params={"limit": 1})).json()
    second = (await api.get("/api/limits", params={"cursor": first["next_cursor"]})).json()

    assert [item["key"] for item in everything["items"]] == ["openai", "user:1"]
    assert everything["next_cursor"] is None
    assert [item["key"] for item in rates] == ["openai"]
    assert rates[0]["opens_at_ms"] == api.clock.now_ms() + 500
    assert [(item["running"], item["waiting"], item["pinned"]) for item in users] == [(1, 2, False)]
    assert [item["key"] for item in first["items"] + second["items"]] == ["openai", "user:1"]


async def test_an_operator_sets_and_unpins_a_limit(api: Api) -> None:
    worker = await api.register()
    for _ in range(4):
        await api.submit(concurrency=ONE)
    await worker.lease(most=100)

    put = await api.client.put("/api/limits/user%3A1", json={"limit": 3})
    more = await worker.lease(most=100)
    gone = await api.delete("/api/limits/user:1")

    assert (put.status_code, put.json()["limit"], put.json()["pinned"]) == (200, 3, True)
    assert len(more) == 2
    assert (gone.json()["limit"]["limit"], gone.json()["limit"]["pinned"]) == (1, False)


async def test_a_limit_that_no_task_names_is_forgotten(api: Api) -> None:
    await api.client.put("/api/limits/new", json={"limit": 3})

    gone = await api.delete("/api/limits/new")
    missing = await api.get("/api/limits/new")

    assert gone.json() == {"key": "new", "limit": None}
    assert (missing.status_code, missing.json()["code"]) == (404, "limit_not_found")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/limits/new", {}),
        ("/api/limits/new", {"limit": -1}),
        ("/api/limits/new", {"limit": 1, "what": 1}),
        ("/api/limits/new", {"limit": 1, "burst": 2}),
        ("/api/limits/new", {"limit": 5_000, "per_ms": 10, "mode": "window"}),
        ("/api/limits/" + "k" * 301, {"limit": 1}),
        ("/api/limits/%00", {"limit": 1}),
        ("/api/limits/%01queue:running:default", {"limit": 1}),
    ],
)
async def test_a_limit_that_makes_no_sense_is_refused(api: Api, path: str, body: Json) -> None:
    answer = await api.client.put(path, json=body)

    assert answer.status_code == 400, answer.text


async def test_a_rate_is_consumed_outside_tasks(api: Api) -> None:
    await api.client.put("/api/limits/api", json={"limit": 1, "per_ms": 1_000})

    first = await api.post("/api/limits/api/consume")
    second = await api.post("/api/limits/api/consume", {"cost": 1})

    assert first.json() == {"key": "api", "consumed": True, "opens_at_ms": None}
    assert second.json()["consumed"] is False
    assert second.json()["opens_at_ms"] == api.clock.now_ms() + 1_000


async def test_a_full_key_is_answered_with_its_holder(api: Api) -> None:
    worker = await api.register()
    strict = {**ONE, "on_full": "reject"}
    made = await api.submit(concurrency=strict)
    await worker.lease(most=100)

    answer = await api.post("/api/tasks", {"name": "work", "concurrency": strict})

    assert (answer.status_code, answer.json()["code"]) == (409, "key_busy")
    assert answer.json()["holder"] == made["id"]


async def test_the_settings_of_a_queue_are_changed_shown_and_reset(api: Api) -> None:
    changed = await api.client.patch(
        "/api/queues/default",
        json={"max_running": 2, "rate": {"limit": 5}, "weights": {"ann": 2}, "paused": False},
    )
    reset = await api.client.patch("/api/queues/default", json={"rate": None, "weights": None})

    assert changed.status_code == 200, changed.text
    assert changed.json()["max_running"] == 2
    assert changed.json()["rate"]["limit"] == 5
    assert changed.json()["weights"] == {"ann": 2.0}
    assert (reset.json()["max_running"], reset.json()["rate"]) == (2, None)
    assert reset.json()["weights"] == {}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"max_runing": 2}, "max_runing"),
        ({"max_running": -1}, "max_running"),
        ({"weights": {"a": 0}}, "weights"),
        ({"weights": {"a": 101}}, "weights"),
        ({"rate": {"limit": 0}}, "rate"),
    ],
)
async def test_a_setting_that_makes_no_sense_is_refused_by_name(
    api: Api, body: Json, field: str
) -> None:
    answer = await api.client.patch("/api/queues/default", json=body)

    assert answer.status_code == 400
    assert field in answer.text


async def test_the_tenants_of_a_queue_are_listed_with_their_shares(api: Api) -> None:
    worker = await api.register()
    await api.client.patch(
        "/api/queues/default", json={"weights": {"ann": 2}, "fairness": "time", "aging_ms": 1_000}
    )
    for tenant in ("ann", "ann", "ann", "bob"):
        await api.submit(fair_key=tenant)
    await worker.lease(most=1)

    page = (await api.get("/api/queues/default/tenants", params={"limit": 1})).json()
    refused = await api.get("/api/queues/default/tenants", params={"limit": 101})

    (ann,) = page["items"]
    assert page["total"] == 2
    assert (ann["key"], ann["weight"], ann["waiting"] + ann["running"]) == ("ann", 2.0, 3)
    assert ann["share"] is None  # no attempt has ended
    assert refused.status_code == 400


async def test_a_queue_shows_that_it_misses_its_target(api: Api) -> None:
    patch = await api.client.patch("/api/queues/default", json={"target_wait_ms": 1_000})
    await api.submit()
    await api.turn(3_000)

    (queue,) = (await api.get("/api/queues")).json()["items"]
    metrics = (await api.get("/metrics")).text

    assert patch.json()["target_missed_ms"] is None
    assert queue["target_wait_ms"] == 1_000
    assert queue["target_missed_ms"] == api.clock.now_ms()
    assert 'rota_queue_target_missed{queue="default"} 1.0' in metrics


async def test_a_full_queue_says_when_to_come_back(api: Api) -> None:
    await api.client.patch("/api/queues/default", json={"max_queued": 1})
    await api.submit()

    answer = await api.post("/api/tasks", {"name": "work"})

    assert (answer.status_code, answer.json()["code"]) == (429, "queue_full")
    assert int(answer.headers["retry-after"]) >= 1


async def test_a_bound_token_neither_uses_nor_changes_a_limit_of_others(tmp_path: Path) -> None:
    async with served(tmp_path, zmq_port=None, require_token=True) as api:
        ours = await token(api, "submit", queues=("a",))
        theirs = await token(api, "submit", queues=("b",))
        task = {"name": "work", "queue": "b", "concurrency": {"key": "k", "limit": 3}}
        await api.post("/api/tasks", task, headers=theirs)
        mine = {"name": "work", "queue": "a", "concurrency": {"key": "k", "limit": 0}}

        refused = await api.post("/api/tasks", mine, headers=ours)
        looked = await api.get("/api/limits/k", headers=ours)
        operator = await token(api, "admin")
        before = (await api.get("/api/limits/k", headers=operator)).json()
        pinned = await api.client.put("/api/limits/k", json={"limit": 3}, headers=operator)
        shared = await api.post("/api/tasks", mine, headers=ours)
        after = (await api.get("/api/limits/k", headers=operator)).json()

    assert (refused.status_code, looked.status_code) == (403, 403)
    assert (before["limit"], pinned.status_code) == (3, 200)
    assert (shared.status_code, after["limit"]) == (201, 3)


async def test_a_key_with_slashes_need_not_be_encoded(api: Api) -> None:
    put = await api.client.put("/api/limits/a/b/c", json={"limit": 3, "per_ms": 1_000})
    seen = await api.get("/api/limits/a%2Fb%2Fc")
    used = await api.post("/api/limits/a/b/c/consume", {})
    gone = await api.delete("/api/limits/a/b/c")

    assert (put.status_code, put.json()["key"]) == (200, "a/b/c")
    assert seen.json()["key"] == "a/b/c"
    assert (used.status_code, used.json()["consumed"]) == (200, True)
    assert gone.json()["key"] == "a/b/c"


# --- why tasks wait -------------------------------------------------------------------------------


async def reason(api: Api, task: Json) -> Json:
    why: Json = (await api.get(f"/api/tasks/{task['id']}/timeline")).json()["why"]
    return why


async def test_a_waiting_task_names_the_limit_that_is_full(api: Api) -> None:
    worker = await api.register()
    tasks = [await api.submit(concurrency=ONE) for _ in range(3)]
    await worker.lease(most=100)

    why = await reason(api, tasks[2])

    assert (why["code"], why["limit_key"]) == ("limit_full", "user:1")
    assert why["text"] == "limit 'user:1': 1 of 1 running, 1 before it"


async def test_a_waiting_task_says_when_its_rate_lets_it_start(api: Api) -> None:
    worker = await api.register()
    tasks = [await api.submit(rate=OPENAI) for _ in range(2)]
    await worker.lease(most=100)

    why = await reason(api, tasks[1])

    assert (why["code"], why["limit_key"]) == ("rate_closed", "openai")
    assert why["opens_at_ms"] == api.clock.now_ms() + 500


async def test_a_key_that_is_paused_is_a_reason_that_needs_an_operator(api: Api) -> None:
    await api.register()
    task = await api.submit(concurrency=ONE)
    await api.client.put("/api/limits/user:1", json={"limit": 0})

    why = await reason(api, task)

    assert (why["code"], why["is_stuck"]) == ("limit_paused", True)


async def test_a_queue_that_runs_all_it_may_is_the_reason_of_its_tasks(api: Api) -> None:
    worker = await api.register()
    tasks = [await api.submit() for _ in range(2)]
    await api.client.patch("/api/queues/default", json={"max_running": 1})
    await worker.lease(most=100)

    why = await reason(api, tasks[1])
    (lane,) = (await api.get("/api/backlog")).json()["items"]

    assert why["text"] == "max_running of queue 'default': 1 of 1 running"
    assert lane["why"]["code"] == "limit_full"


async def test_a_bound_token_is_not_told_how_many_tasks_of_others_run(tmp_path: Path) -> None:
    async with served(tmp_path, zmq_port=None, require_token=True) as api:
        operator = await token(api, "admin", "submit", "worker")
        ours = await token(api, "submit", "read", queues=("a",))
        await api.client.put("/api/limits/k", json={"limit": 1}, headers=operator)
        task = {"name": "work", "concurrency": {"key": "k"}}
        await api.post("/api/tasks", {**task, "queue": "b"}, headers=operator)
        registered = await api.post("/api/workers", {"worker_id": "w"}, headers=operator)
        incarnation = registered.json()["incarnation"]
        await api.post("/api/workers/w/lease", {"incarnation": incarnation}, headers=operator)
        made = (await api.post("/api/tasks", {**task, "queue": "a"}, headers=ours)).json()

        path = f"/api/tasks/{made['id']}/timeline"
        told = (await api.get(path, headers=ours)).json()["why"]
        shown = (await api.get(path, headers=operator)).json()["why"]

    assert told["text"] == "limit 'k': no slot is free"
    assert shown["text"] == "limit 'k': 1 of 1 running"


async def test_the_backlog_names_the_limit_that_all_tasks_of_a_lane_wait_for(api: Api) -> None:
    worker = await api.register()
    for _ in range(3):
        await api.submit(name="one", concurrency=ONE)
    for number in range(3):
        await api.submit(name="many", concurrency={"key": f"k{number}"})
        await api.submit(name="many", concurrency={"key": f"k{number}"})
    await api.submit(name="limited", rate={**OPENAI, "limit": 1})
    await api.submit(name="limited", rate={**OPENAI, "limit": 1})
    await worker.lease(most=100)

    rows = (await api.get("/api/backlog")).json()["items"]

    why = {row["name"]: row["why"] for row in rows}
    assert why["one"]["code"] == "limit_full"
    assert why["one"]["text"] == "limit 'user:1': 1 of 1 running"
    assert why["one"]["limit_key"] == "user:1"
    assert why["many"]["text"].endswith(": 1 of 1 running, and 2 other limits")
    assert why["limited"]["code"] == "rate_closed"
    assert why["limited"]["opens_at_ms"] == api.clock.now_ms() + 1_000
