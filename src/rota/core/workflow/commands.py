"""What callers ask of workflows and runs. The engine turns these into events of runs."""

from typing import Any, Literal

from msgspec import Struct

from rota.core.workflow.definition import Definition

MAX_VERSION = 10**9  # of a workflow


def named_version(reference: str) -> tuple[str, int | None]:
    """Read `name` or `name@version`; without a version the newest is meant."""
    name, _, version = reference.rpartition("@")
    if name and version.isascii() and version.isdigit() and 1 <= int(version[:10]) <= MAX_VERSION:
        return name, int(version)
    return reference, None


class PutWorkflow(Struct, frozen=True, tag=True):
    """Keep a definition that has been found valid."""

    definition: Definition


class StartRun(Struct, frozen=True, kw_only=True, tag=True):
    workflow: str
    version: int | None = None  # None: the newest
    input: Any = None
    key: str | None = None
    timeout_ms: int | None = None


class ForkRun(Struct, frozen=True, kw_only=True, tag=True):
    """A new run on another one's input, from a node of its choice."""

    run_id: int
    from_node: str
    state: Any = None  # None: as the other run has it


class SteerRun(Struct, frozen=True, kw_only=True, tag=True):
    run_id: int
    wish: Literal["cancel", "pause", "resume", "retry"]
    reason: str = ""


class SignalRun(Struct, frozen=True, kw_only=True, tag=True):
    run_id: int
    name: str
    payload: Any = None


class LookAtRun(Struct, frozen=True, tag=True):
    """A run as it stands now, its context with it. Changes nothing."""

    run_id: int


class FireRunTimers(Struct, frozen=True, tag=True):
    """Sleeps, waits, joins and runs whose time is over."""


class PruneRuns(Struct, frozen=True, tag=True):
    """Ended runs past their keeping time are forgotten, with everything that is theirs."""

    finished_before_ms: int


class StageArtifact(Struct, frozen=True, kw_only=True, tag=True):
    """A leased task attaches a blob to its run: here, or in a file that is on the disk already."""

    run_id: int
    task_id: int
    fence: int
    name: str
    media_type: str
    size: int
    content: bytes | None = None
    file: str | None = None


RunCommand = (
    PutWorkflow
    | StartRun
    | ForkRun
    | SteerRun
    | SignalRun
    | LookAtRun
    | FireRunTimers
    | PruneRuns
    | StageArtifact
)
