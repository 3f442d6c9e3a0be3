"""A peer at a socket, and the few things tests say to a coordinator over and over."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol

import msgspec
from websockets.asyncio.client import connect

from tests.gateways.serving import Api

Json = Any
PATIENCE_S = 20.0
MAIN = "coordinator:main"


def address_of(api: Api, session: str | None = None) -> str:
    url = str(api.client.base_url).replace("http", "ws", 1).rstrip("/")
    return f"{url}/ws" if session is None else f"{url}/ws?session={session}"


def golden(frame: Json) -> Json:
    """A frame without what is new each time; that it is there, is checked."""
    left = dict(frame)
    assert isinstance(left.pop("id"), str)
    assert isinstance(left.pop("timestamp"), int)
    return left


class Socket(Protocol):
    async def send(self, frame: str | bytes, /) -> None: ...

    async def recv(self) -> str | bytes: ...

    async def close(self) -> Any: ...


class Peer:
    """One socket. Frames that nobody has asked for yet are kept in the order they came."""

    def __init__(self, socket: Socket) -> None:
        self.socket = socket
        self.kept: list[Json] = []
        self.session_id = ""
        self._last_id = 0

    # --- raw ------------------------------------------------------------------------------------

    async def send(self, frame: str | bytes) -> None:
        await self.socket.send(frame)

    async def receive(self) -> Json:
        """The next frame, whatever it is."""
        if self.kept:
            return self.kept.pop(0)
        return await self._receive()

    async def _receive(self) -> Json:
        async with asyncio.timeout(PATIENCE_S):
            frame = await self.socket.recv()
        return json.loads(frame) if isinstance(frame, str) else msgspec.msgpack.decode(frame)

    async def find(self, is_wanted: Callable[[Json], bool]) -> Json:
        """The first frame that is wanted; those before it are kept."""
        for place, frame in enumerate(self.kept):
            if is_wanted(frame):
                return self.kept.pop(place)
        while not is_wanted(frame := await self._receive()):
            self.kept.append(frame)
        return frame

    async def pushed(self, kind: str) -> Json:
        return await self.find(lambda frame: frame["type"] == kind)

    async def quiet(self) -> list[Json]:
        """What has come up to now, when nothing more is on its way."""
        await self.send('{"type": "ping"}')
        await self.pushed("pong")
        kept, self.kept = self.kept, []
        return kept

    # --- envelopes ------------------------------------------------------------------------------

    async def say(self, kind: str, to: str = MAIN, payload: Json = None, **more: Json) -> int:
        self._last_id += 1
        envelope = {"to": to, "type": kind, "id": self._last_id, **more}
        if payload is not None:
            envelope["payload"] = payload
        await self.send(json.dumps(envelope))
        return self._last_id

    async def ask(self, kind: str, to: str = MAIN, payload: Json = None, **more: Json) -> Json:
        """The payload of the reply."""
        return (await self.reply(await self.say(kind, to, payload, **more)))["payload"]

    async def reply(self, message_id: int) -> Json:
        return await self.find(lambda frame: frame.get("replyTo") == message_id)

    # --- what workers and clients do ------------------------------------------------------------

    async def register(self, worker_id: str, to: str = MAIN, **payload: Json) -> Json:
        return await self.ask("register_worker", to, payload or None, **{"from": worker_id})

    async def assign(self, task: Json, to: str = MAIN) -> Json:
        return await self.ask("assign_task", to, task)

    async def complete(self, task_id: str, worker_id: str, to: str = MAIN, **more: Json) -> Json:
        payload = {"taskId": task_id, "workerId": worker_id, **more}
        return await self.ask("task_complete", to, payload)

    async def given(self) -> Json:
        """The next task that is pushed."""
        return await self.pushed("process_task")


@asynccontextmanager
async def peer(api: Api, session: str | None = None, **options: Any) -> AsyncIterator[Peer]:
    """A socket whose session is established."""
    async with connect(address_of(api, session), **options) as socket:
        one = Peer(socket)
        one.session_id = (await one.pushed("SessionEstablished"))["payload"]["sessionId"]
        yield one


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for what can only be seen by looking."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)


async def turn(api: Api, by_ms: int) -> None:
    """Let time pass for the coordinator: the sockets are beaten for, then the duties look."""
    await api.turn_clock(by_ms)
    await api.node.sockets.send_heartbeats()
    await api.node.coordinator.tick()
