import asyncio
from typing import Any

import pytest

from tests.gateways.serving import Api

NOWHERE = "0000000000000000"


async def test_a_submitted_task_is_answered_whole_and_can_be_found(api: Api) -> None:
    body = {
        "name": "resize",
        "payload": {"path": "a.png"},
        "queue": "images",
        "priority": 7,
        "requires": ["gpu"],
        "timeout_ms": 1000,
        "start_within_ms": 60_000,
        "max_attempts": 5,
        "backoff": {"kind": "linear", "initial_ms": 10, "max_ms": 100, "jitter": False},
        "labels": {"tenant": "a"},
    }

    answer = await api.post("/api/tasks", body)

    assert answer.status_code == 201
    task = answer.json()
    assert {name: task[name] for name in body} == body
    assert task["state"] == "queued"
    assert task["attempt"] == 0
    assert task["created_at_ms"] == api.clock.now_ms()
    assert (await api.task(task["id"])) == {**task, "position": 1}


async def test_defaults_are_those_of_the_contract(api: Api) -> None:
    task = await api.submit()

    assert (task["queue"], task["priority"], task["max_attempts"]) == ("default", 0, 3)
    assert (task["payload"], task["requires"], task["result"]) == (None, [], None)
    assert task["backoff"]["kind"] == "exponential"
    unset = ("worker_id", "error", "progress", "started_at_ms", "finished_at_ms", "run_id")
    assert [task[name] for name in unset] == [None] * len(unset)


async def test_an_array_is_answered_with_an_array_in_its_order(api: Api) -> None:
    answer = await api.post("/api/tasks", [{"name": f"t{n}"} for n in range(5)])

    assert answer.status_code == 201
    assert [task["name"] for task in answer.json()] == [f"t{n}" for n in range(5)]


async def test_an_empty_array_is_answered_with_an_empty_array(api: Api) -> None:
    answer = await api.post("/api/tasks", [])

    assert (answer.status_code, answer.json()) == (201, [])


async def test_a_task_is_found_by_its_key(api: Api) -> None:
    task = await api.submit(key="a key")
    await api.submit(key="another")

    found = (await api.get("/api/tasks", params={"key": "a key"})).json()
    nothing = (await api.get("/api/tasks", params={"key": "no such key"})).json()
    elsewhere = (await api.get("/api/tasks", params={"key": "a key", "queue": "q"})).json()

    assert [one["id"] for one in found["items"]] == [task["id"]]
    assert found["next_cursor"] is None
    assert nothing["items"] == elsewhere["items"] == []


async def test_the_same_key_answers_200_with_the_task_that_has_it(api: Api) -> None:
    first = await api.post("/api/tasks", {"name": "work", "key": "k1"})
    second = await api.post("/api/tasks", {"name": "other", "key": "k1"})

    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["duplicate"] is False
    assert second.json()["duplicate"] is True
    assert second.json()["id"] == first.json()["id"]
    assert second.json()["name"] == "work"


async def test_a_key_twice_in_one_call_is_one_task(api: Api) -> None:
    answer = await api.post("/api/tasks", [{"name": "work", "key": "k"}] * 2)

    first, second = answer.json()
    assert answer.status_code == 201
    assert first["id"] == second["id"]
    assert (first["duplicate"], second["duplicate"]) == (False, True)


async def test_a_delayed_task_is_scheduled_until_its_time(api: Api) -> None:
    task = await api.submit(delay_ms=5_000)
    assert task["state"] == "scheduled"
    assert task["run_at_ms"] == api.clock.now_ms() + 5_000

    await api.turn(5_000)

    assert (await api.task(task["id"]))["state"] == "queued"


