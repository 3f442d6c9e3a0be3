"""The workflow definition: a graph of nodes and transitions, as data.

A definition is one immutable value, whether it was written as YAML, as JSON or in Python. It is
known by the hash of its content: the same content is the same version.
"""

import hashlib
from collections.abc import Iterator
from typing import Annotated, Any, Literal, assert_never

import msgspec
from msgspec import Meta, Struct, field

from rota.core import limits
from rota.core.flows.model import Concurrencies, FairKey, Rates
from rota.core.tasks.model import Backoff, Name

NodeId = Annotated[str, Meta(min_length=1, max_length=100, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Source = Annotated[str, Meta(min_length=1, max_length=4_096)]  # of a CEL expression
Mapping = Annotated[dict[str, Any], Meta(max_length=200)]
Milliseconds = Annotated[int, Meta(ge=1, le=limits.MAX_TIMEOUT_MS)]

MAX_SPAWN = 100_000  # branches of one fan-out


class RetryPolicy(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    max_attempts: Annotated[int, Meta(ge=1, le=limits.MAX_ATTEMPTS)] = 3
    backoff: Backoff | None = None


class WaitUntil(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The signal that ends a repeated wait."""

    event: Name


class WaitFor(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    event: Name
    timeout_ms: Milliseconds | None = None
    repeat: Annotated[int, Meta(ge=1, le=limits.MAX_TRIGGERS)] | bool = False
    until: WaitUntil | None = None
    transient: bool = False

    @property
    def most(self) -> int:
        """The number of signals that it takes."""
        if isinstance(self.repeat, bool):
            return limits.MAX_TRIGGERS if self.repeat else 1
        return self.repeat

    @property
    def events(self) -> tuple[str, ...]:
        """The names of the signals that reach it."""
        return (self.event,) if self.until is None else (self.event, self.until.event)


class Approval(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Wait for an approval or a rejection."""

    title: str = ""
    timeout_ms: Milliseconds | None = None


class OutgoingSignal(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A signal that a node sends. `run` is CEL, absent: its own run."""

    run: Source | None = None
    name: Name  # as it is written, like the `event` that a node waits for
    payload: Any = None  # CEL, or an object of CEL; other values stand for themselves


class ErrorRoute(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The route of a failing node's token; `match` is CEL over `error`, absent: any error."""

    to: NodeId
    match: Source | None = None


NodeKind = Literal["task", "workflow", "wait_for", "signal", "sleep_ms", "end", "approval", "pass"]
# Each is the field of a node that makes it one of that kind. A node without any passes through.
NODE_KINDS: tuple[NodeKind, ...] = (
    "task",
    "workflow",
    "wait_for",
    "signal",
    "sleep_ms",
    "end",
    "approval",
)


class NodeDefinition(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A step of a workflow, of the kind that one of its first fields makes it."""

    task: Name | None = None
    workflow: Name | None = None
    wait_for: WaitFor | None = None
    approval: Approval | bool | None = None
    signal: OutgoingSignal | None = None
    sleep_ms: Annotated[int, Meta(ge=0, le=limits.MAX_DELAY_MS)] | None = None
    end: Literal["completed", "failed", "cancelled"] | None = None

    input: Mapping | None = None
    output: Mapping | None = None
    output_schema: dict[str, Any] | bool | None = None
    requires: tuple[Name, ...] = ()
    queue: Name = "default"
    priority: Annotated[int, Meta(ge=-limits.MAX_PRIORITY, le=limits.MAX_PRIORITY)] = 0
    retry: RetryPolicy | None = None
    timeout_ms: Milliseconds | None = None
    on_error: tuple[ErrorRoute, ...] = ()
    compensate: Name | None = None
    concurrency: Concurrencies | None = None
    rate: Rates | None = None
    fair_key: FairKey | None = None

    @property
    def kinds(self) -> Iterator[NodeKind]:
        """Every kind that the fields name; a valid node has one at most."""
        for name in NODE_KINDS:
            value = getattr(self, name)
            if value is not None and value is not False:
                yield name

    @property
    def kind(self) -> NodeKind:
        return next(self.kinds, "pass")

    def awaited(self, node_id: str) -> str:
        """The name of the signal that it waits for; an approval's is its own id."""
        return self.wait_for.event if self.wait_for is not None else node_id

    def awaits(self, node_id: str) -> tuple[str, ...]:
        """The names of all signals that reach it while it waits."""
        return self.wait_for.events if self.wait_for is not None else (node_id,)

    @property
    def patience_ms(self) -> int | None:
        """The time limit for its signal; None: no limit."""
        asked = self.wait_for if self.wait_for is not None else self.approval
        own = asked.timeout_ms if isinstance(asked, WaitFor | Approval) else None
        return self.timeout_ms if own is None else own


class Quorum(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A number of branches; as CEL, it is evaluated where the scope opens."""

    m_of_n: Annotated[int, Meta(ge=1, le=MAX_SPAWN)] | Source


class CompleteOn(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A signal that fires a join with the branches that have arrived."""

    signal: Name


class Merge(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of each branch that a join writes, and where it writes it."""

    source: Source = "branch.output"
    target: str
    strategy: Literal["append", "collect", "merge", "keyed", "last_wins"] = "append"
    key: Source | None = None


class Synchronization(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A join: waits for branches of one scope, and continues as one token."""

    wait_for: Literal["any", "all"] | Quorum = "all"
    joins_transition: str
    merge: Merge | tuple[Merge, ...] = ()
    timeout_ms: Milliseconds | None = None
    on_timeout: Literal["fail", "proceed"] = "fail"
    late: Literal["cancel", "absorb"] = "cancel"
    on_branch_failure: Literal["fail", "continue"] = "fail"
    complete_on: CompleteOn | None = None

    @property
    def merges(self) -> tuple[Merge, ...]:
        return self.merge if isinstance(self.merge, tuple) else (self.merge,)

    @property
    def needed(self) -> int | str | None:
        """The number of branches that must arrive, or its CEL; None: all that still can."""
        match self.wait_for:
            case "all":
                return None
            case "any":
                return 1
            case Quorum():
                return self.wait_for.m_of_n
            case _:
                assert_never(self.wait_for)


# How long a scope takes further branches. `until_done`: until all that it has are through.
# `until_closed`: until a caller adds the last ones, or completes or cancels the scope.
OpenRule = Literal["until_done", "until_closed"]


class Transition(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    from_: str = field(name="from")
    to: str
    id: Name | None = None
    priority: int = 1
    condition: Source | None = None
    spawn_count: Annotated[int, Meta(ge=0, le=MAX_SPAWN)] | Source | None = None
    foreach: Source | None = None
    sibling_group: Name | None = None
    max_parallel: Annotated[int, Meta(ge=1, le=MAX_SPAWN)] | None = None
    open: OpenRule | None = None
    synchronization: Synchronization | None = None
    max_iterations: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None


class Definition(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    name: Name
    description: str = ""
    input: dict[str, Any] | bool | None = None
    state: dict[str, Any] | bool | None = None
    initial_node: str
    nodes: Annotated[dict[NodeId, NodeDefinition], Meta(min_length=1, max_length=limits.MAX_NODES)]
    transitions: Annotated[tuple[Transition, ...], Meta(max_length=limits.MAX_TRANSITIONS)] = ()
    output: Mapping | None = None
    output_schema: dict[str, Any] | bool | None = None
    on_no_route: Literal["end", "fail"] = "end"
    timeout_ms: Milliseconds | None = None
    max_depth: Annotated[int, Meta(ge=1, le=100)] = 10  # of sub-workflows inside each other


class DefinitionProblem(Struct, frozen=True, kw_only=True):
    """A problem of a definition, with its place."""

    path: str  # such as transitions[2].condition
    code: str
    message: str
    line: int | None = None
    column: int | None = None  # from 1, in that line


def problem(path: str, code: str, message: str) -> DefinitionProblem:
    return DefinitionProblem(path=path, code=code, message=message)


def canonical(definition: Definition) -> bytes:
    """The content as bytes, equal for equal definitions."""
    return msgspec.json.encode(msgspec.to_builtins(definition), order="sorted")


def as_stored(definition: Definition) -> Definition:
    """The definition in the form of the store, where names in a file have another order."""
    return msgspec.json.decode(canonical(definition), type=Definition)


def hash_of(definition: Definition) -> str:
    return hashlib.sha256(canonical(definition)).hexdigest()


class Join(Struct, frozen=True, kw_only=True):
    """The transitions that join one scope before one node, as one; their rules are the same."""

    node: str  # that it leads to
    name: str  # how the journal calls it
    rule: Synchronization


class Graph:
    """A definition with its indexes: the transitions that leave a node, open and join a scope."""

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        joins: dict[str, dict[str, Join]] = {}  # scope key -> node -> join
        leaving: dict[str, dict[int, list[int]]] = {node: {} for node in definition.nodes}
        for number, transition in enumerate(definition.transitions):
            rule = transition.synchronization
            if rule is not None:
                join = Join(node=transition.to, name=self.name_of(number), rule=rule)
                joins.setdefault(rule.joins_transition, {}).setdefault(transition.to, join)
            tiers = leaving.setdefault(transition.from_, {})
            tiers.setdefault(transition.priority, []).append(number)
        self.joins = {key: tuple(by_node.values()) for key, by_node in joins.items()}
        waits = [one.wait_for for one in definition.nodes.values() if one.wait_for is not None]
        awaited = {name for one in waits for name in one.events}
        # The names of signals that only approvals wait for.
        self.approvals = frozenset(
            name
            for name, node in definition.nodes.items()
            if node.kind == "approval" and name not in awaited
        )
        # The names of signals that only scopes wait for.
        self.completions = frozenset(
            join.rule.complete_on.signal
            for joins_of_key in self.joins.values()
            for join in joins_of_key
            if join.rule.complete_on is not None
        ).difference(awaited, self.approvals)
        # The names of signals that are lost unless a node waits for them.
        kept = {name for one in waits if not one.transient for name in one.events}
        self.transient = frozenset(awaited - kept)
        # Of each scope that takes further branches: the node at which they begin.
        self.growing = {
            self.name_of(number): transition.to
            for number, transition in enumerate(definition.transitions)
            if transition.open is not None
        }
        self.leaving = {node: sorted(tiers.items()) for node, tiers in leaving.items()}

    def transition(self, number: int) -> Transition:
        return self.definition.transitions[number]

    def name_of(self, number: int) -> str:
        """The name of a transition in the journal."""
        return self.transition(number).id or f"transitions[{number}]"

    def joins_of(self, key: str) -> tuple[Join, ...]:
        """The joins of a scope, in the order of the definition."""
        return self.joins.get(key, ())

    def scope_key(self, number: int) -> str | None:
        """The key of the scope a transition opens; None when it opens none."""
        transition = self.transition(number)
        if transition.synchronization is not None:
            return None
        if transition.sibling_group is not None:
            return transition.sibling_group
        fans_out = transition.foreach is not None or transition.spawn_count is not None
        if fans_out or transition.id in self.joins:
            return self.name_of(number)
        return None
