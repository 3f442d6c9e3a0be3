"""Pushes the tasks of queues to servers, while this coordinator leads.

Theory of operation. Each pushed queue has a worker, `push:QUEUE`, that registers, sends heartbeats,
leases and reports like any other. So limits, fences, back-off, circuit breakers and the reasons why
tasks wait hold without a rule of their own. When the leader is killed, the next one registers the
worker again, and its tasks return to the queue as those of any lost worker do. When the leader
stops, the worker leaves, and its tasks return without an attempt being used up.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, assert_never

import structlog
from msgspec import Struct

from rota.core import limits
from rota.core.access import LOCAL
from rota.core.commands import (
    BeatWorker,
    LeaseWork,
    LeaveWorker,
    RegisterWorker,
    ReportResults,
    Result,
)
from rota.core.ids import TaskId, to_text
from rota.core.outbound.push import (
    WORKER_PREFIX,
    ClosePush,
    PushBusy,
    PushRecord,
    PushRefused,
    PushSucceeded,
    PushVerdict,
    body_of_task,
    verdict_of,
)
from rota.core.outbound.signatures import signed_headers
from rota.core.replies import CommandBase
from rota.core.tasks.model import TaskError, TaskRecord
from rota.engine.clock import Clock
from rota.engine.metrics.outbound import OutboundMetrics, OutboundOutcome
from rota.engine.outbound.client import OutboundClient, OutboundFailed, OutboundRequest
from rota.engine.outbound.responses import problem_of, retry_after_ms
from rota.engine.polling import Poller
from rota.engine.queries.queues import QueueQueries
from rota.errors import RotaError

log = structlog.get_logger("rota.push")

INTERVAL_S = 0.5  # between two looks at what is pushed
EMPTY_S = 1.0  # the same, while nothing is
BEAT_S = 2.0
HEARTBEAT_INTERVAL_MS = 5_000
LEASE_WAIT_MS = 20_000
PAUSE_S = 0.5  # after a refusal, an empty answer that came at once, and while it is closed
REPORT_TRIES = 5
LEAVE_S = 2.0  # how long a stop waits for the worker to leave
GROUP = "push"
UNAVAILABLE = 503  # the status of errors that pass
NOT_ANSWERED = "push_failed"  # the type of the error of a request without an answer

Execute = Callable[[CommandBase[Any]], Awaitable[Any]]


class PushParts(Struct, frozen=True, kw_only=True):
    """What all pushers share."""

    execute: Execute
    client: OutboundClient
    clock: Clock
    metrics: OutboundMetrics
    node_id: str  # the name of this coordinator
    slots: asyncio.Semaphore  # of requests of all queues under way


class PushRunner:
    """Has one pusher for each pushed queue."""

    def __init__(self, parts: PushParts, queues: QueueQueries, last_seq: Callable[[], int]) -> None:
        self._parts = parts
        self._queues = queues
        self._last_seq = last_seq
        self._seen_seq = -1
        self._pushers: dict[str, TaskPusher] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._poller = Poller(self._look, self._pause, log=log, failure="pushed_queues_unknown")

    def start(self) -> None:
        self._poller.start()

    async def stop(self) -> None:
        await self._poller.stop()
        for task in self._leaving:
            task.cancel()
        stopping = [one.stop() for one in self._pushers.values()]
        await asyncio.gather(*self._leaving, *stopping, return_exceptions=True)

    async def _pause(self) -> None:
        await asyncio.sleep(INTERVAL_S if self._pushers else EMPTY_S)

    async def _look(self) -> None:
        """Follow what is set: begin, change and end pushers."""
        last_seq = self._last_seq()
        if self._pushers and last_seq == self._seen_seq:
            return
        wanted = await self._queues.pushed()
        for queue in self._pushers.keys() - wanted.keys():
            leaving = asyncio.create_task(self._pushers.pop(queue).finish())
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)
        for queue, record in wanted.items():
            if queue in self._pushers:
                self._pushers[queue].use(record)
            else:
                self._pushers[queue] = TaskPusher(record, self._parts)
                self._pushers[queue].start()
        self._seen_seq = last_seq


class TaskPusher:
    """The worker of one pushed queue."""

    def __init__(self, record: PushRecord, parts: PushParts) -> None:
        self._record = record
        self._parts = parts
        self._worker_id = f"{WORKER_PREFIX}{record.queue}"
        self._incarnation: int | None = None
        self._has_new_size = False
        self._closed_until_ms = record.closed_until_ms
        self._pushing: dict[TaskId, asyncio.Task[None]] = {}
        self._has_room = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._lease_all()),
            asyncio.create_task(self._beat_all()),
        ]

    def use(self, record: PushRecord) -> None:
        """Push from now on as this says; requests under way go on."""
        if record.changed_at_ms != self._record.changed_at_ms:
            self._closed_until_ms = record.closed_until_ms
        # Another number of places is registered under the same incarnation: leases stay.
        self._has_new_size |= record.spec.concurrency != self._record.spec.concurrency
        self._record = record
        self._has_room.set()

    async def finish(self) -> None:
        """Lease no more, and leave when the requests under way have ended."""
        self._tasks[0].cancel()
        await asyncio.gather(self._tasks[0], return_exceptions=True)
        try:
            if self._pushing:
                await asyncio.wait([*self._pushing.values()])
        finally:
            await self.stop()

    async def stop(self) -> None:
        """End everything at once; what was leased returns to the queue."""
        ended = [*self._tasks, *self._pushing.values()]
        for task in ended:
            task.cancel()
        await asyncio.gather(*ended, return_exceptions=True)
        if self._incarnation is None:
            return
        leave = LeaveWorker(worker_id=self._worker_id, incarnation=self._incarnation)
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._parts.execute(leave)
        except (RotaError, TimeoutError):
            # The next leader registers it again, or its lease runs out.
            log.warning("push_worker_not_left", worker_id=self._worker_id)

    # --- leases -----------------------------------------------------------------------------------

    async def _lease_all(self) -> None:
        while True:
            try:
                await self._lease()
            except RotaError as error:
                # Evicted, or there is no leader: register again.
                log.warning("push_interrupted", worker_id=self._worker_id, code=error.code)
                self._incarnation = None
                await asyncio.sleep(PAUSE_S)

    async def _lease(self) -> None:
        if self._incarnation is None or self._has_new_size:
            await self._register()
        if self._closed_until_ms > self._parts.clock.now_ms():
            await asyncio.sleep(PAUSE_S)
            return
        room = self._record.spec.concurrency - len(self._pushing)
        if room <= 0:
            self._has_room.clear()
            await self._has_room.wait()
            return
        assert self._incarnation is not None
        started_s = asyncio.get_running_loop().time()
        granted = await self._parts.execute(
            LeaseWork(
                worker_id=self._worker_id,
                incarnation=self._incarnation,
                most=room,
                wait_ms=LEASE_WAIT_MS,
            )
        )
        for task in granted.leases:
            self._pushing[task.id] = asyncio.create_task(self._push(task, self._incarnation))
        if not granted.leases and asyncio.get_running_loop().time() - started_s < PAUSE_S:
            await asyncio.sleep(PAUSE_S)  # the coordinator is about to stop

    async def _register(self) -> None:
        reply = await self._parts.execute(
            RegisterWorker(
                worker_id=self._worker_id,
                node_id=self._parts.node_id,
                incarnation=self._incarnation,
                max_concurrent_tasks=self._record.spec.concurrency,
                queues=(self._record.queue,),
                heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
                group=GROUP,
                by=LOCAL,  # so that no tenant can register under its id
            )
        )
        self._has_new_size = False
        self._incarnation = reply.worker.incarnation

    async def _beat_all(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            if self._incarnation is None:
                continue
            running = tuple(self._pushing)
            beat = BeatWorker(
                worker_id=self._worker_id, incarnation=self._incarnation, running=running
            )
            try:
                reply = await self._parts.execute(beat)
            except RotaError:
                continue  # the call for leases hears of it, too
            for task_id in (*reply.cancel, *reply.lost):
                if task_id in self._pushing:
                    self._pushing[task_id].cancel()

    # --- requests ---------------------------------------------------------------------------------

    async def _push(self, task: TaskRecord, incarnation: int) -> None:
        try:
            async with self._parts.slots:
                pause_ms = self._closed_until_ms - self._parts.clock.now_ms()
                verdict = await self._exchange(task) if pause_ms <= 0 else None
            if verdict is None:
                # Leased by a call that waited while the server asked for its pause.
                await self._report(snoozed(task, pause_ms), incarnation)
            else:
                await self._settle(task, verdict, incarnation)
        except RotaError as error:
            # The task is no longer listed as running, and returns to its queue.
            log.warning("push_not_reported", task_id=to_text(task.id), code=error.code)
        finally:
            del self._pushing[task.id]
            self._has_room.set()

    async def _settle(self, task: TaskRecord, verdict: PushVerdict, incarnation: int) -> None:
        """Report what the server has answered, and close the queue if it asks for that."""
        outcome, is_last = outcome_of(verdict), is_given_up(task, verdict)
        self._parts.metrics.note("push", outcome, is_last=is_last)
        if isinstance(verdict, PushBusy):
            until_ms = self._parts.clock.now_ms() + verdict.pause_ms
            self._closed_until_ms = max(self._closed_until_ms, until_ms)
        await self._report(result_of(task, verdict), incarnation)
        if isinstance(verdict, PushBusy):
            queue, until_ms = self._record.queue, self._closed_until_ms
            await self._parts.execute(ClosePush(queue=queue, until_ms=until_ms))

    async def _exchange(self, task: TaskRecord) -> PushVerdict:
        record, now_ms = self._record, self._parts.clock.now_ms()
        body = body_of_task(task)
        timeout_ms = record.spec.timeout_ms
        if task.deadline_ms is not None:
            timeout_ms = max(1, min(timeout_ms, task.deadline_ms - now_ms))
        signed = signed_headers(record.secret, to_text(task.id), body, now_s=now_ms // 1000)
        request = OutboundRequest(
            url=record.spec.url,
            body=body,
            headers={**record.spec.headers, **signed},
            timeout_ms=timeout_ms,
            max_answer_bytes=limits.MAX_PUSH_RESULT_BYTES,
        )
        try:
            with self._parts.metrics.measure("push"):
                answer = await self._parts.client.post(request)
        except OutboundFailed as failure:
            return PushRefused(TaskError(type=NOT_ANSWERED, message=str(failure)))
        return verdict_of(
            answer.status,
            answer.body,
            is_cut=answer.is_cut,
            problem=problem_of(answer),
            retry_after_ms=retry_after_ms(answer, now_ms=now_ms),
        )

    async def _report(self, result: Result, incarnation: int) -> None:
        command = ReportResults(
            worker_id=self._worker_id, incarnation=incarnation, results=[result]
        )
        for left in range(REPORT_TRIES, 0, -1):
            try:
                await self._parts.execute(command)
            except RotaError as error:
                if left == 1 or error.status != UNAVAILABLE:
                    raise
                await asyncio.sleep(PAUSE_S)
            else:
                return


def result_of(task: TaskRecord, verdict: PushVerdict) -> Result:
    """The report about a task that was pushed."""
    match verdict:
        case PushSucceeded(result=result):
            return Result(task.id, task.fence, result=result)
        case PushRefused(error=error):
            return Result(task.id, task.fence, ok=False, error=error)
        case PushBusy(pause_ms=pause_ms):
            return snoozed(task, pause_ms)
        case _:
            assert_never(verdict)


def snoozed(task: TaskRecord, pause_ms: int) -> Result:
    """The report that returns a task until later, without using up an attempt."""
    return Result(task.id, task.fence, ok=False, snooze_ms=pause_ms)


def outcome_of(verdict: PushVerdict) -> OutboundOutcome:
    """How a request has ended, for the metrics."""
    match verdict:
        case PushSucceeded():
            return "delivered"
        case PushRefused(error=error):
            return "failed" if error.type == NOT_ANSWERED else "refused"
        case PushBusy():
            return "busy"
        case _:
            assert_never(verdict)


def is_given_up(task: TaskRecord, verdict: PushVerdict) -> bool:
    """Whether a task has failed for good by this answer."""
    if not isinstance(verdict, PushRefused):
        return False
    return not verdict.error.retryable or task.attempt >= task.options.max_attempts
