"""Batches: attempts of one task that are gathered and run by one call of its handler.

Theory of operation. Each attempt of a batch is one of its own: it has its lease, its time limit and
its result, and can be stopped alone. `BatchGatherer` keeps attempts until a batch is full, or until
the oldest has waited long enough. The batch then goes through its runner as a `BatchAttempt`, which
stands for all of them there.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from rota.sdk.task import Task
from rota.sdk.worker.runners.in_process import Attempt, BatchAttempt

OnReady = Callable[[BatchAttempt], None]


class BatchGatherer:
    """The attempts that wait for their batch, by task."""

    def __init__(self, on_ready: OnReady) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_ready = on_ready
        self._waiting: dict[str, list[Attempt]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def add(self, attempt: Attempt) -> None:
        """Keep an attempt; begin its batch if that is full."""
        task = attempt.task
        assert task.batch is not None
        waiting = self._waiting.setdefault(task.name, [])
        waiting.append(attempt)
        if len(waiting) >= task.batch.size:
            self._begin(task)
        elif len(waiting) == 1:
            wait_s = task.batch.wait_ms / 1000
            self._timers[task.name] = self._loop.call_later(wait_s, self._begin, task)

    def drop(self, attempt: Attempt) -> bool:
        """Take out an attempt that was stopped; False: its batch has begun, or it has none."""
        waiting = self._waiting.get(attempt.lease.name, [])
        if attempt not in waiting:
            return False
        waiting.remove(attempt)
        if not waiting:
            self._take(attempt.task)
        return True

    def _begin(self, task: Task[..., Any]) -> None:
        self._on_ready(BatchAttempt(self._take(task)))

    def _take(self, task: Task[..., Any]) -> list[Attempt]:
        timer = self._timers.pop(task.name, None)
        if timer is not None:
            timer.cancel()
        return self._waiting.pop(task.name)
