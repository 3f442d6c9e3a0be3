"""A world of replicas: random events go to random coordinators, which die and come at any time.

Everything runs inline, batch by batch, on the double of a shared store: what is random is which of
the coordinators takes an event, when each looks what the others did, whether its duties run, how
far its own clock is off, and when one is no more. What callers were told is kept, and held against
the store in the end.
"""

import asyncio
import random
from contextlib import AsyncExitStack
from enum import Enum
from typing import Any

from rota.core.commands import CancelTasks, SubmitTasks
from rota.core.events import EventFilter, types_of
from rota.core.ids import TaskId
from rota.core.replies import Submitted
from rota.core.tasks.model import FINISHED, NewTask, TaskRecord
from rota.core.workers.model import WorkerRecord
from rota.core.workflow.decisions import SetRunState
from rota.core.workflow.states import RUN_ENDED
from rota.errors import StaleIncarnation, WorkerNotFound
from tests.conftest import TurnedClock
from tests.engine.flows import Flows
from tests.engine.graphs import FAN
from tests.engine.running import Engine, done
from tests.engine.sharding import Peer
from tests.engine.sharing import SharedStore, replica
from tests.simulation.trace import Violation

GONE = EventFilter(types=types_of(["member-left", "worker-unregistered"]))
WORKERS = 3
MEMBERS = 3
SHARDS = 6
MOST_QUIET_STEPS = 400  # in which everything must drain once nothing new comes
BEAT_MS = 1_000
STEPS = 250


class Pace(Enum):
    """Anything at any time, or everybody in time and replicas that stay."""

    ANYHOW = "anyhow"
    TIMELY = "timely"


class Broken(AssertionError):  # noqa: N818 - read at the raise site
    """A promise was not kept."""


