"""Who runs what? Attempts go to the runner of their task's place, and their ends to the reporter.

Every attempt that is begun ends once, whatever happens in between; `free` counts what has begun
and not ended, so a handler that does not stop when told still takes up its place.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import structlog

from rota.messages import LeaseView, ResultItem
from rota.sdk.attempts import TIMED_OUT, Attempt, ProgressSink
from rota.sdk.loop_runner import LoopRunner
from rota.sdk.outcomes import TIMEOUT, UNKNOWN_TASK, failure
from rota.sdk.process_runner import ProcessRunner
from rota.sdk.sessions import now_s
from rota.sdk.tasks import Place, Task
from rota.sdk.thread_runner import ThreadRunner

log = structlog.get_logger("rota.worker")

Report = Callable[[LeaseView, ResultItem], None]


class Runner(Protocol):
    def begin(self, attempts: Iterable[Attempt]) -> None: ...
    def stop(self, attempt: Attempt) -> None: ...
    async def close(self, *, is_hurried: bool) -> None: ...


class Executor:
    """Runs attempts on the event loop it was made on, in threads and in processes."""

    def __init__(
        self,
        tasks: Mapping[str, Task[..., Any]],
        *,
        concurrency: int,
        report: Report,
        on_progress: ProgressSink,
        on_room: Callable[[], None],
    ) -> None:
        self.running: dict[str, Attempt] = {}  # begun and not settled, by task id
        self.begun = 0  # attempts ever begun
        self._lingering: set[Attempt] = set()  # settled and not ended
        self._tasks = tasks
        self._concurrency = concurrency
        self._report = report
        self._on_progress = on_progress
        self._on_room = on_room
        self._loop = asyncio.get_running_loop()
        self._runners: dict[Place, Runner] = {
            "loop": LoopRunner(self._end),
            "thread": ThreadRunner(self._end, limit=concurrency),
            "process": ProcessRunner(self._end),
        }

    @property
    def free(self) -> int:
        return self._concurrency - len(self.running) - len(self._lingering)

    @property
    def is_idle(self) -> bool:
        return not self.running and not self._lingering

    def begin(self, leases: Iterable[LeaseView]) -> None:
        now = now_s()
        places: dict[Place, list[Attempt]] = {}
        for lease in leases:
            self.begun += 1
            task = self._tasks.get(lease.name)
            if task is None:
                text = f"this worker has no task named {lease.name!r}"
                self._report(lease, failure(lease, UNKNOWN_TASK, text))
                continue
            attempt = Attempt(lease, task, self._on_progress, now)
            self.running[lease.task_id] = attempt
            if lease.deadline_ms is not None:
                self._set_alarm(attempt)
            places.setdefault(task.run_in, []).append(attempt)
        for place, attempts in places.items():
            self._runners[place].begin(attempts)

    def stop(self, attempt: Attempt, reason: str) -> None:
        """Stop an attempt: its fate is sealed now, its handler ends when it can."""
        if attempt.is_settled:
            return
        attempt.stop_reason = reason
        self._settle(attempt)
        self._lingering.add(attempt)
        if reason == TIMED_OUT:
            self._report(attempt.lease, _timed_out(attempt.lease))
        self._runners[attempt.task.run_in].stop(attempt)

    def stop_all(self, reason: str) -> None:
        for attempt in list(self.running.values()):
            self.stop(attempt, reason)

    async def close(self, *, is_hurried: bool = False) -> None:
        """Let go of threads and processes; in a hurry without waiting for last words."""
        for runner in self._runners.values():
            await runner.close(is_hurried=is_hurried)

    def _end(self, attempt: Attempt, item: ResultItem) -> None:
        if attempt.is_settled:
            self._lingering.discard(attempt)
        else:
            self._settle(attempt)
            self._report(attempt.lease, item)
        self._on_room()

    def _settle(self, attempt: Attempt) -> None:
        attempt.is_settled = True
        if attempt.alarm is not None:
            attempt.alarm.cancel()
            attempt.alarm = None
        # By now the same task may be here once more, under a newer fence.
        if self.running.get(attempt.lease.task_id) is attempt:
            del self.running[attempt.lease.task_id]

    def _set_alarm(self, attempt: Attempt) -> None:
        lease = attempt.lease
        if lease.timeout_ms is not None:
            left_s = lease.timeout_ms / 1000
        else:  # the coordinator's clock may differ from ours; better than no limit
            assert lease.deadline_ms is not None
            left_s = max(0.0, lease.deadline_ms / 1000 - time.time())
        attempt.alarm = self._loop.call_later(left_s, self.stop, attempt, TIMED_OUT)


def _timed_out(lease: LeaseView) -> ResultItem:
    log.warning("attempt timed out", task_id=lease.task_id, task=lease.name)
    limit = "time" if lease.timeout_ms is None else f"{lease.timeout_ms} ms"
    return failure(lease, TIMEOUT, f"ran past its {limit}")
