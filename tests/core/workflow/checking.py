"""Invariants of a run between any two events, counted from scratch."""

from collections.abc import Container
from typing import Any

import msgspec

from rota.core.workflow.runtime.run import Run
from rota.core.workflow.runtime.tokens import Place
from rota.core.workflow.states import BranchState, TokenState


def standing(run: Run) -> dict[str, Any]:
    """Everything that what follows could depend on."""
    parts = {
        name: value
        for name, value in msgspec.structs.asdict(run).items()
        if name not in {"graph", "context"}
    }
    parts["documents"] = run.context.documents
    parts["input"] = run.context.input
    del parts["decisions"]
    return parts


def check(run: Run, states: dict[int, TokenState], tasks: set[int]) -> None:
    """Hold a run against what its decisions said so far."""
    assert not run.is_busy or ("slice", 0) in run.timers
    for number, token in run.tokens.items():
        assert states[number] is token.state
    _check_branches(run)
    owners: dict[str, Container[int]] = {"join": run.scopes, "run": {0}, "slice": {0}}
    for kind, number in run.timers:
        assert number in owners.get(kind, run.tokens)
    waiting = {one for tokens in run.waiting.values() for one in tokens}
    assert waiting == _in_state(run, TokenState.WAITING_FOR_EVENT)
    # The run does not know yet of the ends that it has deferred.
    dispatched = _in_state(run, TokenState.DISPATCHED) - run.ended_meanwhile.keys()
    assert tasks == dispatched or (run.procedures and tasks < dispatched)
    assert not run.procedures or not run.is_ended
    closing = {scope.number for scope in run.scopes.values() if scope.is_closing}
    assert closing <= run.held.keys()
    assert run.procedures or not closing
    if run.is_ended:
        assert not run.tokens
        assert not run.timers
        assert not run.waiting
    assert run.state != "completed" or not run.scopes


def _in_state(run: Run, state: TokenState) -> set[int]:
    return {number for number, token in run.tokens.items() if token.state is state}


def _check_branches(run: Run) -> None:
    counted: dict[Place, int] = {}
    inside: dict[Place, set[int]] = {}
    for number, token in run.tokens.items():
        if token.stack:
            inside.setdefault(token.stack[-1], set()).add(number)
        is_held = token.state is TokenState.WAITING_FOR_SIBLINGS
        places = run.counted(token.stack)
        for place in places[:-1] if is_held else places:
            counted[place] = counted.get(place, 0) + 1
    for number in [*run.opening, *run.held]:
        for place in run.counted(run.scopes[number].stack):
            counted[place] = counted.get(place, 0) + 1
    for scope in run.scopes.values():
        for branch in scope.branches:
            place = (scope.number, branch.index)
            assert branch.live == counted.get(place, 0)
            assert set(branch.tokens) == inside.get(place, set())
            assert not branch.live or branch.state is BranchState.LIVE
        for state in BranchState:
            not_begun = scope.total - len(scope.branches) if state is BranchState.WAITING else 0
            assert scope.count(state) == len(scope.in_state(state)) + not_begun
        assert scope.inner == sum(len(branch.scopes) for branch in scope.branches)
