"""Where the code of a function differs from its log: what the log has, and what the code asks for.

The log has the recorded operations, and the code asks for others, or for none any more.
"""

from rota.core.workflow.functions.model import Divergence, OperationKind
from rota.sdk.functions.execution.log import FunctionLog, RecordedOperation
from rota.sdk.functions.execution.scopes import is_undo, scope_of


def at_call(
    log: FunctionLog, path: str, kind: OperationKind, line: int, *, version: int | None
) -> Divergence:
    """The code asks for an operation where the log has another one."""
    scope = scope_of(path)
    recorded = log.recorded.get(path)
    expected = recorded or next(iter(log.unvisited(scope)), None)
    was = f"{expected.first.kind} {expected.first.path}" if expected else "something else"
    return Divergence(
        message=f"the log of the run has {was!r}, and the code asks for '{kind} {path}'",
        path=path if recorded else (expected.first.path if expected else path),
        recorded=log.unvisited_within(scope),
        attempted=f"{kind} {path}",
        recorded_line=expected.first.line if expected else None,
        attempted_line=line or None,
        version=version,
    )


def in_arguments(
    log: FunctionLog,
    found: RecordedOperation,
    path: str,
    kind: OperationKind,
    line: int,
    *,
    version: int | None,
) -> Divergence:
    """The code calls a finished step with other arguments, which counts in strict functions."""
    return Divergence(
        message=f"'{kind} {path}' has other arguments than those that were recorded",
        path=path,
        recorded=log.unvisited_within(scope_of(path)),
        attempted=f"{kind} {path}",
        recorded_line=found.first.line,
        attempted_line=line or None,
        version=version,
    )


def at_end(log: FunctionLog, *, version: int | None) -> Divergence | None:
    """The code ended, and the log has more; None: it has not."""
    left = [one for one in log.unvisited() if not is_undo(one.first.path)]
    if not left:
        return None
    first = left[0].first
    return Divergence(
        message=f"the code ended, and the log of the run has '{first.kind} {first.path}'",
        path=first.path,
        recorded=log.unvisited_within(""),
        recorded_line=first.line,
        version=version,
    )
