"""Failed tasks are acknowledged over HTTP, and ask for attention no more."""

import pytest

from tests.gateways.serving import Api, Json
from tests.gateways.tenants import Tenant, tenant
from tests.gateways.test_access import closed
from tests.gateways.test_failures import fail_tasks

__all__ = ["closed"]  # a fixture


async def failed(api: Api, path: str = "/api/tasks?state=failed") -> list[Json]:
    items: list[Json] = (await api.get(path)).json()["items"]
    return items


async def test_an_acknowledged_task_leaves_the_failures_and_stays_in_the_history(api: Api) -> None:
    await fail_tasks(api, ["no route"])
    (task,) = await failed(api)

    answer = await api.post(f"/api/tasks/{task['id']}/acknowledge", {"reason": "known"})

    noted = answer.json()["acknowledged"]
    assert (noted["reason"], noted["at_ms"]) == ("known", api.clock.now_ms())
    assert noted["by"]
    assert (await api.get("/api/failures")).json()["items"] == []
    overview = (await api.get("/api/overview")).json()
    assert (overview["tasks"]["failed"], overview["unacknowledged"]) == (1, 0)
    assert [one["id"] for one in await failed(api)] == [task["id"]]
    (group,) = (await api.get("/api/failures?acknowledged=true")).json()["items"]
    assert (group["count"], group["task_ids"]) == (1, [task["id"]])


async def test_an_acknowledgement_can_be_taken_back(api: Api) -> None:
    await fail_tasks(api, ["no route"])
    (task,) = await failed(api)
    path = f"/api/tasks/{task['id']}/acknowledge"
    await api.post(path)

    undone = await api.post(path, {"undo": True})
    again = await api.post(path, {"undo": True})

    assert undone.json()["acknowledged"] is None
    assert (again.status_code, again.json()["code"]) == (409, "illegal_state")
    assert len((await api.get("/api/failures")).json()["items"]) == 1


async def test_the_first_acknowledgement_counts(api: Api) -> None:
    await fail_tasks(api, ["no route"])
    (task,) = await failed(api)
    path = f"/api/tasks/{task['id']}/acknowledge"
    await api.post(path, {"reason": "first"})

    answer = await api.post(path, {"reason": "second"})

    assert answer.status_code == 409
    assert (await failed(api))[0]["acknowledged"]["reason"] == "first"


async def test_only_failed_tasks_are_acknowledged(api: Api) -> None:
    task = await api.submit()

    answer = await api.post(f"/api/tasks/{task['id']}/acknowledge")
    many = await api.post("/api/tasks/acknowledge", {"queue": "default"})

    assert (answer.status_code, answer.json()["code"]) == (409, "illegal_state")
    assert many.json() == {"count": 0, "dry_run": False}


async def test_tasks_are_acknowledged_by_filter_after_a_dry_run(api: Api) -> None:
    await fail_tasks(api, ["a", "b"], queue="mail")
    await fail_tasks(api, ["c"], queue="post")
    body = {"queue": "mail", "reason": "cleared"}

    counted = await api.post("/api/tasks/acknowledge", {**body, "dry_run": True})
    unchanged = await failed(api, "/api/tasks?acknowledged=false")
    done = await api.post("/api/tasks/acknowledge", body)
    repeated = await api.post("/api/tasks/acknowledge", body)

    assert counted.json() == {"count": 2, "dry_run": True}
    assert len(unchanged) == 3
    assert done.json() == {"count": 2, "dry_run": False}
    assert repeated.json()["count"] == 0
    assert [one["queue"] for one in await failed(api, "/api/tasks?acknowledged=false")] == ["post"]
    acknowledged = await failed(api, "/api/tasks?acknowledged=true")
    assert {one["queue"] for one in acknowledged} == {"mail"}
    undone = await api.post("/api/tasks/acknowledge", {"queue": "mail", "undo": True})
    assert undone.json()["count"] == 2


async def test_a_group_of_failures_is_acknowledged_as_a_whole_and_alone(api: Api) -> None:
    await fail_tasks(api, ["row 1 is odd", "row 22 is odd", "no route"])
    group = (await api.get("/api/failures")).json()["items"][0]
    path = f"/api/failures/{group['fingerprint']}/acknowledge"

    counted = await api.post(path, {"dry_run": True})
    done = await api.post(path, {"reason": "known"})
    repeated = await api.post(path)
    undone = await api.post(path, {"undo": True})

    assert counted.json() == {"count": 2, "dry_run": True}
    assert done.json() == {"count": 2, "dry_run": False}
    assert repeated.status_code == 404
    assert undone.json()["count"] == 2
    assert len((await api.get("/api/failures")).json()["items"]) == 2


async def test_a_retried_task_asks_for_attention_when_it_fails_again(api: Api) -> None:
    await fail_tasks(api, ["no route"])
    (task,) = await failed(api)
    await api.post(f"/api/tasks/{task['id']}/acknowledge")
    await api.post(f"/api/tasks/{task['id']}/retry")

    worker = await api.register("w2")
    (lease,) = await worker.lease()
    await worker.fail(lease, {"type": "ValueError", "message": "no route"})

    (again,) = await failed(api)
    assert again["acknowledged"] is None
    assert (await api.get("/api/overview")).json()["unacknowledged"] == 1


@pytest.mark.parametrize("body", [{"reason": "x" * 1_001}, {"undo": "maybe"}, {"by": "me"}])
async def test_a_bad_acknowledgement_is_refused(api: Api, body: Json) -> None:
    await fail_tasks(api, ["no route"])
    (task,) = await failed(api)

    answer = await api.post(f"/api/tasks/{task['id']}/acknowledge", body)

    assert answer.status_code == 400
    assert (await failed(api))[0]["acknowledged"] is None


async def test_a_bound_token_acknowledges_only_tasks_of_its_queues(closed: Api) -> None:
    admin = await tenant(closed, "admin")
    mine, other = await _failed_task(admin, "mine"), await _failed_task(admin, "other")
    bound = await tenant(closed, "submit", "read", queues=("mine",))

    refused = await bound.post(f"/api/tasks/{other}/acknowledge")
    by_ids = await bound.post("/api/tasks/acknowledge", {"queue": "mine", "ids": [mine, other]})
    elsewhere = await bound.post("/api/tasks/acknowledge", {"queue": "other"})

    assert refused.status_code in {403, 404}
    assert by_ids.json()["count"] == 1
    assert elsewhere.status_code == 403
    left = (await admin.get("/api/tasks?acknowledged=false")).json()["items"]
    assert [one["id"] for one in left] == [other]


async def _failed_task(admin: Tenant, queue: str) -> str:
    """Let a task of a queue fail; its id."""
    task: Json = (
        await admin.post("/api/tasks", {"name": "work", "queue": queue, "max_attempts": 1})
    ).json()
    worker = (await admin.post("/api/workers", {"worker_id": queue, "queues": [queue]})).json()
    path, incarnation = f"/api/workers/{queue}", worker["incarnation"]
    lease = (await admin.post(f"{path}/lease", {"incarnation": incarnation})).json()["leases"][0]
    result = {"task_id": task["id"], "fence": lease["fence"], "ok": False}
    await admin.post(f"{path}/results", {"incarnation": incarnation, "results": [result]})
    return str(task["id"])
