"""Requests go out and responses come in, over connections good and bad, blocking or not."""

import asyncio
import socket
import threading
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from rota.errors import Invalid, Unavailable
from rota.sdk.transport.http import HttpTransport
from rota.sdk.transport.transport import NotSent, Response, TransportRequest
from tests.sdk.listening import OK, free_url, listening, read_request

Send = Callable[[HttpTransport, TransportRequest], Response]
GET = TransportRequest(method="GET", path="/")


def posted(body: bytes, path: str = "/") -> TransportRequest:
    return TransportRequest(method="POST", path=path, body=body)


@pytest.fixture(params=["blocking", "looping"])
def send(request: pytest.FixtureRequest) -> Send:
    """Both ways of sending, so that every test is true of both."""

    def blocking(transport: HttpTransport, request: TransportRequest) -> Response:
        return transport.send(request)

    def looping(transport: HttpTransport, request: TransportRequest) -> Response:
        return asyncio.run(transport.asend(request))

    return blocking if request.param == "blocking" else looping


def answer(*parts: bytes) -> Callable[[socket.socket], None]:
    def script(connection: socket.socket) -> None:
        assert read_request(connection)
        for part in parts:
            connection.sendall(part)

    return script


def test_a_request_is_written_as_http_says(send: Send) -> None:
    seen: list[bytes] = []

    def script(connection: socket.socket) -> None:
        seen.append(read_request(connection))
        connection.sendall(OK)

    with listening(script) as url:
        transport = HttpTransport(f"{url}/base/", "secret")
        response = send(transport, posted(b'{"name": "x"}', path="/api/tasks?a=1"))
        transport.close()

    head, _, body = seen[0].partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert response.status == 200
    assert response.body == b"{}"
    assert lines[0] == b"POST /base/api/tasks?a=1 HTTP/1.1"
    assert b"authorization: Bearer secret" in lines
    assert b"content-length: 13" in lines
    assert body == b'{"name": "x"}'


def test_a_response_may_come_in_pieces_and_chunks(send: Send) -> None:
    script = answer(
        b"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\ntransfer-",
        b"encoding: chunked\r\n\r\n3\r\n{",
        b'"a\r\n4\r\n": 1\r\n1\r\n}\r\n0\r\n\r\n',
    )
    with listening(script) as url:
        transport = HttpTransport(url)
        response = send(transport, GET)
        transport.close()

    assert response.status == 503
    assert response.body == b'{"a": 1}'
    assert response.headers["retry-after"] == "7"


def test_a_response_without_a_length_ends_with_its_connection(send: Send) -> None:
    with listening(answer(b"HTTP/1.0 200 OK\r\nserver: old\r\n\r\n{}")) as url:
        response = send(HttpTransport(url), GET)

    assert response.body == b"{}"


def test_nobody_there_means_not_sent(send: Send) -> None:
    url = free_url()

    with pytest.raises(NotSent, match=url):
        send(HttpTransport(url), posted(b"{}"))


@pytest.mark.parametrize("part", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{"])
def test_a_connection_that_breaks_leaves_the_outcome_unknown(send: Send, part: bytes) -> None:
    with (
        listening(answer(part)) as url,
        pytest.raises(Unavailable, match=f"{url} broke.*unknown") as caught,
    ):
        send(HttpTransport(url), posted(b"{}"))

    assert not isinstance(caught.value, NotSent)


def test_an_answer_that_does_not_come_is_not_waited_for_longer_than_asked(send: Send) -> None:
    given_up = threading.Event()

    def script(connection: socket.socket) -> None:
        assert read_request(connection)
        given_up.wait(30)

    with listening(script) as url:
        with pytest.raises(Unavailable, match=r"did not answer within 0.05 s"):
            send(HttpTransport(url), replace(GET, timeout_s=0.05))
        given_up.set()


def test_what_does_not_speak_http_is_told_from_what_does(send: Send) -> None:
    with (
        listening(answer(b"SSH-2.0-OpenSSH\r\n\r\n")) as url,
        pytest.raises(Unavailable, match="the answer is not HTTP"),
    ):
        send(HttpTransport(url), GET)


def two_requests(connection: socket.socket) -> None:
    for _ in range(2):
        assert read_request(connection)
        connection.sendall(OK)


def test_connections_are_kept_for_the_next_request() -> None:
    with listening(two_requests) as url:
        transport = HttpTransport(url)
        assert transport.send(GET).status == 200
        assert transport.send(GET).status == 200
        transport.close()


async def test_connections_of_a_loop_are_kept_for_the_next_request() -> None:
    with listening(two_requests) as url:
        transport = HttpTransport(url)
        assert (await transport.asend(GET)).status == 200
        assert (await transport.asend(GET)).status == 200
        transport.close()
        await asyncio.sleep(0)


def closing(said_goodbye: threading.Event) -> Callable[[socket.socket], None]:
    def script(connection: socket.socket) -> None:
        assert read_request(connection)
        connection.sendall(OK)
        connection.shutdown(socket.SHUT_RDWR)
        connection.close()
        said_goodbye.set()

    return script


def test_a_connection_the_server_has_closed_is_not_used_again() -> None:
    said_goodbye = threading.Event()
    with listening(closing(said_goodbye), answer(OK)) as url:
        transport = HttpTransport(url)
        transport.send(GET)
        assert said_goodbye.wait(30)

        assert transport.send(posted(b"{}")).status == 200
        transport.close()


async def test_a_request_that_is_given_up_does_not_spoil_the_next() -> None:
    asked, given_up = threading.Event(), threading.Event()

    def never(connection: socket.socket) -> None:
        assert read_request(connection)
        asked.set()
        assert given_up.wait(30)

    with listening(never, answer(OK)) as url:
        transport = HttpTransport(url)
        waiting = asyncio.create_task(transport.asend(GET))
        await asyncio.to_thread(asked.wait, 30)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        given_up.set()

        assert (await transport.asend(GET)).status == 200
        transport.close()
        await asyncio.sleep(0)


def test_threads_have_a_connection_each() -> None:
    barrier = threading.Barrier(2, timeout=30)

    def script(connection: socket.socket) -> None:
        assert read_request(connection)
        connection.sendall(OK)

    def parallel(connection: socket.socket) -> None:
        script(connection)

    with listening(parallel, parallel) as url:
        transport = HttpTransport(url)
        statuses: list[int] = []

        def work() -> None:
            barrier.wait()
            statuses.append(transport.send(GET).status)

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        transport.close()

    assert statuses == [200, 200]


@pytest.mark.parametrize(
    "url",
    ["http://", "http://host:port", "http://u:p@host", "http://host/?a=1", "http://h:99999"],
)
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(Invalid):
        HttpTransport(url)


def test_a_token_that_would_break_the_request_is_refused() -> None:
    with pytest.raises(Invalid, match="token"):
        HttpTransport("http://127.0.0.1:1", "a\r\nx-evil: 1")


def test_loops_that_have_ended_are_let_go_of() -> None:
    with listening(*[answer(OK)] * 5) as url:
        transport = HttpTransport(url)
        for _ in range(5):
            asyncio.run(transport.asend(GET))

        assert len(transport._loop_pools) == 1
        transport.close()
