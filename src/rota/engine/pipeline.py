"""The writer's side of the engine: batches in, deliveries out, on the database thread.

An event that cannot be carried out fails alone: when a batch breaks, it is rolled back and its
events are tried again one by one.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from rota.core.decisions import (
    AddTask,
    FinishTask,
    LeaseTask,
    NoteWatch,
    RemoveWorker,
    RequeueTask,
)
from rota.core.events import (
    CompleteJob,
    FailJob,
    Heartbeat,
    LeaseWork,
    ReportProgress,
    ReportResults,
    StartJob,
    SubmitTasks,
)
from rota.core.ids import TaskId
from rota.core.replies import Granted, Outcomes
from rota.core.snapshot import Rules
from rota.core.workflow.commands import StartRun
from rota.engine.batch import Anything, Batch, BatchResult, Memory, Outcome
from rota.engine.clock import Clock
from rota.engine.figures import Figures
from rota.engine.runs import RunCache
from rota.errors import RotaError, Unavailable
from rota.store.artifacts import Artifacts
from rota.store.blobs import Blobs
from rota.store.database import Database, Transaction
from rota.store.lanes import Lanes
from rota.store.runs import Runs
from rota.store.tasks import Tasks
from rota.store.workers import Workers

log = structlog.get_logger("rota.engine")

# What our own mistakes look like; anything else that is no RotaError is the store's trouble.
OUR_MISTAKES = (
    AssertionError,
    ArithmeticError,
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
)


LIGHT_TASKS = 20  # an event about no more tasks than this is a matter of microseconds


class Entry:
    """One event on its way through the engine, and whoever waits for its answer."""

    __slots__ = ("event", "future", "is_gone", "is_light", "stays", "weight")

    def __init__(self, event: Anything, future: "asyncio.Future[Any]", *, stays: bool) -> None:
        self.event = event
        self.future = future
        self.stays = stays  # a call for work that may be parked
        self.is_gone = False  # the caller has stopped waiting
        self.weight, self.is_light = _burden(event)


def _burden(event: Anything) -> tuple[int, bool]:
    """How many changes an event stands for, and whether they are carried out in no time."""
    match event:
        case SubmitTasks():
            weight = len(event.tasks)
            return weight, weight <= LIGHT_TASKS
        case ReportResults():
            weight = len(event.results)
            return weight, weight <= LIGHT_TASKS
        case LeaseWork():
            return 1, event.most <= LIGHT_TASKS
        case Heartbeat() | ReportProgress() | StartJob() | CompleteJob() | FailJob() | StartRun():
            return 1, True
        case _:
            return 1, False


@dataclass
class Delivery:
    """What a committed batch means to those who wait."""

    answers: list[tuple[Entry, Outcome | Exception]] = field(default_factory=list)
    finished: list[TaskId] = field(default_factory=list)
    next_moment_ms: int | None = None

    def add(self, other: "Delivery") -> None:
        self.answers += other.answers
        self.finished += other.finished
        moments = [one for one in (self.next_moment_ms, other.next_moment_ms) if one is not None]
        self.next_moment_ms = min(moments, default=None)


class Pipeline:
    def __init__(
        self,
        database: Database,
        lanes: Lanes,
        figures: Figures,
        *,
        clock: Clock,
        rules: Rules,
        dice: Callable[[], float],
        blobs: Blobs | None = None,
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._lanes = lanes
        self._figures = figures
        self._clock = clock
        self._rules = rules
        self._dice = dice
        self._memory = Memory()
        self._runs = RunCache()
        self._has_lanes = True  # False: the book may hold lanes that were never committed
        self._parked: list[Entry] = []
        self.store_problem: str | None = None

    def recover(self) -> None:
        """Take up where the last coordinator on this store left off."""

        def body(tx: Transaction) -> int:
            self._lanes.read(tx)
            runs = Runs(tx)
            self._runs.has_tasks = runs.has_tasks()
            self._runs.has_staged = Artifacts(tx).has_staged()
            if self._blobs is not None:
                self._blobs.sweep(Artifacts(tx).files())
            last = Tasks(tx, self._lanes).last_id()
            return max(last, runs.last_id(), Workers(tx).counter("task"))

        self._memory.last_task_id = self._database.write(body)

    def run(self, entries: Sequence[Entry]) -> Delivery:
        """Carry out a batch: in one transaction, or, if that breaks, each event in its own."""
        parked = self._parked = [entry for entry in self._parked if not entry.is_gone]
        try:
            result = self._commit(entries, parked)
        except Exception as error:  # noqa: BLE001 - whatever broke, the others must go on
            self._figures.failed_batches += 1
            self._forget_uncommitted()
            if len(entries) == 1:
                return Delivery([(entries[0], self._broken(entries[0], error))])
            return self._one_by_one(entries)
        # Out of reach of the above: what is committed must never be tried again.
        self.store_problem = None
        self._memory = result.memory
        self._runs.touched.clear()
        self._remove_files(result.dropped_files)
        self._count(entries, result)
        return Delivery(
            self._answers(entries, parked, result),
            [*result.applied.finished, *(TaskId(one) for one in result.ended_runs)],
            result.next_moment_ms,
        )

    def _remove_files(self, names: Sequence[str]) -> None:
        """No row names these any more. What cannot be removed now is swept at the next start."""
        if not names or self._blobs is None:
            return
        try:
            self._blobs.remove(names)
        except OSError as error:
            log.warning("artifacts cannot be removed", problem=str(error))

    def _one_by_one(self, entries: Sequence[Entry]) -> Delivery:
        delivery = Delivery()
        for number, entry in enumerate(entries, start=1):
            alone = self.run([entry])
            delivery.add(alone)
            if any(isinstance(outcome, Unavailable) for _, outcome in alone.answers):
                # The store is away; each further try could wait for it as long as this one did.
                delivery.answers += [(later, _unwritten()) for later in entries[number:]]
                break
        return delivery

    def _commit(self, entries: Sequence[Entry], parked: Sequence[Entry]) -> BatchResult:
        batch = Batch(
            [entry.event for entry in entries],
            [entry.event for entry in parked if isinstance(entry.event, LeaseWork)],
            now_ms=self._clock.now_ms(),
            rules=self._rules,
            dice=self._dice,
            lanes=self._lanes,
            memory=self._memory,
            runs=self._runs,
        )

        def body(tx: Transaction) -> BatchResult:
            if not self._has_lanes:
                self._lanes.read(tx)
            return batch(tx)

        started = time.perf_counter()
        result = self._database.write(body)
        self._has_lanes = True
        self._figures.commit_seconds += time.perf_counter() - started
        return result

    def _answers(
        self, entries: Sequence[Entry], parked: Sequence[Entry], result: BatchResult
    ) -> list[tuple[Entry, Outcome | Exception]]:
        """Answers for all but the calls for work that found none: those are parked."""
        answers: list[tuple[Entry, Outcome | Exception]] = []
        still: list[Entry] = []
        now = zip(entries, result.outcomes, strict=True)
        for entry, outcome in [*now, *zip(parked, result.parked, strict=True)]:
            if entry.stays and isinstance(outcome, Granted) and not outcome.leases:
                still.append(entry)
            else:
                answers.append((entry, outcome))
        self._parked = still
        self._figures.parked = len(still)
        return answers

    def _broken(self, entry: Entry, error: Exception) -> Exception:
        if isinstance(error, RotaError):
            return error
        if isinstance(error, OUR_MISTAKES):
            log.error("event failed", kind=type(entry.event).__name__, exc_info=error)
            return error
        self.store_problem = f"{type(error).__name__}: {error}"
        log.error("store failed", problem=self.store_problem)
        return _unwritten()

    def _forget_uncommitted(self) -> None:
        """A rollback took new lanes back: read the book again, now or in the next transaction."""
        self._has_lanes = False
        self._runs.roll_back()
        try:
            self._database.read(self._lanes.read)
        except Exception as error:  # noqa: BLE001 - the store is away; the next batch will say so
            self.store_problem = f"{type(error).__name__}: {error}"
        else:
            self._has_lanes = True

    def _count(self, entries: Sequence[Entry], result: BatchResult) -> None:
        figures, decisions = self._figures, result.decisions
        figures.batches += 1
        figures.batched_events += len(entries)
        figures.forgotten += result.applied.forgotten
        figures.leased += len(decisions.get(LeaseTask, ()))
        if added := decisions.get(AddTask):
            queues = Counter([one.task.queue for one in added])
            figures.note_submitted(queues, result.now_ms)
        if finished := decisions.get(FinishTask):
            figures.note_finished([(one.queue, one.state) for one in finished], result.now_ms)
        for requeued in decisions.get(RequeueTask, ()):
            figures.requeued[requeued.ended.ending] += 1
        for removed in decisions.get(RemoveWorker, ()):
            figures.evicted_workers += removed.reason != "left"
            log.info("worker removed", worker_id=removed.worker_id, reason=removed.reason)
        for noted in decisions.get(NoteWatch, ()):
            if noted.held_because is not None:
                figures.held_sweeps[noted.held_because] += 1
                log.warning("evictions held back", reason=noted.held_because)
        for outcome in result.outcomes:
            if isinstance(outcome, Outcomes):
                figures.refused_results.update(one for one in outcome.outcomes if one != "accepted")


def _unwritten() -> Unavailable:
    return Unavailable("the store cannot be written now; nothing was changed")
