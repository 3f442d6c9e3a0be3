"""Completion of a run, checked after every step.

The state and the output are validated at the end only: before that, a state may be incomplete.
"""

from typing import Any

from rota.core.workflow.definition import schemas
from rota.core.workflow.runtime.context import evaluated
from rota.core.workflow.runtime.errors import RunError, failing_as
from rota.core.workflow.runtime.run import Run
from rota.core.workflow.runtime.scopes import branches
from rota.core.workflow.states import RunState


def is_due(run: Run) -> bool:
    """Whether a running run has no token left, and no scope that may get more branches.

    A run inside another one also waits for the sub-workflows of cancelled branches: its parent gets
    to know what to undo when the run completes, and not later.
    """
    is_over = not run.tokens and not run.held
    if run.left and run.rules > 3 and run.context.run["parent_id"] is not None:
        return False
    return run.state is RunState.RUNNING and run.failure is None and is_over


def complete(run: Run) -> None:
    """Complete a run: evaluate the output, and validate it."""
    definition = run.graph.definition
    documents = run.context.documents
    _check(definition.state, documents["state"], "state_invalid", "state")
    output = documents["output"]
    if definition.output is not None:
        with failing_as("output_failed", "output"):
            output = evaluated(definition.output, run.values(()), "output")
    _check(definition.output_schema, output, "output_invalid", "output_schema")
    run.drop_timer("run", 0)
    run.set_state(RunState.COMPLETED, output=output)


def _check(schema: Any, value: Any, kind: str, place: str) -> None:
    problems = schemas.value_problems(schema, value)
    if problems:
        raise RunError(kind, "; ".join(problems), place)


def cancel_at_once(run: Run, reason: str) -> None:
    """Cancel a run as earlier versions did: nothing is undone, and that is not told."""
    run.failure = None
    for _ in branches.cancel_everything(run):
        pass
    run.scopes.clear()
    run.set_state(RunState.CANCELLED, error={"type": "cancelled", "message": reason or "cancelled"})
