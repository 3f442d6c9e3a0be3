"""How does queued work get done in a test? Here and now, one by one, until none is left."""

from collections.abc import Generator, Mapping
from typing import Any

from msgspec import Raw

from rota.core import limits
from rota.messages import LeaseRequest, LeaseView, ProgressItem, ResultItem, WorkerRegistration
from rota.sdk import calls
from rota.sdk.client import Client
from rota.sdk.tasks import Task
from rota.testing.performing import Performed, Rehearsal, told

WORKER_ID = "rota-testing"
MOST_ATTEMPTS = 10_000  # a drain that runs more than this is going round in circles


class Drained:
    """What a drain did, in order."""

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
        """Failed attempts, those that will be tried again included."""
        return self._count("failed")

    @property
    def snoozed(self) -> int:
        return self._count("snoozed")

    def results(self, name: str) -> list[Any]:
        """What the calls of one task came to."""
        return [
            one.result for one in self.performed if one.name == name and one.outcome == "succeeded"
        ]

    def _count(self, outcome: str) -> int:
        return sum(one.outcome == outcome for one in self.performed)


class Drain:
    """Leases for the given tasks and reports what the caller makes of each."""

    def __init__(self, client: Client, tasks: Mapping[str, Task[..., Any]]) -> None:
        self.drained = Drained()
        self._client = client
        self._tasks = tasks

    def steps(self) -> Generator[Rehearsal, ResultItem, None]:
        """Give the attempts to run, one by one, and take what each came to."""
        registration = WorkerRegistration(
            worker_id=WORKER_ID,
            node_id=WORKER_ID,
            tasks=sorted(self._tasks),
            capabilities=sorted({one for task in self._tasks.values() for one in task.requires}),
            max_concurrent_tasks=limits.MAX_CONCURRENT_TASKS,
        )
        worker = self._client.run(calls.register_worker(registration))
        try:
            request = LeaseRequest(incarnation=worker.incarnation, max=1)
            while leases := self._client.run(calls.lease(WORKER_ID, request)).leases:
                yield from self._one(leases[0], worker.incarnation)
        finally:
            self._client.run(calls.leave_worker(WORKER_ID))

    def _one(self, lease: LeaseView, incarnation: int) -> Generator[Rehearsal, ResultItem, None]:
        if len(self.drained) >= MOST_ATTEMPTS:
            raise AssertionError(f"no end after {MOST_ATTEMPTS} attempts: do tasks beget tasks?")
        rehearsal = Rehearsal(lease, self._tasks[lease.name], self._report_progress)
        item = yield rehearsal
        self.drained.performed.append(told(rehearsal, item))
        report = calls.report_results(WORKER_ID, incarnation=incarnation, results=[item])
        self._client.run(report)

    def _report_progress(self, lease: LeaseView, progress: Raw | None, partial: Raw | None) -> None:
        if progress is None and partial is None:
            return
        item = ProgressItem(
            task_id=lease.task_id, fence=lease.fence, progress=progress, partial=partial
        )
        self._client.run(calls.report_progress(WORKER_ID, items=[item]))
