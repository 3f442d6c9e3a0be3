"""Artifacts inside the transaction: staged, then committed or dropped with their attempt."""

from collections.abc import Mapping
from typing import Any

from rota.core import limits
from rota.core.decisions import Decision, FinishTask, RequeueTask
from rota.core.ids import TaskId, to_text
from rota.core.snapshot import Snapshot
from rota.core.tasks import TaskState
from rota.core.workflow.commands import StageArtifact
from rota.core.workflow.records import Artifact
from rota.engine.runs import RunCache
from rota.errors import Invalid, RunNotFound, StaleLease, TooLarge
from rota.store.artifacts import Artifacts
from rota.store.database import Transaction
from rota.store.lanes import Lanes
from rota.store.runs import Runs
from rota.store.tasks import Tasks


class ArtifactKeeper:
    def __init__(self, tx: Transaction, lanes: Lanes, snapshot: Snapshot, cache: RunCache) -> None:
        self._artifacts = Artifacts(tx)
        self._runs = Runs(tx)
        self._tasks = Tasks(tx, lanes)
        self._snapshot = snapshot
        self._cache = cache
        self.dropped: list[str] = []  # files that nobody needs once this is committed

    def stage(self, command: StageArtifact) -> Artifact:
        """Keep what a leased task attaches to its run, until its attempt has ended."""
        self._check(command)
        artifact = Artifact(
            id=0,
            run=command.run_id,
            name=command.name,
            task=command.task_id,
            fence=command.fence,
            media_type=command.media_type,
            size=command.size,
            file=command.file,
            created_at_ms=self._snapshot.now_ms,
        )
        self.dropped += self._artifacts.stage(artifact, command.content)
        self._cache.has_staged = True
        return artifact

    def _check(self, command: StageArtifact) -> None:
        task_id, task_text = TaskId(command.task_id), to_text(command.task_id)
        if command.run_id not in self._runs.by_ids([command.run_id]):
            raise RunNotFound(to_text(command.run_id))
        run_id, _ = self._runs.tasks([task_id]).get(task_id, (None, None))
        if run_id != command.run_id:
            run_text = to_text(command.run_id)
            detail = f"task {task_text!r} does not work for run {run_text!r}"
            raise Invalid(detail, field="task_id")
        if self._fence(task_id) != command.fence:
            raise StaleLease(task_text)
        most = limits.MAX_ARTIFACTS_PER_ATTEMPT
        if self._artifacts.count_staged(task_id, command.fence) >= most:
            raise TooLarge(f"an attempt attaches at most {most} artifacts", limit=most)

    def _fence(self, task_id: TaskId) -> int | None:
        """Of the task's lease, as it stands in this batch; None when it has none."""
        snapshot = self._snapshot
        if task_id in snapshot.finished or task_id in snapshot.requeued:
            return None
        lease = snapshot.leases.get(task_id) or self._tasks.leases([task_id]).get(task_id)
        return None if lease is None else lease.fence

    def settle(self, decisions: Mapping[type[Decision], list[Any]]) -> None:
        """Attempts have ended: what the good ones brought stays, the rest goes."""
        if not self._cache.has_staged:
            return
        finished: list[FinishTask] = decisions.get(FinishTask, [])
        requeued: list[RequeueTask] = decisions.get(RequeueTask, [])
        completed = [(one.id, one.fence) for one in finished if one.state is TaskState.SUCCEEDED]
        if completed:
            self._artifacts.commit(completed, now_ms=self._snapshot.now_ms)
        ended = [*(one.id for one in finished), *(one.id for one in requeued)]
        self.dropped += self._artifacts.drop_staged([*ended])

    def forget(self, runs: list[int]) -> None:
        self.dropped += self._artifacts.drop_of_runs(runs)
