"""Loads runs and the programs of their definitions: from memory, or from the store.

The cache keeps active runs in memory, each with the number of its last journal entry. A run that is
not there is made by replaying its journal.
"""

from collections.abc import Sequence

from rota.core.workflow.commands import Publishing, WorkflowKept
from rota.core.workflow.program import AnyDefinition, Program, new_run, program_of, reduce
from rota.core.workflow.records import RunRecord
from rota.engine.commit.batch import Batch
from rota.engine.runs.advancing.run_events import run_event, workflow_event
from rota.engine.runs.cache import LiveRun
from rota.store.workflow.definitions import WorkflowStore
from rota.store.workflow.runs import RunStore

MOST_PROGRAMS = 1_000


class RunLoader:
    """Finds what the commands of one batch are about, and stores new definitions."""

    def __init__(self, batch: Batch, runs: RunStore) -> None:
        self._batch = batch
        self._cache = batch.runs
        self._runs = runs
        self._workflows = WorkflowStore(batch.tx)

    def find(self, run_id: int) -> LiveRun | None:
        """Return a run, from memory or by replaying its journal."""
        live = self._cache.runs.get(run_id)
        if live is None:
            record = self._runs.by_ids([run_id]).get(run_id)
            if record is None:
                return None
            live = self._replayed(record)
            self._cache.keep(run_id, live)
        self._cache.runs.move_to_end(run_id)
        self._cache.touched.add(run_id)
        return live

    def _replayed(self, record: RunRecord) -> LiveRun:
        program = self.program(record.workflow, record.version)
        assert program is not None, "a run's definition is kept as long as the run"
        live = LiveRun(record, new_run(program, record.input), has_timers=True, has_waits=True)
        for entry in self._runs.journal(record.id, after=live.number):
            reduce(live.run, entry.event)
            live.number = entry.number
            live.links |= {int(token): made for token, made in entry.links.items()}
        live.run.changed_waits.clear()  # they were stored with these entries
        return live

    def cached(self, run_id: int) -> LiveRun | None:
        return self._cache.runs.get(run_id)

    def forget(self, run_ids: Sequence[int]) -> None:
        for run_id in run_ids:
            self._cache.runs.pop(run_id, None)

    def add(self, record: RunRecord) -> LiveRun:
        """Add a run, which its first event then starts; its definition is known to exist."""
        program = self.program(record.workflow, record.version)
        assert program is not None
        live = LiveRun(record, new_run(program, record.input))
        self._cache.keep(record.id, live)
        self._runs.add(record)
        self._batch.events.append(run_event("run-started", record))
        return live

    # --- definitions -------------------------------------------------------------------------

    def program(self, name: str, version: int) -> Program | None:
        program = self._cache.programs.get((name, version))
        if program is None:
            definition = self._workflows.definition(name, version)
            if definition is None:
                return None
            if len(self._cache.programs) >= MOST_PROGRAMS:
                self._cache.programs.clear()
            program = program_of(definition, version)
            self._cache.programs[name, version] = program
        return program

    def current(self, name: str) -> int | None:
        """The version that runs of this name have; None: none is published."""
        version = self._cache.current.get(name)
        if version is None:
            version = self._workflows.current(name)
            if version is not None and len(self._cache.current) < MOST_PROGRAMS:
                self._cache.current[name] = version
        return version

    def put(self, definition: AnyDefinition, *, publish: Publishing) -> WorkflowKept:
        """Store a definition; the same content is the same version."""
        now_ms = self._batch.context.now_ms
        kept = WorkflowKept(*self._workflows.put(definition, now_ms=now_ms, publish=publish))
        if kept.is_new:
            self._batch.events.append(workflow_event(kept.version))
        self._cache.current.pop(definition.name, None)
        return kept
