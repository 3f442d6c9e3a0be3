"""A world of replicas: clients call any coordinator, while leaders, links and stores fail.

Three coordinators share a double of PostgreSQL, joined by links in memory, on a loop whose time
jumps. They elect, renew, forward and take over by themselves. Random are the calls, the coordinator
that each goes to, the faults, and how far the clocks are apart. What callers were told is kept, and
compared with the store in the end.
"""

import asyncio
import random
from collections import Counter
from contextlib import suppress
from enum import Enum
from typing import Any, TypeVar

from msgspec import Raw

from rota.core.commands import CancelTasks, SubmitTasks, TaskFilter
from rota.core.events import EVERYTHING, EventFilter, types_of
from rota.core.ids import TaskId
from rota.core.kv import PutValue
from rota.core.locks import AcquireLock, ReleaseLock
from rota.core.replies import CommandBase, SubmissionStatus
from rota.core.tasks.model import FINISHED, NewTask, TaskRecord
from rota.core.workers.model import WorkerRecord
from rota.core.workflow.commands import StartRun
from rota.core.workflow.decisions import SetRunState
from rota.core.workflow.states import RUN_ENDED
from rota.errors import LockLost, StaleIncarnation, Unavailable, WorkerNotFound
from tests.engine.flows import Flows
from tests.engine.graphs import FAN
from tests.engine.holding import check_working_set
from tests.engine.running import ask, done
from tests.engine.sharding import Peer
from tests.engine.sharing import Replica
from tests.engine.virtual import let_pass
from tests.simulation.loop import VirtualLoop, end_all_tasks
from tests.simulation.replicas.faults import Cluster, Faults
from tests.simulation.trace import Violation

GONE = EventFilter(types=types_of(["member-left", "worker-unregistered"]))
ENDS = EventFilter(types=types_of(["task-succeeded", "task-failed", "task-cancelled"]))
WORKERS = 3
MEMBERS = 3
SHARDS = 6
MOST_IN_FLIGHT = 6
MOST_QUIET_STEPS = 400  # in which everything must drain once nothing new comes
BEAT_MS = 1_000
CALL_S = 10.0
LOCK_MS = 5_000
OWNERS = ("o1", "o2", "o3")
STEPS = 400
PAGE = 10_000

R = TypeVar("R")


class Pace(Enum):
    """Anything at any time, or clients that speak in time while leaders change in good order."""

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

    async def speak(self, engine: Replica) -> None:
        """Beat, or join; without an answer its lease runs out."""
        sent_ms = self.world.now_ms
        try:
            async with asyncio.timeout(CALL_S):
                await (
                    self._beat(engine, sent_ms) if self.is_alive else self._join(engine, sent_ms)
                )
        except (Unavailable, TimeoutError):
            pass

    async def _join(self, engine: Replica, sent_ms: int) -> None:
        self.stop()
        self.incarnation += 1
        self.ends_ms = 0
        self.peer = Peer(engine, self.name, count=SHARDS, incarnation=str(self.incarnation))
        self.is_alive = True
        self.renew(await self.peer.register(), sent_ms)

    async def _beat(self, engine: Replica, sent_ms: int) -> None:
        before = self.peer
        assert before is not None
        before.unsubscribe()
        self.peer = Peer(engine, self.name, count=SHARDS, incarnation=before.incarnation)
        self.peer.seq, self.peer.told = before.seq, before.told
        answer = await self.peer.beat()
        if answer.status == "ok":
            self.renew(answer, sent_ms)
        else:
            self.stop()

    def renew(self, answer: Any, sent_ms: int) -> None:
        self.ends_ms = max(self.ends_ms, sent_ms + int(answer.lease_ms * 0.98))

    def stop(self) -> None:
        self.is_alive = False
        if self.peer is not None:
            self.peer.unsubscribe()

    @property
    def acts_on(self) -> dict[int, int]:
        """The shards it may act on now, with their epochs."""
        if not self.is_alive or self.peer is None or self.peer.told is None:
            return {}
        if self.world.now_ms >= self.ends_ms:
            return {}
        told = self.peer.told
        return dict(zip(told.shards, told.epochs, strict=True))


