"""What a run waits for, besides its tasks, its timers and its child runs.

A run notes the numbers of waits that have changed, so that an event costs what it changes, however
much the run waits for. Tokens have positive numbers, scopes negative ones.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from msgspec import Struct

from rota.core import limits
from rota.core.workflow.functions import signals as function_signals
from rota.core.workflow.functions.model import (
    ApprovalRequest,
    EventRequest,
    MapRequest,
)
from rota.core.workflow.functions.run import CodeRun
from rota.core.workflow.program import AnyRun
from rota.core.workflow.runtime.run import Run

# `branches`: those of an outermost scope of a graph, or the items of a map of a function.
WaitKind = Literal["approval", "signal", "branches"]
# Those that an answer from outside ends.
ANSWERED_KINDS: tuple[WaitKind, ...] = ("approval", "signal")


class RunWait(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that a run waits for."""

    number: int  # of the token; of a scope, negative
    kind: WaitKind
    name: str  # of the signal; of branches, the fan-out or the task
    place: str  # the node, or the path of the operation
    title: str = ""  # of an approval
    since_ms: int
    due_at_ms: int | None = None  # when the wait times out
    total: int | None = None  # branches
    has_form: bool = False  # of an approval: its answer has to fit a JSON Schema


class StoredWait(RunWait, frozen=True, kw_only=True):
    """Something that a run waits for, with its run."""

    run: int


class WaitChanges(NamedTuple):
    """Changes of what a run waits for, by number; None: it is waited for no more."""

    changed: dict[int, RunWait | None] = {}  # noqa: RUF012 - never changed
    is_whole: bool = False  # they replace everything that was stored of the run


class WaitPlace(NamedTuple):
    """The place of a wait in the list of its kind."""

    since_ms: int = -1
    run: int = -1
    number: int = 0


class RunName(Struct, frozen=True):
    """The workflow of a run, and the run inside which it runs."""

    id: int
    workflow: str
    parent_run: int | None


def take_changes(run: AnyRun) -> dict[int, RunWait | None]:
    """Return what has changed since the last call, by number; None: it is waited for no more."""
    changed = {number: wait_of(run, number) for number in run.changed_waits}
    run.changed_waits.clear()
    return changed


def all_waits(run: AnyRun) -> Iterator[RunWait]:
    """Yield everything that a run waits for."""
    numbers: list[int] = [token for tokens in run.waiting.values() for token in tokens]
    if isinstance(run, CodeRun):
        numbers += [one.token for one in run.pending.values() if one.kind == "map"]
    else:
        numbers += [-number for number in run.scopes]
    for number in dict.fromkeys(numbers):
        found = wait_of(run, number)
        if found is not None:
            yield found


def wait_of(run: AnyRun, number: int) -> RunWait | None:
    if isinstance(run, CodeRun):
        return _of_function(run, number)
    return _of_scope(run, -number) if number < 0 else _of_token(run, number)


def _of_scope(run: Run, number: int) -> RunWait | None:
    scope = run.scopes.get(number)
    if scope is None or scope.is_closed or scope.stack:
        return None
    return RunWait(
        number=-number,
        kind="branches",
        name=scope.key,
        place=scope.node,
        since_ms=scope.opened_at_ms,
        due_at_ms=run.timers.get(("join", number)),
        total=scope.total,
    )


def _of_token(run: Run, number: int) -> RunWait | None:
    token = run.tokens.get(number)
    if token is None:
        return None
    node = run.graph.definition.nodes[token.node]
    if node.kind not in {"approval", "wait_for"}:
        return None
    name = node.awaited(token.node)
    since_ms = run.waiting.get(name, {}).get(number)
    if since_ms is None:
        return None
    return RunWait(
        number=number,
        kind="approval" if node.kind == "approval" else "signal",
        name=name,
        place=token.node,
        title=getattr(node.approval, "title", "")[: limits.MAX_WAIT_TEXT],
        since_ms=since_ms,
        due_at_ms=run.timers.get(("wait", number)),
    )


def _of_function(run: CodeRun, number: int) -> RunWait | None:
    pending = run.pending.get(run.tokens.get(number, ""))
    if pending is None:
        return None
    request = pending.request
    if isinstance(request, MapRequest):
        return RunWait(
            number=number,
            kind="branches",
            name=request.call.task,
            place=pending.path,
            since_ms=pending.asked_at_ms,
            total=len(request.payloads),
        )
    if not isinstance(request, EventRequest | ApprovalRequest):
        return None
    approval = request if isinstance(request, ApprovalRequest) else None
    return RunWait(
        number=number,
        kind="signal" if approval is None else "approval",
        name=function_signals.awaited(pending),
        place=pending.path,
        title="" if approval is None else approval.title[: limits.MAX_WAIT_TEXT],
        since_ms=pending.asked_at_ms,
        due_at_ms=run.timers.get(("wait", number)),
        has_form=approval is not None and approval.form is not None,
    )