class Member:
    """A member of protocol 2, which acts on a shard only while its lease lasts."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self.incarnation = 0
        self.peer: Peer | None = None
        self.ends_ms = 0
        self.is_alive = False

    async def begin(self, engine: Engine) -> None:
        self.incarnation += 1
        self.peer = Peer(engine, self.name, count=SHARDS, incarnation=str(self.incarnation))
        self.is_alive = True
        sent_ms = self.world.clock.now_ms()
        told = await self.peer.register()
        self.renew(told, sent_ms)

    async def beat(self, engine: Engine) -> None:
        assert self.peer is not None
        before, sent_ms = self.peer, self.world.clock.now_ms()
        before.unsubscribe()
        self.peer = Peer(engine, self.name, count=SHARDS, incarnation=before.incarnation)
        self.peer.seq, self.peer.told = before.seq, before.told
        answer = await self.peer.beat()
        if answer.status == "ok":
            self.renew(answer, sent_ms)
        else:
            self.stop()

    def renew(self, answer: Any, sent_ms: int) -> None:
        self.ends_ms = sent_ms + int(answer.lease_ms * 0.98)

    def stop(self) -> None:
        self.is_alive = False
        if self.peer is not None:
            self.peer.unsubscribe()

    @property
    def acts_on(self) -> dict[int, int]:
        """The shards it may act on now, with their epochs."""
        if not self.is_alive or self.peer is None or self.peer.told is None:
            return {}
        if self.world.clock.now_ms() >= self.ends_ms:
            return {}
        told = self.peer.told
        return dict(zip(told.shards, told.epochs, strict=True))


class World:
    def __init__(self, seed: int, *, count: int = 3) -> None:
        self.dice = random.Random(seed)
        self.clock = TurnedClock()
        self.store = SharedStore(self.clock)
        self.count = count
        self.engines: list[Engine] = []
        self._stacks: dict[Engine, AsyncExitStack] = {}
        self._numbers = 0
        self.workers: dict[str, WorkerRecord] = {}
        self.held: dict[str, dict[TaskId, TaskRecord]] = {}
        self.acknowledged: list[TaskId] = []
        self.accepted: dict[TaskId, int] = {}
        self.fences: dict[TaskId, int] = {}
        self.epochs: dict[int, tuple[int, str]] = {}
        self.members = [Member(self, f"m{number}") for number in range(MEMBERS)]
        self.runs: list[int] = []
        self.told: list[int] = []  # numbers of events that a follower at the first heard

    # --- coordinators -----------------------------------------------------------------------------

    async def start(self) -> Engine:
        self._numbers += 1
        stack = AsyncExitStack()
        own = TurnedClock(self.clock.now_ms() + self.dice.randrange(-3_600_000, 3_600_000))
        engine: Engine = await stack.enter_async_context(
            replica(self.store, f"r{self._numbers}", own_clock=own, shard_lease_ms=15_000)
        )
        self._stacks[engine] = stack
        self.engines.append(engine)
        return engine

    async def kill(self, engine: Engine) -> None:
        """Between two batches, without a word: nothing more of it reaches the store."""
        self.engines.remove(engine)
        engine.database.write_problem = ConnectionError("dead")
        await self._stacks.pop(engine).aclose()

    async def close(self) -> None:
        for engine in list(self.engines):
            self.engines.remove(engine)
            await self._stacks.pop(engine).aclose()
        self.store.close()

    def any(self) -> Engine:
        return self.dice.choice(self.engines)

    # --- what happens -----------------------------------------------------------------------------

    async def run(self, steps: int) -> None:
        for _ in range(self.count):
            await self.start()
        self.store.are_hints_lost = True  # nothing here listens; looking is the truth
        await Flows(self.any()).put(FAN)
        for _ in range(steps):
            await self.step()
            self.check()
        await self.drain()

    async def step(self) -> None:
        self.turn(self.dice.choice((0, 1, 50, 200, 500)))
        happenings = (
            (6, self.submit),
            (2, self.begin_run),
            (8, self.work),
            (8, self.report),
            (4, self.beat_all),
            (1, self.fall_silent),
            (1, self.cancel),
            (4, self.look),
            (4, self.do_duties),
            (5, self.beat_members),
            (1, self.lose_member),
            (1, self.change_replicas),
        )
        weights = [weight for weight, _ in happenings]
        (_, happening) = self.dice.choices(happenings, weights)[0]
        await happening()

    def turn(self, by_ms: int) -> None:
        self.clock.turn(by_ms)
        for engine in self.engines:
            own = engine.coordinator.clock
            own._own.turn(by_ms)  # type: ignore[attr-defined]  # each goes on by its own

    async def submit(self) -> None:
        tasks = [NewTask(name=self.dice.choice("xyz"), max_attempts=9) for _ in range(3)]
        reply = await self.any().execute(SubmitTasks(tasks))
        assert isinstance(reply, Submitted)
        ids = [item.id for item in reply.items]
        if self.acknowledged and min(ids) <= max(self.acknowledged):
            raise Broken("ids do not rise over all replicas")
        self.acknowledged += ids

    async def begin_run(self) -> None:
        shown = await Flows(self.any()).begin("fan", {"count": self.dice.randrange(1, 5)})
        self.runs.append(shown.record.id)

    async def work(self) -> None:
        worker = await self._some_worker()
        try:
            leases = await self.any().lease(worker, self.dice.randrange(1, 4))
        except (WorkerNotFound, StaleIncarnation):
            self._forget(worker.id)
            return
        for task in leases:
            if task.fence <= self.fences.get(task.id, 0):
                raise Broken(f"a fence did not rise: {task.id}")
            self.fences[task.id] = task.fence
            self.held[worker.id][task.id] = task

    async def report(self) -> None:
        holders = [one for one, held in self.held.items() if held]
        if not holders:
            return
        worker_id = self.dice.choice(holders)
        task = self.dice.choice(list(self.held[worker_id].values()))
        engine = self.any()
        try:
            (outcome,) = await engine.report(self.workers[worker_id], done(task, result=b"1"))
        except (WorkerNotFound, StaleIncarnation):
            self._forget(worker_id)
            return
        if outcome == "accepted":
            self.accepted[task.id] = self.accepted.get(task.id, 0) + 1
            if self.accepted[task.id] > 1:
                raise Broken("a completion was accepted twice")
        if self.dice.random() < 0.8:  # otherwise it is said once more
            del self.held[worker_id][task.id]

    async def beat_all(self) -> None:
        for worker_id in list(self.workers):
            await self.beat(worker_id)

    async def beat(self, worker_id: str) -> None:
        try:
            beat = await self.any().beat(self.workers[worker_id], [*self.held[worker_id]])
        except (WorkerNotFound, StaleIncarnation):
            self._forget(worker_id)
            return
        for task_id in (*beat.cancel, *beat.lost):
            self.held[worker_id].pop(task_id, None)

    async def fall_silent(self) -> None:
        """A worker dies; its name may come again."""
        if self.workers:
            self._forget(self.dice.choice(list(self.workers)))

    async def cancel(self) -> None:
        if self.acknowledged:
            await self.any().execute(CancelTasks((self.dice.choice(self.acknowledged),)))

    async def look(self) -> None:
        await self.any().coordinator.catch_up()

    async def do_duties(self) -> None:
        await self.any().coordinator.tick()

    async def beat_members(self) -> None:
        for member in self.members:
            if member.is_alive:
                await member.beat(self.any())
            elif self.dice.random() < 0.5:
                await member.begin(self.any())

    async def lose_member(self) -> None:
        self.dice.choice(self.members).stop()

    async def change_replicas(self) -> None:
        if len(self.engines) > 1 and self.dice.random() < 0.6:
            await self.kill(self.any())
        elif len(self.engines) < 4:
            await self.start()

    async def _some_worker(self) -> WorkerRecord:
        worker_id = f"w{self.dice.randrange(WORKERS)}"
        if worker_id not in self.workers:
            self.workers[worker_id] = await self.any().register(
                worker_id, heartbeat_interval_ms=BEAT_MS
            )
            self.held[worker_id] = {}
        return self.workers[worker_id]

    def _forget(self, worker_id: str) -> None:
        self.workers.pop(worker_id, None)
        self.held.pop(worker_id, None)

    # --- time -------------------------------------------------------------------------------------

    async def keep_time(self, steps: int) -> None:
        """All speak in time, each for a while to one replica; none of them may be thought gone."""
        for _ in range(self.count):
            await self.start()
        for member in self.members:
            await member.begin(self.any())
        names: list[Member | str] = [*self.members, *map(str, range(WORKERS))]
        places = {one: self.any() for one in names}
        due_ms = dict.fromkeys(names, 0)
        seen = 0
        for _ in range(steps):
            self.turn(500)
            for engine in self.engines:
                if self.dice.random() < 0.9:
                    await engine.coordinator.tick()
            for one, due in due_ms.items():
                if due <= self.clock.now_ms():
                    if self.dice.random() < 0.1:
                        places[one] = self.any()
                    due_ms[one] = self.clock.now_ms() + await self._speak(one, places[one])
            self.check()
            seen = await self._check_departures(seen)

    async def _speak(self, one: "Member | str", engine: Engine) -> int:
        """Say that somebody lives; the answer is when it will say so again."""
        if isinstance(one, Member):
            await one.beat(engine)
            return self.dice.randrange(1_000, 13_500)
        worker = self.workers.get(one)
        if worker is None:
            self.workers[one] = await engine.register(one, heartbeat_interval_ms=BEAT_MS)
        else:
            await engine.beat(worker)
        return self.dice.randrange(500, 2 * BEAT_MS)

    async def _check_departures(self, after: int) -> int:
        passage = await self.any().coordinator.queries.events.after(after, GONE, limit=1_000)
        for one in passage.items:
            raise Broken(f"{one.type} of {one.data}: it had been heard in time")
        return passage.position

    # --- promises ---------------------------------------------------------------------------------

    def check(self) -> None:
        """Nobody acts on a shard at the same time as another, and no epoch has two owners."""
        acting: dict[int, str] = {}
        for member in self.members:
            for shard, epoch in member.acts_on.items():
                if shard in acting:
                    raise Broken(f"shard {shard}: {acting[shard]} and {member.name} at once")
                acting[shard] = member.name
                known, owner = self.epochs.get(shard, (0, ""))
                whose = f"{member.name}/{member.incarnation}"
                if epoch == known and owner != whose:
                    raise Broken(f"shard {shard}: epoch {epoch} has two owners")
                if epoch > known:
                    self.epochs[shard] = epoch, whose

    async def drain(self) -> None:
        """Nothing new comes, and everything that is known comes to its end."""
        if not self.engines:
            await self.start()
        for _ in range(MOST_QUIET_STEPS):
            self.turn(500)
            for engine in self.engines:
                await engine.coordinator.tick()
                await engine.coordinator.catch_up()
            for worker_id in list(self.workers):
                await self.beat(worker_id)
            await self.work()
            for _ in range(4):
                await self.report()
            for member in self.members:
                if member.is_alive:
                    await member.beat(self.any())
            self.check()
            if await self._is_drained():
                break
        else:
            raise Broken("it does not drain")
        await self._check_end()

    async def _is_drained(self) -> bool:
        engine = self.any()
        live = [
            one for one in self.acknowledged if await engine.coordinator.queries.tasks.is_live(one)
        ]
        states = [await Flows(engine).state(run_id) for run_id in self.runs]
        return not live and all(one in RUN_ENDED for one in states)

    async def _check_end(self) -> None:
        engine = self.any()
        for task_id in self.acknowledged:
            task = await engine.coordinator.queries.tasks.by_id(task_id)
            if task is None or task.state not in FINISHED:
                raise Broken("an acknowledged task is lost")
        flows = Flows(engine)
        for run_id in self.runs:
            if not await flows.replays(run_id):
                raise Broken("a journal does not lead where it led")
            fired = [
                one
                for entry in await flows.journal(run_id)
                for one in entry.decisions
                if isinstance(one, SetRunState) and one.state in RUN_ENDED
            ]
            if len(fired) != 1:
                raise Broken("a run has not ended exactly once")
        await self._check_events(engine)

    async def _check_events(self, engine: Engine) -> None:
        bounds = await engine.coordinator.queries.events.bounds()
        rows = self.store.inner._writer.execute("SELECT seq FROM event").fetchall()
        if len(rows) != bounds.last_seq:
            raise Broken("the numbers of events have gaps")


def simulate(seed: int, pace: Pace) -> World:
    """Run one schedule; raises what it broke, with the seed."""
    world = World(seed)
    try:
        asyncio.run(_live_through(world, pace))
    except Exception as error:
        raise Violation(f"{error!r} in seed {seed}, {pace.name}") from error
    return world


async def _live_through(world: World, pace: Pace) -> None:
    try:
        await (world.keep_time(STEPS) if pace is Pace.TIMELY else world.run(STEPS))
    finally:
        await world.close()
