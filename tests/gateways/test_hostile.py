"""Whatever is sent, the answer is never our mistake."""

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from rota.gateways.http.endpoints import ENDPOINTS
from rota.gateways.http.openapi import document
from rota.node import Node
from tests.gateways.serving import settings_in

BODIES = [endpoint for endpoint in ENDPOINTS if endpoint.takes_body]
FIELDS = sorted(
    {
        name
        for schema in document(ENDPOINTS)["components"]["schemas"].values()
        for name in schema.get("properties", {})
    }
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from(["", "\x00", "queued", "0000000000000001", "7fffffffffffffff", "\ud800"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=3), inner, max_size=5)
    ),
    max_leaves=12,
)
QUIET = settings(
    max_examples=150,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A node in a thread of its own, since the checkers below block."""
    folder: Path = tmp_path_factory.mktemp("hostile")
    urls: list[str] = []
    is_up = threading.Event()
    nodes: list[Node] = []
    loops: list[asyncio.AbstractEventLoop] = []

    def up(url: str) -> None:
        urls.append(url)
        is_up.set()

    async def serve() -> None:
        node = Node(settings_in(folder))
        nodes.append(node)
        loops.append(asyncio.get_running_loop())
        await node.serve(up)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert is_up.wait(10)
    yield urls[0]
    loops[0].call_soon_threadsafe(nodes[0].ask_to_stop)
    thread.join(20)


def test_any_json_at_any_endpoint_is_answered_without_a_500(address: str) -> None:
    with httpx.Client(base_url=address) as client:

        @QUIET
        @given(st.sampled_from(BODIES), VALUES, st.sampled_from(["0000000000000001", "w", "%00"]))
        def attack(endpoint: Any, value: Any, name: str) -> None:
            path = re.sub(r"\{\w+\}", name, endpoint.path)
            content = _json(_quick(value))
            answer = client.request(endpoint.method, path, content=content)
            assert answer.status_code < 500, (endpoint.path, content, answer.text)
            assert answer.json() is not None

        attack()


def _quick(value: Any) -> Any:
    """The same without a long poll."""
    return {**value, "wait_ms": 0} if isinstance(value, dict) and "wait_ms" in value else value


def _json(value: Any) -> bytes:
    # Not msgspec: it refuses lone surrogates, and those are wanted here.
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /api/tasks/\xff HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /api/tasks?state=%ff HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"POST /api/tasks HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999999999\r\n\r\n",
        b"POST /api/tasks HTTP/1.1\r\nhost: \xff\r\ncontent-length: 2\r\n\r\n{}",
        b"POST /api/tasks HTTP/1.1\r\nhost: localhost\r\norigin: \xff\r\n\r\n",
        b"GET /api/tasks HTTP/1.1\r\nhost: localhost\r\nauthorization: \xff\r\n\r\n",
        b"GET /api/tasks HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer \xc3\xa9\r\n\r\n",
        b"BREW /api/tasks HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ],
)
async def test_odd_requests_are_answered_without_a_500(address: str, request_bytes: bytes) -> None:
    url = httpx.URL(address)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(request_bytes)

    line = await asyncio.wait_for(reader.readline(), 10)

    writer.close()
    await writer.wait_closed()
    assert line.split()[1].startswith(b"4"), line


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(GenerationMode))
def test_the_api_keeps_to_its_own_document(address: str, mode: GenerationMode) -> None:
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
    checks = [
        not_a_server_error,
        status_code_conformance,
        content_type_conformance,
        response_headers_conformance,
        response_schema_conformance,
    ]
    session = requests.Session()
    session.trust_env = False  # it would look for proxies in the environment before each request
    for found in schema.get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()
        if mode is GenerationMode.NEGATIVE and not (operation.query or operation.body):
            continue  # any text may stand in a path; the search for it would take long

        @settings(QUIET, max_examples=25)
        @given(operation.as_strategy(generation_mode=mode))
        def attack(case: Case[Any]) -> None:
            if isinstance(case.query, dict):
                case.query.pop("wait_ms", None)
            case.body = _quick(case.body)
            case.call_and_validate(checks=checks, session=session)

        with suppress(Unsatisfiable):  # where anything goes, nothing is wrong
            attack()
    session.close()
