"""When is a run over, and with what? Looked at after every step.

The schemas of `state` and of the output are held against what there is at the end: on the way a
state may well be incomplete.
"""

from typing import Any

from rota.core.workflow import branches, schemas
from rota.core.workflow.context import evaluated
from rota.core.workflow.run import Run
from rota.core.workflow.troubles import Trouble, troubling


def is_due(run: Run) -> bool:
    """A run without a token under way is over."""
    return run.state == "running" and run.failure is None and not run.tokens


def complete(run: Run) -> None:
    """End in good order: evaluate the output, and hold it against its schema."""
    definition = run.graph.definition
    documents = run.context.documents
    _check(definition.state, documents["state"], "state_invalid", "state")
    output = documents["output"]
    if definition.output is not None:
        with troubling("output_failed", "output"):
            output = evaluated(definition.output, run.values(()), "output")
    _check(definition.output_schema, output, "output_invalid", "output_schema")
    run.drop_timer("run", 0)
    run.set_state("completed", output=output)


def _check(schema: Any, value: Any, kind: str, place: str) -> None:
    problems = schemas.value_problems(schema, value)
    if problems:
        raise Trouble(kind, "; ".join(problems), place)


def cancel(run: Run, reason: str) -> None:
    """End because somebody wants it: nothing is undone, and nothing is left under way."""
    run.failure = None
    branches.cancel_everything(run)
    run.scopes.clear()
    run.set_state("cancelled", error={"type": "cancelled", "message": reason or "cancelled"})
