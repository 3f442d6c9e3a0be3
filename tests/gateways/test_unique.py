"""Unique and debounced tasks over HTTP, and tenants that do not see each other by their keys."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.gateways.serving import Api, Json, served
from tests.gateways.test_access import Headers, token

UNIQUE = {"key": "k", "while": "unfinished"}


async def test_a_second_unique_task_is_answered_as_a_duplicate(api: Api) -> None:
    body = {"name": "work", "payload": {"user": 7}, "unique": {"by": ["name", "payload.user"]}}

    first = await api.post("/api/tasks", body)
    again = await api.post("/api/tasks", [body, {**body, "payload": {"user": 8}}])
    alone = await api.post("/api/tasks", body)

    assert (first.status_code, again.status_code, alone.status_code) == (201, 201, 200)
    assert [one["duplicate"] for one in again.json()] == [True, False]
    assert alone.json()["id"] == again.json()[0]["id"] == first.json()["id"]
    assert first.json()["unique"] == {"by": ["name", "payload.user"]}


async def test_a_rejected_task_is_a_conflict_that_names_the_holder(api: Api) -> None:
    holder = await api.submit(unique=UNIQUE)

    refused = await api.post(
        "/api/tasks", {"name": "work", "unique": {**UNIQUE, "on_conflict": "reject"}}
    )

    problem = refused.json()
    assert refused.status_code == 409
    assert (problem["code"], problem["task_id"]) == ("unique_conflict", holder["id"])
    assert problem["state"] == "queued"


async def test_a_replaced_task_is_shown_with_its_new_contents(api: Api) -> None:
    first = await api.submit(payload=1, delay_ms=60_000, unique=UNIQUE)
    new = {"name": "work", "payload": 2, "unique": {**UNIQUE, "on_conflict": "replace"}}

    replaced = await api.post("/api/tasks", new)

    shown = await api.task(first["id"])
    assert (replaced.status_code, replaced.json()["duplicate"]) == (200, True)
    assert (shown["payload"], shown["state"]) == (2, "queued")


async def test_a_debounced_task_shows_when_it_is_due(api: Api) -> None:
    debounce = {"key": "d", "wait_ms": 1_000, "max_wait_ms": 1_500}
    first = await api.submit(payload=1, debounce=debounce)
    api.clock.turn(800)

    again = await api.submit(payload=2, debounce=debounce)

    assert (again["id"], again["duplicate"], again["payload"]) == (first["id"], True, 2)
    assert first["state"] == again["state"] == "scheduled"
    assert first["run_at_ms"] == first["created_at_ms"] + 1_000
    assert again["run_at_ms"] == first["created_at_ms"] + 1_500
    timeline = (await api.get(f"/api/tasks/{first['id']}/timeline")).json()
    assert timeline["events"][0]["to_state"] == "scheduled"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"unique": {"key": "k", "by": ["name"]}}, "unique.by"),
        ({"unique": {"key": ""}}, "key"),
        ({"unique": {"by": ["payload..x"]}}, "by"),
        ({"unique": {"while": "running"}}, "while"),
        ({"unique": {"key": "k", "color": 1}}, "color"),
        ({"unique": {"key": "k"}, "debounce": {"key": "k", "wait_ms": 1}}, "debounce"),
        ({"debounce": {"key": "k", "wait_ms": 1}, "delay_ms": 5}, "debounce"),
        ({"debounce": {"key": "k"}}, "wait_ms"),
        ({"on_expiry": "ignore"}, "on_expiry"),
    ],
)
async def test_options_that_cannot_be_meant_are_refused(api: Api, options: Json, text: str) -> None:
    refused = await api.post("/api/tasks", {"name": "work", **options})

    assert refused.status_code == 400
    assert text in refused.json()["detail"]


# --- two tenants --------------------------------------------------------------------------------


@pytest.fixture
async def closed(tmp_path: Path) -> AsyncIterator[Api]:
    async with served(tmp_path, zmq_port=None, require_token=True) as running:
        yield running


@pytest.mark.parametrize("on_conflict", ["return", "replace", "reject"])
async def test_a_unique_key_of_another_queue_is_not_seen(closed: Api, on_conflict: str) -> None:
    async def submit(queue: str, who: Headers, payload: str) -> Json:
        unique = {"key": "k", "on_conflict": on_conflict}
        body = {"name": "work", "queue": queue, "payload": payload, "unique": unique}
        answer = await closed.post("/api/tasks", body, headers=who)
        assert answer.status_code == 201, answer.text
        return answer.json()

    a = await token(closed, "submit", "read", queues=("a",))
    b = await token(closed, "submit", "read", queues=("b",))
    theirs = await submit("b", b, "secret")

    ours = await submit("a", a, "ours")

    assert (ours["payload"], ours["duplicate"]) == ("ours", False)
    unchanged = await closed.get(f"/api/tasks/{theirs['id']}", headers=b)
    assert unchanged.json()["payload"] == "secret"
