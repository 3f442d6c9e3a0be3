"""Artifacts inside the batch: staged, then committed or dropped when their attempt ends."""

from collections.abc import Mapping, Sequence
from typing import Any

from rota.core import limits
from rota.core.decisions import Decision, FinishTask, RequeueTask
from rota.core.ids import TaskId, to_text
from rota.core.quotas import Bound, Usage, owner_of_stored
from rota.core.tasks.model import TaskState
from rota.core.workflow.commands import CheckArtifact, StageArtifact
from rota.core.workflow.records import Artifact
from rota.engine.commit.batch import Batch
from rota.engine.runs.advancing.run_tasks import check_lease
from rota.errors import Invalid, RunNotFound, TooLarge, TooMany
from rota.store.tasks.tasks import TaskStore
from rota.store.workflow.artifacts import ArtifactStore
from rota.store.workflow.runs import RunStore

# Artifacts are deleted in bulk with their runs. So the usage is counted again when the last count
# is older than this, and earlier (`FULL_KNOWN_MS`) when the count leaves no room.
USAGE_KNOWN_MS = 60_000
FULL_KNOWN_MS = 10_000
ADVICE = "let runs be forgotten sooner (history_keep_ms), or raise the bound"


class ArtifactEngine:
    def __init__(self, batch: Batch) -> None:
        self._artifacts = ArtifactStore(batch.tx)
        self._runs = RunStore(batch.tx)
        self._tasks = TaskStore(batch.tx, batch.lanes)
        self._snapshot = batch.snapshot
        self._context = batch.context
        self._cache = batch.runs
        self._dropped = batch.dropped_files

    def stage(self, command: StageArtifact) -> Artifact:
        """Stage an artifact that a leased task attaches to its run, until its attempt ends."""
        self.check(command)
        artifact = Artifact(
            id=0,
            run=command.run_id,
            name=command.name,
            task=command.task_id,
            fence=command.fence,
            media_type=command.media_type,
            size=command.size,
            file=command.file,
            created_at_ms=self._context.now_ms,
        )
        owner = None if command.by is None else owner_of_stored(command.by)
        self._dropped += self._artifacts.stage(artifact, command.content, owner=owner)
        self._cache.has_staged = True
        self._usage().add(owner, 1, command.size)
        return artifact

    def check(self, command: StageArtifact | CheckArtifact) -> None:
        """Refuse an artifact if the task is not the caller's, or if it exceeds a limit."""
        task_id, task_text = TaskId(command.task_id), to_text(command.task_id)
        if command.run_id not in self._runs.by_ids([command.run_id]):
            raise RunNotFound(to_text(command.run_id))
        run_id, _ = self._runs.tasks([task_id]).get(task_id, (None, None))
        if run_id != command.run_id:
            run_text = to_text(command.run_id)
            detail = f"task {task_text!r} does not work for run {run_text!r}"
            raise Invalid(detail, field="task_id")
        check_lease(self._snapshot, self._tasks, task_id, fence=command.fence, by=command.by)
        count, size = self._artifacts.staged_usage(task_id, command.fence)
        most = limits.MAX_ARTIFACTS_PER_ATTEMPT
        if count >= most:
            raise TooLarge(f"an attempt attaches at most {most} artifacts", limit=most)
        most = self._context.rules.max_attempt_bytes
        if size + command.size > most:
            detail = f"the artifacts of one attempt have at most {most} bytes"
            raise TooLarge(detail, limit=most, setting="max_attempt_bytes")
        self._check_room(command)

    def _check_room(self, command: StageArtifact | CheckArtifact) -> None:
        """Refuse an artifact that exceeds the bound of all artifacts or the caller's share."""
        try:
            self._check_usage(command, self._usage())
        except TooMany:
            usage = self._usage(known_ms=FULL_KNOWN_MS)
            self._check_usage(command, usage)

    def _check_usage(self, command: StageArtifact | CheckArtifact, usage: Usage) -> None:
        bound = Bound("max_artifacts_bytes", self._context.rules.max_artifacts_bytes)
        by, more = command.by, command.size
        by_operator = by is None or by.is_operator
        bound.check(taken=usage.total.size, more=more, by_operator=by_operator, advice=ADVICE)
        if by is not None:
            held = usage.of(owner_of_stored(by)).size
            bound.check_share(held=held, more=more, advice=ADVICE)

    def _usage(self, known_ms: int = USAGE_KNOWN_MS) -> Usage:
        """Return the usage of all artifacts, from a count that is younger than `known_ms`."""
        known, now_ms = self._cache.artifacts, self._context.now_ms
        # A clock that was set back must not keep an old count for long.
        if known is None or not 0 <= now_ms - known.read_at_ms < known_ms:
            known = self._cache.artifacts = self._artifacts.usage(now_ms)
        return known

    def settle(
        self,
        decisions: Mapping[type[Decision], list[Any]],
        reported: Sequence[tuple[TaskId, int]] = (),
    ) -> None:
        """Commit the artifacts of attempts that succeeded, and drop those of all others.

        `reported`: attempts of functions whose operations are logged in this batch. Their artifacts
        are committed with the log, which names those that are results of steps.
        """
        if not self._cache.has_staged:
            return
        finished: list[FinishTask] = decisions.get(FinishTask, [])
        requeued: list[RequeueTask] = decisions.get(RequeueTask, [])
        completed = [(one.id, one.fence) for one in finished if one.state is TaskState.SUCCEEDED]
        completed += reported
        if completed:
            self._artifacts.commit(completed, now_ms=self._context.now_ms)
        ended = [*(one.id for one in finished), *(one.id for one in requeued)]
        self._dropped += self._artifacts.drop_staged([*ended])

    def forget(self, runs: list[int]) -> None:
        self._dropped += self._artifacts.drop_of_runs(runs)
