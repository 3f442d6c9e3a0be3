"""The stored records of workflows, runs and artifacts."""

from typing import Any

from msgspec import Struct

from rota.core.workflow.decisions import RunDecision
from rota.core.workflow.events import RunEvent
from rota.core.workflow.states import RunState

UNPUBLISHED = -1  # the number of a version that was only tried out


class Version(Struct, frozen=True, kw_only=True):
    """One version of a workflow."""

    name: str
    version: int
    hash: str
    created_at_ms: int
    put_number: int = 0  # the highest one of a workflow is current


class RunRecord(Struct, frozen=True, kw_only=True):
    """The row of a run."""

    id: int
    workflow: str
    version: int
    state: RunState
    input: Any
    context: Any = None  # of an ended run
    output: Any = None
    error: dict[str, Any] | None = None
    key: str | None = None
    parent_run: int | None = None
    parent_token: int | None = None
    depth: int = 0
    forked_from: int | None = None
    timeout_ms: int | None = None
    created_at_ms: int
    finished_at_ms: int | None = None


class JournalEntry(Struct, frozen=True, kw_only=True):
    number: int
    at_ms: int
    event: RunEvent
    decisions: list[RunDecision]
    links: dict[str, int] = {}  # token -> the task or run made for it


class Artifact(Struct, frozen=True, kw_only=True):
    """A named blob that a task attached to its run; its content is stored apart."""

    id: int
    run: int
    name: str
    task: int
    fence: int
    media_type: str
    size: int
    file: str | None = None  # None: the content is in the row
    created_at_ms: int
    committed_at_ms: int | None = None  # None: staged
