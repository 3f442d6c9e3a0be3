"""Whatever comes in, the loop comes round."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rota.cli import process
from rota.gateways.http.server import scheduling
from rota.gateways.http.server.scheduling import (
    CROWDED_DIRECTLY,
    READ_DIRECTLY,
    READ_PER_ROUND,
    ReadQueue,
)
from tests.gateways.serving import Api, served

PIECES = READ_DIRECTLY + 5 * READ_PER_ROUND

Run = Callable[[Coroutine[Any, Any, None]], None]


def take(turns: ReadQueue, take_up: Callable[[bytes], object], data: bytes) -> None:
    """As a connection does with what has come in."""
    if turns.has_turn():
        take_up(data)
    else:
        turns.put(take_up, data)


async def rounds_until(condition: Callable[[], bool]) -> int:
    """In how many rounds of the loop something comes true."""
    rounds = 0
    async with asyncio.timeout(30):
        while not condition():
            rounds += 1
            await asyncio.sleep(0)
    return rounds


async def test_the_first_pieces_are_taken_up_at_once_and_the_others_in_order() -> None:
    turns, taken = ReadQueue(asyncio.get_running_loop()), list[bytes]()
    sent = [b"%d" % number for number in range(PIECES)]

    for data in sent:
        take(turns, taken.append, data)
    at_once = len(taken)
    await rounds_until(lambda: len(taken) == PIECES)

    assert at_once == READ_DIRECTLY
    assert taken == sent


async def test_what_is_under_way_goes_on_between_the_pieces() -> None:
    turns, taken = ReadQueue(asyncio.get_running_loop()), list[bytes]()

    for _ in range(PIECES):
        take(turns, taken.append, b"")
    rounds = await rounds_until(lambda: len(taken) == PIECES)

    assert rounds >= 5


async def test_while_crowded_new_input_passes_the_queue_within_its_own_limit() -> None:
    crowded, taken = [False], list[bytes]()
    turns = ReadQueue(asyncio.get_running_loop(), lambda: crowded[0])
    for _ in range(READ_DIRECTLY + 1):
        take(turns, taken.append, b"waits")
    crowded[0] = True

    for _ in range(CROWDED_DIRECTLY + 1):
        take(turns, taken.append, b"refused")
    at_once = taken.count(b"refused")
    await rounds_until(lambda: len(taken) == READ_DIRECTLY + CROWDED_DIRECTLY + 2)

    assert at_once == CROWDED_DIRECTLY


async def test_a_lone_caller_never_stands_in_line_for_long() -> None:
    turns, taken = ReadQueue(asyncio.get_running_loop()), list[bytes]()

    for number in range(10 * READ_DIRECTLY):
        take(turns, taken.append, b"")
        assert await rounds_until(partial(_has, taken, number + 1)) <= 1


def _has(taken: list[bytes], count: int) -> bool:
    return len(taken) == count


async def test_a_piece_that_breaks_does_not_hold_up_the_others() -> None:
    loop = asyncio.get_running_loop()
    turns, taken = ReadQueue(loop), list[bytes]()
    broken: list[Any] = []
    loop.set_exception_handler(lambda _, context: broken.append(context["exception"]))

    for _ in range(READ_DIRECTLY):
        take(turns, taken.append, b"")
    take(turns, lambda _: taken[-1:].index(b"absent"), b"")
    take(turns, taken.append, b"last")
    await rounds_until(lambda: taken[-1] == b"last")
    loop.set_exception_handler(None)

    assert [type(error) for error in broken] == [ValueError]


class Answering(asyncio.Protocol):
    """Answers each piece at once, as a refusal does."""

    def __init__(self, turns: ReadQueue) -> None:
        self._turns = turns

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        take(self._turns, self._transport.write, data)


@pytest.mark.parametrize("run", [process.run, asyncio.run])
def test_pieces_of_many_connections_are_answered(run: Run) -> None:
    async def main() -> None:
        turns = ReadQueue(asyncio.get_running_loop())
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Answering(turns), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(200)]
        for number, (_, writer) in enumerate(streams):
            writer.write(b"%d\n" % number)

        answers = [await asyncio.wait_for(reader.readline(), 30) for reader, _ in streams]

        for _, writer in streams:
            writer.close()
        server.close()
        assert answers == [b"%d\n" % number for number in range(200)]

    run(main())


BODY = b'{"name": "work", "payload": "%b"}' % (b"x" * 200_000)
REQUEST = b"POST /api/tasks HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n%b" % (
    len(BODY),
    BODY,
)


async def test_a_connection_with_a_piece_in_line_is_not_read_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(tmp_path) as api:
        turns = turns_of(api)
        monkeypatch.setattr(turns, "_direct_left", 0)
        monkeypatch.setattr(turns, "_run_round", lambda: None)  # its turn never comes
        url = api.client.base_url
        _, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(20 * REQUEST)
        await rounds_until(lambda: len(turns._waiting) > 0)
        for _ in range(200):
            await asyncio.sleep(0)

        waiting = len(turns._waiting)
        monkeypatch.undo()
        turns._run_round()
        writer.transport.abort()
        await rounds_until(lambda: not connections_of(api))

    assert waiting == 1


async def test_requests_whose_every_piece_waits_its_turn_are_all_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling, "READ_DIRECTLY", 0)
    monkeypatch.setattr(scheduling, "READ_PER_ROUND", 1)
    async with served(tmp_path) as api:
        turns_of(api)._direct_left = 0
        url = api.client.base_url
        streams = [
            await asyncio.open_connection(url.host, url.port, limit=2**24) for _ in range(10)
        ]
        for _, writer in streams:
            writer.write(3 * REQUEST)
        answers: list[bytes] = []
        async with asyncio.timeout(60):
            for reader, writer in streams:
                answers += [await reader.readuntil(b"HTTP/1.1 201") for _ in range(3)]
                writer.close()
        await rounds_until(lambda: not connections_of(api))

    assert len(answers) == 30


def connections_of(api: Api) -> list[Any]:
    server = api.node._server
    assert server is not None
    return list(server.open.connections)


def turns_of(api: Api) -> ReadQueue:
    server = api.node._server
    assert server is not None
    return server.turns
