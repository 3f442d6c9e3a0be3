"""Deliberately broken rules of the runtime, each of which a test above must notice."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from rota import Run
from rota.sdk.functions import operations as operations_module
from rota.sdk.functions.execution import ends as ends_module
from rota.sdk.functions.execution import runtime as runtime_module
from rota.sdk.functions.execution.ends import OperationEnds
from rota.sdk.functions.execution.log import FunctionLog
from rota.sdk.functions.execution.runtime import FunctionRuntime
from tests.sdk.functions import test_divergence, test_steps, test_waiting
from tests.sdk.functions.recording import RecordedRun, run

Break = Callable[[pytest.MonkeyPatch], None]


async def named(name: str, turns: int) -> str:
    for _ in range(turns):
        await asyncio.sleep(0)
    return name


def check_the_order_of_a_replay() -> None:
    """Branches that share a list see the same order when they are replayed."""

    async def function(ctx: Run) -> list[str]:
        seen: list[str] = []

        async def branch(name: str, turns: int) -> None:
            seen.append(await ctx.step(named, name, turns))

        await ctx.gather(branch("slow", 9), branch("quick", 1), branch("medium", 5))
        await ctx.event("go")
        return seen

    recorded = RecordedRun(function)
    run(recorded)
    recorded.signals["go"] = [1]
    recorded.advance()
    run(recorded)

    assert recorded.output == ["quick", "medium", "slow"]


def begin_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    """A step that has run is not committed before the next: a crash runs both again."""

    async def commit(_: FunctionRuntime) -> None:
        return

    patch.setattr(FunctionRuntime, "commit", commit)


def suspend_by_an_exception(patch: pytest.MonkeyPatch) -> None:
    """A suspension that `except Exception` swallows lets the function run on."""
    swallowed = type("Suspended", (Exception,), {})
    patch.setattr(runtime_module, "Suspended", swallowed)
    patch.setattr(ends_module, "Suspended", swallowed)


def ignore_differences(patch: pytest.MonkeyPatch) -> None:
    """A new step begins although the log has another one in its place."""

    def held_in(*_: Any) -> None:
        return None

    patch.setattr(OperationEnds, "_held_in", held_in)
    patch.setattr(FunctionLog, "has_unvisited", lambda *_: False)


def deliver_in_another_order(patch: pytest.MonkeyPatch) -> None:
    """Ends are delivered in another order than that of the log."""
    begin = FunctionLog.__init__

    def reversed_log(log: FunctionLog, entries: Any = ()) -> None:
        begin(log, entries)
        log.deliveries.reverse()

    patch.setattr(FunctionLog, "__init__", reversed_log)


def run_a_committed_step_again(patch: pytest.MonkeyPatch) -> None:
    """A step whose result the log has begins again when the function is replayed."""
    end_of = FunctionRuntime.end_of

    async def forgetful(runtime: FunctionRuntime, path: str, kind: Any, *more: Any) -> Any:
        found = await end_of(runtime, path, kind, *more)
        return None if kind in {"step", "once"} else found

    patch.setattr(FunctionRuntime, "end_of", forgetful)


def hold_the_slot_while_waiting(patch: pytest.MonkeyPatch) -> None:
    """A sleep of an hour passes in the worker, which holds its task for that long."""
    patch.setattr(operations_module, "SHORT_WAIT_MS", 10**9)


def wake_for_each_operation(patch: pytest.MonkeyPatch) -> None:
    """Each of a hundred operations resumes its function by itself."""

    def alone(*_: Any) -> None:
        return None

    patch.setattr(OperationEnds, "wake_together", alone)


def undo_in_the_order_of_the_steps(patch: pytest.MonkeyPatch) -> None:
    add_undo = FunctionRuntime.add_undo

    def first_last(runtime: FunctionRuntime, path: str, undo: Any) -> None:
        add_undo(runtime, path, undo)
        runtime._undos.insert(0, runtime._undos.pop())

    patch.setattr(FunctionRuntime, "add_undo", first_last)


CHECKS: list[tuple[Break, Callable[[], None]]] = [
    (
        begin_before_the_commit,
        test_steps.test_the_result_of_a_step_is_committed_before_the_next_effect_begins,
    ),
    (
        suspend_by_an_exception,
        test_waiting.test_a_suspension_is_not_an_exception_that_a_function_may_swallow,
    ),
    (
        ignore_differences,
        test_divergence.test_a_step_that_was_added_before_recorded_ones_diverges,
    ),
    (deliver_in_another_order, check_the_order_of_a_replay),
    (run_a_committed_step_again, test_steps.test_once_that_ended_is_not_run_again),
    (
        hold_the_slot_while_waiting,
        test_waiting.test_a_short_sleep_passes_in_the_worker_and_a_long_one_without_it,
    ),
    (
        wake_for_each_operation,
        test_waiting.test_a_hundred_operations_of_one_gather_wake_their_function_once,
    ),
    (
        undo_in_the_order_of_the_steps,
        test_steps.test_undos_run_in_reverse_as_recorded_steps_when_a_function_fails,
    ),
]


@pytest.mark.parametrize(("break_rule", "check"), CHECKS, ids=lambda one: one.__name__)
def test_a_broken_rule_is_noticed(
    break_rule: Break, check: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    check()
    break_rule(monkeypatch)

    with pytest.raises(AssertionError):
        check()
