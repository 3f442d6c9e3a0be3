import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rota.core import limits
from tests.gateways.serving import Api, held, served, until


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[Api]:
    async with served(tmp_path, max_body_bytes=2_048, max_payload_bytes=256) as running:
        yield running


async def test_a_body_over_its_limit_is_refused_by_its_declared_length(small: Api) -> None:
    answer = await small.client.post("/api/tasks", content=b" " * 2_049)

    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert answer.json()["limit"] == 2_048


async def test_a_body_that_grows_over_its_limit_is_refused_while_it_comes(small: Api) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b" " * 1_000

    answer = await small.client.post("/api/tasks", content=chunks())

    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


async def test_a_body_in_chunks_is_read_whole(small: Api) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for part in (b'{"na', b'me": "wo', b'rk"}'):
            yield part

    answer = await small.client.post("/api/tasks", content=chunks())

    assert answer.status_code == 201


async def test_values_over_their_limit_are_refused_by_field(small: Api) -> None:
    large = "x" * 300
    task = await small.submit()
    worker = await small.register()
    (lease,) = await worker.lease()

    answers = {
        "payload": await small.post("/api/tasks", {"name": "x", "payload": large}),
        "result": await worker.report({**held(lease), "ok": True, "result": large}),
        "details": await worker.report({**held(lease), "ok": False, "error": {"details": large}}),
        "progress": await worker.call("progress", [{**held(lease), "progress": large}]),
        "partial": await worker.call("progress", [{**held(lease), "partial": large}]),
    }
    job = await small.post(f"/api/jobs/{task['id']}/complete", large)

    for field, answer in answers.items():
        assert (answer.status_code, answer.json()["field"]) == (413, field)
        assert answer.json()["limit"] == 256
    assert (job.status_code, job.json()["code"]) == (413, "too_large")


async def test_values_nested_too_deeply_are_refused_and_others_are_not(api: Api) -> None:
    async def submit(payload: bytes) -> int:
        answer = await api.client.post(
            "/api/tasks", content=b'[{"name": "x", "payload": ' + payload + b"}]"
        )
        return answer.status_code

    assert await submit(nested(limits.MAX_JSON_DEPTH)) == 201
    assert await submit(nested(limits.MAX_JSON_DEPTH + 1)) == 400
    assert await submit(b"[" + b",".join([b"[]"] * 1_000) + b"]") == 201
    assert await submit(b'"' + b"[" * 1_000 + b'"') == 201
    assert await submit(nested(100_000)) == 400


async def test_deep_values_of_workers_are_refused_too(api: Api) -> None:
    task = await api.submit()
    worker = await api.register()
    (lease,) = await worker.lease()
    deep = nested(limits.MAX_JSON_DEPTH + 1)

    async def send(path: str, before: str, after: str = "}]}") -> int:
        content = before.encode() + deep + after.encode()
        return (await api.client.post(path, content=content)).status_code

    start = f'{{"task_id": "{lease["task_id"]}", "fence": 1, '
    results = f'{{"incarnation": {worker.incarnation}, "results": [{start}'
    path = f"/api/workers/{worker.id}"
    assert await send(f"{path}/results", f'{results}"ok": true, "result": ') == 400
    error = f'{results}"ok": false, "error": {{"details": '
    assert await send(f"{path}/results", error, "}}]}") == 400
    assert await send(f"{path}/progress", f'[{start}"progress": ', "}]") == 400
    assert await send(f"/api/jobs/{task['id']}/complete", "", "") == 400
    assert (await api.task(task["id"]))["state"] == "running"


async def test_more_requests_than_allowed_are_told_to_come_back(tmp_path: Path) -> None:
    async with served(tmp_path, max_connections=1) as api:
        worker = await api.register()
        polling = asyncio.create_task(worker.lease(wait_ms=60_000))
        async with asyncio.timeout(30):
            while not api.node.coordinator.metrics().waiting_leases:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0)
        refused = await api.get("/api/queues")
        alive = await api.get("/health/live")
        api.node.coordinator.release_waiting()
        await polling

    assert (refused.status_code, refused.json()["code"]) == (429, "too_many")
    assert int(refused.headers["retry-after"]) >= 1
    assert alive.status_code == 200


async def test_under_overload_what_is_accepted_is_kept_and_the_rest_told_so(
    tmp_path: Path,
) -> None:
    async with served(tmp_path, max_waiting=200) as api:
        batch = [{"name": "work"}] * 150
        answers = await asyncio.gather(*(api.post("/api/tasks", batch) for _ in range(12)))
        depth = (await api.get("/api/queues")).json()["items"][0]["depth"]

    accepted = [answer for answer in answers if answer.status_code == 201]
    refused = [answer for answer in answers if answer.status_code == 503]
    assert len(accepted) + len(refused) == len(answers)
    assert depth == 150 * len(accepted)
    for answer in refused:
        assert answer.json()["code"] == "overloaded"
        assert int(answer.headers["retry-after"]) >= 1


async def test_requests_under_way_are_counted_and_end(api: Api) -> None:
    worker = await api.register()
    polling = asyncio.create_task(worker.lease(wait_ms=60_000))

    await until(api, "rota_http_requests_in_flight", 2.0)
    api.node.coordinator.release_waiting()

    await polling
    await until(api, "rota_http_requests_in_flight", 1.0)
