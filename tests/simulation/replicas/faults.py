"""What goes wrong between coordinators, their store and each other, each for a while."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

from rota.errors import Unavailable
from tests.engine.replicas.memory import MemoryEnd
from tests.engine.running import settle
from tests.engine.sharing import Link, Network, Replica, SharedStore, leadership_of, replica
from tests.engine.virtual import LoopClock, let_pass
from tests.simulation.loop import VirtualLoop

CLOCKS_APART_MS = 3_600_000
LONGEST_S = 8.0  # of a partition: longer than a lease
LEASE_MS = 5_000


class Cluster:
    """Coordinators that come and go, on one store."""

    def __init__(self, dice: random.Random, loop: VirtualLoop, count: int) -> None:
        self.dice = dice
        self.loop = loop
        self.clock = LoopClock(loop)  # that of the store
        self.store = SharedStore(self.clock)
        self.count = count
        self.alive: list[Replica] = []
        self._stacks: dict[Replica, AsyncExitStack] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._numbers = 0

    @property
    def network(self) -> Network:
        return self.store.network

    async def start(self) -> Replica:
        self._numbers += 1
        own = LoopClock(self.loop)
        own.turn(self.dice.randrange(-CLOCKS_APART_MS, CLOCKS_APART_MS))
        stack = AsyncExitStack()
        engine = await stack.enter_async_context(
            replica(
                self.store,
                f"r{self._numbers}",
                own_clock=own,
                stands_still=False,
                shard_lease_ms=15_000,
                leader_lease_ms=LEASE_MS,
            )
        )
        self._stacks[engine] = stack
        self.alive.append(engine)
        return engine

    async def close(self) -> None:
        for engine in list(self.alive):
            await self.stop(engine)
        await asyncio.gather(*self._ending)
        self.store.close()

    def any(self) -> Replica:
        return self.dice.choice(self.alive)

    def leader(self) -> Replica | None:
        """The coordinator that leads by the word of the store."""
        if self.store.leader is None:
            return None
        handle = self.store.leader[2]
        return next((one for one in self.alive if one.handle is handle), None)

    # --- ends -------------------------------------------------------------------------------------

    async def stop(self, engine: Replica) -> None:
        """Stop as planned."""
        if engine in self.alive:
            self.alive.remove(engine)
            await self._stacks.pop(engine).aclose()

    def kill(self, engine: Replica) -> None:
        """End at once, in the middle of anything: nothing more of it reaches others."""
        if engine not in self.alive:
            return
        self.alive.remove(engine)
        engine.database.write_problem = ConnectionError("dead")
        engine.handle.is_connected = False
        self.network.remove(engine.name)
        task = asyncio.ensure_future(self._bury(engine))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _bury(self, engine: Replica) -> None:
        await engine.freeze()
        await self._stacks.pop(engine).aclose()


class Faults:
    """One fault after the other, by the dice."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._dice = cluster.dice
        self.seen: dict[str, int] = {}  # how often each fault came
        self.is_over = False

    async def run(self) -> None:
        """Let faults happen until they are over; each ends by itself."""
        kinds: list[Callable[[], Awaitable[None]]] = [
            self.lose_link,
            self.lose_link,
            self.lose_link,
            self.part_coordinators,
            self.cut_store,
            self.isolate,
            self.starve_renewal,
            self.starve_renewal,
            self.kill_any,
            self.die_before_commit,
            self.die_after_commit,
            self.fail_commit,
            self.lose_reply_of_commit,
            self.stop_any,
        ]
        while not self.is_over:
            await asyncio.sleep(self._dice.uniform(0.1, 3.0))
            kind = self._dice.choice(kinds)
            name = getattr(kind, "__name__", "")
            self.seen[name] = self.seen.get(name, 0) + 1
            await kind()
            while len(self._cluster.alive) < self._cluster.count:
                await self._cluster.start()

    # --- links ------------------------------------------------------------------------------------

    async def lose_link(self) -> None:
        """Hold the frames of one or both directions for a while; then lose them, or not."""
        links = self._cluster.network.links
        if not links:
            return
        link: Link = self._dice.choice(links)
        both: list[MemoryEnd[Any, Any]] = [link.from_leader, link.from_follower]
        ends = self._dice.choice([both[:1], both[1:], both])
        for end in ends:
            end.is_held = True
        await asyncio.sleep(self._dice.uniform(0.0, 2.0))
        if self._dice.random() < 0.7:
            link.cut()
        for end in ends:
            end.is_held = False
            end.flush()

    async def part_coordinators(self) -> None:
        if len(self._cluster.alive) > 1:
            one, other = self._dice.sample(self._cluster.alive, 2)
            self._cluster.network.part(one.name, other.name)
            await self._last()
            self._cluster.network.heal(one.name, other.name)

    async def cut_store(self) -> None:
        engine = self._leader_or_any()
        engine.handle.is_cut_off = True
        await self._last()
        engine.handle.is_cut_off = False

    async def isolate(self) -> None:
        """Part one coordinator from all others and from the store, as a frozen process is."""
        engine = self._leader_or_any()
        engine.handle.is_cut_off = True
        others = [one.name for one in self._cluster.alive if one is not engine]
        for name in others:
            self._cluster.network.part(engine.name, name)
        await self._last()
        engine.handle.is_cut_off = False
        for name in others:
            self._cluster.network.heal(engine.name, name)

    async def starve_renewal(self) -> None:
        """Let a coordinator not look after its leadership, while it goes on to serve callers."""
        engine = self._leader_or_any()
        leadership = leadership_of(engine.coordinator)
        await leadership.stop()
        await self._last()
        if engine in self._cluster.alive:
            leadership._task = asyncio.ensure_future(leadership._run())

    async def _last(self) -> None:
        await asyncio.sleep(self._dice.uniform(0.0, LONGEST_S))

    # --- processes and commits --------------------------------------------------------------------

    async def kill_any(self) -> None:
        self._cluster.kill(self._leader_or_any())
        await settle()

    async def stop_any(self) -> None:
        await self._cluster.stop(self._leader_or_any())

    async def die_before_commit(self) -> None:
        await self._arm("before_commit", dies=True)

    async def die_after_commit(self) -> None:
        await self._arm("after_commit", dies=True)

    async def fail_commit(self) -> None:
        await self._arm("before_commit", dies=False)

    async def lose_reply_of_commit(self) -> None:
        await self._arm("after_commit", dies=False)

    async def _arm(self, moment: str, *, dies: bool) -> None:
        """Let the next commit of the leader end in trouble."""
        engine = self._cluster.leader()
        if engine is None:
            return

        def go_wrong() -> None:
            self._disarm(engine)
            if dies:
                self._cluster.kill(engine)
            raise Unavailable("the connection to the store was lost")

        setattr(engine.handle, moment, go_wrong)
        await let_pass(2_000)
        self._disarm(engine)

    @staticmethod
    def _disarm(engine: Replica) -> None:
        engine.handle.before_commit = engine.handle.after_commit = lambda: None

    def _leader_or_any(self) -> Replica:
        leader = self._cluster.leader()
        if leader is not None and self._dice.random() < 0.6:
            return leader
        return self._cluster.any()
