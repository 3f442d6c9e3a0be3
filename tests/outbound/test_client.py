"""The guarded client on real sockets: where it connects, and what it takes from a server."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rota.core import limits
from rota.core.outbound.targets import OutboundPolicy, policy_of
from rota.engine.outbound.client import (
    OutboundClient,
    OutboundFailed,
    OutboundRequest,
    check_headers,
)
from rota.engine.outbound.responses import OutboundAnswer, problem_of, retry_after_ms
from rota.errors import Invalid
from rota.tls import server_context
from tests.certificates import Authority
from tests.outbound.receiving import Receiver, answer, receiving

LOCAL = policy_of("127.0.0.1", is_closed=False)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as running:
        yield running


def request(url: str, **changes: Any) -> OutboundRequest:
    fields = {"body": b"{}", "timeout_ms": 10_000, "max_answer_bytes": 100, **changes}
    return OutboundRequest(url=url, **fields)


def resolving(*addresses: str) -> tuple[OutboundClient, list[str]]:
    """A client whose resolver says this of every name, and the names that it was asked for."""
    asked: list[str] = []

    async def resolve(host: str, _port: int) -> Sequence[str]:
        asked.append(host)
        return addresses

    return OutboundClient(OutboundPolicy(), resolve=resolve), asked


async def failure(client: OutboundClient, sent: OutboundRequest) -> str:
    with pytest.raises(OutboundFailed) as failed:
        await client.post(sent)
    return str(failed.value)


# --- what is sent and read ----------------------------------------------------------------------


async def test_a_request_arrives_as_it_was_given(receiver: Receiver) -> None:
    receiver.answer = lambda _: answer(201, b"thanks", x_note="n")
    sent = request(f"{receiver.url}?q=1", body=b'{"a":1}', headers={"webhook-id": "m"})

    got = await OutboundClient(LOCAL).post(sent)

    (seen,) = receiver.requests
    assert seen.line == "POST /hook?q=1 HTTP/1.1"
    assert seen.body == b'{"a":1}'
    assert seen.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert seen.headers["webhook-id"] == "m"
    assert seen.headers["content-type"] == "application/json"
    assert (got.status, got.body, got.is_cut) == (201, b"thanks", False)
    assert got.headers["x-note"] == "n"


@pytest.mark.parametrize(
    "headers", [{"x": "a\r\nhost: evil"}, {"x\r\ny": "a"}, {"x": "a\n"}, {"x": "ä"}, {"": "a"}]
)
async def test_a_header_cannot_end_its_line(receiver: Receiver, headers: dict[str, str]) -> None:
    assert "header" in await failure(OutboundClient(LOCAL), request(receiver.url, headers=headers))
    with pytest.raises(Invalid, match="headers"):
        check_headers(headers)
    assert receiver.requests == []


@pytest.mark.parametrize("name", ["Host", "content-length", "Transfer-Encoding", "webhook-id"])
def test_headers_of_the_client_itself_cannot_be_given(name: str) -> None:
    with pytest.raises(Invalid, match="set by the coordinator"):
        check_headers({name: "1"})


async def test_a_redirect_is_an_answer_and_is_not_followed(receiver: Receiver) -> None:
    async with receiving() as other:
        receiver.answer = lambda _: answer(302, location=other.url)
        got = await OutboundClient(LOCAL).post(request(receiver.url))

        assert got.status == 302
        assert "redirects are not followed" in (problem_of(got) or "")
        assert other.requests == []


async def test_a_long_answer_is_cut(receiver: Receiver) -> None:
    receiver.answer = lambda _: answer(200, b"x" * 1_000_000)

    got = await OutboundClient(LOCAL).post(request(receiver.url))

    assert (got.body, got.is_cut) == (b"x" * 100, True)


async def test_an_endless_head_is_refused(receiver: Receiver) -> None:
    receiver.answer = lambda _: b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000

    assert "head of the answer" in await failure(OutboundClient(LOCAL), request(receiver.url))


async def test_endless_interim_answers_are_refused(receiver: Receiver) -> None:
    receiver.answer = lambda _: b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000

    assert "head of the answer" in await failure(OutboundClient(LOCAL), request(receiver.url))


async def test_an_interim_answer_is_read_over(receiver: Receiver) -> None:
    receiver.answer = lambda _: b"HTTP/1.1 103 Hints\r\nlink: x\r\n\r\n" + answer(204)

    got = await OutboundClient(LOCAL).post(request(receiver.url))

    assert (got.status, "link" in got.headers) == (204, False)


@pytest.mark.parametrize(
    "said",
    [b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx", b"", b"HTTP/1.1 2"],
)
async def test_what_is_no_whole_answer_is_a_failure(receiver: Receiver, said: bytes) -> None:
    receiver.answer = lambda _: said

    assert receiver.url.removesuffix("/hook") in await failure(
        OutboundClient(LOCAL), request(receiver.url)
    )


async def test_a_server_that_switches_protocols_is_refused(receiver: Receiver) -> None:
    receiver.answer = lambda _: b"HTTP/1.1 101 S\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"

    assert "protocol" in await failure(OutboundClient(LOCAL), request(receiver.url))


async def test_a_silent_server_costs_no_more_than_the_time_limit(receiver: Receiver) -> None:
    receiver.answer = lambda _: None

    sent = request(receiver.url, timeout_ms=50)
    assert "has not answered within 0.05 s" in await failure(OutboundClient(LOCAL), sent)


async def test_a_refused_connection_is_a_failure_that_names_no_path(receiver: Receiver) -> None:
    url = receiver.url
    sent = request(url.replace(str(receiver.port), "1"))

    text = await failure(OutboundClient(LOCAL), sent)

    assert "cannot be reached" in text
    assert "/hook" not in text


async def test_only_so_many_requests_to_one_host_are_under_way(receiver: Receiver) -> None:
    receiver.answer = lambda _: None
    client, most = OutboundClient(LOCAL), limits.MAX_OUTBOUND_OF_HOST
    waiting = [asyncio.ensure_future(client.post(request(receiver.url))) for _ in range(most)]
    await receiver.wait_for(most)

    assert "are under way" in await failure(client, request(receiver.url))
    for one in waiting:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    receiver.answer = lambda _: answer(200)
    assert (await client.post(request(receiver.url))).status == 200


# --- where it connects --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "127.0.0.2", "::1", "::ffff:127.0.0.1", "0.0.0.0"],
)
async def test_a_name_that_leads_to_a_private_address_is_not_called(
    receiver: Receiver, address: str
) -> None:
    client, asked = resolving(address)

    text = await failure(client, request(f"http://public.example:{receiver.port}/"))

    assert "public.example is not called" in text
    assert asked == ["public.example"]
    assert receiver.requests == []


async def test_the_name_is_resolved_once_and_the_checked_address_is_called(
    receiver: Receiver,
) -> None:
    asked: list[str] = []

    async def rebinding(host: str, _port: int) -> Sequence[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["127.0.0.2"]

    client = OutboundClient(LOCAL, resolve=rebinding)
    got = await client.post(request(f"http://name.example:{receiver.port}/"))

    assert got.status == 200
    assert asked == ["name.example"]
    assert receiver.requests[0].headers["host"] == f"name.example:{receiver.port}"


async def test_of_several_addresses_only_those_that_may_be_are_called(receiver: Receiver) -> None:
    async def both(_host: str, _port: int) -> Sequence[str]:
        return ["127.0.0.2", "127.0.0.1"]

    client = OutboundClient(LOCAL, resolve=both)

    assert (await client.post(request(f"http://n.example:{receiver.port}/"))).status == 200


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0177.0.0.1", "0x7f.1"]
)
async def test_no_spelling_of_loopback_is_called(receiver: Receiver, host: str) -> None:
    client = OutboundClient(OutboundPolicy())

    await failure(client, request(f"http://{host}:{receiver.port}/"))

    assert receiver.requests == []


async def test_localhost_is_refused_with_the_resolver_of_the_system(receiver: Receiver) -> None:
    client = OutboundClient(OutboundPolicy())

    text = await failure(client, request(f"http://localhost:{receiver.port}/"))
    client.close()

    assert "not public" in text
    assert receiver.requests == []


async def test_a_name_without_an_address_is_a_failure() -> None:
    client, _ = resolving()

    assert "has no address" in await failure(client, request("http://none.example/"))


# --- TLS ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


async def at_loopback(_host: str, _port: int) -> Sequence[str]:
    return ["127.0.0.1"]


async def test_a_certificate_is_checked_against_the_name(authority: Authority) -> None:
    issued = authority.issue("hooks", hosts="DNS:hooks.example")
    client = OutboundClient(LOCAL, ca_file=authority.ca, resolve=at_loopback)

    async with receiving(server_context(*issued)) as receiver:
        got = await client.post(request(f"https://hooks.example:{receiver.port}/"))
        text = await failure(client, request(f"https://other.example:{receiver.port}/"))

        assert got.status == 200
        assert "certificate" in text
        assert len(receiver.requests) == 1


async def test_an_unknown_authority_is_refused(authority: Authority) -> None:
    issued = authority.issue("unknown", hosts="DNS:hooks.example")

    async with receiving(server_context(*issued)) as receiver:
        client = OutboundClient(LOCAL, resolve=at_loopback)
        text = await failure(client, request(f"https://hooks.example:{receiver.port}/"))

        assert "outbound_ca" in text
        assert receiver.requests == []


def test_a_file_without_a_certificate_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("")

    for file in ("empty.pem", "missing.pem"):
        with pytest.raises(Invalid, match="outbound_ca"):
            OutboundClient(LOCAL, ca_file=str(tmp_path / file))


# --- what an answer says ------------------------------------------------------------------------


def said(status: int, body: bytes = b"", **headers: str) -> OutboundAnswer:
    return OutboundAnswer(status=status, headers=headers, body=body, is_cut=False)


def test_the_problem_of_an_answer_has_the_beginning_of_its_body() -> None:
    assert problem_of(said(204)) is None
    assert problem_of(said(500)) == "answered 500"
    assert problem_of(said(400, b"no\r\n\x1b[31m such\x00 hook \xff")) == (
        "answered 400: no [31m such hook \ufffd"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7", 7_000),
        ("0", 0),
        ("Tue, 14 Nov 2023 22:13:30 GMT", 10_000),
        ("Tue, 14 Nov 2023 22:13:00 GMT", 0),
        ("soon", None),
        ("-1", None),
        ("", None),
        ("9" * 50, 999_999_999_000),
    ],
)
def test_the_pause_that_a_server_asks_for(text: str, expected: int | None) -> None:
    answered = OutboundAnswer(status=503, headers={"retry-after": text}, body=b"", is_cut=False)

    assert retry_after_ms(answered, now_ms=1_700_000_000_000) == expected
