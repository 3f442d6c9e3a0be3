"""Clients of the ZeroMQ gateway, on real sockets: they say and hear what they are told to."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import zmq
import zmq.asyncio

from rota.core.shards.commands import SweepServices
from rota.engine.metrics.metrics import WireMetrics
from tests.gateways.serving import Api, served

Json = Any

SERVICE = "my-service"
COUNT = 100
EVERYTHING = list(range(COUNT))
TIMEOUT_S = 20.0  # for what is expected to happen; reached only by a failing test
STEP_MS = 500  # time in larger steps would be a pause of the coordinator


def register(worker_id: str, *, count: int = COUNT, service: str = SERVICE, **more: Any) -> bytes:
    data = {"serviceName": service, "workerId": worker_id, "maxShardCount": count, **more}
    return written("register", data)


def heartbeat(
    worker_id: str,
    shards: Sequence[int],
    *,
    count: int = COUNT,
    service: str = SERVICE,
    **more: Any,
) -> bytes:
    data = {
        "serviceName": service,
        "workerId": worker_id,
        "maxShardCount": count,
        "assignedShards": list(shards),
        **more,
    }
    return written("heartbeat", data)


def leave(worker_id: str, *, service: str = SERVICE, **more: Any) -> bytes:
    return written("leave", {"serviceName": service, "workerId": worker_id, **more})


def written(kind: str, data: Json) -> bytes:
    """As JSON.stringify writes it."""
    return json.dumps({"type": kind, "data": data}, separators=(",", ":")).encode()


def assigned(shards: Sequence[int]) -> bytes:
    """All that a client of the old protocol is ever told, to the letter."""
    return written("assignment", {"assignedShards": list(shards)})


class Dealer:
    def __init__(self, socket: zmq.asyncio.Socket) -> None:
        self.socket = socket

    async def say(self, *frames: bytes) -> None:
        await self.socket.send_multipart(frames)

    async def hear(self) -> bytes:
        async with asyncio.timeout(TIMEOUT_S):
            (body,) = await self.socket.recv_multipart()
        return bytes(body)

    async def ask(self, *frames: bytes) -> bytes:
        await self.say(*frames)
        return await self.hear()

    async def told(self, body: bytes) -> Json:
        """What the answer assigns."""
        answer = json.loads(await self.ask(body))
        assert answer["type"] == "assignment", answer
        return answer["data"]


class Gateway:
    """A served coordinator, seen from the ZeroMQ side."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.context = zmq.asyncio.Context()
        self._sockets: list[zmq.asyncio.Socket] = []

    @property
    def url(self) -> str:
        assert self.api.node.shards_url is not None
        return self.api.node.shards_url

    @property
    def metrics(self) -> WireMetrics:
        return self.api.node.coordinator.metrics().wire

    def connect(self, **options: Any) -> Dealer:
        dealer = self.dealer(**options)
        dealer.socket.connect(self.url)
        return dealer

    def dealer(self, **options: Any) -> Dealer:
        """One that is not connected yet."""
        socket = self.context.socket(zmq.DEALER)
        self._sockets.append(socket)
        socket.linger = 0
        for name, value in options.items():
            setattr(socket, name, value)
        return Dealer(socket)

    async def pass_time(self, by_ms: int) -> None:
        """Let time pass, in steps that are no pause of ours, and services see it."""
        for _ in range(0, by_ms, STEP_MS):
            await self.api.turn_clock(STEP_MS)
            await self.api.node.coordinator.execute(SweepServices())

    async def owned(self, service: str = SERVICE) -> dict[str, list[int]]:
        found = await self.api.node.coordinator.queries.services.by_name(service)
        assert found is not None
        return {member.worker_id: list(member.shards) for member in found.members}

    async def until_members_are(self, *worker_ids: str) -> None:
        """Wait for what is not answered: a register that has to wait, a leave."""
        async with asyncio.timeout(TIMEOUT_S):
            while set(await self.owned()) != set(worker_ids):
                pass

    async def until(self, figure: str, value: int, *, of: str | None = None) -> None:
        """Wait until a figure has come to a value."""
        async with asyncio.timeout(TIMEOUT_S):
            while self._figure(figure, of) < value:  # noqa: ASYNC110 - figures have no event
                await asyncio.sleep(0)

    async def until_connections_are(self, count: int) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while self.metrics.connections != count:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0)

    def _figure(self, figure: str, of: str | None) -> int:
        value = getattr(self.metrics, figure)
        return int(value if of is None else value[of])

    def close(self) -> None:
        for socket in self._sockets:
            socket.close()
        # Whatever a test that broke off has left open would otherwise be waited for, for ever.
        self.context.destroy(linger=0)


@asynccontextmanager
async def opened(folder: Path, **settings: Any) -> AsyncIterator[Gateway]:
    """A coordinator whose clock stands still, with a ZeroMQ gateway on a free port."""
    async with served(folder, **settings) as api:
        gateway = Gateway(api)
        try:
            yield gateway
        finally:
            gateway.close()
