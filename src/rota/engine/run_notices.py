"""What is the outside told of runs and workflows?"""

from typing import Any

from rota.core.ids import to_text
from rota.core.limits import MAX_EVENT_TEXT
from rota.core.notices import Notice
from rota.core.workflow.records import RunRecord, Version


def kind_of(state: str) -> str:
    """The notice of a run that has come into this state; it is under way again when it resumed."""
    return "run-resumed" if state == "running" else f"run-{state.replace('_', '-')}"


def run_notice(kind: str, record: RunRecord, *, was: str | None = None) -> Notice:
    data: dict[str, Any] = {"workflow": record.workflow, "version": record.version}
    if record.parent_run is not None:
        data["parent_run_id"] = to_text(record.parent_run)
    if kind == "run-resumed":
        data["was"] = was
    if record.error is not None:
        data["error"] = {
            "type": str(record.error.get("type", ""))[:MAX_EVENT_TEXT],
            "message": str(record.error.get("message", ""))[:MAX_EVENT_TEXT],
        }
    return Notice(type=kind, subject=to_text(record.id), data=data)


def workflow_notice(version: Version) -> Notice:
    return Notice(type="workflow-put", subject=version.name, data={"version": version.version})
