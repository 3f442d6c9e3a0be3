"""Calls are carried out, repeated only where that is safe, and refused with the right error."""

import socket

import msgspec
import pytest

from rota import errors
from rota.core.tasks.model import NewTask
from rota.errors import Overloaded, RotaError, TaskNotFound, Unavailable
from rota.sdk.client import calls
from rota.sdk.client.client import MOST_RETRY_AFTER_S, Client
from rota.sdk.client.problems import error_of
from rota.sdk.client.requests import ASK_AGAIN_AFTER_S, Wait
from rota.sdk.transport.transport import NotSent, Response, TransportRequest, drive
from tests.sdk.listening import free_url, listening, read_request

QUEUES = b'{"items": [], "next_cursor": null}'


def ok(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


def broken(connection: socket.socket) -> None:
    assert read_request(connection)


def good(connection: socket.socket) -> None:
    assert read_request(connection)
    connection.sendall(ok(QUEUES))


def impatient(url: str) -> Client:
    return Client(Client.connect(url).transport, repeat_after_s=(0.0, 0.0))


def test_a_safe_call_is_repeated_when_its_answer_is_lost() -> None:
    with listening(broken, broken, good) as url, impatient(url) as client:
        assert client.run(calls.list_queues()).items == []


async def test_a_safe_call_is_repeated_on_a_loop_as_well() -> None:
    with listening(broken, good) as url, impatient(url) as client:
        assert (await client.arun(calls.list_queues())).items == []


def test_a_submission_without_a_key_is_not_repeated_when_its_answer_is_lost() -> None:
    with (
        listening(broken) as url,
        impatient(url) as client,
        pytest.raises(Unavailable, match="unknown"),
    ):
        client.run(calls.submit([NewTask(name="work")]))


def test_a_submission_with_keys_is_repeated() -> None:
    assert calls.submit([NewTask(name="work", key="k")]).is_repeatable
    assert not calls.submit([NewTask(name="work", key="k"), NewTask(name="x")]).is_repeatable


def test_nobody_there_is_told_after_a_few_tries() -> None:
    with impatient(free_url()) as client, pytest.raises(NotSent):
        client.run(calls.submit([NewTask(name="work")]))


def test_an_answer_that_is_no_answer_is_told_with_its_place() -> None:
    def odd(connection: socket.socket) -> None:
        assert read_request(connection)
        connection.sendall(ok(b"<html>"))

    with (
        listening(odd, odd, odd) as url,
        impatient(url) as client,
        pytest.raises(Unavailable, match="GET /api/queues cannot be read"),
    ):
        client.run(calls.list_queues())


def problem(status: int, body: object, **headers: str) -> RotaError:
    return error_of(Response(status, msgspec.json.encode(body), headers), "http://here")


def test_a_refusal_becomes_the_error_of_its_code_with_its_facts() -> None:
    error = problem(404, {"code": "task_not_found", "detail": "task 'x' not found", "task_id": "x"})

    assert type(error) is TaskNotFound
    assert error.detail == "task 'x' not found"
    assert error.facts == {"task_id": "x"}


def test_every_error_that_can_be_answered_comes_back_as_itself() -> None:
    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, RotaError) and kind is not RotaError
    ]

    for kind in kinds:
        assert type(problem(kind.status, {"code": kind.code, "detail": "x"})) is kind


def test_an_overload_says_when_to_come_back() -> None:
    error = problem(503, {"code": "overloaded", "detail": "full"}, **{"retry-after": "9"})

    assert isinstance(error, Overloaded)
    assert error.retry_after_s == 9


def pauses_of(*responses: Response, has_several: bool = False) -> list[float]:
    """The pauses of a call that gets these responses, one after the other."""
    client = Client(FakeTransport(has_several=has_several), repeat_after_s=(0.0,) * len(responses))
    answers, pauses = iter(responses), list[float]()
    drive(client._send(calls.list_queues()), lambda _: next(answers), pause=pauses.append)
    return pauses


class FakeTransport:
    address = "http://here"
    is_embedded = False

    def __init__(self, *, has_several: bool) -> None:
        self.has_several = has_several

    def send(self, request: TransportRequest) -> Response:
        raise NotImplementedError

    async def asend(self, request: TransportRequest) -> Response:
        raise NotImplementedError

    def close(self) -> None: ...


def away(retry_after: str) -> Response:
    return Response(503, b'{"code": "unavailable", "detail": "x"}', {"retry-after": retry_after})


def test_a_repeated_call_waits_as_long_as_the_coordinator_asks_for() -> None:
    assert pauses_of(away("2"), away("3"), Response(200, QUEUES, {})) == [2.0, 3.0]


def test_a_repeated_call_never_waits_longer_than_its_limit() -> None:
    assert pauses_of(away("86400"), Response(200, QUEUES, {})) == [MOST_RETRY_AFTER_S]


def test_a_call_to_another_coordinator_does_not_wait() -> None:
    assert pauses_of(away("2"), Response(200, QUEUES, {}), has_several=True) == [0.0]


def test_a_caller_that_waits_for_a_result_stays_away_as_long_as_it_is_asked_to() -> None:
    wait = Wait("a task", timeout=60.0)

    assert wait.pause_s(problem(503, {"code": "unavailable"}, **{"retry-after": "9"})) == 9.0
    assert wait.pause_s(problem(429, {"code": "too_many"}, **{"retry-after": "2"})) == 2.0
    assert wait.pause_s(NotSent("cannot be reached", retry_after_s=0)) == ASK_AGAIN_AFTER_S


@pytest.mark.parametrize(
    ("status", "kind"), [(502, "unavailable"), (401, "unauthorized"), (418, "error")]
)
def test_a_refusal_by_something_else_is_known_by_its_status(status: int, kind: str) -> None:
    error = error_of(Response(status, b"<html>Bad gateway", {}), "http://here")

    assert error.code == kind
    assert f"http://here answered {status}: <html>Bad gateway" in error.detail


def test_names_in_paths_are_quoted() -> None:
    assert calls.pause_queue("a/b c").path == "/api/queues/a%2Fb%20c/pause"
    assert calls.list_workers(capabilities=["x", "y"], rank=True).path == (
        "/api/workers?capability=x&capability=y&rank=true"
    )