async def test_a_body_is_json_whatever_its_content_type_says(api: Api) -> None:
    answer = await api.client.post(
        "/api/tasks", content=b'{"name": "work"}', headers={"content-type": "text/plain"}
    )

    assert answer.status_code == 201


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": 3}, "name"),
        ({"name": "x" * 201}, "name"),
        ({"name": "x", "nonsense": 1}, "nonsense"),
        ({"name": "x", "concurrency": {"key": "a", "limits": 1}}, "limits"),
        ({"name": "x", "concurrency": {"key": "a", "limit": -1}}, "limit"),
        ({"name": "x", "concurrency": [{"key": str(n)} for n in range(5)]}, "concurrency"),
        ({"name": "x", "rate": {}}, "key"),
        ({"name": "x", "rate": {"key": "a", "limit": 0}}, "limit"),
        ({"name": "x", "fair_key": ""}, "fair_key"),
        ({"name": "x", "priority": "high"}, "priority"),
        ({"name": "x", "priority": 10**30}, "priority"),
        ({"name": "x", "max_attempts": 0}, "max_attempts"),
        ({"name": "x", "timeout_ms": -1}, "timeout_ms"),
        ({"name": "x", "backoff": {"kind": "sometimes"}}, "kind"),
        ({"name": "x", "backoff": {"speed": 1}}, "speed"),
        ({"name": "x", "requires": [1]}, "requires"),
        ({"name": "x", "labels": {"a": 1}}, "labels"),
        ({"name": "x", "key": ""}, "key"),
        ({"name": "x", "delay_ms": 1, "run_at_ms": 1}, "run_at_ms"),
    ],
)
async def test_an_invalid_task_is_refused_by_the_name_of_its_field(
    api: Api, body: Any, field: str
) -> None:
    answer = await api.post("/api/tasks", body)

    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert (problem["code"], problem["status"], problem["field"]) == ("invalid", 400, field)
    assert field in problem["detail"]


async def test_one_invalid_task_refuses_the_whole_call_and_is_named_by_index(api: Api) -> None:
    answer = await api.post("/api/tasks", [{"name": "a"}, {"name": "b", "priority": "x"}])

    assert answer.status_code == 400
    assert (answer.json()["index"], answer.json()["field"]) == (1, "priority")
    assert (await api.get("/api/tasks")).json()["items"] == []


async def test_more_than_ten_thousand_tasks_are_refused_with_the_limit(api: Api) -> None:
    answer = await api.post("/api/tasks", [{"name": "x"}] * 10_001)

    assert answer.status_code == 400
    assert "10000" in answer.json()["detail"]


@pytest.mark.slow
async def test_ten_thousand_tasks_go_in_one_call(api: Api) -> None:
    answer = await api.post("/api/tasks", [{"name": "x", "payload": n} for n in range(10_000)])

    assert answer.status_code == 201
    tasks = answer.json()
    assert [task["payload"] for task in tasks] == list(range(10_000))
    assert len({task["id"] for task in tasks}) == 10_000
    assert (await api.get("/api/queues")).json()["items"][0]["depth"] == 10_000


@pytest.mark.parametrize("task_id", [NOWHERE, "nonsense", "ffffffffffffffff", "%2F", "%ff"])
@pytest.mark.parametrize("verb", ["", "/cancel", "/retry"])
async def test_an_unknown_task_is_not_found(api: Api, task_id: str, verb: str) -> None:
    call = api.post if verb else api.get
    answer = await call(f"/api/tasks/{task_id}{verb}")

    assert answer.status_code == 404
    assert answer.json()["code"] == "task_not_found"
    assert "not found" in answer.json()["detail"]


async def test_waiting_for_a_task_ends_when_it_does(api: Api) -> None:
    task = await api.submit()
    worker = await api.register()
    (lease,) = await worker.lease()
    waiting = asyncio.create_task(api.get(f"/api/tasks/{task['id']}?wait_ms=30000"))
    await api.get("/health/live")  # the wait was sent before this was answered

    await worker.finish(lease, {"width": 200})

    answer = await asyncio.wait_for(waiting, 10)
    assert answer.json()["state"] == "succeeded"
    assert answer.json()["result"] == {"width": 200}
    assert answer.json()["worker_id"] == worker.id


