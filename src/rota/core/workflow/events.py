"""Everything that can happen to a run. Stored in its journal, and fed again by a replay."""

from typing import Any, Literal

from msgspec import Struct


class RunStarted(Struct, frozen=True, tag=True):
    at_ms: int
    input: Any = None
    from_node: str | None = None  # a fork starts in the middle
    state: Any = None
    timeout_ms: int | None = None


class TaskEnded(Struct, frozen=True, tag=True):
    """A token's task has finished, well or not."""

    at_ms: int
    token: int
    ok: bool
    result: Any = None
    error: dict[str, Any] | None = None
    cancelled: bool = False


class ChildEnded(Struct, frozen=True, tag=True):
    """A token's sub-workflow has ended."""

    at_ms: int
    token: int
    ok: bool
    result: Any = None
    error: dict[str, Any] | None = None


class Signalled(Struct, frozen=True, tag=True):
    at_ms: int
    name: str
    payload: Any = None


class TimerFired(Struct, frozen=True, tag=True):
    at_ms: int
    kind: Literal["sleep", "wait", "join", "run"]
    number: int  # of the token or the scope; 0 for the run


class RunCancelled(Struct, frozen=True, tag=True):
    at_ms: int
    reason: str = ""


class RunPaused(Struct, frozen=True, tag=True):
    at_ms: int


class RunResumed(Struct, frozen=True, tag=True):
    at_ms: int


class RunRetried(Struct, frozen=True, tag=True):
    """An operator lets a failed run go on from where it failed."""

    at_ms: int


RunEvent = (
    RunStarted
    | TaskEnded
    | ChildEnded
    | Signalled
    | TimerFired
    | RunCancelled
    | RunPaused
    | RunResumed
    | RunRetried
)
