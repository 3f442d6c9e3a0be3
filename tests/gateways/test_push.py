"""Tasks that are pushed over HTTP: delivered, answered, refused, limited, handed over."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import rota.webhooks
from tests.gateways.serving import Api, Json, served
from tests.gateways.test_access import token
from tests.gateways.test_kv import refusal
from tests.outbound.receiving import TIMEOUT_S, Receiver, answer, receiving

SECRET = "whsec_" + "A" * 44


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as running:
        yield running


@pytest.fixture
async def pushing(tmp_path: Path) -> AsyncIterator[Api]:
    async with served(tmp_path, outbound_allow="127.0.0.1") as running:
        yield running


async def put(api: Api, receiver: Receiver, queue: str = "fn", **body: Any) -> Json:
    made = await api.client.put(f"/api/queues/{queue}/push", json={"url": receiver.url, **body})
    assert made.status_code in {200, 201}, made.text
    return made.json()


async def submit(api: Api, queue: str = "fn", **task: Any) -> str:
    return str((await api.submit(queue=queue, **task))["id"])


async def until(api: Api, path: str, is_so: Callable[[Json], bool]) -> Json:
    """Look after each event, until what is there is as it should be."""
    after = 0
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            events = (await api.get(f"/api/events?after={after}&wait_ms=30000")).json()
            after = events["next_after"]
            if is_so(found := (await api.get(path)).json()):
                return found


async def is_in(api: Api, task_id: str, *states: str) -> Json:
    return await until(api, f"/api/tasks/{task_id}", lambda task: task["state"] in states)


async def ended(api: Api, task_id: str) -> Json:
    return await is_in(api, task_id, "succeeded", "failed")


# --- tasks --------------------------------------------------------------------------------------


async def test_a_task_is_pushed_signed_and_ends_with_the_answer(
    pushing: Api, receiver: Receiver
) -> None:
    receiver.answer = lambda _: answer(200, b'{"sum": 3}')
    made = await put(pushing, receiver, headers={"Authorization": "Bearer x"})
    task_id = await submit(pushing, name="add", payload={"a": [1, 2]}, max_attempts=4, key="k")
    task = await ended(pushing, task_id)

    assert (task["state"], task["result"]) == ("succeeded", {"sum": 3})
    assert task["worker_id"] == made["worker_id"] == "push:fn"
    (request,) = receiver.requests
    body = rota.webhooks.verify(
        request.headers, request.body, made["secret"], now_s=pushing.clock.now_ms() / 1000
    )
    assert request.headers["webhook-id"] == body["task_id"] == task_id
    assert request.headers["authorization"] == "Bearer x"
    assert (body["queue"], body["name"], body["payload"]) == ("fn", "add", {"a": [1, 2]})
    assert (body["attempt"], body["max_attempts"], body["key"]) == (1, 4, "k")


@pytest.mark.parametrize(
    ("said", "result"),
    [
        (answer(204), None),
        (answer(200, b"  "), None),
        (answer(202, b"[1]"), [1]),
        (answer(200, b"done"), "done"),
        (answer(201, b"null"), None),
    ],
)
async def test_any_2xx_is_a_success(
    pushing: Api, receiver: Receiver, said: bytes, result: Json
) -> None:
    receiver.answer = lambda _: said
    await put(pushing, receiver)
    task = await ended(pushing, await submit(pushing))

    assert (task["state"], task["result"]) == ("succeeded", result)


@pytest.mark.parametrize("status", [400, 410, 413, 422])
async def test_a_permanent_refusal_fails_the_task_at_once(
    pushing: Api, receiver: Receiver, status: int
) -> None:
    receiver.answer = lambda _: answer(status, b"never")
    await put(pushing, receiver)
    task = await ended(pushing, await submit(pushing, max_attempts=5))

    assert (task["state"], task["attempt"]) == ("failed", 1)
    assert task["error"]["type"] == f"http_{status}"
    assert task["error"]["message"] == f"answered {status}: never"


@pytest.mark.parametrize("status", [302, 401, 404, 429, 500, 503])
async def test_any_other_refusal_is_tried_again_with_the_usual_back_off(
    pushing: Api, receiver: Receiver, status: int
) -> None:
    receiver.answer = lambda _: answer(status)
    await put(pushing, receiver)
    task_id = await submit(pushing, max_attempts=2)
    waiting = await is_in(pushing, task_id, "scheduled")
    receiver.answer = lambda _: answer(200, b"1")
    await pushing.turn(3_600_000)
    task = await ended(pushing, task_id)

    assert waiting["attempt"] == 1
    assert (task["state"], task["attempt"], task["result"]) == ("succeeded", 2, 1)


async def test_a_server_that_does_not_answer_fails_the_attempt(
    pushing: Api, receiver: Receiver
) -> None:
    receiver.answer = lambda _: None
    await put(pushing, receiver, timeout_ms=100)
    task = await ended(pushing, await submit(pushing, max_attempts=1))

    assert task["error"]["type"] == "push_failed"
    assert "has not answered within 0.1 s" in task["error"]["message"]


async def test_an_answer_that_is_too_long_fails_the_task(pushing: Api, receiver: Receiver) -> None:
    receiver.answer = lambda _: answer(200, b'"' + b"x" * 1024 * 1024 + b'"')
    await put(pushing, receiver)
    task = await ended(pushing, await submit(pushing, max_attempts=5))

    assert (task["state"], task["attempt"]) == ("failed", 1)
    assert task["error"]["type"] == "result_too_large"


async def test_a_busy_server_closes_the_queue_and_costs_no_attempt(
    pushing: Api, receiver: Receiver
) -> None:
    receiver.answer = lambda _: answer(429, retry_after="60")
    await put(pushing, receiver, concurrency=1)
    first = await submit(pushing, max_attempts=1)
    await is_in(pushing, first, "scheduled")
    second = await submit(pushing, max_attempts=1)
    shown = await until(pushing, "/api/queues/fn/push", lambda push: push["closed_until_ms"])
    receiver.answer = lambda _: answer(200)
    await pushing.turn(60_000)
    tasks = [await ended(pushing, one) for one in (first, second)]

    assert shown["closed_until_ms"] == pushing.clock.now_ms()
    assert [task["state"] for task in tasks] == ["succeeded", "succeeded"]
    assert len(receiver.requests) == 3
    events = (await pushing.get("/api/events?type=queue-push-closed&last=9")).json()["items"]
    assert [one["subject"] for one in events] == ["fn"]


async def test_a_call_that_waits_for_tasks_pushes_none_while_the_queue_is_closed(
    pushing: Api, receiver: Receiver
) -> None:
    receiver.answer = lambda _: answer(503, retry_after="60")
    await put(pushing, receiver, concurrency=10)
    first = await submit(pushing, max_attempts=1)
    await is_in(pushing, first, "scheduled")
    second = await submit(pushing, max_attempts=1)  # granted to the call, which had room for it
    await is_in(pushing, second, "scheduled")
    pushed = [one.headers["webhook-id"] for one in receiver.requests]
    receiver.answer = lambda _: answer(200)
    await pushing.turn(60_000)
    tasks = [await ended(pushing, one) for one in (first, second)]

    assert pushed == [first]
    assert [(task["state"], task["attempt"]) for task in tasks] == [("succeeded", 1)] * 2


async def test_the_limits_of_the_queue_hold(pushing: Api, receiver: Receiver) -> None:
    receiver.answer = lambda _: None
    await pushing.client.patch("/api/queues/fn", json={"max_running": 2})
    await put(pushing, receiver, timeout_ms=60_000)
    for _ in range(5):
        await submit(pushing)
    await receiver.wait_for(2)
    await pushing.turn(0)

    queues = (await pushing.get("/api/queues")).json()["items"]
    (queue,) = [one for one in queues if one["name"] == "fn"]
    assert (queue["running"], queue["depth"], queue["is_pushed"]) == (2, 3, True)
    assert len(receiver.requests) == 2


async def test_only_so_many_are_pushed_at_once_and_the_number_can_be_changed(
    pushing: Api, receiver: Receiver
) -> None:
    receiver.answer = lambda _: None
    await put(pushing, receiver, concurrency=1, timeout_ms=60_000)
    for _ in range(3):
        await submit(pushing)
    await receiver.wait_for(1)
    await put(pushing, receiver, concurrency=3, timeout_ms=60_000)
    await receiver.wait_for(3)

    worker = (await pushing.get("/api/workers/push%3Afn")).json()
    assert worker["max_concurrent_tasks"] == 3
    # Under the same incarnation: the first task was not pushed a second time.
    assert len({one.headers["webhook-id"] for one in receiver.requests}) == 3


async def test_a_queue_that_is_pushed_no_more_is_left_to_its_workers(
    pushing: Api, receiver: Receiver
) -> None:
    await put(pushing, receiver)
    await ended(pushing, await submit(pushing))
    gone = await pushing.delete("/api/queues/fn/push")
    await until(pushing, "/api/workers/push%3Afn", lambda found: "code" in found)
    task_id = await submit(pushing)
    worker = await pushing.register(queues=["fn"])
    (lease,) = await worker.lease()

    assert gone.status_code == 200
    assert lease["task_id"] == task_id
    assert len(receiver.requests) == 1


async def test_a_cancelled_task_ends_its_request(pushing: Api, receiver: Receiver) -> None:
    receiver.answer = lambda _: None
    await put(pushing, receiver, concurrency=1, timeout_ms=600_000)
    task_id = await submit(pushing)
    await receiver.wait_for(1)
    await pushing.post(f"/api/tasks/{task_id}/cancel")
    receiver.answer = lambda _: answer(200)

    # There is one place: the next task is pushed when the request of the first has ended.
    assert (await ended(pushing, await submit(pushing)))["state"] == "succeeded"


async def test_what_is_under_way_when_the_coordinator_stops_is_pushed_again(
    tmp_path: Path, receiver: Receiver
) -> None:
    receiver.answer = lambda _: None
    async with served(tmp_path, outbound_allow="127.0.0.1") as api:
        await put(api, receiver, timeout_ms=600_000)
        task_id = await submit(api, max_attempts=1)
        await receiver.wait_for(1)
    receiver.answer = lambda _: answer(200, b'"again"')
    async with served(tmp_path, outbound_allow="127.0.0.1") as api:
        task = await ended(api, task_id)

    assert (task["state"], task["result"]) == ("succeeded", "again")
    first, second = receiver.requests
    assert first.headers["webhook-id"] == second.headers["webhook-id"]


async def test_a_name_that_leads_to_this_machine_is_not_called(api: Api) -> None:
    async with receiving() as receiver:
        body = {"url": f"http://localhost:{receiver.port}/"}
        await api.client.put("/api/queues/fn/push", json=body)
        task = await ended(api, await submit(api, max_attempts=1))

        assert "not public" in task["error"]["message"]
        assert receiver.requests == []


# --- settings -----------------------------------------------------------------------------------


async def test_secrets_and_values_of_headers_are_not_shown_again(
    pushing: Api, receiver: Receiver
) -> None:
    made = await put(pushing, receiver, headers={"X-Key": "hidden-value"})
    changed = await put(pushing, receiver, timeout_ms=5_000)
    replaced = await put(pushing, receiver, secret=SECRET, headers={})

    assert made["secret"].startswith("whsec_")
    assert (changed["secret"], changed["headers"], changed["timeout_ms"]) == (
        None,
        ["X-Key"],
        5_000,
    )
    assert (replaced["secret"], replaced["headers"]) == (SECRET, [])
    for path in ("/api/queues", "/api/queues/fn/push", "/api/events", "/api/workers"):
        text = (await pushing.get(path)).text
        assert "hidden-value" not in text
        assert made["secret"] not in text
        assert SECRET not in text


@pytest.mark.parametrize(
    "body",
    [
        {"url": "http://127.0.0.1/"},
        {"url": "http://[::ffff:10.0.0.1]/"},
        {"url": "ftp://fn.example/"},
        {"url": "http://u:p@fn.example/"},
        {"url": "http://fn.example/", "headers": {"Host": "x"}},
        {"url": "http://fn.example/", "headers": {"X": "a\r\nY: b"}},
        {"url": "http://fn.example/", "headers": {"webhook-signature": "x"}},
        {"url": "http://fn.example/", "timeout_ms": 0},
        {"url": "http://fn.example/", "concurrency": 0},
        {"url": "http://fn.example/", "concurrency": 101},
        {"url": "http://fn.example/", "secret": "short"},
        {"url": "http://fn.example/", "surprise": 1},
        {},
    ],
)
async def test_a_body_that_makes_no_sense_is_refused(api: Api, body: Json) -> None:
    refused = await api.client.put("/api/queues/fn/push", json=body)

    assert refusal(refused)[:2] == (400, "invalid")
    assert refusal(await api.get("/api/queues/fn/push"))[:2] == (404, "push_not_found")
    assert refusal(await api.delete("/api/queues/fn/push"))[:2] == (404, "push_not_found")


async def test_the_worker_that_pushes_belongs_to_the_coordinator(
    tmp_path: Path, receiver: Receiver
) -> None:
    async with served(tmp_path, outbound_allow="127.0.0.1") as api:
        await put(api, receiver)
        await ended(api, await submit(api))
        bound = await token(api, "worker", queues=("fn",))
        body = {"worker_id": "push:fn", "queues": ["fn"]}
        stolen = await api.post("/api/workers", body, headers=bound)

    assert stolen.status_code == 403
