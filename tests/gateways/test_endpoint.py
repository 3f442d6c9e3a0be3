import asyncio
from typing import Any, cast

import pytest

from rota.core.access import LOCAL, Action
from rota.gateways.http.endpoints import ENDPOINTS
from rota.gateways.http.routing.bodies import ClientGone
from rota.gateways.http.routing.endpoint import HttpCall, HttpServices, NoQuery, Routes
from rota.gateways.http.routing.responses import HttpResponse
from rota.gateways.http.routing.router import RouteTable
from rota.messages import LoginRequest, Me


class Line:
    """A caller that stays until told to hang up."""

    def __init__(self) -> None:
        self.hung_up = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.hung_up.wait()
        return {"type": "http.disconnect"}

    def call(self) -> HttpCall[None, None]:
        return HttpCall(cast("HttpServices", None), LOCAL, {}, None, None, self.receive)


async def test_work_is_waited_for_while_the_caller_is_there() -> None:
    async def work() -> int:
        return 7

    assert await Line().call().while_connected(work()) == 7


async def test_work_is_cancelled_when_the_caller_hangs_up() -> None:
    line, is_cancelled = Line(), asyncio.Event()

    async def work() -> None:
        line.hung_up.set()
        try:
            await asyncio.Event().wait()
        finally:
            is_cancelled.set()

    with pytest.raises(ClientGone):
        await line.call().while_connected(work())
    assert is_cancelled.is_set()


async def test_what_was_done_for_a_caller_that_is_gone_is_undone() -> None:
    line, undone = Line(), []

    async def work() -> str:
        line.hung_up.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "granted"  # it was done before it could be stopped
        raise AssertionError

    async def undo(outcome: str) -> None:
        undone.append(outcome)

    with pytest.raises(ClientGone):
        await line.call().while_connected(work(), undo=undo)
    assert undone == ["granted"]


async def test_an_error_of_work_that_was_cut_off_is_not_the_callers_to_hear() -> None:
    line = Line()

    async def work() -> None:
        line.hung_up.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise LookupError

    with pytest.raises(ClientGone):
        await line.call().while_connected(work())


async def test_a_handler_that_is_cancelled_cancels_the_work() -> None:
    begun, is_cancelled = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            is_cancelled.set()

    handler = asyncio.ensure_future(Line().call().while_connected(work()))
    await begun.wait()
    handler.cancel()

    with pytest.raises(asyncio.CancelledError):
        await handler
    assert is_cancelled.is_set()


async def test_an_error_in_the_work_is_the_callers_to_hear() -> None:
    async def work() -> None:
        raise LookupError

    with pytest.raises(LookupError):
        await Line().call().while_connected(work())


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/tasks", ("/api/tasks", {})),
        ("/api/tasks/cancel", ("/api/tasks/cancel", {})),
        ("/api/tasks/abc", ("/api/tasks/{task_id}", {"task_id": "abc"})),
        ("/api/tasks/abc/cancel", ("/api/tasks/{task_id}/cancel", {"task_id": "abc"})),
        (
            "/api/workers/a%2Fb%20c/lease",
            ("/api/workers/{worker_id}/lease", {"worker_id": "a/b c"}),
        ),
        ("/api/workflows/validate", ("/api/workflows/validate", {})),
        ("/api/workflows/a/versions/", None),
        ("/api/workflows/a/versions/1/2", None),
        ("/health", ("/health", {})),
        ("/", None),
        ("", None),
        ("/api", None),
        ("/api/tasks/", None),
        ("/api/tasks//cancel", None),
        ("/api/tasks/{}", ("/api/tasks/{task_id}", {"task_id": "{}"})),
        ("/api/tasks/a/b/c", None),
        ("/api/tasks/a/cancel/", None),
    ],
)
def test_a_path_means_one_endpoint_or_none(
    path: str, expected: tuple[str, dict[str, str]] | None
) -> None:
    found = RouteTable(ENDPOINTS).find(path)
    meant = found and ({one.path for one in found[0].values()}, found[1])

    assert meant == (expected and ({expected[0]}, expected[1]))


def test_the_activity_of_runs_is_no_run() -> None:
    found = RouteTable(ENDPOINTS).find("/api/runs/activity")

    assert found is not None
    assert found.path == {}
    assert found.methods["GET"].path == "/api/runs/activity"


def test_an_alias_is_the_same_endpoint_and_deprecated() -> None:
    old, new = (
        next(one for one in ENDPOINTS if one.path == path)
        for path in ("/api/standings", "/api/runs/activity")
    )

    assert old.handler is new.handler
    assert (old.is_deprecated, new.is_deprecated) == (True, False)


def test_an_endpoint_is_read_off_the_signature_and_docstring_of_its_handler() -> None:
    routes = Routes("Notes")

    @routes.put("/api/notes/{note_id}", Action.OPERATE, status=201)
    async def keep(call: HttpCall[LoginRequest | None, NoQuery]) -> Me | HttpResponse:
        """Keep a note.

        It is kept
        until it is deleted.
        """
        raise NotImplementedError(call)

    (endpoint,) = routes.endpoints

    assert (endpoint.method, endpoint.path, endpoint.parameters) == (
        "PUT",
        "/api/notes/{note_id}",
        ("note_id",),
    )
    assert (endpoint.summary, endpoint.description) == (
        "Keep a note",
        "It is kept until it is deleted.",
    )
    assert (endpoint.body, endpoint.is_body_needed) == (LoginRequest, False)
    assert (endpoint.query, endpoint.answer, endpoint.status) == (NoQuery, Me, 201)


def test_a_path_with_two_names_for_one_parameter_is_refused() -> None:
    routes = Routes("Notes")

    @routes.get("/api/notes/{note_id}", Action.READ)
    async def show(call: HttpCall[None, NoQuery]) -> Me:
        raise NotImplementedError(call)

    @routes.delete("/api/notes/{name}", Action.READ)
    async def delete(call: HttpCall[None, NoQuery]) -> Me:
        raise NotImplementedError(call)

    with pytest.raises(AssertionError, match="two names"):
        RouteTable(routes.endpoints)


def test_a_path_may_have_two_parameters() -> None:
    found = RouteTable(ENDPOINTS).find("/api/runs/abc/artifacts/a%2Fb.txt")

    assert found is not None
    assert found.path == {"run_id": "abc", "artifact": "a/b.txt"}
    assert found.methods.keys() == {"PUT", "GET"}
