"""What do the others want? Submit, look, cancel, retry, pause, and run jobs by their ids."""

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, cast

from msgspec import Raw

from rota.core.commands import (
    CancelTasks,
    CompleteJob,
    FailJob,
    PauseQueue,
    RetryTasks,
    SetWorkerState,
    StartJob,
    SubmitTasks,
    TaskCommand,
)
from rota.core.flows.commands import PutLimit
from rota.core.ids import TaskId
from rota.core.replies import JobChanged, Reply, Submitted
from rota.core.tasks.model import FINISHED, Backoff, NewTask, TaskError
from rota.core.tasks.unique import Unique
from rota.core.workers.model import WorkerState
from rota.errors import Overloaded, QueueNotFound, RotaError, Unavailable
from tests.simulation.invariants import demand
from tests.simulation.network import Unanswered
from tests.simulation.server import Disconnected
from tests.simulation.slots import MOST, slot

if TYPE_CHECKING:
    from tests.simulation.world import World

WAIT_MS = 2_000
FINISHED_STATES = {str(state) for state in FINISHED}
NAMES = ("resize", "send")
QUEUES = ("default", "mail")
CAPABILITIES = ("disk", "gpu")
REQUIRES: tuple[tuple[str, ...], ...] = ((), (), ("gpu",), ("gpu", "disk"))


class Client:
    """Does something now and then, until the faults are over."""

    mean_pause_s = 0.5

    def __init__(self, world: "World", name: str) -> None:
        self.name = name
        self._world = world
        self._dice = random.Random(f"{world.seed}/{name}")
        self._count = 0

    async def run(self) -> None:
        while not self._world.is_healing:
            await asyncio.sleep(self._dice.expovariate(1 / self.mean_pause_s))
            await self.act()

    async def act(self) -> None:
        raise NotImplementedError

    async def ask(self, event: TaskCommand) -> Reply | None:
        """One try; None when it was refused or its fate is unknown."""
        try:
            return await self._world.network.call(self.name, event)
        except (Unanswered, RotaError):
            return None

    async def insist(self, event: TaskCommand) -> Reply:
        """Repeat a call until it is answered; refusals but for the time being are raised."""
        while True:
            try:
                return await self._world.network.call(self.name, event)
            except (Unanswered, Unavailable, Overloaded):
                await asyncio.sleep(self._dice.uniform(0.05, 0.5))

    def some_task(self) -> TaskId | None:
        known = self._world.known
        return self._dice.choice(known[-30:]) if known else None


class Submitter(Client):
    mean_pause_s = 0.7

    def __init__(self, world: "World", name: str) -> None:
        super().__init__(world, name)
        self._timeouts = world.profile.timeouts

    async def act(self) -> None:
        tasks = [self._task() for _ in range(self._dice.choice((1, 1, 2, 5)))]
        event = SubmitTasks(tasks)
        if all(task.key is not None for task in tasks):
            reply: Reply | None = await self.insist(event)
        else:
            reply = await self.ask(event)
        if isinstance(reply, Submitted):
            self._world.known += [item.id for item in reply.items]

    def _task(self) -> NewTask:
        dice, chance = self._dice, self._dice.random
        self._count += 1
        # Now and then something comes again much later, or together with itself.
        number = self._count if chance() < 0.8 else dice.randint(1, self._count)
        name = f"{self.name}/{number}"
        return NewTask(
            name=dice.choice(NAMES),
            payload=Raw(b'"%s"' % name.encode()),
            queue=dice.choice(QUEUES),
            priority=dice.choice((0, 0, 0, 1, -1, 5)),
            requires=dice.choice(REQUIRES),
            delay_ms=dice.randint(1, 4_000) if chance() < 0.2 else None,
            timeout_ms=dice.randint(200, 4_000) if chance() < self._timeouts else None,
            start_within_ms=dice.randint(500, 20_000) if chance() < 0.1 else None,
            max_attempts=dice.choice((1, 2, 3, 5)),
            backoff=Backoff(initial_ms=dice.choice((0, 100, 500)), max_ms=2_000),
            key=name if chance() < 0.6 else None,
            labels=["odd"] if self._count % 2 else None,
        )


class UniqueSubmitter(Client):
    """Submits tasks of which one may be live at a time."""

    mean_pause_s = 0.3

    async def act(self) -> None:
        dice = self._dice
        self._count += 1
        unique = Unique(
            key=f"u{dice.randint(1, 4)}",
            while_=dice.choice(("queued", "unfinished")),
            on_conflict=dice.choice(("return", "return", "reject")),
        )
        task = NewTask(
            name=dice.choice(NAMES),
            payload=Raw(b'"%s/%d"' % (self.name.encode(), self._count)),
            delay_ms=dice.choice((None, None, 500)),
            max_attempts=dice.choice((1, 2)),
            backoff=Backoff(initial_ms=100, max_ms=1_000),
            unique=unique,
        )
        reply = await self.ask(SubmitTasks([task]))
        if isinstance(reply, Submitted):
            self._world.known += [item.id for item in reply.items]


