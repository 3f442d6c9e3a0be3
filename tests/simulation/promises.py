"""Does the coordinator keep what it promised, commit after commit?"""

from collections.abc import Callable
from dataclasses import dataclass

from rota.core.tasks.model import Ending
from rota.core.tasks.unique import Release
from rota.core.workers.registry import LIFE_NOTED_MS, LIFE_NOTED_TIMES
from tests.simulation.book import Book
from tests.simulation.invariants import JOB_INCARNATION, demand
from tests.simulation.observer import Grant, Step
from tests.simulation.picture import FinishedRow, WorkerRow

LEASE_INTERVALS = 3


@dataclass
class Promises:
    book: Book
    clock_ms: Callable[[], int]
    keep_ms: int  # how long history is kept
    jumped_ms: Callable[[float], int]  # by how much the clock was set forward since a moment
    holds: Callable[[Grant], bool]  # whether a living worker has this lease in its hands
    went_on_s: Callable[[], float]  # when time last passed by leaps for the coordinator
    started_s: float = 0.0  # when the coordinator last started

    def check(self, step: Step) -> None:
        """Hold one commit against everything that was said before."""
        for task_id, finished in step.gone_tasks:
            self._check_forgotten(task_id, finished)
        self._check_acknowledged()
        self._check_unique()
        for worker_id, row in step.gone_workers:
            self._check_eviction(worker_id, row)
        for task_id in step.revived:
            is_wanted = self.book.hurried[task_id] > 0
            demand(is_wanted, f"task {task_id:x} came back without anybody's wish")
        for grant in step.released:
            self._check_released(grant)
        for task_id, due_at_ms in step.queued:
            is_early = self.clock_ms() < due_at_ms and not self.book.hurried[task_id]
            demand(not is_early, f"task {task_id:x} was queued before its time")

    def _check_acknowledged(self) -> None:
        """Accepted means kept."""
        now, book = self.book.observer.now, self.book
        missing = book.acknowledged.keys() - now.live.keys() - now.history.keys() - book.forgotten
        demand(not missing, f"acknowledged tasks are lost: {sorted(missing)}")

    def _check_unique(self) -> None:
        """A task holds the key by which it is unique for as long as it says."""
        now = self.book.observer.now
        for task_id, row in now.live.items():
            unique = row.unique
            if unique is None or self.book.hurried[task_id]:
                continue  # a task that an operator has retried does not take its key back
            if unique.release is Release.END or now.fence_of(task_id) == 0:
                holder, _ = now.held.get((now.lanes[row.lane].queue, f"key:{unique.key}"), (0, ""))
                demand(holder == task_id, f"task {task_id:x} lost its key to task {holder:x}")

    def _check_forgotten(self, task_id: int, finished: FinishedRow | None) -> None:
        demand(finished is not None, f"live task {task_id:x} vanished")
        assert finished is not None
        age_ms = self.clock_ms() - finished.finished_at_ms
        demand(age_ms > self.keep_ms, f"task {task_id:x} was forgotten after {age_ms} ms")
        self.book.forgotten.add(task_id)

    def _check_eviction(self, worker_id: str, row: WorkerRow) -> None:
        """A live worker's work is left alone: a worker that was heard of in time stays."""
        if row.incarnation in self.book.leaving:
            return
        lease_ms = LEASE_INTERVALS * row.worker.heartbeat_interval_ms
        heard_s = max(self.book.heard_s(row.incarnation), self.started_s)
        silent_ms = round((self.book.now_s() - heard_s) * 1000) + self.jumped_ms(heard_s)
        text = f"worker {worker_id} was evicted {silent_ms} ms after it was heard of"
        # A call that comes soon after a heartbeat is not noted as one.
        unnoted_ms = min(LIFE_NOTED_MS, row.worker.heartbeat_interval_ms // LIFE_NOTED_TIMES)
        demand(silent_ms + unnoted_ms >= lease_ms, text)

    def _check_released(self, grant: Grant) -> None:
        """A lease goes back unasked only when its worker does not have it."""
        if grant.incarnation in {JOB_INCARNATION, *self.book.leaving}:
            return
        if grant.given_s <= self.went_on_s():
            # A beat from before the lease may then be taken for one from long after it.
            return
        task = self.book.observer.now.live[grant.task_id]
        ending = next(line.ending for line in task.ended if line.fence == grant.fence)
        is_taken = ending is Ending.RELEASED and self.holds(grant)
        demand(not is_taken, f"lease {grant} was taken from a worker that has it")
