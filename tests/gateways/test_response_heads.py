"""The header fields that every answer has."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from rota.engine.runs.artifact_io import LARGEST_IN_ROW
from rota.gateways.http.routing.responses import API_HEADERS, head_of, with_api_headers
from tests.gateways.raw_http import LIVE, fields_of, socket_to
from tests.gateways.serving import Api, served
from tests.gateways.test_access import token
from tests.gateways.working import Bench

UPGRADE = b"GET /%b HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
KEY = b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"


def is_shielded(fields: Mapping[bytes, bytes]) -> bool:
    return all(fields.get(name) == value for name, value in API_HEADERS)


async def head(api: Api, request: bytes) -> tuple[int, Mapping[bytes, bytes]]:
    async with socket_to(api) as (reader, writer):
        writer.write(request)
        lines = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
    assert len(fields_of(lines)) == len([line for line in lines[1:] if line]), lines
    return int(lines[0].split()[1]), fields_of(lines)


def get(path: str, more: str = "", method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nhost: localhost\r\n{more}\r\n".encode()


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (LIVE, 200),
        (LIVE.replace(b"GET", b"HEAD"), 200),
        (get("/health"), 200),
        (get("/health/ready"), 200),
        (get("/metrics"), 200),
        (get("/api/tasks"), 200),
        (get("/api/tasks", "connection: close\r\n"), 200),
        (get("/api/tasks/none"), 404),
        (get("/api/jobs/none"), 404),
        (get("/api/tasks", method="DELETE"), 405),
        (get("/api/tasks", "authorization: Bearer none\r\n"), 401),
        (get("/api/tasks", "origin: http://elsewhere\r\n", "POST"), 403),
        (get("/api/logout", method="POST"), 200),
        (get("/nowhere"), 404),
        (get("/static/nothing.js"), 404),
        (get("/docs"), 200),
        (get("/docs/"), 307),
        (get("/openapi.json"), 200),
        (get("/ws"), 400),
        (get("/api/events", "accept: text/event-stream\r\n"), 200),
        (b"no request at all\r\n\r\n", 400),
        (get("/" + "a" * 20_000), 414),
        (get("/health/live", "a: b\r\n" * 101), 431),
        (UPGRADE % b"nowhere" + KEY + b"\r\n", 404),
        (UPGRADE % b"ws" + b"\r\n", 400),
        (UPGRADE % b"ws" + KEY + b"x-a: %b\r\n\r\n" % (b"a" * 9_000), 431),
    ],
)
async def test_every_answer_is_shielded(api: Api, request_bytes: bytes, status: int) -> None:
    given, fields = await head(api, request_bytes)

    assert given == status
    assert is_shielded(fields), fields


async def test_artifacts_are_shielded_however_they_are_kept(api: Api) -> None:
    bench = await Bench.at(api)
    await bench.put("name: one\ninitial_node: a\nnodes: {a: {task: work}}\n")
    run_id = await bench.start("one")
    (lease,) = await bench.worker.lease()
    asked = {"task_id": lease["task_id"], "fence": lease["fence"]}
    for name, content in (("small", b"a"), ("large", b"a" * (LARGEST_IN_ROW + 1))):
        path = f"/api/runs/{run_id}/artifacts/{name}"
        await api.client.put(path, params=asked, content=content)
    await bench.worker.finish(lease)

    for name in ("small", "large"):
        status, fields = await head(api, get(f"/api/runs/{run_id}/artifacts/{name}"))
        assert status == 200
        assert is_shielded(fields)
        assert fields[b"content-security-policy"] == b"sandbox"


async def test_a_login_is_shielded_and_keeps_its_cookie(tmp_path: Path) -> None:
    async with served(tmp_path, require_token=True, zmq_port=None) as api:
        secret = (await token(api, "admin"))["authorization"].removeprefix("Bearer ")
        body = f'{{"token":"{secret}"}}'
        more = f"content-length: {len(body)}\r\n"
        status, fields = await head(api, get("/api/login", more, "POST") + body.encode())

    assert status == 200
    assert is_shielded(fields)
    assert b"HttpOnly" in fields[b"set-cookie"]


async def test_the_dashboard_keeps_its_caching_and_is_shielded_too(api: Api) -> None:
    _, page = await head(api, get("/"))
    _, script = await head(api, get("/static/app.js"))

    for fields in (page, script):
        assert fields[b"cache-control"] == b"no-cache"
        assert fields[b"x-content-type-options"] == b"nosniff"
        assert fields[b"cross-origin-resource-policy"] == b"same-origin"


def test_what_an_answer_says_itself_is_not_said_twice() -> None:
    given = [(b"Cache-Control", b"no-cache"), (b"x-content-type-options", b"nosniff")]

    assert with_api_headers(given) == [*given, (b"cross-origin-resource-policy", b"same-origin")]


def test_a_head_says_whether_the_connection_goes_on() -> None:
    assert b"connection: close" in head_of(200, "text/plain", False)  # noqa: FBT003 - a key
    assert b"connection" not in head_of(200, "text/plain", True)  # noqa: FBT003 - a key
