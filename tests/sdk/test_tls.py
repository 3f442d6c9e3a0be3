"""Programs and workers that speak to a coordinator over TLS, and what they refuse to speak to."""

import asyncio
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from rota import HeldShard, Rota, ShardWorker
from rota.errors import Invalid, Unavailable
from rota.sdk.client import calls
from rota.sdk.client.client import Client
from rota.sdk.transport.http import endpoint_of
from rota.sdk.worker.streaming.socket import open_socket
from tests.certificates import Authority, Certificate
from tests.sdk.serving import PATIENCE_S, Server, working
from tests.sdk.test_streaming import STREAMING, wait_streaming

UNTRUSTED = r"certificate verify failed: .*; set ROTA_CA to the CA's file"


@pytest.fixture
def server(tmp_path: Path, certificate: Certificate) -> Iterator[Server]:
    with Server(tmp_path, **certificate.settings()) as running:
        yield running


@pytest.fixture
def app(server: Server, authority: Authority) -> Iterator[Rota]:
    with Rota(server.url, verify=authority.ca) as one:
        yield one


def ask(client: Client) -> str:
    return client.without_repeats().run(calls.health()).status


# --- over TLS -----------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", ["websocket", "http"])
def test_a_worker_runs_tasks_over_tls(server: Server, app: Rota, transport: str) -> None:
    @app.task
    async def double(number: int) -> int:
        return number * 2

    with working(app, transport=transport, concurrency=20):
        if transport == "websocket":
            wait_streaming(server)
        handles = app.enqueue_many([double.bind(number) for number in range(500)])
        results = [handle.result(PATIENCE_S) for handle in handles]

    assert server.url.startswith("https://")
    assert results == [2 * number for number in range(500)]


def test_a_large_result_comes_back_over_tls(app: Rota) -> None:
    @app.task
    async def repeat(text: str) -> str:
        return text * 3

    with working(app, **STREAMING):
        result = repeat.enqueue("x" * 1_000_000).result(PATIENCE_S)

    assert len(result) == 3_000_000


def test_async_programs_speak_tls(app: Rota) -> None:
    @app.task
    async def greet(name: str) -> str:
        return f"hello {name}"

    async def main() -> str:
        handle = await greet.aenqueue("ada")
        return await handle.aresult(PATIENCE_S)

    with working(app, **STREAMING):
        assert asyncio.run(main()) == "hello ada"


def test_events_are_followed_over_tls(app: Rota) -> None:
    app.enqueue("a")
    app.enqueue("b")

    followed = islice(app.client.events(after=0, types=["task-*"]), 2)

    assert [event.data["name"] for event in followed] == ["a", "b"]


def test_a_shard_worker_owns_shards_over_tls(server: Server, authority: Authority) -> None:
    held: list[int] = []

    def begin(shard: HeldShard) -> None:
        held.append(shard.shard)
        if len(held) == 4:
            worker.stop()

    worker = ShardWorker(
        "feed", shards=4, on_assigned=begin, url=server.url, zmq="", verify=authority.ca
    )
    asyncio.run(asyncio.wait_for(worker.arun(), PATIENCE_S))

    assert sorted(held) == [0, 1, 2, 3]


# --- whom to trust ------------------------------------------------------------------------------


def test_the_variable_names_the_authorities_to_trust(
    server: Server, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_CA", authority.ca)

    with Client.connect(server.url) as client:
        assert ask(client) == "healthy"


def test_the_certificate_of_the_coordinator_itself_may_be_trusted(
    server: Server, certificate: Certificate
) -> None:
    with Client.connect(server.url, verify=Path(certificate.cert)) as client:
        assert ask(client) == "healthy"


def test_a_coordinator_of_an_unknown_authority_is_not_spoken_to(server: Server) -> None:
    with Client.connect(server.url) as client:
        with pytest.raises(Unavailable, match=UNTRUSTED):
            ask(client)
        with pytest.raises(Unavailable, match=UNTRUSTED):
            asyncio.run(client.without_repeats().arun(calls.health()))


def test_a_coordinator_of_another_authority_is_not_spoken_to(
    server: Server, tmp_path: Path
) -> None:
    other = Authority(tmp_path / "other")

    with (
        Client.connect(server.url, verify=other.ca) as client,
        pytest.raises(Unavailable, match=UNTRUSTED),
    ):
        ask(client)


async def test_a_stream_is_not_opened_to_an_unknown_authority(server: Server) -> None:
    with pytest.raises(Unavailable, match=UNTRUSTED):
        await open_socket(endpoint_of(server.url, None), timeout_s=PATIENCE_S)


def test_a_name_that_the_certificate_lacks_is_refused(tmp_path: Path, authority: Authority) -> None:
    elsewhere = authority.issue("elsewhere", hosts="DNS:rota.example")
    advice = "call the coordinator by a name that its certificate has"

    with (
        Server(tmp_path, **elsewhere.settings()) as server,
        Client.connect(server.url, verify=authority.ca) as client,
        pytest.raises(Unavailable, match=advice),
    ):
        ask(client)


def test_a_program_may_check_nothing_and_is_warned(server: Server) -> None:
    with pytest.warns(UserWarning, match="certificate is not checked"):
        client = Client.connect(server.url, verify=False)

    with client:
        assert ask(client) == "healthy"


def test_a_file_of_authorities_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_CA", str(tmp_path / "none.pem"))

    with pytest.raises(Invalid, match=r"ROTA_CA or verify: .*none\.pem cannot be read"):
        Client.connect("https://127.0.0.1:1")


# --- the wrong scheme ---------------------------------------------------------------------------


def test_http_to_a_coordinator_with_tls_is_told_to_use_https(server: Server) -> None:
    with (
        Client.connect(server.url.replace("https://", "http://")) as client,
        pytest.raises(Invalid, match="this port speaks TLS: call it with https://"),
    ):
        ask(client)


def test_https_to_a_coordinator_without_tls_is_told_to_use_http(tmp_path: Path) -> None:
    with (
        Server(tmp_path) as server,
        Client.connect(server.url.replace("http://", "https://")) as client,
        pytest.raises(Unavailable, match="does not speak TLS; use http://"),
    ):
        ask(client)
