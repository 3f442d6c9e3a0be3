"""Who works with the coordinator while the faults happen? A seeded crowd of callers.

Clients submit, with keys and without, and cancel; workers register, lease, report, beat. Each
answer goes into the ledger. A call that got no answer is made again later, as a careful caller
would: a submission when it had a key, a report with the same words.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count

from msgspec import Raw

from rota.core.commands import (
    BeatWorker,
    CancelTasks,
    LeaseWork,
    RegisterWorker,
    ReportResults,
    Result,
    SubmitTasks,
    TaskCommand,
)
from rota.core.ids import TaskId
from rota.core.replies import Changed, Granted, Outcomes, Registered, Reply, Submitted
from rota.core.tasks.model import NewTask, TaskError, TaskState
from rota.engine.coordinator import Coordinator
from rota.engine.queries.queues import QueueFigures
from rota.errors import Conflict, NotFound, Unavailable
from tests.faults.ledger import Ledger

NAMES = ("resize", "mail", "index")
MOST_AT_ONCE = 4  # calls that share one batch
BEAT_MS = 5_000


@dataclass
class TurnedClock:
    time_ms: int = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.time_ms


@dataclass
class DrivenWorker:
    id: str
    incarnation: int | None = None
    held: dict[TaskId, int] = field(default_factory=dict)  # fences

    def forget(self) -> None:
        self.incarnation = None
        self.held.clear()


def result_of(task_id: TaskId, fence: int) -> Result:
    """What a worker says of a task under a fence: the same, however often it says it."""
    if (task_id + fence) % 5 == 0:
        error = TaskError(message="not today")
        return Result(task_id, fence, ok=False, error=error, retry_in_ms=fence * 10)
    return Result(task_id, fence, result=Raw(b'"%d.%d"' % (task_id, fence)))


class Crowd:
    """Callers that outlive the coordinator they call; `coordinator` is the one of the moment."""

    coordinator: Coordinator
    has_answers: Callable[[], bool]  # False: what is answered now reaches nobody

    def __init__(self, dice: random.Random, ledger: Ledger) -> None:
        self.clock = TurnedClock()
        self.ledger = ledger
        self._dice = dice
        self._workers = [DrivenWorker(f"w{number}") for number in range(3)]
        self._unanswered: dict[str, NewTask] = {}  # submissions to make again, by key
        self._numbers = count()

    async def step(self) -> None:
        """A few calls at once: they end up in one batch."""
        calls = [self._call() for _ in range(self._dice.randint(1, MOST_AT_ONCE))]
        await asyncio.gather(*(call() for call in calls))

    async def drain(self) -> None:
        """No new work: every worker does what it gets, until nothing is left."""
        for _ in range(1_000):
            self.clock.time_ms += BEAT_MS
            for worker in self._workers:
                await self._beat(worker)
                await self._lease(worker)
                await self._report(worker)
            await self.coordinator.tick()
            if not any(one.depth + one.scheduled + one.running for one in await self._queues()):
                return
        raise AssertionError("the work does not come to an end")

    async def resubmit(self) -> None:
        """Make the keyed submissions again that got no answer."""
        if self._unanswered:
            await self._submit_all(list(self._unanswered.values()))

    def _call(self) -> Callable[[], Awaitable[None]]:
        worker = self._dice.choice(self._workers)
        calls: list[Callable[[], Awaitable[None]]] = [
            self._submit,
            self.resubmit,
            self._cancel,
            self._tick,
            lambda: self._register(worker),
            lambda: self._beat(worker),
            lambda: self._lease(worker),
            lambda: self._report(worker),
        ]
        return self._dice.choices(calls, weights=(6, 1, 1, 1, 1, 1, 6, 6))[0]

    async def _ask(self, event: TaskCommand) -> Reply:
        reply = await self.coordinator.execute(event)
        if not self.has_answers():
            raise Unavailable("the answer did not arrive")
        return reply

    # --- clients ------------------------------------------------------------------------------

    async def _submit(self) -> None:
        await self._submit_all([self._new_task() for _ in range(self._dice.randint(1, 4))])

    def _new_task(self) -> NewTask:
        dice, number = self._dice, next(self._numbers)
        return NewTask(
            name=dice.choice(NAMES),
            payload=Raw(b'{"number":%d,"text":"%s"}' % (number, b"x" * dice.randint(0, 2_000))),
            key=f"key-{number}" if dice.random() < 0.5 else None,
            delay_ms=dice.randint(1, 2 * BEAT_MS) if dice.random() < 0.2 else None,
            max_attempts=10,
        )

    async def _submit_all(self, tasks: list[NewTask]) -> None:
        self._unanswered |= {task.key: task for task in tasks if task.key is not None}
        try:
            reply = await self._ask(SubmitTasks(tasks))
        except Unavailable:
            return
        assert isinstance(reply, Submitted)
        for task, item in zip(tasks, reply.items, strict=True):
            self.ledger.submitted(item.id, bytes(task.payload), task.key)
            if task.key is not None:
                self._unanswered.pop(task.key, None)

    async def _cancel(self) -> None:
        if not self.ledger.payloads:
            return
        task_id = self._dice.choice(list(self.ledger.payloads))
        try:
            reply = await self._ask(CancelTasks((task_id,)))
        except Unavailable:
            return
        assert isinstance(reply, Changed)
        if reply.changed:
            self.ledger.finished(task_id, TaskState.CANCELLED)

    async def _tick(self) -> None:
        self.clock.time_ms += self._dice.randint(1, BEAT_MS)
        try:
            await self.coordinator.tick()
        except Unavailable:
            return

    async def _queues(self) -> list[QueueFigures]:
        return await self.coordinator.queries.queues.all()

    # --- workers ------------------------------------------------------------------------------

    async def _register(self, worker: DrivenWorker) -> None:
        try:
            reply = await self._ask(
                RegisterWorker(worker_id=worker.id, node_id="here", max_concurrent_tasks=8)
            )
        except Unavailable:
            return
        assert isinstance(reply, Registered)
        self.ledger.registered(reply.worker.incarnation)
        worker.held.clear()
        worker.incarnation = reply.worker.incarnation

    async def _beat(self, worker: DrivenWorker) -> None:
        if worker.incarnation is None:
            await self._register(worker)
            return
        try:
            await self._ask(
                BeatWorker(
                    worker_id=worker.id,
                    incarnation=worker.incarnation,
                    running=tuple(worker.held),
                )
            )
        except Unavailable:
            return
        except (NotFound, Conflict):
            worker.forget()

    async def _lease(self, worker: DrivenWorker) -> None:
        if worker.incarnation is None:
            return
        event = LeaseWork(worker_id=worker.id, incarnation=worker.incarnation, most=5)
        try:
            reply = await self._ask(event)
        except Unavailable:
            return
        except (NotFound, Conflict):
            worker.forget()
            return
        assert isinstance(reply, Granted)
        for task in reply.leases:
            self.ledger.leased(task.id, task.fence)
            if worker.incarnation == event.incarnation:
                worker.held[task.id] = task.fence

    async def _report(self, worker: DrivenWorker) -> None:
        if worker.incarnation is None or not worker.held:
            return
        results = [result_of(*one) for one in list(worker.held.items())[: self._dice.randint(1, 5)]]
        try:
            reply = await self._ask(
                ReportResults(worker_id=worker.id, incarnation=worker.incarnation, results=results)
            )
        except Unavailable:
            return
        except (NotFound, Conflict):
            worker.forget()
            return
        assert isinstance(reply, Outcomes)
        for result, outcome in zip(results, reply.outcomes, strict=True):
            if worker.held.get(result.task_id) == result.fence:
                del worker.held[result.task_id]
            if not result.ok:
                continue
            end = (result.task_id, TaskState.SUCCEEDED, bytes(result.result or b""))
            if outcome == "accepted":
                self.ledger.finished(*end)
            elif outcome == "duplicate":
                self.ledger.confirmed(*end)
