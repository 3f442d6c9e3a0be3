"""A run as a model for drawing: its nodes in order, with their tokens."""

import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence

from msgspec import Struct

from rota.core.workflow.definition.model import Definition
from rota.messages import GraphNode, GraphTransition, RunGraph, RunTokenView, RunView

# The columns that people watch: a token that waits at a join is done with its node.
COLUMNS: dict[str, tuple[str, ...]] = {
    "done": ("completed", "waiting_for_siblings"),
    "running": ("executing",),
    "queued": ("pending", "dispatched"),
    "waiting": ("waiting_for_subworkflow", "waiting_for_event"),
    "failed": ("failed", "timed_out"),
    "cancelled": ("cancelled",),
}
HELD_BACK = "held back"  # branches and items of maps that have not begun
NOT_STARTED = "not started"  # the same, when the run has ended
FAILURES_SHOWN = 3
APPROVED = " --payload '{\"approved\": true}'"


class NodeModel(Struct, frozen=True, kw_only=True):
    id: str
    counts: dict[str, int]  # tokens by column, without empty columns
    arriving: str | None = None  # arrivals at the join before it, until that has fired


class RunModel(Struct, frozen=True, kw_only=True):
    """A run at one moment."""

    run: RunView
    nodes: list[NodeModel]
    failures: tuple[str, ...]
    hints: tuple[str, ...]  # commands that people can answer its waits with
    elapsed_ms: int

    def counts(self, node_id: str) -> dict[str, int]:
        return next(node.counts for node in self.nodes if node.id == node_id)


def model_of(
    run: RunView,
    graph: RunGraph,
    definition: Definition | None,
    special: Sequence[RunTokenView],
    asking: Mapping[str, str],
) -> RunModel:
    """Build the model of a graph.

    `special` are its failed and its compensating tokens, `asking` the tokens at its approvals.
    """
    undoing = [one for one in special if one.compensates_token_id is not None]
    tokens = {node.id: Counter(node.tokens) for node in graph.nodes}
    for one in undoing:  # shown as a note, not as a second visit to the node
        tokens[one.node_id][one.state] -= 1
    by_id = {node.id: node for node in graph.nodes}
    arriving = {
        one.to: f"{one.join.arrived} of {one.join.needed} arrived"
        for one in graph.transitions
        if one.join is not None and one.join.fired < one.join.scopes
    }
    nodes = [
        NodeModel(
            id=one,
            counts=counts_of(by_id[one], tokens[one], has_ended=run.finished_at_ms is not None),
            arriving=arriving.get(one),
        )
        for one in in_order(graph.initial_node, list(tokens), graph.transitions)
    ]
    waiting = [one for one in graph.nodes if one.tokens.get("waiting_for_event")]
    return RunModel(
        run=run,
        nodes=nodes,
        failures=(*_failures(special), *_compensation_lines(undoing)),
        hints=tuple(
            _function_hint(run, one, asking.get(one.id))
            if definition is None
            else _hint(run, one.id, definition, asking.get(one.id))
            for one in waiting
        ),
        elapsed_ms=_elapsed_ms(run),
    )


def in_order(first: str, nodes: Sequence[str], transitions: Sequence[GraphTransition]) -> list[str]:
    """The nodes in the order of their transitions; those reached only by errors come last."""
    found: dict[str, None] = {}
    waiting = deque([first])
    while waiting:
        node = waiting.popleft()
        if node not in found:
            found[node] = None
            waiting += [one.to for one in transitions if one.from_ == node]
    return [*found, *(node for node in nodes if node not in found)]


def in_columns(tokens: Mapping[str, int]) -> dict[str, int]:
    """Sum tokens by state into columns; empty columns are left out."""
    counts = {
        column: sum(tokens.get(state, 0) for state in states) for column, states in COLUMNS.items()
    }
    return {column: count for column, count in counts.items() if count}


