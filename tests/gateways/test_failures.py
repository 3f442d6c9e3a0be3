from typing import Any

from tests.gateways.serving import Api


async def fail_tasks(api: Api, messages: list[str], **options: Any) -> None:
    worker = await api.register()
    for _ in messages:
        await api.submit(max_attempts=1, **options)
    for lease, message in zip(await worker.lease(), messages, strict=True):
        await worker.fail(lease, {"type": "ValueError", "message": message})


async def test_failures_are_grouped_by_what_they_failed_of(api: Api) -> None:
    await fail_tasks(api, ["row 1 is odd", "row 22 is odd", "no route"])

    page = (await api.get("/api/failures")).json()

    assert [one["count"] for one in page["items"]] == [2, 1]
    odd = page["items"][0]
    assert (odd["name"], odd["error"]["type"]) == ("work", "ValueError")
    assert odd["error"]["message"] == "row 22 is odd"  # the newest
    assert (odd["queues"], len(odd["task_ids"])) == ({"default": 2}, 2)
    assert (page["looked_at"], page["is_complete"]) == (3, True)


async def test_a_group_goes_round_again_as_a_whole_and_alone(api: Api) -> None:
    await fail_tasks(api, ["row 1 is odd", "row 22 is odd", "no route"])
    group = (await api.get("/api/failures")).json()["items"][0]
    path = f"/api/failures/{group['fingerprint']}/retry"

    counted = await api.post(path, {"dry_run": True})
    unchanged = (await api.get("/api/tasks?state=failed")).json()["items"]
    retried = await api.post(path)
    failed = (await api.get("/api/tasks?state=failed")).json()["items"]
    queued = (await api.get("/api/tasks?state=queued")).json()["items"]

    assert counted.json() == {"count": 2, "dry_run": True}
    assert len(unchanged) == 3
    assert retried.json() == {"count": 2, "dry_run": False}
    assert [one["error"]["message"] for one in failed] == ["no route"]
    assert len(queued) == 2


async def test_failures_that_are_not_there_cannot_go_round_again(api: Api) -> None:
    answer = await api.post("/api/failures/0123456789abcdef/retry")

    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


async def test_a_group_is_counted_over_all_its_queues_and_shrinks_as_tasks_go(api: Api) -> None:
    await fail_tasks(api, ["row 1 is odd"], queue="mail")
    await fail_tasks(api, ["row 2 is odd", "row 3 is odd"], queue="post")
    (before,) = (await api.get("/api/failures")).json()["items"]

    await api.post(f"/api/tasks/{before['task_ids'][0]}/retry")
    counted = await api.post(f"/api/failures/{before['fingerprint']}/retry", {"dry_run": True})

    assert (before["count"], before["queues"]) == (3, {"mail": 1, "post": 2})
    assert counted.json()["count"] == 2