class World:
    def __init__(self, seed: int, loop: VirtualLoop) -> None:
        self.dice = random.Random(seed)
        self.cluster = Cluster(self.dice, loop, count=3)
        self.faults = Faults(self.cluster)
        self.workers: dict[str, WorkerRecord] = {}
        self.held: dict[str, dict[TaskId, TaskRecord]] = {}
        self.acknowledged: dict[TaskId, str] = {}  # with what was submitted
        self.accepted: Counter[TaskId] = Counter()
        self.granted: set[tuple[TaskId, int]] = set()  # the leases that workers have seen
        self.epochs: dict[int, tuple[int, str]] = {}  # of shards
        self.members = [Member(self, f"m{number}") for number in range(MEMBERS)]
        self.runs: list[int] = []
        self.written: dict[str, int] = {}  # the last acknowledged number, by key
        self.locks = 0  # how often the lock was had
        self._last_fence = 0
        self._holders: dict[str, tuple[int, int]] = {}  # its fence and the end of its time
        self._asking: set[str] = set()
        self._key = 0
        self._is_writing = False
        self.unanswered = 0
        self._submitted = 0
        self._checked = 0  # commits
        self._leaders: dict[int, object] = {}  # the session that committed at each epoch
        self._flying: set[asyncio.Task[None]] = set()

    @property
    def now_ms(self) -> int:
        return self.cluster.clock.now_ms()

    def any(self) -> Replica:
        return self.cluster.any()

    async def call(self, command: CommandBase[R], engine: Replica | None = None) -> R | None:
        """Call any coordinator. None: the outcome is not known, or the caller has gone away."""
        patience_s = self.dice.uniform(0.0, 0.05) if self.dice.random() < 0.05 else CALL_S
        try:
            async with asyncio.timeout(patience_s):
                return await (engine or self.any()).execute(command)
        except (Unavailable, TimeoutError):
            self.unanswered += 1
            return None

    # --- what happens -----------------------------------------------------------------------------

    async def run(self, steps: int) -> None:
        for _ in range(self.cluster.count):
            await self.cluster.start()
        await Flows(self.any()).put(FAN)
        trouble = asyncio.ensure_future(self.faults.run())
        happenings = (
            (12, self.submit),
            (4, self.write),
            (6, self.lock),
            (2, self.begin_run),
            (8, self.work),
            (8, self.report),
            (4, self.beat_all),
            (1, self.fall_silent),
            (1, self.cancel),
            (5, self.beat_members),
            (1, self.lose_member),
        )
        weights = [weight for weight, _ in happenings]
        for _ in range(steps):
            await asyncio.sleep(self.dice.choice((0, 0.001, 0.05, 0.2, 0.5)))
            if len(self._flying) < MOST_IN_FLIGHT and self.cluster.alive:
                (_, happening) = self.dice.choices(happenings, weights)[0]
                self._fly(happening())
            self._land()
            self.check()
        self.faults.is_over = True
        await trouble
        await self.drain()

    def _fly(self, happening: Any) -> None:
        self._flying.add(asyncio.ensure_future(happening))

    def _land(self) -> None:
        for task in [one for one in self._flying if one.done()]:
            self._flying.remove(task)
            task.result()

    async def submit(self) -> None:
        self._submitted += 1
        mark = str(self._submitted)
        key = mark if self.dice.random() < 0.3 else None
        tasks = [
            NewTask(
                name=self.dice.choice("xyz"),
                max_attempts=99,
                payload=Raw(f'"{mark}/{number}"'.encode()),
                key=key and f"{key}/{number}",
            )
            for number in range(2)
        ]
        before = max(self.acknowledged, default=0)
        reply = await self.call(SubmitTasks(tasks))
        if reply is None:
            return
        ids = [item.id for item in reply.items if not isinstance(item, SubmissionStatus)]
        if min(ids) <= before:
            raise Broken("ids do not rise over all coordinators")
        self.acknowledged |= dict.fromkeys(ids, mark)

    async def write(self) -> None:
        """One client counts in a value; a number it has seen written is never followed by less."""
        if self._is_writing:
            return
        self._is_writing = True
        key = f"k{self._key}"
        self._submitted += 1
        number = self._submitted
        try:
            async with asyncio.timeout(CALL_S):
                await self.any().execute(PutValue(key=key, value=Raw(str(number).encode())))
            self.written[key] = number
        except TimeoutError:
            self._key += 1  # the change may come later
        except Unavailable:
            self.unanswered += 1
        finally:
            self._is_writing = False

    async def lock(self) -> None:
        """One of a few owners waits for a lock, holds it for a while, and releases it."""
        idle = [one for one in OWNERS if one not in self._asking]
        if not idle:
            return
        owner = self.dice.choice(idle)
        self._asking.add(owner)
        sent_ms = self.now_ms
        wait_ms = self.dice.choice((0, 2_000))
        given = await self.call(AcquireLock(name="l", owner=owner, ttl_ms=LOCK_MS, wait_ms=wait_ms))
        if given is not None and given.acquired and self.now_ms < sent_ms + LOCK_MS:
            assert given.fence is not None
            self._note_lock(owner, given.fence, sent_ms + LOCK_MS)
            await asyncio.sleep(self.dice.uniform(0.0, 1.0))
            del self._holders[owner]
            with suppress(LockLost):
                await self.call(ReleaseLock(name="l", owner=owner, fence=given.fence))
        self._asking.discard(owner)

    def _note_lock(self, owner: str, fence: int, ends_ms: int) -> None:
        self.locks += 1
        for other, (_, until_ms) in self._holders.items():
            if until_ms > self.now_ms:
                raise Broken(f"{other} and {owner} hold one lock")
        if fence < self._last_fence:
            raise Broken("the fence of a lock has fallen")
        self._last_fence = fence
        self._holders[owner] = fence, ends_ms

    async def begin_run(self) -> None:
        wanted = {"count": self.dice.randrange(1, 5)}
        shown = await self.call(StartRun(workflow="fan", input=wanted))
        if shown is not None:
            self.runs.append(shown.record.id)

    async def work(self) -> None:
        worker = await self._some_worker()
        if worker is None:
            return
        wait_ms = self.dice.choice((0, 0, 2_000))
        try:
            granted = await self.call(ask(worker, self.dice.randrange(1, 4), wait_ms=wait_ms))
        except (WorkerNotFound, StaleIncarnation):
            self._forget(worker)
            return
        for task in () if granted is None else granted.leases:
            if (task.id, task.fence) in self.granted:
                raise Broken(f"a lease was granted twice: {task.id}")
            self.granted.add((task.id, task.fence))
            if self.workers.get(worker.id) is worker:
                self.held[worker.id][task.id] = task

    async def report(self) -> None:
        holders = [one for one, held in self.held.items() if held]
        if not holders:
            return
        worker = self.workers[self.dice.choice(holders)]
        held = self.held[worker.id]
        task = self.dice.choice(list(held.values()))
        if self.dice.random() < 0.8:  # otherwise it is said once more
            del held[task.id]
        engine = self.any()
        try:
            async with asyncio.timeout(CALL_S):
                (outcome,) = await engine.report(worker, done(task, result=b"1"))
        except (WorkerNotFound, StaleIncarnation):
            self._forget(worker)
            return
        except (Unavailable, TimeoutError):
            self.unanswered += 1
            return
        if outcome == "accepted":
            self.accepted[task.id] += 1
            if self.accepted[task.id] > 1:
                raise Broken("a completion was accepted twice")

    async def beat_all(self) -> None:
        for worker in list(self.workers.values()):
            await self.beat(worker)

    async def beat(self, worker: WorkerRecord) -> None:
        if worker.id not in self.held:
            return
        listed = [*self.held[worker.id]]
        try:
            async with asyncio.timeout(CALL_S):
                beat = await self.any().beat(worker, listed)
        except (WorkerNotFound, StaleIncarnation):
            self._forget(worker)
            return
        except (Unavailable, TimeoutError):
            return
        for task_id in (*beat.cancel, *beat.lost):
            self.held.get(worker.id, {}).pop(task_id, None)

    async def fall_silent(self) -> None:
        """A worker dies; its name may come again."""
        if self.workers:
            self._forget(self.dice.choice(list(self.workers.values())))

    async def cancel(self) -> None:
        if self.acknowledged:
            await self.call(CancelTasks((self.dice.choice(list(self.acknowledged)),)))

    async def beat_members(self) -> None:
        for member in self.members:
            if member.is_alive or self.dice.random() < 0.5:
                await member.speak(self.any())

    async def lose_member(self) -> None:
        self.dice.choice(self.members).stop()

    async def _some_worker(self) -> WorkerRecord | None:
        worker_id = f"w{self.dice.randrange(WORKERS)}"
        if worker_id not in self.workers:
            try:
                async with asyncio.timeout(CALL_S):
                    worker = await self.any().register(worker_id, heartbeat_interval_ms=BEAT_MS)
            except (Unavailable, TimeoutError):
                return None
            known = self.workers.get(worker_id)
            if known is None or known.incarnation < worker.incarnation:
                self.workers[worker_id], self.held[worker_id] = worker, {}
        return self.workers[worker_id]

    def _forget(self, worker: WorkerRecord) -> None:
        if self.workers.get(worker.id) is worker:
            del self.workers[worker.id], self.held[worker.id]

    # --- time -------------------------------------------------------------------------------------

    async def keep_time(self, steps: int) -> None:
        """All speak in time, and leaders change: no worker and no member may be thought gone."""
        for _ in range(self.cluster.count):
            await self.cluster.start()
        names: list[Member | str] = [*self.members, *map(str, range(WORKERS))]
        due_ms = dict.fromkeys(names, 0)
        seen = 0
        for step in range(steps):
            await let_pass(250)
            if step % 20 == 10:
                change = self.dice.choice((self.faults.stop_any, self.faults.kill_any))
                await change()
                await self.cluster.start()
            for one, due in due_ms.items():
                if due <= self.now_ms:
                    due_ms[one] = self.now_ms + await self._speak(one)
            self.check()
            passage = await self.any().coordinator.queries.events.after(seen, GONE, limit=1_000)
            for event in passage.items:
                raise Broken(f"{event.type} of {event.data}: it had been heard in time")
            seen = passage.position

    async def _speak(self, one: Member | str) -> int:
        """Say that a client lives; return when it says so again."""
        engine = self.any()
        if isinstance(one, Member):
            await one.speak(engine)
            return self.dice.randrange(1_000, 10_000)
        worker = self.workers.get(one)
        if worker is None:
            self.workers[one] = await engine.register(one, heartbeat_interval_ms=BEAT_MS)
        else:
            await engine.beat(worker)
        return self.dice.randrange(250, BEAT_MS)

    # --- promises ---------------------------------------------------------------------------------

    def check(self) -> None:
        self._check_commits()
        self._check_shards()
        for engine in self.cluster.alive:
            handle = engine.handle
            if handle.epoch == self.cluster.store.epoch and not handle.is_cut_off:
                check_working_set(engine.coordinator)

    def _check_commits(self) -> None:
        """Each epoch has the commits of one leader."""
        commits = self.cluster.store.commits
        for epoch, session in commits[self._checked :]:
            if self._leaders.setdefault(epoch, session) is not session:
                raise Broken(f"two leaders have committed at epoch {epoch}")
        self._checked = len(commits)

    def _check_shards(self) -> None:
        """No two members act on one shard at the same time, and no epoch has two owners."""
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
        await asyncio.gather(*self._flying)
        self._flying.clear()
        for _ in range(MOST_QUIET_STEPS):
            await let_pass(500)
            await self.beat_all()
            for _ in range(2):
                await self.work()
            for _ in range(4):
                await self.report()
            await self.beat_members()
            self.check()
            if await self._is_drained():
                break
        else:
            raise Broken("it does not drain")
        await self._check_end()

    async def _is_drained(self) -> bool:
        queries = self.any().coordinator.queries
        live = [one for one in self.acknowledged if await queries.tasks.is_live(one)]
        states = [await Flows(self.any()).state(run_id) for run_id in self.runs]
        return not live and all(one in RUN_ENDED for one in states)

    async def _check_end(self) -> None:
        engine = self.any()
        queries = engine.coordinator.queries
        for task_id in self.acknowledged:
            task = await queries.tasks.by_id(task_id)
            if task is None or task.state not in FINISHED:
                raise Broken("an acknowledged task is lost")
        found = await queries.tasks.page(TaskFilter(), limit=PAGE)
        marks = Counter(bytes(one.payload) for one in found if one.run is None)
        if marks and max(marks.values()) > 1:
            raise Broken("a submission was executed twice")
        ended = await queries.events.after(0, ENDS, limit=PAGE)
        ends = Counter(one.subject for one in ended.items)
        if ends and max(ends.values()) > 1:
            raise Broken("a task has finished twice")
        for key, number in self.written.items():
            value = await queries.kv.get(key)
            if value is None or int(bytes(value.value)) < number:
                raise Broken("an acknowledged value was overwritten by an older one")
        await self._check_runs(Flows(engine))
        log = await queries.events.after(0, EVERYTHING, limit=PAGE)
        if [one.seq for one in log.items] != list(range(1, len(log.items) + 1)):
            raise Broken("the numbers of events have gaps")

    async def _check_runs(self, flows: Flows) -> None:
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


def simulate(seed: int, pace: Pace) -> World:
    """Run one schedule; raises what it broke, with the seed."""
    loop = VirtualLoop(random.Random(seed))
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(_live_through(seed, pace, loop))
    except Exception as error:
        raise Violation(f"{error!r} in seed {seed}, {pace.name}") from error
    finally:
        end_all_tasks(loop)
        asyncio.set_event_loop(None)
        loop.close()


async def _live_through(seed: int, pace: Pace, loop: VirtualLoop) -> World:
    world = World(seed, loop)
    try:
        await (world.keep_time(STEPS) if pace is Pace.TIMELY else world.run(STEPS))
    finally:
        await world.cluster.close()
    return world
