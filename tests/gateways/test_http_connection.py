"""Answers on a bare socket: what no client library would show."""

import pytest

from rota.gateways.http.server.connection import HttpConnection
from rota.gateways.http.server.connection_limits import ConnectionLimits
from tests.gateways.raw_http import LIVE, answer, socket_to
from tests.gateways.serving import Api


async def test_a_connection_carries_one_request_after_the_other(api: Api) -> None:
    async with socket_to(api) as (reader, writer):
        for _ in range(3):
            writer.write(LIVE)
            head, body = await answer(reader)

            assert head[0] == b"HTTP/1.1 200 OK"
            assert b"content-type: application/json" in head
            assert body == b'{"status":"alive"}'


async def test_requests_that_come_together_are_answered_in_their_order(api: Api) -> None:
    task = b'{"name":"work"}'
    submit = b"POST /api/tasks HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n%b"
    async with socket_to(api) as (reader, writer):
        writer.write(LIVE + submit % (len(task), task) + LIVE)

        statuses = [(await answer(reader))[0][0] for _ in range(3)]

    assert statuses == [b"HTTP/1.1 200 OK", b"HTTP/1.1 201 Created", b"HTTP/1.1 200 OK"]


async def test_a_caller_that_wants_to_be_closed_is_told_so_and_closed(api: Api) -> None:
    async with socket_to(api) as (reader, writer):
        writer.write(LIVE.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
        head, body = await answer(reader)

        assert b"connection: close" in head
        assert body == b'{"status":"alive"}'
        assert await reader.read() == b""


async def test_a_caller_of_the_old_protocol_is_answered_and_closed(api: Api) -> None:
    async with socket_to(api) as (reader, writer):
        writer.write(LIVE.replace(b"HTTP/1.1", b"HTTP/1.0"))
        head, _ = await answer(reader)

        assert b"connection: close" in head
        assert await reader.read() == b""


async def test_an_answer_to_head_says_how_long_it_would_be_and_ends_there(api: Api) -> None:
    async with socket_to(api) as (reader, writer):
        writer.write(LIVE.replace(b"GET", b"HEAD") + LIVE)
        head = await reader.readuntil(b"\r\n\r\n")
        _, body = await answer(reader)

    assert b"content-length: %d\r\n" % len(body) in head
    assert body == b'{"status":"alive"}'


async def test_a_connection_that_nobody_uses_is_closed_when_its_time_is_over(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HttpConnection, "limits", ConnectionLimits(head_s=2.0, idle_s=0.2))
    async with socket_to(api) as (reader, writer):
        writer.write(LIVE + LIVE)
        await answer(reader)
        await answer(reader)

        assert await reader.read() == b""


async def test_a_body_that_comes_bit_by_bit_is_taken_whole(api: Api) -> None:
    body = b'{"name": "work", "payload": {"n": 1}}'
    async with socket_to(api) as (reader, writer):
        writer.write(b"POST /api/tasks HTTP/1.1\r\nhost: localhost\r\ncontent-length: ")
        for piece in (b"%d\r\n\r\n" % len(body), body[:5], body[5:20], body[20:]):
            await writer.drain()
            writer.write(piece)
        head, content = await answer(reader)

    assert head[0] == b"HTTP/1.1 201 Created"
    assert b'"payload":{"n": 1}' in content


async def test_a_body_that_breaks_off_is_refused_and_nothing_is_submitted(api: Api) -> None:
    head = b"POST /api/tasks HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
    async with socket_to(api) as (reader, writer):
        writer.write(head + b'11\r\n{"name": "work",\r\nno size\r\n')

        assert (await reader.readline()) == b"HTTP/1.1 400 Bad Request\r\n"
        await reader.read()

    assert (await api.get("/api/tasks")).json()["items"] == []


async def test_a_caller_in_a_hurry_is_answered_each_time(api: Api) -> None:
    task = b'{"name":"work"}'
    submit = b"POST /api/tasks HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n%b"
    async with socket_to(api) as (reader, writer):
        for _ in range(50):
            writer.write(submit % (len(task), task))
            head, _body = await answer(reader)
            assert head[0] == b"HTTP/1.1 201 Created"

    assert len((await api.get("/api/tasks?limit=100")).json()["items"]) == 50


async def test_a_caller_that_waits_to_be_asked_for_the_body_is_asked(api: Api) -> None:
    body = b'{"name": "work"}'
    ask = b"POST /api/tasks HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n"
    async with socket_to(api) as (reader, writer):
        writer.write(ask + b"content-length: %d\r\n\r\n" % len(body))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(body)
        head, _ = await answer(reader)

    assert head[0] == b"HTTP/1.1 201 Created"


async def test_a_target_with_a_percent_in_it_means_what_it_stands_for(api: Api) -> None:
    await api.submit(queue="a b")
    async with socket_to(api) as (reader, writer):
        writer.write(b"POST /api/queues/a%20b/pause HTTP/1.1\r\nhost: localhost\r\n\r\n")
        head, body = await answer(reader)

    assert head[0] == b"HTTP/1.1 200 OK"
    assert b'"a b"' in body


SUBMIT = b"POST /api/tasks HTTP/1.1\r\nhost: localhost\r\n"


def submitting(body: bytes, *, more: bytes = b"") -> bytes:
    return SUBMIT + more + b"content-length: %d\r\n\r\n%b" % (len(body), body)


MIXED = (
    (submitting(b'{"name":"a"}'), 201),
    (submitting(b'{"name":"b"}'), 201),
    (submitting(b'{"name": "}'), 400),
    (submitting(b'{"name":""} '), 400),
    (submitting(b'{"name":"c"}'), 201),
    (submitting(b'{"name":"x"}', more=b"authorization: Bearer nobody's\r\n"), 401),
    (submitting(b'{"name":"d"}'), 201),
    (submitting(b'{"name":"long"}'), 201),
    (SUBMIT + b'transfer-encoding: chunked\r\n\r\nc\r\n{"name":"e"}\r\n0\r\n\r\n', 201),
    (submitting(b'{"name":"f"}', more=b"origin: http://elsewhere.example\r\n"), 403),
    (LIVE, 200),
    (submitting(b'{"name":"g"}'), 201),
    (submitting(b""), 400),
    (submitting(b'{"name":"h"}'), 201),
)


@pytest.mark.parametrize("size", [1_000_000, 150, 61, 7, 1])
async def test_requests_mean_the_same_however_they_are_cut(api: Api, size: int) -> None:
    async with socket_to(api) as (reader, writer):
        for _ in range(2):
            for request, status in MIXED:
                for start in range(0, len(request), size):
                    writer.write(request[start : start + size])
                    await writer.drain()
                head, _ = await answer(reader)
                assert int(head[0].split()[1]) == status, request

    names = [task["name"] for task in (await api.get("/api/tasks?limit=100")).json()["items"]]
    assert names[::-1] == ["a", "b", "c", "d", "long", "e", "g", "h"] * 2


async def test_submissions_that_come_together_are_answered_in_their_order(api: Api) -> None:
    one = submitting(b'{"name":"a"}')
    async with socket_to(api) as (reader, writer):
        writer.write(one)
        await answer(reader)
        writer.write(one)
        await answer(reader)
        writer.write(one + submitting(b'{"name":"b"}') + LIVE + one)

        statuses = [int((await answer(reader))[0][0].split()[1]) for _ in range(4)]

    assert statuses == [201, 201, 200, 201]
    names = [task["name"] for task in (await api.get("/api/tasks")).json()["items"]]
    assert names == ["a", "b", "a", "a", "a"]
