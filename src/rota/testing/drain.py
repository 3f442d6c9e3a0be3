"""Runs queued work in a test, one task at a time, until none is left."""

from collections.abc import Generator, Mapping, Sequence
from typing import Any

from msgspec import Raw

from rota.core import limits
from rota.core.tasks.logs import LogLine
from rota.messages import LeaseRequest, LeaseView, ProgressItem, ResultItem, WorkerRegistration
from rota.sdk.client import calls
from rota.sdk.client.client import Client
from rota.sdk.functions.workflow import ResumptionTask
from rota.sdk.task import Task
from rota.sdk.worker.log_reporting import log_item
from rota.testing.functions import TestedFunctions
from rota.testing.handlers import Performed, TrialAttempt, performed

WORKER_ID = "rota-testing"
MAX_ATTEMPTS = 10_000  # of one drain; more means that tasks enqueue tasks without end


class Drained:
    """The outcomes of a drain, in order."""

    def __init__(self) -> None:
        self.performed: list[Performed[Any]] = []

    def __repr__(self) -> str:
        return f"<Drained succeeded={self.succeeded} failed={self.failed} snoozed={self.snoozed}>"

    def __len__(self) -> int:
        return len(self.performed)

    @property
    def succeeded(self) -> int:
        return self._count("succeeded")

    @property
    def failed(self) -> int:
        """Failed attempts, with those that are retried."""
        return self._count("failed")

    @property
    def snoozed(self) -> int:
        return self._count("snoozed")

    def results(self, name: str) -> list[Any]:
        """The results of the successful calls of one task."""
        return [
            one.result for one in self.performed if one.name == name and one.outcome == "succeeded"
        ]

    def _count(self, outcome: str) -> int:
        return sum(one.outcome == outcome for one in self.performed)


class Drain:
    """Leases the given tasks one by one, and reports their outcomes."""

    def __init__(
        self,
        client: Client,
        tasks: Mapping[str, Task[..., Any]],
        drained: Drained,
        functions: TestedFunctions,
    ) -> None:
        self.drained = drained
        self._functions = functions
        self._client = client
        self._tasks = tasks

    def steps(self) -> Generator[TrialAttempt, ResultItem, None]:
        """Yield the attempts to run, one by one; the caller sends the outcome of each."""
        registration = WorkerRegistration(
            worker_id=WORKER_ID,
            node_id=WORKER_ID,
            tasks=sorted(self._tasks),
            capabilities=sorted({*self._required(), *self._functions.capabilities}),
            max_concurrent_tasks=limits.MAX_CONCURRENT_TASKS,
        )
        worker = self._client.run(calls.register_worker(registration))
        try:
            request = LeaseRequest(incarnation=worker.incarnation, max=1)
            while leases := self._client.run(calls.lease(WORKER_ID, request)).leases:
                yield from self._one(leases[0], worker.incarnation)
        finally:
            self._client.run(calls.leave_worker(WORKER_ID))

    def _one(self, lease: LeaseView, incarnation: int) -> Generator[TrialAttempt, ResultItem, None]:
        if len(self.drained) >= MAX_ATTEMPTS:
            raise AssertionError(
                f"not finished after {MAX_ATTEMPTS} attempts: a task seems to enqueue itself"
            )
        task = self._tasks[lease.name]
        host = self._functions.host(WORKER_ID, incarnation)
        trial = TrialAttempt(lease, self._functions.fake_task(task), self._report_progress, host)
        item = yield trial
        self.drained.performed.append(performed(trial, item))
        if trial.logged:
            self._report_logs(lease, trial.logged)
        report = calls.report_results(WORKER_ID, incarnation=incarnation, results=[item])
        self._client.run(report)
        if isinstance(task, ResumptionTask) and item.ok:
            self._functions.check(task.workflow, lease, item)

    def _required(self) -> set[str]:
        return {one for task in self._tasks.values() for one in task.requires}

    def _report_logs(self, lease: LeaseView, lines: Sequence[LogLine]) -> None:
        for begin in range(0, len(lines), limits.MAX_LOG_LINES):
            portion = lines[begin : begin + limits.MAX_LOG_LINES]
            item = log_item(lease, portion, first=begin + 1, dropped=0)
            self._client.run(calls.report_logs(WORKER_ID, items=[item]))

    def _report_progress(self, lease: LeaseView, progress: Raw | None, partial: Raw | None) -> None:
        if progress is None and partial is None:
            return
        item = ProgressItem(
            task_id=lease.task_id, fence=lease.fence, progress=progress, partial=partial
        )
        self._client.run(calls.report_progress(WORKER_ID, items=[item]))
