"""Who brings the faults? One coroutine a kind, at times drawn from the dice, until it heals."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from tests.simulation.database import Moment
from tests.simulation.network import Weather
from tests.simulation.workers import SimulatedWorker

if TYPE_CHECKING:
    from tests.simulation.world import World

CALM_WEATHER = Weather()
BREATH_S = 1.5  # after a pause, so that the coordinator hears what waited before the next


class Chaos:
    def __init__(self, world: "World") -> None:
        self._world = world
        self._dice = random.Random(f"{world.seed}/chaos")

    def start(self) -> None:
        profile = self._world.profile
        kinds: tuple[tuple[float, Callable[[], Awaitable[None]]], ...] = (
            (profile.coordinator_dies_s, self._kill_coordinator),
            (profile.coordinator_stops_s, self._stop_coordinator),
            (profile.coordinator_pauses_s, self._pause_coordinator),
            (profile.disk_is_full_s, self._fill_disk),
            (profile.clock_jumps_s, self._jump),
            (profile.worker_dies_s, self._kill_worker),
            (profile.worker_pauses_s, self._pause_worker),
            (profile.worker_doubles_s, self._double_worker),
            (profile.worker_leaves_s, self._send_worker_away),
            (profile.worker_is_cut_off_s, self._cut_off_worker),
        )
        for mean_s, bring in kinds:
            if mean_s:
                self._world.spawn(self._keep_bringing(mean_s, bring))

    async def _keep_bringing(self, mean_s: float, bring: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(self._dice.expovariate(1 / mean_s))
            if self._world.is_healing:
                return
            await bring()

    def _note(self, text: str) -> None:
        self._world.trace.note("chaos", text)

    def _duration_s(self) -> float:
        """Mostly short, sometimes longer than any lease."""
        return self._dice.choice((0.1, 0.5, 1.5, 2.5, 4.0, 10.0)) * self._dice.uniform(0.5, 1.5)

    # --- the coordinator --------------------------------------------------------------------

    async def _kill_coordinator(self) -> None:
        server = self._world.server
        moment = self._dice.choice((None, *Moment))
        self._note(f"coordinator dies: {moment}")
        if moment is None:
            server.kill()
        else:
            server.crash_at(moment)

    async def _stop_coordinator(self) -> None:
        await self._world.server.stop()

    async def _pause_coordinator(self) -> None:
        is_frozen = self._dice.random() < 0.5
        await self._world.server.pause(self._duration_s(), is_frozen=is_frozen)
        await asyncio.sleep(BREATH_S)

    async def _fill_disk(self) -> None:
        await self._world.server.fill_disk(self._duration_s() / 4)

    async def _jump(self) -> None:
        by_ms = round(self._dice.choice((1, 3, 10, 30)) * self._dice.uniform(-1_000, 1_000))
        self._note(f"clock jumps by {by_ms} ms")
        self._world.clock.jump(by_ms)

    # --- workers ----------------------------------------------------------------------------

    def _some_worker(self) -> SimulatedWorker | None:
        alive = [worker for worker in self._world.workers if not worker.is_dead]
        return self._dice.choice(alive) if alive else None

    async def _kill_worker(self) -> None:
        worker = self._some_worker()
        if worker is not None:
            self._note(f"{worker.name} dies")
            worker.kill()
            self._world.spawn(self._replace(worker, self._duration_s()))

    async def _replace(self, worker: SimulatedWorker, after_s: float) -> None:
        await asyncio.sleep(after_s)
        if not self._world.is_healing and not worker.is_superseded:
            self._world.replace(worker, is_same=self._dice.random() < 0.7)

    async def _pause_worker(self) -> None:
        worker = self._some_worker()
        if worker is not None:
            self._world.spawn(self._let_sleep(worker, self._duration_s()))

    async def _let_sleep(self, worker: SimulatedWorker, duration_s: float) -> None:
        self._note(f"{worker.name} sleeps {duration_s:.3f}")
        worker.pause()
        await asyncio.sleep(duration_s)
        self._note(f"{worker.name} wakes")
        worker.wake()

    async def _double_worker(self) -> None:
        """A second process under the same id, while the first one only sleeps."""
        worker = self._some_worker()
        if worker is not None and not worker.is_superseded:
            self._world.spawn(self._let_sleep(worker, self._duration_s()))
            self._world.replace(worker, is_same=True)

    async def _send_worker_away(self) -> None:
        worker = self._some_worker()
        if worker is not None:
            self._note(f"{worker.name} leaves")
            await worker.leave()

    async def _cut_off_worker(self) -> None:
        worker = self._some_worker()
        if worker is not None:
            self._world.spawn(self._let_be_cut_off(worker.name, self._duration_s()))

    async def _let_be_cut_off(self, peer: str, duration_s: float) -> None:
        self._note(f"{peer} is cut off for {duration_s:.3f}")
        self._world.network.cut_off.add(peer)
        await asyncio.sleep(duration_s)
        self._world.network.cut_off.discard(peer)
