"""Hands each attempt to its runner, and its outcome to the reporter.

Every attempt that begins ends once. `free_slots` counts attempts until they end, so a handler that
ignores its stop still occupies its slot.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from rota.messages import LeaseView, ResultItem
from rota.sdk.outcomes import TIMEOUT, UNKNOWN_TASK, failure
from rota.sdk.task import Place, Task
from rota.sdk.timing import now_s
from rota.sdk.worker.attempt_log import AttemptLog
from rota.sdk.worker.batching import BatchGatherer
from rota.sdk.worker.runners.in_process import (
    TIMED_OUT,
    Attempt,
    BatchAttempt,
    LogSink,
    LoopRunner,
    ProgressSink,
    ThreadRunner,
)
from rota.sdk.worker.runners.process_runner import ProcessRunner


class Runner(Protocol):
    """Runs handlers in one place."""

    def begin(self, attempts: Iterable[Attempt]) -> None: ...
    def stop(self, attempt: Attempt) -> None: ...
    async def close(self, *, is_hurried: bool) -> None: ...


class Executor:
    """Runs attempts on the event loop it is made on, in threads and in processes."""

    def __init__(
        self,
        tasks: Mapping[str, Task[..., Any]],
        *,
        concurrency: int,
        report: Callable[[LeaseView, ResultItem], None],
        on_progress: ProgressSink,
        log_sink: LogSink,
        on_free_slot: Callable[[], None],
    ) -> None:
        self.running: dict[str, Attempt] = {}  # begun and not settled, by task id
        self.begun = 0  # attempts in total
        self._lingering: set[Attempt] = set()  # settled and not ended
        self._tasks = tasks
        self._concurrency = concurrency
        self._report = report
        self._on_progress = on_progress
        self._log_sink = log_sink
        self._on_free_slot = on_free_slot
        self._loop = asyncio.get_running_loop()
        self._attempt_log = AttemptLog()
        self._gatherer = BatchGatherer(self._begin_batch)
        self._runners: dict[Place, Runner] = {
            "loop": LoopRunner(self._end),
            "thread": ThreadRunner(self._end, limit=concurrency),
            "process": ProcessRunner(self._end),
        }

    @property
    def free_slots(self) -> int:
        return self._concurrency - len(self.running) - len(self._lingering)

    @property
    def is_idle(self) -> bool:
        return not self.running and not self._lingering

    def begin(self, leases: Iterable[LeaseView]) -> None:
        now, attempt_log = now_s(), self._attempt_log
        by_place: dict[Place, list[Attempt]] = {}
        for lease in leases:
            self.begun += 1
            task = self._tasks.get(lease.name)
            if task is None:
                text = f"this worker has no task named {lease.name!r}"
                self._note_end(lease, failure(lease, UNKNOWN_TASK, text), began_at=now)
                continue
            attempt = Attempt(lease, task, self._on_progress, self._log_sink, now)
            self.running[lease.task_id] = attempt
            if attempt_log.is_full:  # nearly always, in a busy worker
                attempt_log.omitted += 1
            else:
                attempt_log.note_begun(lease)
            if lease.deadline_ms is not None:
                self._set_timer(attempt)
            if task.batch is not None:
                self._gatherer.add(attempt)
                continue
            by_place.setdefault(task.run_in, []).append(attempt)
        for place, attempts in by_place.items():
            self._runners[place].begin(attempts)

    def stop(self, attempt: Attempt, reason: str) -> None:
        """Settle an attempt as stopped; its handler ends when it can."""
        if attempt.is_settled:
            return
        attempt.stop_reason = reason
        self._settle(attempt)
        self._lingering.add(attempt)
        if reason == TIMED_OUT:
            self._report_timeout(attempt)
        if self._gatherer.drop(attempt):
            self._lingering.discard(attempt)
            self._on_free_slot()
            return
        batch = attempt.batch
        if batch is None:
            self._runners[attempt.task.run_in].stop(attempt)
        elif all(one.is_settled for one in batch.members):
            batch.stop_reason = reason
            self._runners[attempt.task.run_in].stop(batch)

    def stop_all(self, reason: str) -> None:
        for attempt in list(self.running.values()):
            self.stop(attempt, reason)

    async def close(self, *, is_hurried: bool = False) -> None:
        """Release threads and processes; in a hurry without waiting for handlers."""
        self._attempt_log.close()
        for runner in self._runners.values():
            await runner.close(is_hurried=is_hurried)

    def _begin_batch(self, batch: BatchAttempt) -> None:
        self._runners[batch.task.run_in].begin([batch])

    def _end(self, attempt: Attempt, item: ResultItem) -> None:
        if isinstance(attempt, BatchAttempt):
            for one, own in zip(attempt.members, attempt.items, strict=True):
                one.batch = None
                self._end(one, own)
            return
        if attempt.is_settled:
            self._lingering.discard(attempt)
        else:
            self._settle(attempt)
            lease, attempt_log = attempt.lease, self._attempt_log
            if item.ok and attempt_log.is_full:  # as in `begin`
                attempt_log.omitted += 1
            else:
                attempt_log.note_ended(lease, item, began_at=attempt.leased_at)
            self._report(lease, item)
        self._on_free_slot()

    def _note_end(self, lease: LeaseView, item: ResultItem, *, began_at: float) -> None:
        self._attempt_log.note_ended(lease, item, began_at=began_at)
        self._report(lease, item)

    def _settle(self, attempt: Attempt) -> None:
        attempt.is_settled = True
        if attempt.timer is not None:
            attempt.timer.cancel()
            attempt.timer = None
        task_id, running = attempt.lease.task_id, self.running
        # The same task may be here again, under a newer fence.
        if running.get(task_id) is attempt:
            del running[task_id]

    def _set_timer(self, attempt: Attempt) -> None:
        lease = attempt.lease
        if lease.timeout_ms is not None:
            left_s = lease.timeout_ms / 1000
        else:  # the coordinator's clock may differ from this one; better than no limit
            assert lease.deadline_ms is not None
            left_s = max(0.0, lease.deadline_ms / 1000 - time.time())
        attempt.timer = self._loop.call_later(left_s, self.stop, attempt, TIMED_OUT)

    def _report_timeout(self, attempt: Attempt) -> None:
        lease = attempt.lease
        limit = "time" if lease.timeout_ms is None else f"{lease.timeout_ms} ms"
        item = failure(lease, TIMEOUT, f"ran past its {limit}")
        self._note_end(lease, item, began_at=attempt.leased_at)