async def test_waiting_answers_with_the_task_as_it_is_when_the_time_is_over(api: Api) -> None:
    task = await api.submit()

    answer = await api.get(f"/api/tasks/{task['id']}?wait_ms=1")

    assert answer.json()["state"] == "queued"


@pytest.mark.parametrize("wait", ["-1", "60001", "soon", "1&wait_ms=2"])
async def test_a_wait_outside_its_bounds_is_refused(api: Api, wait: str) -> None:
    answer = await api.get(f"/api/tasks/{NOWHERE}?wait_ms={wait}")

    assert (answer.status_code, answer.json()["field"]) == (400, "wait_ms")


async def test_pages_go_from_new_to_old_and_miss_nothing(api: Api) -> None:
    tasks = [await api.submit(payload=n) for n in range(7)]

    seen: list[list[int]] = []
    cursor: str | None = ""
    while cursor is not None:
        page = (await api.get(f"/api/tasks?limit=3&cursor={cursor}")).json()
        seen.append([task["payload"] for task in page["items"]])
        cursor = page["next_cursor"]

    assert seen == [[6, 5, 4], [3, 2, 1], [0]]
    assert len(tasks) == 7


async def test_a_list_is_filtered_by_state_queue_name_and_label(api: Api) -> None:
    await api.submit(queue="a", name="one", labels={"tenant": "x"})
    await api.submit(queue="b", name="two", labels=["urgent"], delay_ms=1000)

    async def found(query: str) -> list[str]:
        answer = await api.get(f"/api/tasks?{query}")
        assert answer.status_code == 200, answer.text
        return sorted(task["name"] for task in answer.json()["items"])

    assert await found("state=queued") == ["one"]
    assert await found("state=queued&state=scheduled") == ["one", "two"]
    assert await found("state=queued,scheduled") == ["one", "two"]
    assert await found("state=succeeded") == []
    assert await found("queue=b") == ["two"]
    assert await found("name=one") == ["one"]
    assert await found("label=tenant=x") == ["one"]
    assert await found("label=tenant:x") == ["one"]
    assert await found("label=urgent") == ["two"]
    assert await found("state=&queue=&name=&label=&limit=&cursor=") == ["one", "two"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=many", "limit"),
        ("state=asleep", "state"),
        ("cursor=nonsense", "cursor"),
        ("colour=red", "colour"),
        ("queue=a&queue=b", "queue"),
    ],
)
async def test_a_bad_parameter_is_refused_by_name(api: Api, query: str, field: str) -> None:
    answer = await api.get(f"/api/tasks?{query}")

    assert (answer.status_code, answer.json()["code"]) == (400, "invalid")
    assert answer.json()["field"] == field


async def test_a_task_is_cancelled_once_and_can_be_retried(api: Api) -> None:
    task = await api.submit()

    cancelled = await api.post(f"/api/tasks/{task['id']}/cancel")
    again = await api.post(f"/api/tasks/{task['id']}/cancel")
    retried = await api.post(f"/api/tasks/{task['id']}/retry")

    assert (cancelled.status_code, cancelled.json()["state"]) == (200, "cancelled")
    assert (again.status_code, again.json()["code"]) == (409, "illegal_state")
    assert (retried.status_code, retried.json()["state"]) == (200, "queued")


async def test_a_task_that_succeeded_cannot_be_retried(api: Api) -> None:
    task = await api.submit()
    worker = await api.register()
    await worker.finish((await worker.lease())[0])

    answer = await api.post(f"/api/tasks/{task['id']}/retry")

    assert (answer.status_code, answer.json()["code"]) == (409, "illegal_state")


async def test_a_call_that_takes_nothing_refuses_fields_by_name(api: Api) -> None:
    task = await api.submit()

    answer = await api.post(f"/api/tasks/{task['id']}/cancel", {"why": "because"})

    assert (answer.status_code, answer.json()["field"]) == (400, "why")
