"""Which rules of runs, if broken, would the simulation notice? All of these, by name."""

import sys
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from rota.core.workflow.decisions import CancelChild
from rota.core.workflow.runtime import failures, nodes, reducer, signals
from rota.core.workflow.runtime.run import Failure, Run
from rota.core.workflow.runtime.tokens import BranchScope, Token
from rota.core.workflow.states import TokenState
from tests.simulation.mutation import Mutants
from tests.simulation.runs import profiles
from tests.simulation.runs.profiles import Profile

MUTANTS = Mutants[Profile](seeds=150)
mutant = MUTANTS.add

_undo_next = failures.undo_next
_cancel = failures.cancel
_set_timer = Run.set_timer


# --- compensation ---------------------------------------------------------------------------------


@mutant(profiles.FAILING)
def the_oldest_work_is_undone_first() -> Iterator[None]:
    def undo_next(run: Run) -> None:
        run.undo.reverse()
        _undo_next(run)
        run.undo.reverse()

    with patch.object(failures, "undo_next", undo_next):
        yield


@mutant(profiles.FAILING)
def a_run_does_not_wait_until_its_sub_workflows_have_undone_their_work() -> Iterator[None]:
    def stop_children(run: Run, failure: Failure) -> None:
        for number, token in list(run.tokens.items()):
            if token.state is TokenState.WAITING_FOR_SUBWORKFLOW:
                run.decisions.append(CancelChild(number, failure.mode))
                run.end_token(number, TokenState.CANCELLED)

    with patch.object(failures, "_stop_children", stop_children):
        yield


@mutant(profiles.FAILING)
def completed_sub_workflows_are_not_undone() -> Iterator[None]:
    with patch.object(failures, "keep_child_work", lambda *_: None):
        yield


@mutant(profiles.CANCELLED)
def a_cancelled_run_undoes_nothing() -> Iterator[None]:
    def cancel(run: Run, reason: str, _mode: str) -> None:
        _cancel(run, reason, "force")

    with patch.object(failures, "cancel", cancel):
        yield


# --- approvals ------------------------------------------------------------------------------------


@mutant(profiles.ANSWERED_TWICE)
def a_stale_answer_reaches_the_token_that_asks_now() -> Iterator[None]:
    def addressee(run: Run, name: str, _token: int | None) -> int | None:
        return next(iter(run.waiting.get(name, {})), None)

    with patch.object(signals, "addressee", addressee):
        yield


@mutant(profiles.ANSWERED_TWICE)
def an_early_answer_is_kept_for_the_next_question() -> Iterator[None]:
    def wait(run: Run, token: Token, node: Any) -> None:
        name = node.awaited(token.node)
        run.start_waiting(token.number, name)
        if name in run.signals:
            nodes.signalled(run, token.number, run.take_signal(name))

    with (
        patch.object(signals, "is_unasked_approval", lambda *_: False),
        patch.object(nodes, "_wait", wait),
    ):
        yield


# --- slices ---------------------------------------------------------------------------------------


@mutant(profiles.SLICED)
def a_slice_has_no_end() -> Iterator[None]:
    with patch.object(reducer, "_steps_allowed", lambda *_: sys.maxsize):
        yield


@mutant(profiles.SLICED)
def the_steps_after_a_slice_are_forgotten() -> Iterator[None]:
    def set_timer(run: Run, kind: Any, number: int, due_at_ms: int) -> None:
        if kind != "slice":
            _set_timer(run, kind, number, due_at_ms)

    with patch.object(Run, "set_timer", set_timer):
        yield


@mutant(profiles.SLICED)
def a_branch_ends_although_a_scope_inside_it_has_branches_to_start() -> Iterator[None]:
    def start_opening(run: Run, scope: BranchScope) -> None:
        run.opening[scope.number] = None

    def stop_opening(run: Run, scope: BranchScope) -> None:
        run.opening.pop(scope.number, None)

    with patch.multiple(Run, start_opening=start_opening, stop_opening=stop_opening):
        yield
