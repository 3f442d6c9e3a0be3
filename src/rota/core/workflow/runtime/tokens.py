"""Tokens and scopes: a token marks a place in the run, a fan-out opens a scope.

A token carries its stack of open scopes, each with the index of the branch it is in. A fan-out
opens a new scope each time it happens, so a loop that fans out again opens another. Joins count
branches, never tokens: a branch has arrived when none of its tokens is under way any more and
one of them has reached the join.

Each branch counts the tokens under way in it, so that no rule has to search all tokens. A token
that waits at a join is counted by the branches outside the one that arrived: they are not through
before that join has fired. When a join fires and lets its late branches continue (absorb), the
scope is closed, and the branches outside it no longer count the tokens in it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from rota.core.workflow.definition.model import OpenRule
from rota.core.workflow.states import BranchState, TokenState

Place = tuple[int, int]  # a scope and the index of a branch in it


# A run may have 100,000 tokens and branches: they are kept small, and cheap for the collector.
class Token(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    number: int
    node: str
    state: TokenState = TokenState.PENDING
    parent: int | None = None
    stack: tuple[Place, ...] = ()
    compensates: int | None = None  # the token whose work this one undoes
    is_trigger: bool = False  # made by a signal, for a token that goes on waiting


@dataclass(slots=True)
class Branch:
    index: int
    state: BranchState = BranchState.WAITING
    live: int = 0  # tokens under way in it, those of inner scopes included
    tokens: dict[int, None] = field(default_factory=dict)  # whose innermost scope is its scope
    scopes: dict[int, None] = field(default_factory=dict)  # opened in it, and not empty yet
    arrivals: dict[str, Any] = field(default_factory=dict)  # join's node -> result that arrived
    documents: dict[str, Any] | None = None  # its view; None: it has written nothing yet
    iterations: dict[str, int] = field(default_factory=dict)  # of its loops, by transition
    error: dict[str, Any] | None = None
    failed_at: str | None = None  # the node
    failed_child: int | None = None  # the token, if its sub-workflow has failed


class FanOut(Struct, frozen=True):
    """A scope that is about to be opened."""

    key: str
    targets: list[str]
    items: list[Any] | None
    max_parallel: int | None
    quorums: dict[str, int]  # of the joins whose quorum is an expression, by node
    open: OpenRule | None = None


@dataclass
class BranchScope:
    number: int
    key: str  # the fan-out's id, or its sibling group
    node: str  # that fanned out
    parent: int  # the token that fanned out
    stack: tuple[Place, ...]  # of that token
    targets: list[str]  # the first node of each branch
    items: list[Any] | None  # of a foreach
    opened_at_ms: int
    documents: dict[str, Any]  # the view at its opening, with which all its branches begin
    outside: dict[str, Any] | None  # the names of the branch it was opened in
    max_parallel: int | None = None
    # Branches that must arrive, by the node of each join; None: all that still can.
    needed: dict[str, int | None] = field(default_factory=dict)
    branches: list[Branch] = field(default_factory=list)  # the first ones; see `each_branch`
    next_index: int = 0  # the first branch that has not started
    counts: dict[str, int] = field(default_factory=dict)  # branches by state
    arrived: dict[str, int] = field(default_factory=dict)  # branches by the joins they reached
    inner: int = 0  # scopes inside its branches that are not empty yet
    is_closed: bool = False  # its join has fired
    is_closing: bool = False  # its join is firing, or it is being cancelled
    open: OpenRule | None = None  # None: it takes no further branches
    additions: dict[str, tuple[int, int]] = field(default_factory=dict)  # key -> first, count
    joined: tuple[str, ...] = ()  # spans of a join right before it, which its first tasks link to

    @property
    def total(self) -> int:
        return len(self.targets)

    @property
    def is_over(self) -> bool:
        """Whether its join has fired, or is firing: nothing more can arrive."""
        return self.is_closed or self.is_closing

    @property
    def is_held_open(self) -> bool:
        """Whether branches may still be added when all that it has are through."""
        return self.open == "until_closed" and not self.is_over

    @property
    def depth(self) -> int:
        """The index of this scope in a token's stack."""
        return len(self.stack)

    def begin_branch(self) -> Branch:
        """The next branch that has not started. A branch is made when it begins."""
        index = self.next_index
        self.next_index += 1
        if index == len(self.branches):
            self.branches.append(Branch(index))
        return self.branches[index]

    def each_branch(self) -> Iterator[Branch]:
        """All branches, also those that have not started."""
        for index in range(self.total):
            if index == len(self.branches):
                self.branches.append(Branch(index))
            yield self.branches[index]

    def count(self, state: BranchState) -> int:
        return self.counts.get(state, 0)

    @property
    def still_to_come(self) -> int:
        """The number of branches that are under way, or have not started."""
        return self.count(BranchState.LIVE) + self.count(BranchState.WAITING)

    def set_state(self, branch: Branch, state: BranchState) -> None:
        self.counts[branch.state] = self.counts.get(branch.state, 0) - 1
        branch.state = branch.state.to(state)
        self.counts[state] = self.counts.get(state, 0) + 1

    def in_state(self, state: BranchState) -> list[Branch]:
        """Its branches of one state, by index; those that have not started are left out."""
        return [branch for branch in self.branches if branch.state is state]


def path_id(stack: tuple[Place, ...], scopes: dict[int, BranchScope]) -> str:
    """`root`, then `.node.index` for each open scope."""
    return "root" + "".join(f".{scopes[scope].node}.{index}" for scope, index in stack)
