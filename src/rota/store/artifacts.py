"""Artifacts: named blobs that tasks attach to their runs.

An artifact is staged under the fence of the attempt that brought it. It is committed by the
transaction that accepts this attempt's result, and dropped by the one that ends it otherwise. Files
are named here and lie elsewhere: methods that drop rows answer which files nobody needs any more.
"""

from collections.abc import Iterable

from rota.core.workflow.records import Artifact
from rota.store.database import Row, Transaction

NEWEST = 2**63 - 1


class Artifacts:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def stage(self, artifact: Artifact, content: bytes | None) -> list[str]:
        """Keep an artifact until its attempt ends; replaces what that attempt had of the name."""
        one = artifact
        replaced = self._tx.rows("artifacts.unstage", one.task, one.fence, one.run, one.name)
        self._tx.run(
            "artifacts.stage",
            one.run,
            one.name,
            one.task,
            one.fence,
            one.media_type,
            one.size,
            one.file,
            one.created_at_ms,
            content,
        )
        return _files(replaced)

    def count_staged(self, task_id: int, fence: int) -> int:
        return int(self._tx.rows("artifacts.count_staged", task_id, fence)[0][0])

    def has_staged(self) -> bool:
        return bool(self._tx.rows("artifacts.any_staged")[0][0])

    def commit(self, attempts: Iterable[tuple[int, int]], *, now_ms: int) -> None:
        """Attempts, by task and fence, have completed."""
        self._tx.many("artifacts.commit", [(now_ms, task, fence) for task, fence in attempts])

    def drop_staged(self, tasks: list[int]) -> list[str]:
        """Attempts of these tasks have ended; what was not committed is gone."""
        return _files(self._tx.rows("artifacts.drop_staged", tasks)) if tasks else []

    def drop_of_runs(self, runs: list[int]) -> list[str]:
        return _files(self._tx.rows("artifacts.drop_of_runs", runs)) if runs else []

    def files(self) -> set[str]:
        return set(_files(self._tx.rows("artifacts.files")))

    # --- looking ----------------------------------------------------------------------------------

    def page(self, run_id: int, *, limit: int, before: int | None) -> list[Artifact]:
        """Committed ones, newest first."""
        start = NEWEST if before is None else before
        return [_artifact(row) for row in self._tx.rows("artifacts.page", run_id, start, limit)]

    def newest(self, run_id: int, name: str) -> Artifact | None:
        """The committed one of this name; of several, the last that was attached."""
        for row in self._tx.rows("artifacts.newest", run_id, name):
            return _artifact(row)
        return None

    def content(self, artifact_id: int) -> bytes | None:
        rows = self._tx.rows("artifacts.content", artifact_id)
        return rows[0][0] if rows else None


def _files(rows: Iterable[Row]) -> list[str]:
    return [file for (file,) in rows if file is not None]


def _artifact(row: Row) -> Artifact:
    return Artifact(
        id=row[0],
        run=row[1],
        name=row[2],
        task=row[3],
        fence=row[4],
        media_type=row[5],
        size=row[6],
        file=row[7],
        created_at_ms=row[8],
        committed_at_ms=row[9],
    )
