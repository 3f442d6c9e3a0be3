"""A member of a service that speaks HTTP by hand, and believes what it is told."""

from typing import Any

import httpx

from rota.core.shards.commands import SweepServices
from tests.gateways.serving import Api, Json

SERVICE = "feed"
SERVICES = "/api/services"
FEED = f"{SERVICES}/{SERVICE}"
EVERYTHING = list(range(10))
SWEEP_MS = 500  # time in larger steps would be a pause of the coordinator


class Member:
    def __init__(self, api: Api, worker_id: str, *, incarnation: int = 1, count: int = 10) -> None:
        self.api = api
        self.worker_id = worker_id
        self.incarnation = incarnation
        self.count = count
        self.seq = 0
        self.told: Json = None

    @property
    def path(self) -> str:
        return f"{FEED}/members/{self.worker_id}"

    @property
    def holds(self) -> list[int]:
        held: list[int] = [] if self.told is None else self.told["assignedShards"]
        return held

    def epoch(self, shard: int) -> int:
        return int(self.told["shardEpochs"][self.holds.index(shard)])

    async def register(self, **changes: Any) -> Json:
        body = {
            "workerId": self.worker_id,
            "maxShardCount": self.count,
            "incarnation": self.incarnation,
            **changes,
        }
        return self._answered(await self.api.post(f"{FEED}/members", body))

    async def beat(self, *, wait_ms: int = 0, **changes: Any) -> Json:
        """Say what it was told to hold, and nothing else: what it was asked for is given up."""
        self.seq += 1
        body = {
            "maxShardCount": self.count,
            "assignedShards": self.holds,
            "incarnation": self.incarnation,
            "generation": None if self.told is None else self.told["generation"],
            "seq": self.seq,
            **changes,
        }
        path = f"{self.path}/heartbeat"
        return self._answered(await self.api.post(path, body, params={"wait_ms": wait_ms}))

    async def leave(self, **query: Any) -> httpx.Response:
        return await self.api.delete(self.path, params={"incarnation": self.incarnation, **query})

    def _answered(self, answer: httpx.Response) -> Json:
        assert answer.status_code == 200, answer.text
        told = answer.json()
        if told["status"] == "ok":
            self.told = told
        return told


async def pass_time(api: Api, by_ms: int) -> None:
    """Let time pass for services, in steps that are no pause."""
    for _ in range(0, by_ms, SWEEP_MS):
        await api.turn_clock(SWEEP_MS)
        await api.node.coordinator.execute(SweepServices())


async def two(api: Api) -> tuple[Member, Member]:
    """Members a and b with five of ten shards each."""
    a, b = Member(api, "a"), Member(api, "b")
    await a.register()
    await b.register()
    await pass_time(api, 2_500)
    for member in (a, a, b):
        await member.beat()
    assert (a.holds, b.holds) == ([0, 1, 2, 3, 4], [5, 6, 7, 8, 9])
    return a, b
