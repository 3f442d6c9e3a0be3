"""Callers and sessions name tasks apart from each other: no key of a caller is a session's name."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rota.core.sessions import key_of
from tests.gateways.serving import Api, served
from tests.gateways.websocket.talking import peer
from tests.gateways.websocket.test_access import token

B = "coordinator:b"


@pytest.fixture
async def closed(tmp_path: Path) -> AsyncIterator[Api]:
    """A coordinator that asks everybody for a token."""
    async with served(tmp_path, store="sqlite://", zmq_port=None, require_token=True) as running:
        yield running


KEYS = [key_of("b", "t1"), f"caller-key:{key_of('b', 't1')}", "b:t1", "t1"]


@pytest.mark.parametrize("queue", ["a", "b"])
async def test_no_key_of_a_caller_keeps_a_session_from_its_task(closed: Api, queue: str) -> None:
    _, squatter = await token(closed, "submit", queues=(queue,))
    _, tenant = await token(closed, "admin", queues=("b",))
    tasks = [{"name": "squat", "queue": queue, "key": key} for key in KEYS]
    planted = await closed.post("/api/tasks", tasks, headers=squatter)
    assert [one["duplicate"] for one in planted.json()] == [False] * len(KEYS)

    async with peer(closed, "shop", additional_headers=tenant) as client:
        first = await client.assign({"taskId": "t1", "payload": 1}, B)
        again = await client.assign("t1", B)

        assert (first["status"], first["taskId"]) == ("queued", "t1")
        assert not first.get("duplicate")
        assert again["duplicate"] is True

        # It runs, and its session hears of its end, beside whatever else is in the queue.
        await client.register("w", B)
        while (name := (await client.given())["taskId"]) != "t1":
            await client.complete(name, "w", B)
        done = await client.complete("t1", "w", B)
        assert done["status"] == "completed"


async def test_a_session_never_gets_the_task_of_a_caller_for_its_own(closed: Api) -> None:
    _, who = await token(closed, "admin", queues=("b",))
    async with peer(closed, "shop", additional_headers=who) as client:
        await client.assign({"taskId": "t1", "payload": "session"}, B)
        body = {"name": "work", "queue": "b", "key": key_of("b", "t1"), "payload": "caller"}

        made = await closed.post("/api/tasks", body, headers=who)

        assert (made.status_code, made.json()["payload"]) == (201, "caller")


async def test_the_status_of_a_queue_names_no_task_of_a_caller_as_a_session_does(
    closed: Api,
) -> None:
    _, who = await token(closed, "admin", queues=("b",))
    body = {"name": "task", "queue": "b", "key": key_of("b", "t1")}
    made = (await closed.post("/api/tasks", body, headers=who)).json()

    async with peer(closed, "shop", additional_headers=who) as client:
        await client.register("w", B)
        given = await client.given()
        status = await client.ask("get_status", B)

    assert [name for name, _ in status["activeTasks"]] == [made["id"]]
    assert given["taskId"] == made["id"]


async def test_queues_and_names_that_run_together_are_told_apart(closed: Api) -> None:
    _, who = await token(closed, "admin")
    async with peer(closed, "shop", additional_headers=who) as client:
        first = await client.assign({"taskId": "y:z"}, "coordinator:x")
        second = await client.assign({"taskId": "z"}, "coordinator:x:y")

    assert [one["status"] for one in (first, second)] == ["queued", "queued"]
    assert not second.get("duplicate")


async def test_a_session_gets_the_task_that_holds_the_key_of_its_own(closed: Api) -> None:
    _, who = await token(closed, "admin", queues=("b",))
    async with peer(closed, "shop", additional_headers=who) as client:
        unique = {"key": "user:7", "on_conflict": "return"}
        first = await client.assign({"taskId": "t1", "unique": unique}, B)
        again = await client.assign({"taskId": "t2", "unique": unique}, B)
        late = {"key": "d", "wait_ms": 60_000}
        await client.assign({"taskId": "t3", "payload": 1, "debounce": late}, B)
        moved = await client.assign({"taskId": "t4", "payload": 2, "debounce": late}, B)

    assert (first["taskId"], first.get("duplicate", False)) == ("t1", False)
    assert (again["taskId"], again["duplicate"]) == ("t1", True)
    assert (moved["taskId"], moved["duplicate"]) == ("t3", True)
