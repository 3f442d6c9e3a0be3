import asyncio
from typing import Any, cast

import pytest

from rota.core.access import LOCAL
from rota.gateways.http.app import ENDPOINTS
from rota.gateways.http.bodies import ClientGone
from rota.gateways.http.endpoint import Call, Service
from rota.gateways.http.serving import Table


class Line:
    """A caller that stays until told to hang up."""

    def __init__(self) -> None:
        self.hung_up = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.hung_up.wait()
        return {"type": "http.disconnect"}

    def call(self) -> Call[None, None]:
        return Call(cast("Service", None), LOCAL, "", None, None, self.receive)


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


async def test_an_error_in_the_work_is_the_callers_to_hear() -> None:
    async def work() -> None:
        raise LookupError

    with pytest.raises(LookupError):
        await Line().call().while_connected(work())


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/tasks", ("/api/tasks", "")),
        ("/api/tasks/cancel", ("/api/tasks/cancel", "")),
        ("/api/tasks/abc", ("/api/tasks/{task_id}", "abc")),
        ("/api/tasks/abc/cancel", ("/api/tasks/{task_id}/cancel", "abc")),
        ("/api/workers/a%2Fb%20c/lease", ("/api/workers/{worker_id}/lease", "a/b c")),
        ("/api/workflows/validate", ("/api/workflows/validate", "")),
        ("/api/workflows/a/versions/", None),
        ("/api/workflows/a/versions/1/2", None),
        ("/health", ("/health", "")),
        ("/", None),
        ("", None),
        ("/api", None),
        ("/api/tasks/", None),
        ("/api/tasks//cancel", None),
        ("/api/tasks/{}", ("/api/tasks/{task_id}", "{}")),
        ("/api/tasks/a/b/c", None),
        ("/api/tasks/a/cancel/", None),
    ],
)
def test_a_path_means_one_endpoint_or_none(path: str, expected: tuple[str, str] | None) -> None:
    found = Table(ENDPOINTS).find(path)
    meant = found and ({one.path for one in found[0].values()}, found[1])

    assert meant == (expected and ({expected[0]}, expected[1]))


def test_a_path_may_have_two_parameters() -> None:
    found = Table(ENDPOINTS).find("/api/runs/abc/artifacts/a%2Fb.txt")

    assert found is not None
    assert (found.parameter, found.second) == ("abc", "a/b.txt")
    assert found.methods.keys() == {"PUT", "GET"}
