"""While no place is free, requests are refused by their head, and only for that reason."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.gateways.raw_http import LIVE, answer, fields_of, socket_to, status_of
from tests.gateways.serving import Api, served
from tests.gateways.test_access import token

BODY = b'{"name":"work"}'
HEAD = b"POST /api/tasks HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n" % len(BODY)
SUBMIT = HEAD + b"\r\n" + BODY


@contextmanager
def crowded(api: Api, holder: str = "127.0.0.1") -> Iterator[None]:
    """All places that one caller can have are taken."""
    places = api.node.quotas.requests.places
    for _ in range(places.share):
        places.take(holder, None)
    try:
        yield
    finally:
        for _ in range(places.share):
            places.release(holder)


async def test_a_refusal_comes_before_the_body_and_the_connection_goes_on(api: Api) -> None:
    async with socket_to(api) as (reader, writer):
        with crowded(api):
            writer.write(HEAD + b"\r\n")
            head, body = await answer(reader)
        writer.write(BODY + SUBMIT)
        accepted, _ = await answer(reader)

    assert status_of(head) == 429
    assert fields_of(head)[b"retry-after"] == b"1"
    assert fields_of(head)[b"cache-control"] == b"no-store"
    assert b'"too_many"' in body
    assert status_of(accepted) == 201
    assert len((await api.get("/api/tasks")).json()["items"]) == 1


async def test_refused_requests_that_come_together_are_answered_in_their_order(api: Api) -> None:
    async with socket_to(api) as (reader, writer):
        with crowded(api):
            writer.write(SUBMIT + LIVE + SUBMIT)
            statuses = [status_of((await answer(reader))[0]) for _ in range(3)]

    assert statuses == [429, 200, 429]


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (LIVE, 200),
        (b"GET /nowhere HTTP/1.1\r\nhost: localhost\r\n\r\n", 404),
        (b"PATCH /api/tasks HTTP/1.1\r\nhost: localhost\r\n\r\n", 405),
        (HEAD + b"origin: http://elsewhere\r\n\r\n" + BODY, 403),
        (HEAD + b"authorization: Bearer nobody's\r\n\r\n" + BODY, 401),
        (b"HEAD /api/tasks HTTP/1.1\r\nhost: localhost\r\n\r\n", 429),
        (HEAD + b"cookie: rota_token_default=x\r\n\r\n" + BODY, 403),
    ],
)
async def test_only_a_request_that_nothing_else_is_wrong_with_is_refused_for_its_place(
    api: Api, request_bytes: bytes, status: int
) -> None:
    async with socket_to(api) as (reader, writer):
        with crowded(api):
            writer.write(request_bytes)
            head = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")

    assert status_of(head) == status


async def test_a_worker_keeps_its_work_while_no_place_is_free(api: Api) -> None:
    worker = await api.register()
    with crowded(api):
        beat = await worker.call("heartbeat", {"incarnation": worker.incarnation})

    assert beat.status_code == 200


async def test_refusals_are_counted(api: Api) -> None:
    with crowded(api):
        await api.post("/api/tasks", {"name": "work"})

    assert api.node.app._services.traffic.answers["POST", "/api/tasks", 429] == 1


async def test_a_share_is_counted_by_token_and_operators_have_a_reserve(tmp_path: Path) -> None:
    async with served(tmp_path, require_token=True, zmq_port=None, max_connections=16) as api:
        admin, submitter = await token(api, "admin"), await token(api, "submit")
        with crowded(api, "another"):
            first = await api.post("/api/tasks", {"name": "work"}, headers=submitter)
            api.node.quotas.requests.places.take("a third", None)
            second = await api.post("/api/tasks", {"name": "work"}, headers=submitter)
            operator = await api.get("/api/tasks", headers=admin)
            unknown = await api.get("/api/tasks")
            api.node.quotas.requests.places.release("a third")

    assert [one.status_code for one in (first, second, operator, unknown)] == [201, 429, 200, 401]
