"""Runs, their journals and their timers.

The journal is the truth about a run: its state is found by replaying it. The row of a run holds
what is read often, and what is left when the run has ended.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from rota.core.ids import TaskId
from rota.core.workflow.decisions import RunDecision
from rota.core.workflow.events import RunEvent
from rota.core.workflow.records import JournalEntry, RunRecord
from rota.core.workflow.states import RunState
from rota.store.database import NEWEST, Transaction, decoding
from rota.store.workflow.waits import WaitStore

__all__ = ["NEWEST", "JournalEntry", "RunRecord", "RunStore", "RunTimer", "RunToken"]

RUN_COLUMNS = (
    "id",
    "workflow",
    "version",
    "input",
    "key",
    "parent_run",
    "parent_token",
    "depth",
    "forked_from",
    "timeout_ms",
    "created_at_ms",
)
STATE_COLUMNS = ("state", "context", "output", "error", "finished_at_ms", "id")
JOURNAL_COLUMNS = ("run", "number", "at_ms", "event", "decisions", "links")

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_run_record = decoding(
    RunRecord, state=RunState, input=_decode, context=_decode, output=_decode, error=_decode
)
_journal_entry = decoding(
    JournalEntry,
    event=msgspec.json.Decoder(RunEvent).decode,
    decisions=msgspec.json.Decoder(list[RunDecision]).decode,
    links=msgspec.json.Decoder(dict[str, int]).decode,
)


class RunToken(NamedTuple):
    """The run and the token that a task works for."""

    run: int
    token: int


class RunTimer(NamedTuple):
    run: int
    kind: str
    number: int
    due_at_ms: int


class RunStore:
    """Rows of runs. New runs, states and journal entries are collected and written together.

    A row is encoded when it is collected: the documents of a run may change afterwards. Only the
    links of an entry are encoded when they are written: a later event of the batch may withdraw a
    task that was never added.
    """

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._waits: WaitStore | None = None
        self._added: list[Sequence[object]] = []
        self._states: dict[int, Sequence[object]] = {}  # the last one of each run
        self._parent_tokens: dict[int, int] = {}
        self._entries: list[tuple[Sequence[object], dict[str, int]]] = []

    @property
    def waits(self) -> WaitStore:
        """What runs wait for; few batches change it."""
        if self._waits is None:
            self._waits = WaitStore(self._tx)
        return self._waits

    def flush(self) -> None:
        """Write the collected rows. Until then they cannot be read."""
        if self._added:
            self._tx.pipeline_many("runs.add", RUN_COLUMNS, self._added)
        if self._states:
            self._tx.pipeline_many("runs.set_state", STATE_COLUMNS, [*self._states.values()])
        if self._entries:
            entries = [(*one, _encode(links) if links else None) for one, links in self._entries]
            self._tx.pipeline_many("runs.append", JOURNAL_COLUMNS, entries)
        if self._parent_tokens:
            rows = [(token, run_id) for run_id, token in self._parent_tokens.items()]
            self._tx.pipeline_many("runs.set_parent_token", ("token", "id"), rows)
        if self._waits is not None:
            self._waits.flush()
        self._added, self._states, self._entries, self._parent_tokens = [], {}, [], {}

    def last_id(self) -> int:
        return int(self._tx.value("runs.last_id"))

    def add(self, run: RunRecord) -> None:
        encoded = {"input": _encode(run.input)}
        self._added.append([encoded.get(name, getattr(run, name)) for name in RUN_COLUMNS])
        if run.key is not None:
            self._tx.pipeline("runs.add_key", key=run.key, id=run.id)

    def id_by_key(self, key: str) -> int | None:
        found: int | None = self._tx.value("runs.id_by_key", key=key)
        return found

    def by_ids(self, ids: list[int]) -> dict[int, RunRecord]:
        runs = self._tx.records(_run_record, "runs.by_ids", ids=ids) if ids else []
        return {run.id: run for run in runs}

    def set_state(
        self,
        run_id: int,
        state: RunState,
        *,
        context: Any,
        output: Any,
        error: dict[str, Any] | None,
        finished_at_ms: int | None,
    ) -> None:
        self._states[run_id] = (
            state,
            None if finished_at_ms is None else _encode(context),
            None if finished_at_ms is None else _encode(output),
            None if error is None else _encode(error),
            finished_at_ms,
            run_id,
        )

    def set_parent_token(self, run_id: int, token: int) -> None:
        """Store which token of its parent a run works for, after a retry of the parent."""
        self._parent_tokens[run_id] = token

    # --- the journal ----------------------------------------------------------------------------

    def append(
        self,
        run_id: int,
        number: int,
        event: RunEvent,
        decisions: Sequence[RunDecision],
        links: dict[str, int],
    ) -> None:
        row = (run_id, number, event.at_ms, _encode(event), _encode(decisions))
        self._entries.append((row, links))

    def journal(self, run_id: int, *, after: int = 0, limit: int = NEWEST) -> list[JournalEntry]:
        return self._tx.records(
            _journal_entry, "runs.journal", run=run_id, after=after, limit=limit
        )

    def add_tasks(self, tasks: Iterable[tuple[int, int, int]]) -> None:
        """Record tasks of runs: of each, the task, the run and the token."""
        self._tx.pipeline_many("runs.add_task", ("task", "run", "token"), tasks)

    def tasks(self, ids: list[int]) -> dict[int, RunToken]:
        """Of these tasks, those that work for a run."""
        rows = self._tx.rows("runs.tasks", tasks=ids)
        return {task: RunToken(run, token) for task, run, token in rows}

    def leased_tasks(self) -> dict[TaskId, tuple[int, int]]:
        """The run and the token of tasks that workers run."""
        rows = self._tx.rows("runs.leased_tasks")
        return {TaskId(task): (run, token) for task, run, token in rows}

    def has_tasks(self) -> bool:
        return bool(self._tx.value("runs.has_tasks"))

    def executing(self, run_id: int) -> dict[int, int]:
        """The tokens of a run whose tasks are leased, with their tasks."""
        return dict(self._tx.rows("runs.executing", run=run_id))

    # --- timers ---------------------------------------------------------------------------------

    def set_timers(self, timers: Iterable[tuple[int, int, str, int]]) -> None:
        """Insert timers: of each, when it is due, the run, the kind and the number."""
        self._tx.pipeline_many("runs.set_timer", ("due_at_ms", "run", "kind", "number"), timers)

    def drop_timers(self, timers: Iterable[tuple[int, str, int]]) -> None:
        """Delete timers: of each, the run, the kind and the number."""
        self._tx.pipeline_many("runs.drop_timer", ("run", "kind", "number"), timers)

    def drop_all_timers(self, run_id: int) -> None:
        self._tx.pipeline("runs.drop_timers", run=run_id)

    def due_timers(self, now_ms: int, limit: int) -> list[RunTimer]:
        return self._tx.records(RunTimer, "runs.due_timers", now_ms=now_ms, limit=limit)

    def due_slices(self, now_ms: int, limit: int) -> list[RunTimer]:
        """Timers with which runs go on that have steps to take."""
        return self._tx.records(RunTimer, "runs.due_slices", now_ms=now_ms, limit=limit)

    def next_timer_ms(self) -> int | None:
        found: int | None = self._tx.value("runs.next_timer")
        return found

    # --- lists ----------------------------------------------------------------------------------

    def page(
        self, *, workflow: str | None, state: str | None, limit: int, before: int | None
    ) -> list[RunRecord]:
        query = "runs.page"
        if workflow is not None:
            query = "runs.page_of_workflow"
        elif state is not None:
            query = "runs.page_in_state"
        start = NEWEST if before is None else before
        ids = self._tx.column(query, workflow=workflow, state=state, before=start, limit=limit)
        found = self.by_ids(ids)
        return [found[run_id] for run_id in ids]

    def prune(self, finished_before_ms: int, limit: int) -> list[int]:
        """Delete old runs with their keys, journals and tasks; returns the deleted runs."""
        ids = self._tx.column("runs.prunable", before_ms=finished_before_ms, limit=limit)
        if ids:
            for rows in ("keys", "journals", "tasks", "runs"):
                self._tx.pipeline(f"runs.drop_{rows}", ids=ids)
        return ids
