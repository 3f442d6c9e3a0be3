"""What the event log and callers are told about runs."""

from typing import Any

from rota.core.events import Event
from rota.core.ids import to_text
from rota.core.limits import MAX_EVENT_TEXT
from rota.core.workflow.commands import RunShown
from rota.core.workflow.program import AskedApproval
from rota.core.workflow.records import RunRecord, Version
from rota.core.workflow.states import RunState
from rota.engine.runs.cache import LiveRun


def shown(live: LiveRun, *, is_duplicate: bool = False) -> RunShown:
    """Return a run with its context, as callers get it."""
    documents = live.run.documents
    context = {
        "input": live.record.input,
        "state": documents["state"],
        "output": documents["output"],
    }
    return RunShown(live.record, context, is_duplicate)


def kind_of(state: RunState) -> str:
    """Return the event type for a run's new state; a state of running means that it resumed."""
    return "run-resumed" if state is RunState.RUNNING else f"run-{state.replace('_', '-')}"


def run_event(kind: str, record: RunRecord, *, was: str | None = None, **more: Any) -> Event:
    data: dict[str, Any] = {"workflow": record.workflow, "version": record.version, **more}
    if record.parent_run is not None:
        data["parent_run_id"] = to_text(record.parent_run)
    if kind == "run-resumed":
        data["was"] = was
    if record.error is not None:
        data["error"] = {
            "type": str(record.error.get("type", ""))[:MAX_EVENT_TEXT],
            "message": str(record.error.get("message", ""))[:MAX_EVENT_TEXT],
        }
    return Event(type=kind, subject=to_text(record.id), data=data)


def approval_event(record: RunRecord, asked: AskedApproval) -> Event:
    title = {"title": asked.title} if asked.title else {}
    return run_event("run-approval-asked", record, approval=asked.name, **title)


def workflow_event(version: Version) -> Event:
    return Event(type="workflow-put", subject=version.name, data={"version": version.version})
