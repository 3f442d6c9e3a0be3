"""The child runs of a run: their start, what their parent tells them, and what they tell it."""

from typing import assert_never

import msgspec
from msgspec import UNSET

from rota.core.ids import to_text
from rota.core.limits import STEPS_PER_SLICE
from rota.core.workflow.commands import named_version
from rota.core.workflow.decisions import CancelChild, PauseChild, ResumeChild, StartChild
from rota.core.workflow.definition import schemas
from rota.core.workflow.events import (
    RULES,
    ChildEnded,
    RunCancelRequested,
    RunEvent,
    RunPaused,
    RunResumed,
    RunRetried,
    RunStarted,
)
from rota.core.workflow.program import input_schema, max_depth
from rota.core.workflow.records import RunRecord
from rota.core.workflow.states import RunState
from rota.engine.runs.advancing.run_agenda import RunAgenda
from rota.engine.runs.advancing.run_loader import RunLoader
from rota.engine.runs.advancing.run_tasks import RunTasks
from rota.engine.runs.cache import LiveRun
from rota.store.workflow.runs import RunStore


class ChildRuns:
    """Puts events of child runs, and of their parents, on the agenda of a batch."""

    def __init__(
        self,
        agenda: RunAgenda,
        loader: RunLoader,
        runs: RunStore,
        tasks: RunTasks,
        *,
        now_ms: int,
    ) -> None:
        self._agenda = agenda
        self._loader = loader
        self._runs = runs
        self._tasks = tasks
        self._now_ms = now_ms

    def tell_child(self, live: LiveRun, decision: CancelChild | PauseChild | ResumeChild) -> None:
        """Feed an event to the child run of a token, if there is one."""
        child = live.links.get(decision.number)
        if not child:  # 0: it could not start
            return
        event: RunEvent
        match decision:
            case CancelChild():
                reason = f"run {to_text(live.record.id)} no longer needs it"
                event = RunCancelRequested(self._now_ms, reason, decision.mode)
            case PauseChild():
                event = RunPaused(self._now_ms, children=True)
            case ResumeChild():
                event = RunResumed(self._now_ms, children=True)
            case _:
                assert_never(decision)
        self._agenda.add(child, event)

    def start(self, live: LiveRun, decision: StartChild) -> int:
        """Start a child run for a token and return its id; 0: it cannot start, and has failed.

        The token of a retry takes over the child run of the token that it repeats, if it can go on.
        """
        if decision.resumes is not None:
            resumed = self._resume(live, decision.resumes, decision.number)
            if resumed is not None:
                return resumed
        parent, now_ms = live.record, self._now_ms
        child_id = self._tasks.new_id()
        name, wanted = named_version(decision.workflow)
        version = wanted or self._loader.current(name)
        program = None if version is None else self._loader.program(name, version)
        most = max_depth(live.run)
        problem: str | None = None
        if program is None:
            problem = f"there is no workflow {decision.workflow!r}"
        elif parent.depth + 1 >= most:
            problem = f"sub-workflows are nested more than {most} deep"
        elif found := schemas.value_problems(input_schema(program), decision.input):
            problem = "; ".join(found)
        if problem is not None or version is None or program is None:
            error = {"type": "sub_workflow", "message": problem or ""}
            ended = ChildEnded(
                now_ms, decision.number, ok=False, error=error, later=self._agenda.has_enough
            )
            self._agenda.add(parent.id, ended)
            return 0
        limits = [one for one in (decision.timeout_ms, program.definition.timeout_ms) if one]
        record = RunRecord(
            id=child_id,
            workflow=name,
            version=version,
            state=RunState.RUNNING,
            input=decision.input,
            parent_run=parent.id,
            parent_token=decision.number,
            depth=parent.depth + 1,
            timeout_ms=min(limits, default=None),
            created_at_ms=now_ms,
        )
        self._loader.add(record)
        started = RunStarted(
            now_ms,
            record.input,
            timeout_ms=record.timeout_ms,
            rules=RULES,
            slice_steps=STEPS_PER_SLICE,
            run_id=to_text(child_id),
            parent_id=to_text(parent.id),
            headers=live.headers or UNSET,
        )
        self._agenda.add(child_id, started)
        return child_id

    def _resume(self, live: LiveRun, before: int, token: int) -> int | None:
        """Let the child run of a token go on for another one; None: it is gone, or cannot."""
        child_id = live.links.get(before)
        child = self._loader.find(child_id) if child_id else None
        if child is None or not child.run.can_go_on:
            return None
        child.record = msgspec.structs.replace(child.record, parent_token=token)
        self._runs.set_parent_token(child.record.id, token)
        if child.run.state is RunState.COMPLETED:  # an operator has retried it on its own
            self.tell_parent(child)
        elif child.run.is_ended:
            retried = RunRetried(self._now_ms, children=True, with_parent=True)
            self._agenda.add(child.record.id, retried)
        return child.record.id

    def tell_parent(self, live: LiveRun) -> None:
        """Feed the end of a run to the run inside which it runs, if there is one."""
        record = live.record
        if record.parent_run is None or record.parent_token is None:
            return
        is_ok = record.state is RunState.COMPLETED
        error = record.error or {"type": record.state, "message": record.state}
        event = ChildEnded(
            self._now_ms,
            record.parent_token,
            is_ok,
            record.output,
            None if is_ok else error,
            live.run.undoable(),
            later=self._agenda.has_enough,
            traceparent=live.run.last_span,
        )
        self._agenda.add(record.parent_run, event)
