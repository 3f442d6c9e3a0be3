"""Members of a service for the engine's tests: what they are told, and what they say."""

import asyncio
from collections.abc import Sequence
from typing import Any

from rota.core.replies import Done
from rota.core.shards.commands import BeatMember, LeaveMember, RegisterMember, SweepServices
from rota.core.shards.members import PROTOCOL, Assignment
from rota.engine.queries.services import ServiceStatus
from rota.engine.topics import Assignments
from tests.engine.running import Engine

SERVICE = "feed"
BEAT_S = 5.0
EVERYTHING = tuple(range(10))


class Peer:
    """A member of protocol 2 that believes the newest generation it was told."""

    def __init__(
        self, engine: Engine, worker_id: str, *, count: int = 10, incarnation: str = "1"
    ) -> None:
        self.engine = engine
        self.worker_id = worker_id
        self.count = count
        self.incarnation = incarnation
        self.seq = 0
        self.told: Assignment | None = None
        self.pushes: list[Assignment] = []
        self.unsubscribe = engine.coordinator.subscribe(Assignments(self._pushed))
        self._is_asked = asyncio.Event()

    @property
    def holds(self) -> tuple[int, ...]:
        return () if self.told is None else self.told.shards

    async def register(self, **changes: Any) -> Assignment:
        event = RegisterMember(
            **{
                "service": SERVICE,
                "worker_id": self.worker_id,
                "shard_count": self.count,
                "protocol": PROTOCOL,
                "incarnation": self.incarnation,
                **changes,
            }
        )
        return self._answered(await self.engine.coordinator.execute(event))

    async def beat(self, **changes: Any) -> Assignment:
        return self._answered(await self.engine.coordinator.execute(self.said(**changes)))

    def said(self, **changes: Any) -> BeatMember:
        """Its next beat."""
        self.seq += 1
        fields = {
            "service": SERVICE,
            "worker_id": self.worker_id,
            "shard_count": self.count,
            "protocol": PROTOCOL,
            "incarnation": self.incarnation,
            "holds": self.holds,
            "generation": None if self.told is None else self.told.generation,
            "seq": self.seq,
        }
        return BeatMember(**{**fields, **changes})

    async def leave(self) -> None:
        answer = await self.engine.coordinator.execute(
            LeaveMember(service=SERVICE, worker_id=self.worker_id, incarnation=self.incarnation)
        )
        assert answer == Done()

    async def live(self) -> None:
        """Beat on time, and at once when something is to be given up."""
        while True:
            await self.beat()
            self._is_asked.clear()
            try:
                async with asyncio.timeout(BEAT_S):
                    await self._is_asked.wait()
            except TimeoutError:
                pass

    def _answered(self, answer: Assignment | None) -> Assignment:
        assert answer is not None
        assert answer.worker_id == self.worker_id
        self._take(answer)
        return answer

    def _pushed(self, pushes: Sequence[Assignment]) -> None:
        for one in pushes:
            if (one.service, one.worker_id) == (SERVICE, self.worker_id):
                self.pushes.append(one)
                self._take(one)
                if one.revoking:
                    self._is_asked.set()

    def _take(self, told: Assignment) -> None:
        if told.status == "ok" and (self.told is None or told.generation >= self.told.generation):
            self.told = told


async def two(engine: Engine) -> tuple[Peer, Peer]:
    """Two members that share ten shards."""
    one, other = Peer(engine, "a"), Peer(engine, "b")
    await one.register()
    await other.register()
    await settled(engine, one, other)
    return one, other


async def sweep(engine: Engine, by_ms: int = 0) -> None:
    """Let time pass, in steps that are no pause of ours, and services see it."""
    while True:
        step_ms = min(by_ms, 500)
        engine.clock.turn(step_ms)
        await engine.coordinator.execute(SweepServices())
        by_ms -= step_ms
        if by_ms <= 0:
            return


async def settled(engine: Engine, *peers: Peer) -> None:
    """Let everything due happen, and all that is to be given up be given up."""
    await sweep(engine, 2_500)
    for _ in range(3):
        for peer in peers:
            await peer.beat()


async def service(engine: Engine, name: str = SERVICE) -> ServiceStatus:
    found = await engine.coordinator.queries.services.by_name(name)
    assert found is not None
    return found


async def owned(engine: Engine) -> dict[str, tuple[int, ...]]:
    """Who owns what, as it is committed."""
    return {one.worker_id: one.shards for one in (await service(engine)).members}
