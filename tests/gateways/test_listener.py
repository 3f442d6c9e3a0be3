"""New connections are taken up as they come, however busy the loop is."""

import asyncio
import errno
import socket
import warnings
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from rota.cli import process
from rota.gateways.http.server.server import ACCEPTED_AT_ONCE, Listener

SECONDS = 30
COUNT = ACCEPTED_AT_ONCE // 2

Run = Callable[[Coroutine[Any, Any, None]], None]


class Greeted(asyncio.Protocol):
    """Counts connections, and remembers in how many rounds of the loop they were made."""

    def __init__(self, made: list[asyncio.BaseTransport]) -> None:
        self._made = made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._made.append(transport)


@contextmanager
def listening() -> Iterator[socket.socket]:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as one:
        one.bind(("127.0.0.1", 0))
        one.listen(1_024)
        one.setblocking(False)  # noqa: FBT003 - the socket's own signature
        yield one


async def until(condition: Callable[[], bool]) -> int:
    """Wait for something; in how many rounds of the loop it came."""
    rounds = 0
    async with asyncio.timeout(SECONDS):
        while not condition():
            rounds += 1
            await asyncio.sleep(0)
    return rounds


@pytest.mark.parametrize("run", [process.run, asyncio.run])
def test_all_connections_that_wait_are_taken_in_a_few_rounds(run: Run) -> None:
    async def main() -> None:
        made: list[asyncio.BaseTransport] = []
        with listening() as one:
            callers = [socket.create_connection(one.getsockname()) for _ in range(COUNT)]
            listener = Listener(one, lambda: Greeted(made))

            rounds = await until(lambda: len(made) == COUNT)

            listener.close()
            await listener.wait_closed()
            for transport in made:
                transport.close()
            for caller in callers:
                caller.close()
        assert rounds < COUNT // 4

    run(main())


@pytest.mark.parametrize("run", [process.run, asyncio.run])
def test_a_connection_accepted_as_the_listener_closes_is_closed(run: Run) -> None:
    async def main() -> None:
        with listening() as one, closing(socket.create_connection(one.getsockname())) as caller:
            listener = Listener(one, lambda: Greeted([]))
            listener._accept()

            listener.close()
            await listener.wait_closed()
            caller.settimeout(SECONDS)

            assert await asyncio.to_thread(caller.recv, 1) == b""

    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        run(main())


async def test_a_shortage_of_files_is_waited_out_and_logged_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rota.gateways.http.server.server.SHORTAGE_PAUSE_S", 0.0)
    made: list[asyncio.BaseTransport] = []
    with listening() as one, capture_logs() as log:
        short = ShortOfFiles(one)
        listener = Listener(short, lambda: Greeted(made))  # type: ignore[arg-type]  # stands in
        with closing(socket.create_connection(one.getsockname())):
            await until(lambda: len(made) == 1)
        listener.close()
        made[0].close()
    assert short.refusals == 0
    assert [line["event"] for line in log] == ["connection_not_accepted"]


class ShortOfFiles:
    """A listening socket that first fails as one does when the process has no file left."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self.refusals = 3

    def fileno(self) -> int:
        return self._listening.fileno()

    def accept(self) -> tuple[socket.socket, Any]:
        if self.refusals:
            self.refusals -= 1
            raise OSError(errno.EMFILE, "too many open files")
        return self._listening.accept()
