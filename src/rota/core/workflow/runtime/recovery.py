"""What a run that fails has to undo, and in which state it ends when that is done."""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from rota.core.workflow.definition.model import Graph, RetryPolicy
from rota.core.workflow.events import CancelMode, Compensation
from rota.core.workflow.states import RunState


@dataclass
class Undo:
    """Completed work with a compensating task: of a node, or of one inside a sub-workflow."""

    token: int
    node: str
    result: Any
    inner: Compensation | None = None  # of a node inside the sub-workflow of `node`

    @property
    def path(self) -> str:
        """The node, below the nodes of the sub-workflows that it is in."""
        return self.node if self.inner is None else f"{self.node}.{self.inner.node}"


@dataclass
class Failure:
    """The error of a run that is being compensated, and the state in which it will end."""

    error: dict[str, Any]
    state: RunState  # failed, timed_out or cancelled
    mode: CancelMode = "undo"  # what becomes of its compensable work
    awaited: dict[int, None] = field(default_factory=dict)  # tokens whose sub-workflows must end
    undoing: Undo | None = None
    not_undone: list[dict[str, Any]] = field(default_factory=list)
    cancelled: str | None = None  # the reason, if a caller cancelled the run meanwhile


def compensation_of(undo: Undo, graph: Graph) -> Compensation:
    """The task that undoes completed work, for the run inside which this one has run."""
    if undo.inner is not None:
        return msgspec.structs.replace(undo.inner, node=undo.path)
    node = graph.definition.nodes[undo.node]
    assert node.compensate is not None
    retry = node.retry or RetryPolicy()
    return Compensation(
        node=undo.node,
        task=node.compensate,
        result=undo.result,
        queue=node.queue,
        priority=node.priority,
        requires=node.requires,
        timeout_ms=node.timeout_ms,
        max_attempts=retry.max_attempts,
        backoff=retry.backoff,
    )
