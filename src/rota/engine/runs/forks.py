"""Forks: the start of a run in the middle of another one."""

from typing import Any

from rota.core.ids import to_text
from rota.core.limits import STEPS_PER_SLICE
from rota.core.workflow.commands import ForkRun
from rota.core.workflow.events import RULES, RunStarted
from rota.core.workflow.functions import rewriting
from rota.core.workflow.functions.run import CodeRun
from rota.core.workflow.program import AnyRun
from rota.core.workflow.records import RunRecord
from rota.errors import NodeNotFound


def forked_start(
    other: AnyRun, command: ForkRun, record: RunRecord, *, now_ms: int, state: Any
) -> RunStarted:
    """Return the start of a run from a node of another one, or from an operation of a function."""
    place = command.from_node
    if isinstance(other, CodeRun):
        log = rewriting.before(other, place)
        if log is None:
            raise NodeNotFound(place)
        return RunStarted(
            now_ms,
            record.input,
            from_node=place,
            state=state,
            timeout_ms=record.timeout_ms,
            rules=RULES,
            run_id=to_text(record.id),
            log=log,
        )
    if place not in other.graph.definition.nodes:
        raise NodeNotFound(place)
    return RunStarted(
        now_ms,
        record.input,
        from_node=place,
        state=state,
        nodes=other.documents["nodes"] or None,
        timeout_ms=record.timeout_ms,
        rules=RULES,
        slice_steps=STEPS_PER_SLICE,
        run_id=to_text(record.id),
    )
