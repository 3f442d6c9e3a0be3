"""Where is a run? A token marks one place; a scope is what a fan-out opens and a join closes.

A token carries its stack of open scopes, each with the index of the branch it is in. A fan-out
opens a new scope each time it happens, so a loop that fans out again opens another. Joins count
branches, never tokens: a branch has arrived when none of its tokens is under way any more and
one of them has reached the join.

Each branch counts the tokens under way in it, so that nobody ever has to look through all tokens.
A token that waits at a join is counted by the branches outside the one that arrived: they are not
through before that join has fired. When a join fires and lets its late branches go on (absorb),
the scope is closed, and whatever is still in it is counted by nobody outside it.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from msgspec import Struct


class TokenState(StrEnum):
    PENDING = "pending"  # made, not started: the run is paused, or its turn has not come
    DISPATCHED = "dispatched"  # its task waits for a worker
    EXECUTING = "executing"  # its task is leased to a worker, or its timer runs
    WAITING_FOR_SIBLINGS = "waiting_for_siblings"  # arrived at a join that has not fired
    WAITING_FOR_SUBWORKFLOW = "waiting_for_subworkflow"  # a run of its own is under way for it
    WAITING_FOR_EVENT = "waiting_for_event"  # a signal or an approval has to come
    COMPLETED = "completed"  # went on from here, or ended in good order
    FAILED = "failed"  # its node failed and no route took the error
    TIMED_OUT = "timed_out"  # waited past its time
    CANCELLED = "cancelled"  # no longer wanted


_ENDED = frozenset(
    {TokenState.COMPLETED, TokenState.FAILED, TokenState.TIMED_OUT, TokenState.CANCELLED}
)
# The whole state machine. Whatever a token was at, it may wait at a join when it is through.
_THROUGH = _ENDED | {TokenState.WAITING_FOR_SIBLINGS}
TOKEN_TRANSITIONS: dict[TokenState, frozenset[TokenState]] = {
    TokenState.PENDING: frozenset(TokenState) - {TokenState.PENDING},
    TokenState.DISPATCHED: _THROUGH | {TokenState.EXECUTING},
    TokenState.EXECUTING: _THROUGH | {TokenState.DISPATCHED},
    TokenState.WAITING_FOR_SIBLINGS: frozenset({TokenState.COMPLETED, TokenState.CANCELLED}),
    TokenState.WAITING_FOR_SUBWORKFLOW: _THROUGH,
    TokenState.WAITING_FOR_EVENT: _THROUGH,
    TokenState.COMPLETED: frozenset(),
    TokenState.FAILED: frozenset(),
    TokenState.TIMED_OUT: frozenset(),
    TokenState.CANCELLED: frozenset(),
}

Place = tuple[int, int]  # a scope and the index of a branch in it


class Token(Struct, frozen=True, kw_only=True, omit_defaults=True):
    number: int
    node: str
    state: TokenState = TokenState.PENDING
    parent: int | None = None
    stack: tuple[Place, ...] = ()
    compensates: int | None = None  # the token whose work this one undoes


class BranchState(StrEnum):
    WAITING = "waiting"  # its turn has not come: max_parallel
    LIVE = "live"
    ARRIVED = "arrived"  # at a join
    ENDED = "ended"  # came to an end without arriving
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass
class Branch:
    index: int
    state: BranchState = BranchState.WAITING
    live: int = 0  # tokens under way in it, those of inner scopes included
    tokens: dict[int, None] = field(default_factory=dict)  # whose innermost scope is its scope
    scopes: dict[int, None] = field(default_factory=dict)  # opened in it, something left in them
    arrivals: dict[str, Any] = field(default_factory=dict)  # join's node -> result that arrived
    documents: dict[str, Any] | None = None  # what it sees; None: it has written nothing yet
    iterations: dict[str, int] = field(default_factory=dict)  # of its loops, by transition
    error: dict[str, Any] | None = None
    failed_at: str | None = None  # the node


@dataclass
class Scope:
    number: int
    key: str  # the fan-out's id, or its sibling group
    node: str  # that fanned out
    parent: int  # the token that fanned out
    stack: tuple[Place, ...]  # of that token
    targets: list[str]  # the first node of each branch
    items: list[Any] | None  # of a foreach
    opened_at_ms: int
    documents: dict[str, Any]  # what was to be seen when it opened: all its branches begin there
    outside: dict[str, Any] | None  # the names of the branch it was opened in
    max_parallel: int | None = None
    branches: list[Branch] = field(default_factory=list)
    next_index: int = 0  # the first branch that has not started
    counts: dict[str, int] = field(default_factory=dict)  # branches by state
    arrived: dict[str, int] = field(default_factory=dict)  # branches by the joins they reached
    inner: int = 0  # scopes inside its branches that something is left in
    is_closed: bool = False  # its join has fired

    @property
    def total(self) -> int:
        return len(self.targets)

    @property
    def depth(self) -> int:
        """Where in a token's stack this scope stands."""
        return len(self.stack)

    def count(self, state: BranchState) -> int:
        return self.counts.get(state, 0)

    @property
    def still_to_come(self) -> int:
        """Branches that are under way, or have not begun."""
        return self.count(BranchState.LIVE) + self.count(BranchState.WAITING)

    def set_state(self, branch: Branch, state: BranchState) -> None:
        self.counts[branch.state] = self.counts.get(branch.state, 0) - 1
        branch.state = state
        self.counts[state] = self.counts.get(state, 0) + 1

    def in_state(self, state: BranchState) -> list[Branch]:
        """Its branches of one state, by index."""
        return [branch for branch in self.branches if branch.state is state]


def path_id(stack: tuple[Place, ...], scopes: dict[int, Scope]) -> str:
    """`root`, then `.node.index` for each open scope."""
    return "root" + "".join(f".{scopes[scope].node}.{index}" for scope, index in stack)
