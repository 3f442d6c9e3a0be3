"""A world of schedules: they fire on whichever coordinator leads, and workers do what they fire.

Coordinators, faults and workers are those of the simulation of replicas. When the faults are over
and the schedules have come to their ends, everything that they have fired must end, too.
"""

import asyncio
import random
from collections import Counter
from enum import Enum
from typing import Any

from rota.core.commands import TaskFilter
from rota.core.events import EventFilter, types_of
from rota.core.schedules.commands import PauseSchedule, PutSchedule, ResumeSchedule, RunSchedule
from rota.core.schedules.model import ScheduleSpec, encode_spec
from rota.core.tasks.model import NewTask, TaskState
from rota.store.database import Transaction
from rota.store.schedules import ScheduleStore
from rota.store.tasks.lanes import Lanes
from rota.store.tasks.listing import Listing
from tests.engine.virtual import let_pass
from tests.simulation.loop import VirtualLoop, end_all_tasks
from tests.simulation.replicas.world import Broken, World
from tests.simulation.trace import Violation

LASTS_MS = 60_000  # from the first time of a schedule to its last
STEPS = 250
LIVE = (TaskState.QUEUED, TaskState.SCHEDULED, TaskState.RUNNING)
FIRED = EventFilter(types=types_of(["schedule-fired"]))
PAGE = 10_000

# Each of them fires tasks of its own name.
SCHEDULES: dict[str, dict[str, Any]] = {
    "every": {"every_ms": 1_000, "missed": "all", "overlap": "allow", "catch_up_ms": 3_600_000},
    "cron": {"cron": "* * * * *", "missed": "all", "overlap": "allow"},
    "alone": {"every_ms": 1_500},
    "patient": {"every_ms": 2_000, "overlap": "queue_one"},
    "orderly": {"every_ms": 4_000, "overlap": "queue_all", "jitter_ms": 2_000},
}
ALONE = ("alone", "patient", "orderly")  # of these no two tasks may be unfinished at once
COMPLETE = ("every", "cron")  # of these no time may be left out


class Weather(Enum):
    """The one kind of bad day: anything at any time."""

    ROUGH = "rough"


class ScheduleWorld(World):
    def __init__(self, seed: int, loop: VirtualLoop) -> None:
        super().__init__(seed, loop)
        self.begins_ms = 0
        self.ends_ms = 0
        self.fired: Counter[tuple[str, int]] = Counter()

    async def run(self, steps: int) -> None:
        for _ in range(self.cluster.count):
            await self.cluster.start()
        self.begins_ms = self.now_ms + 1_000
        self.ends_ms = self.begins_ms + LASTS_MS
        for name, options in SCHEDULES.items():
            spec = ScheduleSpec(
                task=NewTask(name=name, max_attempts=99),
                starts_at_ms=self.begins_ms,
                ends_at_ms=self.ends_ms,
                **options,
            )
            await self.any().execute(PutSchedule(name=name, document=encode_spec(spec)))
        trouble = asyncio.ensure_future(self.faults.run())
        happenings = (
            (8, self.work),
            (10, self.report),
            (4, self.beat_all),
            (1, self.fall_silent),
            (1, self.run_now),
            (1, self.pause),
        )
        weights = [weight for weight, _ in happenings]
        for _ in range(steps):
            await asyncio.sleep(self.dice.choice((0, 0.05, 0.2, 0.5)))
            if len(self._flying) < 6 and self.cluster.alive:
                (_, happening) = self.dice.choices(happenings, weights)[0]
                self._fly(happening())
            self._land()
            self.check_overlaps()
        self.faults.is_over = True
        await trouble
        await asyncio.gather(*self._flying)
        self._flying.clear()
        await self.end()

    async def run_now(self) -> None:
        await self.call(RunSchedule(name="alone"))

    async def pause(self) -> None:
        await self.call(PauseSchedule(name="alone"))
        await asyncio.sleep(self.dice.uniform(0.0, 3.0))
        await self.call(ResumeSchedule(name="alone"))

    # --- promises ---------------------------------------------------------------------------------

    def check_overlaps(self) -> None:
        for name, count in self.cluster.store.inner.read(_live).items():
            if count > 1 and name in ALONE:
                raise Broken(f"{count} tasks of schedule {name!r} at once")

    async def end(self) -> None:
        """Let all schedules come to their ends, and everything that they fired."""
        await let_pass(20_000)
        await self.any().execute(ResumeSchedule(name="alone"))
        for _ in range(2_000):
            await let_pass(500)
            await self.beat_all()
            for _ in range(3):
                await self.work()
            for _ in range(6):
                await self.report()
            self.check_overlaps()
            if self.now_ms > self.ends_ms + 60_000 and self._is_over():
                break
        else:
            raise Broken("it does not drain")
        await self.check_times()

    def _is_over(self) -> bool:
        return not any(self.cluster.store.inner.read(_live).values()) and not any(
            self.cluster.store.inner.read(_waiting)
        )

    async def check_times(self) -> None:
        events = await self.any().coordinator.queries.events.after(0, FIRED, limit=PAGE)
        ids = Counter(one.data["task_id"] for one in events.items)
        if ids and max(ids.values()) > 1:
            raise Broken("one task was fired twice")
        self.fired.update(
            (one.subject, one.data["nominal_ms"])
            for one in events.items
            if one.subject != "alone"  # which is fired on demand, too
        )
        for (name, nominal_ms), count in self.fired.items():
            if count > 1:
                raise Broken(f"schedule {name!r} fired twice for {nominal_ms}")
        for name in COMPLETE:
            every_ms = SCHEDULES[name].get("every_ms", 60_000)
            first = -(-self.begins_ms // every_ms)
            wanted = {number * every_ms for number in range(first, -(-self.ends_ms // every_ms))}
            found = {nominal_ms for one, nominal_ms in self.fired if one == name}
            if found != wanted:
                raise Broken(f"schedule {name!r} left out {sorted(wanted - found)}")


def _live(tx: Transaction) -> dict[str, int]:
    """The unfinished tasks of each schedule."""
    lanes = Lanes()
    lanes.load(tx)
    listing = Listing(tx, lanes)
    return {name: listing.count(TaskFilter(states=LIVE, name=name)) for name in SCHEDULES}


def _waiting(tx: Transaction) -> list[bool]:
    """Whether each schedule has something left to fire."""
    found = ScheduleStore(tx).by_names(SCHEDULES)
    return [
        bool(one.state.waiting) or one.state.next_nominal_ms is not None for one in found.values()
    ]


def simulate(seed: int, weather: Weather = Weather.ROUGH) -> ScheduleWorld:
    """Live through one seed; raises what it broke, with the seed."""
    loop = VirtualLoop(random.Random(seed))
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(_live_through(seed, loop))
    except Exception as error:
        raise Violation(f"{error!r} in seed {seed}, {weather.name}") from error
    finally:
        end_all_tasks(loop)
        asyncio.set_event_loop(None)
        loop.close()


async def _live_through(seed: int, loop: VirtualLoop) -> ScheduleWorld:
    world = ScheduleWorld(seed, loop)
    try:
        await world.run(STEPS)
    finally:
        await world.cluster.close()
    return world
