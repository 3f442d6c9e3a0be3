"""Every change a run can ask for, and every reason it gives. Stored in its journal."""

from typing import Any, Literal

from msgspec import Struct

from rota.core.tasks import Backoff
from rota.core.workflow.tokens import BranchState, Place, TokenState


class CreateToken(Struct, frozen=True, tag=True, omit_defaults=True):
    number: int
    node: str
    parent: int | None = None
    stack: tuple[Place, ...] = ()
    via: str | None = None  # the transition it came by
    compensates: int | None = None


class SetTokenState(Struct, frozen=True, tag=True, omit_defaults=True):
    number: int
    state: TokenState
    error: dict[str, Any] | None = None


class DispatchTask(Struct, frozen=True, tag=True, omit_defaults=True):
    number: int  # of the token
    task: str
    payload: Any = None
    queue: str = "default"
    priority: int = 0
    requires: tuple[str, ...] = ()
    timeout_ms: int | None = None
    max_attempts: int = 3
    backoff: Backoff | None = None


class CancelTask(Struct, frozen=True, tag=True):
    number: int


class StartChild(Struct, frozen=True, tag=True, omit_defaults=True):
    number: int  # of the token
    workflow: str
    input: Any = None
    timeout_ms: int | None = None


class CancelChild(Struct, frozen=True, tag=True):
    number: int


class OpenScope(Struct, frozen=True, tag=True, omit_defaults=True):
    number: int
    key: str
    node: str
    parent: int
    total: int
    stack: tuple[Place, ...] = ()
    max_parallel: int | None = None


class SetBranchState(Struct, frozen=True, tag=True, omit_defaults=True):
    scope: int
    index: int
    state: BranchState
    join: str | None = None


class CloseScope(Struct, frozen=True, tag=True):
    """The scope's join has fired, or nothing of it is left."""

    number: int
    because: str


class WriteContext(Struct, frozen=True, tag=True, omit_defaults=True):
    """Put a value at a place: of the branch named, or of the run."""

    path: tuple[str, ...]
    value: Any = None
    branch: Place | None = None


class SetTimer(Struct, frozen=True, tag=True):
    kind: Literal["sleep", "wait", "join", "run"]
    number: int
    due_at_ms: int


class DropTimer(Struct, frozen=True, tag=True):
    kind: Literal["sleep", "wait", "join", "run"]
    number: int


class KeepSignal(Struct, frozen=True, tag=True, omit_defaults=True):
    name: str
    payload: Any = None


class TakeSignal(Struct, frozen=True, tag=True):
    name: str


class CountIteration(Struct, frozen=True, tag=True):
    transition: str
    stack: tuple[Place, ...]
    count: int


class SetRunState(Struct, frozen=True, tag=True, omit_defaults=True):
    state: str
    output: Any = None
    error: dict[str, Any] | None = None


class Considered(Struct, frozen=True, tag=True, omit_defaults=True):
    """Why a transition was taken or not. Changes nothing; explains everything."""

    transition: str
    taken: bool
    because: str


RunDecision = (
    CreateToken
    | SetTokenState
    | DispatchTask
    | CancelTask
    | StartChild
    | CancelChild
    | OpenScope
    | SetBranchState
    | CloseScope
    | WriteContext
    | SetTimer
    | DropTimer
    | KeepSignal
    | TakeSignal
    | CountIteration
    | SetRunState
    | Considered
)
