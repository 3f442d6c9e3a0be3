"""Runs, their journals and their timers.

The journal is the truth about a run: where it stands is found by replaying it. The row of a run
holds what is asked for often, and what is left when it has ended.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from rota.core.workflow.decisions import RunDecision
from rota.core.workflow.events import RunEvent
from rota.core.workflow.records import JournalEntry, RunRecord
from rota.store.database import Row, Transaction

_encode = msgspec.json.Encoder().encode
_decode_any = msgspec.json.Decoder().decode
_decode_event = msgspec.json.Decoder(RunEvent).decode
_decode_decisions = msgspec.json.Decoder(list[RunDecision]).decode
_decode_links = msgspec.json.Decoder(dict[str, int]).decode

__all__ = ["JournalEntry", "RunRecord", "Runs"]

NEWEST = 2**63 - 1


class Runs:
    """Rows of runs. New runs, their states and their journals are gathered, and written at once.

    What is gathered is encoded when it is handed in: a run's documents may go on changing.
    """

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._added: list[Sequence[object]] = []
        self._states: dict[int, Sequence[object]] = {}  # the last one of each run
        self._entries: list[Sequence[object]] = []

    def write_gathered(self) -> None:
        """Write what was gathered. Until then nothing of it can be read back."""
        if self._added:
            self._tx.put_many("runs.add", self._added)
        if self._states:
            self._tx.put_many("runs.set_state", self._states.values())
        if self._entries:
            self._tx.put_many("runs.append", self._entries)
        self._added, self._states, self._entries = [], {}, []

    def last_id(self) -> int:
        return int(self._tx.rows("runs.last_id")[0][0])

    def add(self, run: RunRecord) -> None:
        self._added.append(
            (
                run.id,
                run.workflow,
                run.version,
                _encode(run.input),
                run.key,
                run.parent_run,
                run.parent_token,
                run.depth,
                run.forked_from,
                run.timeout_ms,
                run.created_at_ms,
            )
        )
        if run.key is not None:
            self._tx.put("runs.add_key", run.key, run.id)

    def id_by_key(self, key: str) -> int | None:
        rows = self._tx.rows("runs.by_key", key)
        return rows[0][0] if rows else None

    def by_ids(self, ids: list[int]) -> dict[int, RunRecord]:
        return {row[0]: _record(row) for row in self._tx.rows("runs.by_ids", ids)} if ids else {}

    def set_state(
        self,
        run_id: int,
        state: str,
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

    # --- the journal ----------------------------------------------------------------------------

    def append(
        self,
        run_id: int,
        number: int,
        event: RunEvent,
        decisions: Sequence[RunDecision],
        links: dict[str, int],
    ) -> None:
        self._entries.append(
            (
                run_id,
                number,
                event.at_ms,
                _encode(event),
                _encode(decisions),
                _encode(links) if links else None,
            )
        )

    def journal(self, run_id: int, *, after: int = 0, limit: int = NEWEST) -> list[JournalEntry]:
        return [
            JournalEntry(
                number=number,
                at_ms=at_ms,
                event=_decode_event(event),
                decisions=_decode_decisions(decisions),
                links={} if links is None else _decode_links(links),
            )
            for number, at_ms, event, decisions, links in self._tx.rows(
                "runs.journal", run_id, after, limit
            )
        ]

    def last_numbers(self, ids: list[int]) -> dict[int, int]:
        """How long the journal of each run is."""
        return {run: number or 0 for run, number in self._tx.rows("runs.last_numbers", ids)}

    # --- tasks of runs --------------------------------------------------------------------------

    def add_tasks(self, tasks: Iterable[tuple[int, int, int]]) -> None:
        """Note which run and token each task works for."""
        self._tx.put_many("runs.add_task", tasks)

    def tasks(self, ids: list[int]) -> dict[int, tuple[int, int]]:
        """Of these tasks, those that work for a run: its id, and the token."""
        return {task: (run, token) for task, run, token in self._tx.rows("runs.tasks", ids)}

    def has_tasks(self) -> bool:
        return bool(self._tx.rows("runs.any_task")[0][0])

    # --- timers -----------------------------------------------------------------------------------

    def set_timers(self, timers: Iterable[tuple[int, int, str, int]]) -> None:
        self._tx.put_many("runs.set_timer", timers)

    def drop_timers(self, timers: Iterable[tuple[int, str, int]]) -> None:
        self._tx.put_many("runs.drop_timer", timers)

    def drop_all_timers(self, run_id: int) -> None:
        self._tx.run("runs.drop_timers", run_id)

    def due_timers(self, now_ms: int, most: int) -> list[tuple[int, str, int, int]]:
        return [
            (run, kind, number, due)
            for run, kind, number, due in self._tx.rows("runs.due_timers", now_ms, most)
        ]

    def next_timer_ms(self) -> int | None:
        found: int | None = self._tx.rows("runs.next_timer")[0][0]
        return found

    # --- looking ----------------------------------------------------------------------------------

    def page(
        self, *, workflow: str | None, state: str | None, limit: int, before: int | None
    ) -> list[RunRecord]:
        start = NEWEST if before is None else before
        if workflow is not None:
            rows = self._tx.rows("runs.page_of_workflow", workflow, start, state, state, limit)
        elif state is not None:
            rows = self._tx.rows("runs.page_in_state", state, start, limit)
        else:
            rows = self._tx.rows("runs.page", start, limit)
        ids = [run_id for (run_id,) in rows]
        found = self.by_ids(ids)
        return [found[run_id] for run_id in ids]

    def executing(self, run_id: int) -> dict[int, int]:
        """The tokens of a run whose tasks are leased, with their tasks."""
        return dict(self._tx.rows("runs.executing", run_id))

    def forget(self, finished_before_ms: int, most: int) -> list[int]:
        ids = [run_id for (run_id,) in self._tx.rows("runs.prunable", finished_before_ms, most)]
        if ids:
            self._tx.run("runs.drop_keys", ids)
            self._tx.run("runs.drop_journals", ids)
            self._tx.run("runs.drop_tasks", ids)
            self._tx.run("runs.drop_runs", ids)
        return ids


def _record(row: Row) -> RunRecord:
    return RunRecord(
        id=row[0],
        workflow=row[1],
        version=row[2],
        state=row[3],
        input=_decode_any(row[4]),
        context=_optional(row[5]),
        output=_optional(row[6]),
        error=_optional(row[7]),
        key=row[8],
        parent_run=row[9],
        parent_token=row[10],
        depth=row[11],
        forked_from=row[12],
        timeout_ms=row[13],
        created_at_ms=row[14],
        finished_at_ms=row[15],
    )


def _optional(text: bytes | None) -> Any:
    return None if text is None else _decode_any(text)
