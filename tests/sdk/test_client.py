"""Calls are carried out, repeated only where that is safe, and refused with the right error."""

import socket

import msgspec
import pytest

from rota import errors
from rota.core.tasks import NewTask
from rota.errors import Overloaded, RotaError, TaskNotFound, Unavailable
from rota.sdk import calls
from rota.sdk.client import Client
from rota.sdk.problems import error_of
from rota.sdk.transport import NotSent, Response
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