def counts_of(
    node: GraphNode, tokens: Mapping[str, int], *, has_ended: bool = False
) -> dict[str, int]:
    """What the node does, by column: of a map its items, else its tokens."""
    items = node.items
    left = NOT_STARTED if has_ended else HELD_BACK
    if items is None:
        return in_columns(tokens) | ({left: node.held_back} if node.held_back else {})
    counts = {
        "done": items.ended,
        "running": items.running,
        "queued": items.queued,
        "cancelled": items.cancelled,
        left: items.held_back,
    }
    return {column: count for column, count in counts.items() if count}


def failed_count(graph: RunGraph) -> int:
    return sum(in_columns(node.tokens).get("failed", 0) for node in graph.nodes)


def has_failed(token: RunTokenView) -> bool:
    return token.state in COLUMNS["failed"]


def _failures(tokens: Sequence[RunTokenView]) -> list[str]:
    """Lines on the newest failures."""
    found = sorted(filter(has_failed, tokens), key=lambda token: token.finished_at_ms or 0)
    return [describe_failure(one) for one in found[-FAILURES_SHOWN:]]


def _compensation_lines(tokens: Sequence[RunTokenView]) -> list[str]:
    done = [one.node_id for one in tokens if one.state == "completed"]
    now = [one.node_id for one in tokens if one.finished_at_ms is None]
    lines = [f"undone: {', '.join(done)}"] if done else []
    return [*lines, f"undoing: {', '.join(now)}"] if now else lines


def _function_hint(run: RunView, node: GraphNode, token_id: str | None) -> str:
    name = node.signal or node.id
    if node.kind != "approval":
        title, answer = f"the run waits for signal {name!r}", ""
    else:
        title, answer = "an approval is needed", APPROVED
        answer += "" if token_id is None else f" --token-id {token_id}"
    return f"{node.id}: {title}  rota runs signal {run.id} {name}{answer}"


def _hint(run: RunView, node_id: str, definition: Definition, token_id: str | None) -> str:
    node = definition.nodes[node_id]
    name = node.awaited(node_id)
    if node.kind == "approval":
        title = getattr(node.approval, "title", "") or "an approval is needed"
        answer = APPROVED
        answer += "" if token_id is None else f" --token-id {token_id}"
    else:
        title, answer = f"the run waits for signal {name!r}", ""
    return f"{node_id}: {title}  rota runs signal {run.id} {name}{answer}"


def _elapsed_ms(run: RunView) -> int:
    now_ms = time.time_ns() // 1_000_000
    return max(0, (run.finished_at_ms or now_ms) - run.created_at_ms)


def describe_counts(counts: Mapping[str, int]) -> str:
    """Describe the counts: "12 done, 5 running, 83 held back of 100"."""
    text = ", ".join(f"{count} {column}" for column, count in counts.items()) or "nothing"
    return f"{text} of {sum(counts.values())}" if has_more(counts) else text


def has_more(counts: Mapping[str, int]) -> bool:
    """Whether a node has branches or items that have not begun."""
    return HELD_BACK in counts or NOT_STARTED in counts


def describe_failure(token: RunTokenView) -> str:
    error = token.error or {}
    return f"{name_of(token)}: {error.get('type', token.state)}: {error.get('message', '')}"


def name_of(token: RunTokenView) -> str:
    """The name of a token in the journal: its node, and the index of each branch it is in."""
    if token.branch_index is None:
        return token.node_id
    _, *places = token.path_id.split(".")  # a node and an index for each open scope
    return token.node_id + "".join(f"[{index}]" for index in places[1::2])


def seconds(milliseconds: int) -> str:
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.1f} s"
    minutes, rest = divmod(milliseconds // 1000, 60)
    return f"{minutes}:{rest:02} min"


def describe_error(error: dict[str, object]) -> str:
    where = f"{error['node']}: " if error.get("node") else ""
    return f"{where}{error.get('type', 'error')}: {error.get('message', '')}"
