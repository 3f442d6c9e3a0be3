"""Many clients in one event loop, each with a connection of its own that it keeps."""

import asyncio
import time
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import uvloop

from benchmarks import coordinators
from benchmarks.peers.measuring import percentiles
from benchmarks.processes import Failed
from benchmarks.wire import Answer, retry_after_s, whole_answer

HOST = "127.0.0.1"
WARM_UP_S = 0.5
ANSWER_LIMIT_S = 30.0

Facts = dict[str, Any]
Result = TypeVar("Result")


class ClientConnection(asyncio.Protocol):
    """A keep-alive HTTP connection with one request under way at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._answer: asyncio.Future[Answer] | None = None

    @classmethod
    async def open(cls, port: int) -> "ClientConnection":
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(ANSWER_LIMIT_S):
            _, connection = await loop.create_connection(cls, HOST, port)
        return connection

    async def send(self, written: bytes) -> Answer:
        """Send a prepared request; raises `ConnectionError` when no answer comes."""
        if self._transport is None:
            raise ConnectionError("the connection is closed")
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(written)
        async with asyncio.timeout(ANSWER_LIMIT_S):
            return await self._answer

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        answer = whole_answer(self._received)
        if answer is not None and self._answer is not None and not self._answer.done():
            self._received = b""
            self._answer.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError(str(exc or "closed by the other side")))


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run an event loop that costs as little as one can."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


class _Window(NamedTuple):
    start_s: float
    end_s: float
    taken_ms: list[float]  # by the requests that were answered within it


def submit_alone(ports: Sequence[int], *, clients: int, seconds: float) -> Facts:
    """Each client submits one task after the other; the clients are spread over the ports."""
    return run(_submit_alone(ports, clients, seconds))


async def _submit_alone(ports: Sequence[int], clients: int, seconds: float) -> Facts:
    connections = [
        await ClientConnection.open(ports[number % len(ports)]) for number in range(clients)
    ]
    start_s = time.perf_counter() + WARM_UP_S
    window = _Window(start_s, start_s + seconds, [])
    try:
        async with asyncio.TaskGroup() as group:
            for connection in connections:
                group.create_task(_submit_until_end(connection, window))
    except* (OSError, TimeoutError, Failed) as problems:
        raise Failed(f"a client failed: {problems.exceptions[0]!r}") from problems
    finally:
        for connection in connections:
            connection.close()
    if not window.taken_ms:
        raise Failed(f"no task was submitted within {seconds:.0f} s")
    return {"per_s": len(window.taken_ms) / seconds, **percentiles(window.taken_ms)}


async def _submit_until_end(connection: ClientConnection, window: _Window) -> None:
    submission = coordinators.submission(1)
    while (sent_s := time.perf_counter()) < window.end_s:
        answer = await connection.send(submission)
        answered_s = time.perf_counter()
        if answer.status == 503:
            await asyncio.sleep(retry_after_s(answer.head))
        elif not answer.is_success:
            raise Failed(f"the coordinator answered {answer.status}: {answer.text}")
        elif window.start_s <= answered_s < window.end_s:
            window.taken_ms.append((answered_s - sent_s) * 1000)