class LimitedSubmitter(Client):
    """Submits tasks that share the slots of keys, cancels some, changes what a key allows."""

    mean_pause_s = 0.25

    async def act(self) -> None:
        dice = self._dice
        if dice.random() < 0.1:
            await self.ask(self._change(dice.randint(0, MOST["changed"])))
            return
        running = [one for one in self._world.known if one in self._world.book.observer.now.leases]
        if running and dice.random() < 0.3:
            await self.ask(CancelTasks((dice.choice(running),)))
            return
        self._count += 1
        keys = dice.sample(sorted(MOST), dice.choice((1, 1, 2)))
        task = NewTask(
            name=dice.choice(NAMES),
            payload=Raw(b'"%s/%d"' % (self.name.encode(), self._count)),
            queue=dice.choice(QUEUES),
            priority=dice.choice((0, 0, 1)),
            requires=dice.choice(REQUIRES),
            max_attempts=dice.choice((1, 2, 3)),
            backoff=Backoff(initial_ms=dice.choice((0, 300)), max_ms=1_000),
            concurrency=[slot(key, min(2, MOST[key]), is_kept=dice.random() < 0.3) for key in keys],
            fair_key=dice.choice((None, "a", "b")),
        )
        reply = await self.ask(SubmitTasks([task]))
        if isinstance(reply, Submitted):
            self._world.known += [item.id for item in reply.items]

    async def open(self) -> None:
        """After the faults: no limit stays at 0."""
        await self.insist(self._change(1))

    def _change(self, limit: int) -> TaskCommand:
        # The network carries commands about tasks; this one needs no more of it.
        return cast("TaskCommand", PutLimit(key="changed", limit=limit))


class Operator(Client):
    """Cancels, retries, pauses queues and sets workers' states."""

    async def act(self) -> None:
        task_id = self.some_task()
        luck = self._dice.random()
        if luck < 0.35 and task_id is not None:
            await self.ask(CancelTasks((task_id,)))
        elif luck < 0.75 and task_id is not None:
            await self.ask(RetryTasks((task_id,)))
        elif luck < 0.9:
            queue = self._dice.choice(QUEUES)
            await self.ask(PauseQueue(queue, paused=True))
            await asyncio.sleep(self._dice.uniform(0.1, 3.0))
            await self.ask(PauseQueue(queue, paused=False))
        else:
            worker = self._dice.choice(self._world.workers)
            state = self._dice.choice(list(WorkerState))
            await self.ask(SetWorkerState(worker_id=worker.shape.worker_id, state=state))

    async def make_everything_flow(self) -> None:
        """After the faults: nothing stays paused, draining or quarantined."""
        for queue in QUEUES:
            with contextlib.suppress(QueueNotFound):  # nothing was ever put there
                await self.insist(PauseQueue(queue, paused=False))
        for worker in self._world.workers:
            state = SetWorkerState(worker_id=worker.shape.worker_id, state=WorkerState.ACTIVE)
            await self.ask(state)


class JobCaller(Client):
    """Runs tasks by their ids, as a program that learned them elsewhere."""

    mean_pause_s = 1.5

    async def act(self) -> None:
        task_id = self.some_task()
        if task_id is None:
            return
        started = await self.ask(StartJob(task_id=task_id, holder=self.name))
        if self._dice.random() < 0.2:
            started = await self.ask(StartJob(task_id=task_id, holder=self.name))
        await asyncio.sleep(self._dice.uniform(0.0, 0.5))
        if not isinstance(started, JobChanged) or self._dice.random() < 0.2:
            return  # it goes away without a word
        if self._dice.random() < 0.3:
            error = TaskError(message=self.name)
            await self.ask(FailJob(task_id=task_id, error=error))
        else:
            result = Raw(b'"%s"' % self.name.encode())
            for _ in range(self._dice.choice((1, 2))):
                await self.ask(CompleteJob(task_id=task_id, result=result))


class Reader(Client):
    """Looks up what was acknowledged and waits for its end, the way a gateway reads."""

    async def act(self) -> None:
        book = self._world.book
        known = [task_id for task_id in book.acknowledged if task_id not in book.forgotten]
        if not known:
            return
        task_id = TaskId(self._dice.choice(known))
        with contextlib.suppress(Disconnected):
            if self._dice.random() < 0.7:
                await self._find(task_id)
            else:
                await self._wait(task_id)

    async def _find(self, task_id: TaskId) -> None:
        book = self._world.book
        task = await self._world.server.find(task_id)
        if task_id not in book.forgotten:
            demand(task is not None, f"acknowledged task {task_id:x} cannot be found")
            assert task is not None
            is_same = task.payload == book.acknowledged[task_id]
            demand(is_same, f"task {task_id:x} has the payload of another")

    async def _wait(self, task_id: TaskId) -> None:
        observer, began_s, since = self._world.book.observer, self._world.now_s(), self._commit
        is_there = await self._world.server.wait_finished(task_id, wait_ms=WAIT_MS)
        is_early = round((self._world.now_s() - began_s) * 1000) < WAIT_MS
        if is_there and is_early and task_id not in self._world.book.forgotten:
            was_finished = observer.was_in(task_id, FINISHED_STATES, since=since)
            demand(was_finished, f"a wait for the end of task {task_id:x} ended before it")

    @property
    def _commit(self) -> int:
        return self._world.book.observer.commit
