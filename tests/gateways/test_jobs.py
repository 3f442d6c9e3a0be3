from typing import Any

import pytest

from rota.core.tasks.model import TASK_TRANSITIONS, TaskState
from tests.gateways.serving import Api, Json


async def job(api: Api, task_id: str, verb: str = "", body: Json = None) -> tuple[int, Json]:
    path = f"/api/jobs/{task_id}"
    answer = await (api.post(f"{path}/{verb}", body) if verb else api.get(path))
    return answer.status_code, answer.json()


def assert_events_follow_the_state_machine(shown: Json) -> None:
    before = None
    for event in shown["events"]:
        assert event["from_state"] == before
        if before is not None:
            assert event["to_state"] in TASK_TRANSITIONS[TaskState(before)]
        before = event["to_state"]
    assert before == shown["state"]
    times = [event["created_at_ms"] for event in shown["events"]]
    assert times == sorted(times)


async def test_a_job_is_started_and_completed(api: Api) -> None:
    task = await api.submit(payload={"file": 1})

    status, started = await job(api, task["id"], "start", {"worker_id": "me"})
    assert status == 200
    assert started["success"] is True
    assert started["job"]["id"] == task["id"]
    assert (started["job"]["state"], started["job"]["attempt"]) == ("running", 1)
    assert started["job"]["fence"] == 1
    assert started["job"]["worker_id"] == "me"

    status, completed = await job(api, task["id"], "complete", {"filePath": "/x"})
    assert (status, completed["success"]) == (200, True)
    assert completed["job"]["state"] == "succeeded"
    assert (await api.task(task["id"]))["result"] == {"filePath": "/x"}


async def test_starting_again_is_the_same_answer_for_the_same_caller_only(api: Api) -> None:
    task = await api.submit()
    first = await job(api, task["id"], "start", {"worker_id": "me"})
    api.clock.turn(1_000)

    again = await job(api, task["id"], "start", {"worker_id": "me"})
    status, refusal = await job(api, task["id"], "start", {"worker_id": "you"})

    assert again == first
    assert (status, refusal["success"], refusal["code"]) == (409, False, "stale_lease")
    assert isinstance(refusal["error"], str)


async def test_a_start_needs_no_body_and_takes_its_name_from_the_query_too(api: Api) -> None:
    one, two = await api.submit(), await api.submit()

    _, unnamed = await job(api, one["id"], "start")
    named = await api.post(f"/api/jobs/{two['id']}/start?worker_id=me")

    assert unnamed["job"]["worker_id"] == "jobs-api"
    assert named.json()["job"]["worker_id"] == "me"


@pytest.mark.parametrize("content", [b"", b"null", b'"text"', b"[1, 2]", b"7"])
async def test_any_json_is_a_result_and_nothing_is_null(api: Api, content: bytes) -> None:
    task = await api.submit()
    await job(api, task["id"], "start")

    answer = await api.client.post(f"/api/jobs/{task['id']}/complete", content=content)

    assert answer.status_code == 200
    shown = await api.get(f"/api/tasks/{task['id']}")
    assert b'"result":' + (content or b"null").replace(b" ", b"") in shown.content.replace(
        b" ", b""
    )


async def test_the_same_result_twice_is_fine_and_another_is_a_conflict(api: Api) -> None:
    task = await api.submit()
    await job(api, task["id"], "start")
    await job(api, task["id"], "complete", {"a": 1, "b": 2})

    same, _ = await job(api, task["id"], "complete", {"b": 2, "a": 1})
    other, refusal = await job(api, task["id"], "complete", {"a": 3})

    assert same == 200
    assert (other, refusal["success"], refusal["code"]) == (409, False, "result_conflict")


async def test_after_a_failed_attempt_starting_is_the_retry(api: Api) -> None:
    task = await api.submit()
    await job(api, task["id"], "start")

    status, failed = await job(api, task["id"], "fail", {"error": "no disk"})
    assert (status, failed["job"]["state"]) == (200, "scheduled")
    assert failed["job"]["error"]["message"] == "no disk"

    _, retried = await job(api, task["id"], "start")
    assert (retried["job"]["attempt"], retried["job"]["fence"]) == (2, 2)


async def test_a_job_tells_what_happened_to_it(api: Api) -> None:
    task = await api.submit(max_attempts=2)
    await job(api, task["id"], "start")
    api.clock.turn(10)
    await job(api, task["id"], "fail", {"error": "one"})
    api.clock.turn(10)
    await job(api, task["id"], "start")
    api.clock.turn(10)
    await job(api, task["id"], "fail")
    await api.post(f"/api/tasks/{task['id']}/retry")
    _, shown = await job(api, task["id"])

    kinds = [event["event_type"] for event in shown["job"]["events"]]
    assert kinds == [
        "created",
        "started",
        "failed",
        "queued",
        "started",
        "failed",
        "retried",
    ]
    assert_events_follow_the_state_machine(shown["job"])


@pytest.mark.parametrize("verb", ["", "start", "complete", "fail"])
@pytest.mark.parametrize("task_id", ["0000000000000001", "nonsense"])
async def test_an_unknown_job_is_not_found(api: Api, verb: str, task_id: str) -> None:
    status, refusal = await job(api, task_id, verb)

    assert (status, refusal["success"], refusal["code"]) == (404, False, "task_not_found")
    assert "not found" in refusal["error"]


@pytest.mark.parametrize("verb", ["complete", "fail"])
async def test_a_job_that_was_not_started_cannot_end(api: Api, verb: str) -> None:
    task = await api.submit()

    status, refusal = await job(api, task["id"], verb)

    assert (status, refusal["code"]) == (409, "illegal_state")


async def test_a_task_leased_to_a_worker_is_not_a_job_to_end(api: Api) -> None:
    task = await api.submit()
    worker = await api.register()
    await worker.lease()

    status, refusal = await job(api, task["id"], "complete")

    assert (status, refusal["code"]) == (409, "stale_lease")


@pytest.mark.parametrize(
    ("verb", "content"),
    [
        ("start", b"{"),
        ("start", b'{"worker": 1}'),
        ("complete", b"{"),
        ("complete", b'"\xff"'),
        ("complete", b"1e999"),
        ("fail", b"[]"),
        ("fail", b'{"error": 3}'),
    ],
)
async def test_a_bad_body_is_refused_in_the_wires_own_form(
    api: Api, verb: str, content: bytes
) -> None:
    task = await api.submit()

    answer = await api.client.post(f"/api/jobs/{task['id']}/{verb}", content=content)

    assert answer.status_code == 400
    refusal: dict[str, Any] = answer.json()
    assert refusal["success"] is False
    assert refusal["code"] in {"malformed", "invalid"}
    assert set(refusal) == {"success", "error", "code"}
