"""No answer to any request shows the inside of the server: no traceback, no path of a file."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import rota
from rota.errors import StoreError
from rota.gateways.errors import presentable
from rota.gateways.http.endpoints import ENDPOINTS
from rota.gateways.http.routing.responses import problem
from rota.gateways.websocket.session.dispatcher import refusal
from tests.sdk.serving import Server

# Readers are shown where the store lies: it is what the page of the system is for.
SHOWS_THE_STORE = "/api/system"
QUIET = settings(
    max_examples=150,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
ROUTES = sorted({(one.method, one.path) for one in ENDPOINTS if one.path != SHOWS_THE_STORE})
ELSEWHERE = [("GET", path) for path in ("/", "/docs", "/ws", "/nothing", "/app.js", "/static/../x")]
PARTS = st.sampled_from(["x", "0000000000000001", "7fffffffffffffff", "..", "%2e%2e%2fx", "%00"])
PARTS |= st.text(max_size=8).map(lambda text: quote(text, safe=""))
BODIES = st.binary(max_size=40) | st.sampled_from(
    [b"", b"{", b"[]", b"null", b'{"name": "x"}', b'{"name": "\\ud800"}', b"[" * 5_000, b"1e999"]
)
QUERIES = st.sampled_from(
    ["", "limit=x", "cursor=%ff", "wait_ms=-1", "pattern=[", "after=1e9", "&&="]
)


class Served(NamedTuple):
    url: str
    folder: Path


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("internals")
    with Server(folder) as server:
        yield Served(server.url, folder)


def internals(folder: Path) -> re.Pattern[str]:
    places = {str(folder), str(Path(rota.__file__).parent), sys.prefix, sys.base_prefix}
    texts = ["Traceback (most recent", "site-packages", 'File "', *sorted(places)]
    return re.compile("|".join(map(re.escape, texts)))


def test_no_answer_shows_a_traceback_or_a_path_of_the_server(served: Served) -> None:
    forbidden = internals(served.folder)
    with httpx.Client(base_url=served.url, timeout=30) as client:

        @QUIET
        @given(st.sampled_from([*ROUTES, *ELSEWHERE]), st.data(), QUERIES, BODIES)
        def ask(route: tuple[str, str], data: st.DataObject, query: str, body: bytes) -> None:
            method, path = route
            path = re.sub(r"\{\w+\}", lambda _: data.draw(PARTS), path)
            sent = body if method in {"POST", "PUT"} else None
            answer = client.request(method, f"{path}?{query}", content=sent)
            assert answer.status_code < 500, (route, query, body, answer.text)
            assert not forbidden.search(f"{answer.headers}{answer.text}"), (route, answer.text)

        ask()


@given(
    st.sampled_from([ValueError, OSError, KeyError, RuntimeError, AssertionError, StoreError]),
    st.sampled_from(
        ["/srv/rota/secret.db is locked", 'File "/srv/x.py", line 1', "password=hunter"]
    ),
)
def test_what_is_our_own_fault_is_told_in_words_of_ours_alone(
    kind: type[Exception], text: str
) -> None:
    shown = presentable(kind(text))

    told = f"{problem(shown).content.decode()} {refusal(shown)}"
    assert text not in told
    assert "/srv" not in told
    assert shown.status in {500, 503}
