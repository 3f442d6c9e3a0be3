"""Logs of tasks over HTTP: written by the worker that holds the task, read by those who may."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rota.core import limits
from tests.gateways.serving import Api, Json, Worker, held, served
from tests.gateways.tenants import tenant
from tests.gateways.websocket.talking import until


@pytest.fixture
async def closed(tmp_path: Path) -> AsyncIterator[Api]:
    async with served(tmp_path, zmq_port=None, require_token=True) as running:
        yield running


def line(message: str = "m", **changes: Any) -> Json:
    return {"at_ms": 5, "level": "info", "logger": "shop", "message": message, **changes}


async def send(worker: Worker, lease: Json, *lines: Json, **more: Any) -> list[str]:
    body = {"incarnation": worker.incarnation, "items": [{**held(lease), "lines": lines, **more}]}
    answer = await worker.call("logs", body)
    assert answer.status_code == 200, answer.text
    return [one["outcome"] for one in answer.json()["outcomes"]]


async def read(api: Api, task_id: str, **query: Any) -> Json:
    answer = await api.get(f"/api/tasks/{task_id}/logs", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def running(api: Api, **task: Any) -> tuple[Worker, Json]:
    """A task, and the worker that holds it."""
    worker = await api.register()
    await api.submit(**task)
    (lease,) = await worker.lease()
    return worker, lease


async def test_lines_are_read_as_they_were_sent(api: Api) -> None:
    worker, lease = await running(api)
    awkward = "\x00\x1b[31mred <script>alert(1)</script> ü€😀\n"

    assert await send(worker, lease, line(awkward, fields={"n": [1, None]}, level="error")) == [
        "accepted"
    ]

    page = await read(api, lease["task_id"])
    assert page == {
        "items": [
            {
                "number": 1,
                "attempt": 1,
                "fence": lease["fence"],
                "at_ms": 5,
                "level": "error",
                "logger": "shop",
                "message": "\x00\x1b[31mred <script>alert(1)</script> ü€😀\n",
                "fields": {"n": [1, None]},
            }
        ],
        "attempts": [{"attempt": 1, "fence": lease["fence"], "lines": 1, "dropped": 0}],
        "next_after": 1,
        "has_more": False,
        "state": "running",
    }


async def test_a_task_that_has_logged_nothing_has_an_empty_log(api: Api) -> None:
    task = await api.submit()

    page = await read(api, task["id"], wait_ms=0)

    assert (page["items"], page["attempts"], page["next_after"]) == ([], [], 0)
    assert page["state"] == "queued"


async def test_an_array_of_items_is_enough_and_each_has_its_outcome(api: Api) -> None:
    worker, lease = await running(api)
    items = [
        {**held(lease), "lines": [line()], "dropped": 3},
        {**held(lease), "fence": 9, "lines": [line()]},
        {"task_id": "nonsense", "fence": 1, "lines": [line()]},
        {"task_id": "0000000000000001", "fence": 1},
    ]

    answer = await worker.call("logs", items)

    outcomes = [one["outcome"] for one in answer.json()["outcomes"]]
    assert outcomes == ["accepted", "stale", "unknown", "unknown"]
    page = await read(api, lease["task_id"])
    assert [(one["lines"], one["dropped"]) for one in page["attempts"]] == [(1, 3)]


async def test_a_repeated_report_is_kept_once(api: Api) -> None:
    worker, lease = await running(api)

    for _ in range(2):
        await send(worker, lease, line("a"), line("b"), first=1)
    await send(worker, lease, line("b"), line("c"), first=2)

    page = await read(api, lease["task_id"])
    assert [one["message"] for one in page["items"]] == ["a", "b", "c"]


async def test_long_lines_are_cut_and_never_refused(api: Api) -> None:
    worker, lease = await running(api)
    large = {"text": "x" * limits.MAX_LOG_FIELDS_BYTES}

    await send(worker, lease, line("m" * 100_000, fields=large, logger="l" * 500))

    (kept,) = (await read(api, lease["task_id"]))["items"]
    assert len(kept["message"].encode()) <= limits.MAX_LOG_MESSAGE_BYTES
    assert "100000 bytes, the middle is left out" in kept["message"]
    assert kept["fields"] == {"left_out_bytes": limits.MAX_LOG_FIELDS_BYTES + 11}
    assert len(kept["logger"]) == limits.MAX_NAME_LENGTH


@pytest.mark.parametrize(
    ("item", "field"),
    [
        ({"lines": [line(level="loud")]}, "level"),
        ({"lines": [line(at_ms=-1)]}, "at_ms"),
        ({"lines": [line(at_ms=2**53)]}, "at_ms"),
        ({"lines": [line(fields=[1])]}, "fields"),
        ({"lines": [line(fields="text")]}, "fields"),
        ({"lines": [{"at_ms": 1}]}, "message"),
        ({"lines": [line()] * (limits.MAX_LOG_LINES + 1)}, "lines"),
        ({"lines": [], "first": -1}, "first"),
        ({"lines": [], "dropped": 2**60}, "dropped"),
        ({"lines": [], "more": 1}, "more"),
    ],
)
async def test_what_is_no_log_is_refused_by_the_name_of_its_field(
    api: Api, item: Json, field: str
) -> None:
    worker, lease = await running(api)

    answer = await worker.call("logs", [{**held(lease), **item}])

    assert (answer.status_code, answer.json()["field"]) == (400, field)
    assert (await read(api, lease["task_id"]))["items"] == []


async def test_half_a_character_is_refused(api: Api) -> None:
    worker, lease = await running(api)
    text = f'[{{"task_id": "{lease["task_id"]}", "fence": 1, "lines": [{{"at_ms": 1, '
    text += '"message": "\\ud800"}]}]'

    answer = await api.post(f"/api/workers/{worker.id}/logs", content=text)

    assert answer.status_code == 400


async def test_deep_fields_are_refused(api: Api) -> None:
    worker, lease = await running(api)
    deep: Json = {}
    for _ in range(limits.MAX_JSON_DEPTH + 1):
        deep = {"a": deep}

    answer = await worker.call("logs", [{**held(lease), "lines": [line(fields=deep)]}])

    assert (answer.status_code, answer.json()["field"]) == (400, "fields")


@pytest.mark.parametrize(
    "query",
    [{"attempt": -1}, {"level": "loud"}, {"after": -1}, {"limit": 0}, {"limit": 9999}, {"x": 1}],
)
async def test_queries_that_make_no_sense_are_refused(api: Api, query: Json) -> None:
    task = await api.submit()

    answer = await api.get(f"/api/tasks/{task['id']}/logs", params=query)

    assert (answer.status_code, answer.json()["field"]) == (400, next(iter(query)))


@pytest.mark.parametrize("task_id", ["0000000000000001", "nonsense"])
async def test_the_log_of_an_unknown_task_is_not_found(api: Api, task_id: str) -> None:
    answer = await api.get(f"/api/tasks/{task_id}/logs")

    assert (answer.status_code, answer.json()["code"]) == (404, "task_not_found")


async def test_pages_are_read_one_after_the_other(api: Api) -> None:
    worker, lease = await running(api)
    await send(worker, lease, *(line(str(number)) for number in range(5)))

    seen: list[str] = []
    page = {"next_after": 0, "has_more": True}
    while page["has_more"]:
        page = await read(api, lease["task_id"], after=page["next_after"], limit=2)
        seen += [one["message"] for one in page["items"]]

    assert seen == ["0", "1", "2", "3", "4"]


# --- following ----------------------------------------------------------------------------------


async def test_a_follower_gets_lines_as_they_come_and_is_told_the_end(api: Api) -> None:
    worker, lease = await running(api)
    task_id = lease["task_id"]

    waiting = asyncio.create_task(read(api, task_id, wait_ms=30_000))
    await _is_waiting(api)
    await send(worker, lease, line("first"))
    first = await waiting
    waiting = asyncio.create_task(read(api, task_id, after=first["next_after"], wait_ms=30_000))
    await _is_waiting(api)
    await worker.finish(lease)
    last = await waiting

    assert ([one["message"] for one in first["items"]], first["state"]) == (["first"], "running")
    assert (last["items"], last["state"], last["next_after"]) == ([], "succeeded", 1)


async def test_a_follower_of_an_ended_task_does_not_wait(api: Api) -> None:
    worker, lease = await running(api)
    await worker.finish(lease)

    async with asyncio.timeout(10):
        page = await read(api, lease["task_id"], wait_ms=60_000)

    assert page["state"] == "succeeded"


async def test_a_follower_is_answered_after_its_time(api: Api) -> None:
    _, lease = await running(api)

    page = await read(api, lease["task_id"], wait_ms=1)

    assert (page["items"], page["state"]) == ([], "running")


async def _is_waiting(api: Api) -> None:
    """Wait until a caller waits for log lines."""
    await until(lambda: len(api.node.coordinator._notifier.lines) > 0)


# --- access -------------------------------------------------------------------------------------


async def test_only_the_holder_of_a_task_writes_its_log(closed: Api) -> None:
    mail = await tenant(closed, "submit", "worker", queues=("mail",))
    film = await tenant(closed, "submit", "worker", queues=("film",))
    task = (await mail.post("/api/tasks", {"name": "work", "queue": "mail"})).json()
    await film.post("/api/tasks", {"name": "work", "queue": "film"})
    for who, name in ((mail, "m1"), (mail, "m2"), (film, "f1")):
        await who.post(
            "/api/workers", {"worker_id": name, "queues": ["mail" if who is mail else "film"]}
        )
    registered = (await mail.post("/api/workers", {"worker_id": "m1", "queues": ["mail"]})).json()
    body = {"incarnation": registered["incarnation"], "max": 1}
    (lease,) = (await mail.post("/api/workers/m1/lease", body)).json()["leases"]
    items = [{**held(lease), "lines": [line("mine")]}]

    by_holder = await mail.post("/api/workers/m1/logs", items)
    by_colleague = await mail.post("/api/workers/m2/logs", items)
    by_stranger = await film.post("/api/workers/f1/logs", items)
    as_holder = await film.post("/api/workers/m1/logs", items)

    assert by_holder.json()["outcomes"][0]["outcome"] == "accepted"
    assert by_colleague.json()["outcomes"][0]["outcome"] == "stale"
    assert by_stranger.json()["outcomes"][0]["outcome"] == "stale"
    assert as_holder.status_code == 403
    admin = await tenant(closed, "admin")
    page = (await admin.get(f"/api/tasks/{task['id']}/logs")).json()
    assert [one["message"] for one in page["items"]] == ["mine"]


async def test_a_reader_of_another_queue_is_refused_also_while_it_would_wait(closed: Api) -> None:
    mail = await tenant(closed, "submit", queues=("mail",))
    film = await tenant(closed, "read", queues=("film",))
    task = (await mail.post("/api/tasks", {"name": "work", "queue": "mail"})).json()

    refused = await film.get(f"/api/tasks/{task['id']}/logs?wait_ms=30000")
    own = await mail.get(f"/api/tasks/{task['id']}/logs")
    without = await closed.get(f"/api/tasks/{task['id']}/logs")

    assert (refused.status_code, own.status_code, without.status_code) == (403, 200, 401)
