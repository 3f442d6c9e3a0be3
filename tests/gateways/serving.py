"""A coordinator that is really served, and the few things tests ask of it over and over."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from rota.node import Node
from rota.settings import Settings
from tests.databases.empty import begin_empty

Json = Any
PATIENCE_S = 30.0  # for what is expected to happen; reached only by a failing test
CERTIFICATES = ssl.create_default_context()  # read once: each client would take 20 ms to


class TurnedClock:
    """Starts at a round number and moves when told."""

    def __init__(self, now_ms: int = 1_800_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def turn(self, by_ms: int) -> None:
        self._now_ms += by_ms


class Api:
    """A client, and the node it speaks to."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        node: Node,
        clock: TurnedClock,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        self.client = client
        self.trust = trust  # what its sockets check certificates with; None: there is no TLS
        self.node = node
        self.clock = clock

    async def get(self, path: str, **options: Any) -> httpx.Response:
        return await self.client.get(path, **options)

    async def post(self, path: str, body: Json = None, **options: Any) -> httpx.Response:
        if body is None:
            return await self.client.post(path, **options)
        return await self.client.post(path, json=body, **options)

    async def delete(self, path: str, **options: Any) -> httpx.Response:
        return await self.client.delete(path, **options)

    async def submit(self, **task: Any) -> Json:
        answer = await self.post("/api/tasks", {"name": "work", **task})
        assert answer.status_code in {200, 201}, answer.text
        return answer.json()

    async def task(self, task_id: str) -> Json:
        return (await self.get(f"/api/tasks/{task_id}")).json()

    async def register(self, worker_id: str = "w1", **options: Any) -> "Worker":
        body = {"worker_id": worker_id, "node_id": "n1", "max_concurrent_tasks": 100, **options}
        answer = await self.post("/api/workers", body)
        assert answer.status_code == 201, answer.text
        return Worker(self, answer.json())

    async def turn_clock(self, by_ms: int) -> None:
        """Turn the clock between two batches.

        What a test has seen is committed, but its batch may not have ended, and duties have batches
        of their own. One during which the clock is turned counts as a pause of the coordinator, and
        members of services are then given more time. Batches begin on this thread: none can begin
        between the look and the turn.
        """
        async with asyncio.timeout(PATIENCE_S):
            while self.node.coordinator.metrics().waiting:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0)
        self.clock.turn(by_ms)

    async def turn(self, by_ms: int) -> None:
        """Let time pass, and the duties see it."""
        await self.turn_clock(by_ms)
        await self.node.coordinator.tick()


class Worker:
    """A registered worker, speaking by hand."""

    def __init__(self, api: Api, answer: Json) -> None:
        self._api = api
        self.answer = answer
        self.id: str = answer["id"]
        self.incarnation: int = answer["incarnation"]

    async def call(self, verb: str, body: Json) -> httpx.Response:
        return await self._api.post(f"/api/workers/{self.id}/{verb}", body)

    async def lease(self, most: int = 100, wait_ms: int = 0) -> list[Json]:
        body = {"incarnation": self.incarnation, "max": most, "wait_ms": wait_ms}
        answer = await self.call("lease", body)
        assert answer.status_code == 200, answer.text
        leases: list[Json] = answer.json()["leases"]
        return leases

    async def report(self, *results: Json) -> httpx.Response:
        return await self.call("results", {"incarnation": self.incarnation, "results": results})

    async def finish(self, lease: Json, result: Json = None) -> str:
        answer = await self.report({**held(lease), "ok": True, "result": result})
        return str(answer.json()["outcomes"][0]["outcome"])

    async def fail(self, lease: Json, error: Json = "broken", **more: Any) -> str:
        answer = await self.report({**held(lease), "ok": False, "error": error, **more})
        return str(answer.json()["outcomes"][0]["outcome"])


def held(lease: Json) -> dict[str, Json]:
    """What every report about a lease begins with."""
    return {"task_id": lease["task_id"], "fence": lease["fence"]}


@asynccontextmanager
async def served(
    folder: Path, trust: ssl.SSLContext = CERTIFICATES, /, **settings: Any
) -> AsyncIterator[Api]:
    """A node on a free port, with a clock that stands still, and a client on a real socket."""
    clock = TurnedClock()
    node = Node(settings_in(folder, **settings), clock=clock)
    url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(node.serve(url.set_result))
    done, _ = await asyncio.wait((url, serving), return_when=asyncio.FIRST_COMPLETED)
    if serving in done:
        await serving
    async with httpx.AsyncClient(base_url=await url, timeout=30, verify=trust) as client:
        yield Api(client, node, clock, trust if client.base_url.scheme == "https" else None)
    node.ask_to_stop()
    await serving


@asynccontextmanager
async def called(folder: Path, **settings: Any) -> AsyncIterator[Api]:
    """The same without a socket, for rules about addresses that tests must not bind."""
    clock = TurnedClock()
    node = Node(settings_in(folder, **settings), clock=clock)
    await node.start()
    transport = httpx.ASGITransport(node.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://rota.example") as client:
        yield Api(client, node, clock)
    await node.stop()


def settings_in(folder: Path, **settings: Any) -> Settings:
    path = folder / "rota.db"
    if "store" not in settings:
        begin_empty(path)
    store = f"sqlite:///{path}"
    return Settings(**{"port": 0, "zmq_port": 0, "store": store, **settings})


async def until(api: Api, metric: str, value: float) -> None:
    """Wait until a figure of the coordinator has this value; each look is a round trip."""
    for _ in range(2_000):
        lines = (await api.get("/metrics")).text.splitlines()
        if f"{metric} {value}" in lines:
            return
    raise AssertionError(f"{metric} never was {value}")
