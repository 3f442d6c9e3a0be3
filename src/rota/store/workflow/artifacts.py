"""Artifacts: named blobs that tasks attach to their runs.

An artifact is staged under the fence of the attempt that attached it. The transaction that accepts
the result of this attempt commits it; a transaction that ends the attempt otherwise drops it. Rows
name files that are stored elsewhere: methods that delete rows return the files that are unused now.
"""

from collections.abc import Iterable

from msgspec.structs import asdict

from rota.core.quotas import Amount, Usage
from rota.core.workflow.records import Artifact
from rota.store.database import NEWEST, Transaction, decoding

_amount = decoding(Amount, size=int)


class ArtifactStore:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def stage(
        self, artifact: Artifact, content: bytes | None, *, owner: str | None = None
    ) -> list[str]:
        """Store an artifact until its attempt ends; replaces one of that attempt and name.

        It counts against the quota of its owner, staged or committed.
        """
        fields = asdict(artifact)
        replaced = self._tx.column("artifacts.unstage", **fields)
        self._tx.pipeline("artifacts.stage", **fields, content=content, owner=owner)
        return _files(replaced)

    def staged_usage(self, task_id: int, fence: int) -> Amount:
        """The number and size of the artifacts that an attempt has attached so far."""
        (found,) = self._tx.records(_amount, "artifacts.staged_usage", task=task_id, fence=fence)
        return found

    def usage(self, now_ms: int) -> Usage:
        """Count all artifacts. Reads every row of an index: not for every call."""
        rows = self._tx.rows("artifacts.usage")
        sums = {owner: Amount(count, size) for owner, count, size in rows}
        return Usage.counted(sums, now_ms=now_ms)

    def has_staged(self) -> bool:
        return bool(self._tx.value("artifacts.has_staged"))

    def commit(self, attempts: Iterable[tuple[int, int]], *, now_ms: int) -> None:
        """Commit what completed attempts have staged; each pair is a task and a fence."""
        rows = [(now_ms, task, fence) for task, fence in attempts]
        self._tx.pipeline_many("artifacts.commit", ("committed_at_ms", "task", "fence"), rows)

    def drop_staged(self, tasks: list[int]) -> list[str]:
        """Drop what ended attempts of these tasks have staged."""
        return _files(self._tx.column("artifacts.drop_staged", tasks=tasks)) if tasks else []

    def drop_of_runs(self, runs: list[int]) -> list[str]:
        return _files(self._tx.column("artifacts.drop_of_runs", runs=runs)) if runs else []

    def files(self) -> set[str]:
        return set(self._tx.column("artifacts.files"))

    # --- reading ----------------------------------------------------------------------------------

    def page(self, run_id: int, *, limit: int, before: int | None) -> list[Artifact]:
        """Committed artifacts of a run, newest first."""
        start = NEWEST if before is None else before
        return self._tx.records(Artifact, "artifacts.page", run=run_id, before=start, limit=limit)

    def newest(self, run_id: int, name: str) -> Artifact | None:
        """The committed artifact of this name that was attached last."""
        return self._tx.record(Artifact, "artifacts.newest", run=run_id, name=name)

    def content(self, artifact_id: int) -> bytes | None:
        content: bytes | None = self._tx.value("artifacts.content", id=artifact_id)
        return content


def _files(files: Iterable[str | None]) -> list[str]:
    return [file for file in files if file is not None]
