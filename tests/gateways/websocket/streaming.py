"""A streaming worker that speaks by hand."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from rota.core import ids
from rota.messages.sessions import MSGPACK
from tests.gateways.serving import Api
from tests.gateways.websocket.talking import MAIN, Json, Peer, address_of

Lease = list[Any]  # task, fence, name, payload, attempt, …


class StreamPeer(Peer):
    """A socket whose frames are packed. It counts the leases it has had."""

    taken = 0

    async def say(self, kind: str, to: str = MAIN, payload: Json = None, **more: Json) -> int:
        self._last_id += 1
        envelope = {"to": to, "type": kind, "id": self._last_id, "payload": payload, **more}
        await self.send(msgspec.msgpack.encode(envelope))
        return self._last_id

    async def open(self, worker_id: str = "w", **registration: Json) -> Json:
        wish = {"worker_id": worker_id, "max_concurrent_tasks": 10, **registration}
        return await self.ask("stream_open", payload=wish)

    async def credit(self, free: int) -> None:
        await self.say("stream_credit", payload={"free": free, "taken": self.taken})

    async def leases(self) -> list[Lease]:
        """The next leases that are pushed."""
        leases: list[Lease] = (await self.pushed("stream_leases"))["payload"]["leases"]
        self.taken += len(leases)
        return leases

    async def report(self, *results: Json, free: int | None = None) -> Json:
        payload: Json = {"results": results}
        if free is not None:
            payload |= {"free": free, "taken": self.taken}
        return await self.ask("stream_results", payload=payload)

    async def beat(self, *running: int) -> Json:
        return await self.ask("stream_beat", payload={"running": running})

    async def quiet(self) -> list[Json]:
        """What has come up to now, when nothing more is on its way."""
        await self.send(msgspec.msgpack.encode({"type": "ping"}))
        await self.pushed("pong")
        kept, self.kept = self.kept, []
        return kept


@asynccontextmanager
async def streaming_peer(api: Api) -> AsyncIterator[StreamPeer]:
    async with connect(
        address_of(api), subprotocols=[Subprotocol(MSGPACK)], compression=None
    ) as socket:
        one = StreamPeer(socket)
        await one.pushed("SessionEstablished")
        yield one


def numbers(*tasks: Json) -> list[int]:
    """Submitted tasks as streams call them."""
    return [number_of(task["id"]) for task in tasks]


def number_of(task_id: str) -> int:
    number = ids.from_text(task_id)
    assert number is not None
    return number
