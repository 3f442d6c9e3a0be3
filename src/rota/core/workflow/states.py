"""States of runs, tokens and branches, each with the transition table that the code executes.

A state changes only through `to`, which looks the change up. The reference page on states is made
from the same tables, so the docs and the behaviour cannot differ.
"""

from enum import StrEnum
from typing import Literal


class RunState(StrEnum):
    RUNNING = "running"  # under way
    PAUSED = "paused"  # work under way finishes, and no token starts
    COMPLETED = "completed"  # over, with an output
    FAILED = "failed"  # over, with an error, after compensation
    CANCELLED = "cancelled"  # over, because a caller cancelled it
    TIMED_OUT = "timed_out"  # over, because it ran past its time limit

    def to(self, after: "RunState") -> "RunState":
        """Return `after`, which the table must list for this state."""
        assert after in RUN_TRANSITIONS[self], f"a run that is {self} cannot become {after}"
        return after


RUN_ENDED = frozenset({RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED, RunState.TIMED_OUT})
# A run ends once. Only a retry opens a failed one again; a cancelled one only with its parent.
RUN_TRANSITIONS: dict[RunState, frozenset[RunState]] = {
    RunState.RUNNING: RUN_ENDED | {RunState.PAUSED},
    # What is under way may still end a paused run. No token starts, so only a function that was
    # running when its run was paused completes it.
    RunState.PAUSED: RUN_ENDED | {RunState.RUNNING},
    RunState.COMPLETED: frozenset(),
    RunState.FAILED: frozenset({RunState.RUNNING}),
    RunState.CANCELLED: frozenset({RunState.RUNNING}),
    RunState.TIMED_OUT: frozenset({RunState.RUNNING}),
}

RunAction = Literal["cancel", "pause", "resume", "retry"]
# The states in which a caller may ask for each action.
RUN_ACTIONS: dict[RunAction, frozenset[RunState]] = {
    "cancel": frozenset({RunState.RUNNING, RunState.PAUSED}),
    "pause": frozenset({RunState.RUNNING}),
    "resume": frozenset({RunState.PAUSED}),
    "retry": frozenset({RunState.FAILED, RunState.TIMED_OUT}),
}


# What a caller may ask of an open scope. `complete`: its joins fire with what has arrived.
# `cancel`: its branches end, and nothing follows them.
ScopeAction = Literal["complete", "cancel"]


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

    def to(self, after: "TokenState") -> "TokenState":
        """Return `after`, which the table must list for this state."""
        assert after in TOKEN_TRANSITIONS[self], f"a token that is {self} cannot become {after}"
        return after


TOKEN_ENDED = frozenset(
    {TokenState.COMPLETED, TokenState.FAILED, TokenState.TIMED_OUT, TokenState.CANCELLED}
)
# A token that is through with its node ends, or waits at a join.
_THROUGH = TOKEN_ENDED | {TokenState.WAITING_FOR_SIBLINGS}
TOKEN_TRANSITIONS: dict[TokenState, frozenset[TokenState]] = {
    TokenState.PENDING: frozenset(TokenState) - {TokenState.PENDING},
    TokenState.DISPATCHED: _THROUGH | {TokenState.EXECUTING},
    TokenState.EXECUTING: _THROUGH | {TokenState.DISPATCHED},
    TokenState.WAITING_FOR_SIBLINGS: frozenset({TokenState.COMPLETED, TokenState.CANCELLED}),
    TokenState.WAITING_FOR_SUBWORKFLOW: _THROUGH,
    TokenState.WAITING_FOR_EVENT: _THROUGH,
    # A retry of the run lets a token that was through wait at its join again.
    TokenState.COMPLETED: frozenset({TokenState.WAITING_FOR_SIBLINGS}),
    TokenState.FAILED: frozenset(),
    TokenState.TIMED_OUT: frozenset(),
    TokenState.CANCELLED: frozenset(),
}


class BranchState(StrEnum):
    WAITING = "waiting"  # its turn has not come: max_parallel
    LIVE = "live"
    ARRIVED = "arrived"  # at a join
    ENDED = "ended"  # came to an end without arriving
    FAILED = "failed"
    CANCELLED = "cancelled"

    def to(self, after: "BranchState") -> "BranchState":
        """Return `after`, which the table must list for this state."""
        assert after in BRANCH_TRANSITIONS[self], f"a branch that is {self} cannot become {after}"
        return after


# A retry of the run lets a failed branch begin again.
BRANCH_TRANSITIONS: dict[BranchState, frozenset[BranchState]] = {
    BranchState.WAITING: frozenset({BranchState.LIVE, BranchState.CANCELLED}),
    BranchState.LIVE: frozenset(
        {BranchState.ARRIVED, BranchState.ENDED, BranchState.FAILED, BranchState.CANCELLED}
    ),
    BranchState.ARRIVED: frozenset(),
    BranchState.ENDED: frozenset(),
    BranchState.FAILED: frozenset({BranchState.LIVE}),
    BranchState.CANCELLED: frozenset(),
}
