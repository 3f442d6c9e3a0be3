"""Which rules of runs, if broken, would the simulation notice? All of these, by name."""

import sys
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from rota.core.workflow.decisions import CancelChild, CancelTask
from rota.core.workflow.runtime import failures, nodes, reducer, signals
from rota.core.workflow.runtime.recovery import Failure
from rota.core.workflow.runtime.run import Run, Steps
from rota.core.workflow.runtime.scopes import branches
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
_proceed = Run.proceed


# --- compensation ---------------------------------------------------------------------------------


@mutant(profiles.FAILING)
def the_oldest_work_is_undone_first() -> Iterator[None]:
    def undo_next(run: Run) -> None:
        run.undo.reverse()
        _undo_next(run)
        run.undo.reverse()

    with patch.object(failures, "undo_next", undo_next):
        yield


@mutant(profiles.FAILING, seeds=1_000)
def a_run_does_not_wait_until_its_sub_workflows_have_undone_their_work() -> Iterator[None]:
    def stop_children(run: Run, failure: Failure) -> Steps:
        for number, token in list(run.tokens.items()):
            if token.state is TokenState.WAITING_FOR_SUBWORKFLOW:
                run.decisions.append(CancelChild(number, failure.mode))
                run.end_token(number, TokenState.CANCELLED)
                yield 1

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
        patch.object(signals, "_is_late_answer", lambda *_: False),
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
def a_join_takes_up_results_between_two_of_its_slices() -> Iterator[None]:
    with patch.object(reducer, "_must_wait", lambda *_: False):
        yield


@mutant(profiles.STOPPED)
def a_procedure_has_no_end_of_its_slice() -> Iterator[None]:
    def proceed(run: Run) -> None:
        left = run.steps_left
        _proceed(run)
        run.steps_left = left

    with patch.object(Run, "proceed", proceed):
        yield


@mutant(profiles.SLICED)
def a_branch_ends_although_the_join_of_a_scope_inside_it_is_firing() -> Iterator[None]:
    def start_closing(_run: Run, scope: BranchScope) -> None:
        scope.is_closing = True

    with patch.object(Run, "start_closing", start_closing):
        yield


@mutant(profiles.STOPPED, seeds=2_000)
def work_that_is_done_while_its_run_stops_is_forgotten() -> Iterator[None]:
    def cancel_task(run: Run, token: Token) -> None:
        if token.number not in run.ended_meanwhile:
            run.decisions.append(CancelTask(token.number))

    with patch.object(branches, "_cancel_task", cancel_task):
        yield


@mutant(profiles.SLICED)
def a_branch_ends_although_a_scope_inside_it_has_branches_to_start() -> Iterator[None]:
    def start_opening(run: Run, scope: BranchScope) -> None:
        run.opening[scope.number] = None

    def stop_opening(run: Run, scope: BranchScope) -> None:
        run.opening.pop(scope.number, None)

    with patch.multiple(Run, start_opening=start_opening, stop_opening=stop_opening):
        yield
