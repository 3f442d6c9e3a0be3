"""What open runs wait for, besides tasks and child runs, for lists of all runs."""

from msgspec import Struct

from rota.core.workflow.waits import (
    RunName,
    RunWait,
    StoredWait,
    WaitChanges,
    WaitKind,
    WaitPlace,
)
from rota.store.database import Transaction, decoding

MOST_OF_RUN = 101  # waits of one run that are read for its line in a list
WAIT_COLUMNS = (
    *("run", "number", "kind", "name", "place", "title", "since_ms", "due_at_ms", "total"),
    "has_form",
)


class Sleep(Struct, frozen=True):
    run: int
    due_at_ms: int  # the first of them
    count: int


class OpenChildren(Struct, frozen=True):
    """Open child runs of one run and one workflow."""

    run: int
    workflow: str
    count: int


_stored_wait = decoding(StoredWait, has_form=bool)


def _row(wait: RunWait) -> list[object]:
    """The columns of a wait, but its run."""
    return [getattr(wait, name) for name in WAIT_COLUMNS[1:-1]] + [int(wait.has_form)]


class WaitStore:
    """Rows of waits. Changes are collected and written together."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._cleared: dict[int, None] = {}  # runs whose waits are deleted before the changes
        self._changes: dict[int, dict[int, RunWait | None]] = {}  # by run and number

    def change(self, run_id: int, changes: WaitChanges) -> None:
        """Store changes of what a run waits for."""
        if changes.is_whole:
            self._cleared[run_id] = None
            self._changes.pop(run_id, None)
        if changes.changed:
            self._changes.setdefault(run_id, {}).update(changes.changed)

    def flush(self) -> None:
        if self._cleared:
            self._tx.pipeline("waits.drop_of_runs", runs=[*self._cleared])
        gone, rows = [], []
        for run_id, changes in self._changes.items():
            for number, wait in changes.items():
                if wait is None:
                    gone.append((run_id, number))
                else:
                    rows.append((run_id, *_row(wait)))
        if gone:
            self._tx.pipeline_many("waits.drop", ("run", "number"), gone)
        if rows:
            self._tx.pipeline_many("waits.put", WAIT_COLUMNS, rows)
        self._cleared, self._changes = {}, {}

    def unrecorded(self, limit: int) -> list[int]:
        """Open runs whose waits were never recorded."""
        return self._tx.column("waits.unrecorded", limit=limit)

    def mark_recorded(self, run_ids: list[int]) -> None:
        self._tx.pipeline("waits.mark_recorded", runs=run_ids, recorded=1)

    # --- reads ----------------------------------------------------------------------------------

    def page(self, kind: WaitKind, *, after: WaitPlace, limit: int) -> list[StoredWait]:
        """The waits of one kind, the oldest first."""
        return self._tx.records(
            _stored_wait,
            "waits.page",
            kind=kind,
            since_ms=after.since_ms,
            run=after.run,
            number=after.number,
            limit=limit,
        )

    def counts(self) -> dict[str, int]:
        return dict(self._tx.rows("waits.counts"))

    def of_runs(self, run_ids: list[int]) -> list[StoredWait]:
        """What each of these runs waits for, at most `MOST_OF_RUN` of each."""
        return self._tx.records(_stored_wait, "waits.of_runs", runs=run_ids, limit=MOST_OF_RUN)

    def sleeps(self, run_ids: list[int]) -> list[Sleep]:
        return self._tx.records(Sleep, "waits.sleeps", runs=run_ids)

    def children(self, run_ids: list[int]) -> list[OpenChildren]:
        """The open child runs of these runs, by workflow."""
        return self._tx.records(OpenChildren, "waits.children", runs=run_ids)

    def names(self, run_ids: list[int]) -> dict[int, RunName]:
        """The workflows of these runs."""
        found = self._tx.records(RunName, "waits.workflows", runs=run_ids) if run_ids else []
        return {one.id: one for one in found}
