"""Broken rules of running functions, each of which the crashes must notice."""

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from rota.core.workflow.functions import operations
from rota.core.workflow.functions.model import Operation
from rota.core.workflow.functions.run import CodeRun
from rota.engine.runs.functions import FunctionCommands
from rota.sdk.functions.execution import ends as ends_module
from rota.sdk.functions.execution import runtime as runtime_module
from rota.sdk.functions.execution.host import FunctionHost
from rota.sdk.functions.execution.log import FunctionLog
from rota.sdk.functions.execution.runtime import FunctionRuntime
from tests.simulation.functions.crashes import CrashProfile
from tests.simulation.mutation import Mutants

ANY = CrashProfile("any")
WORKERS = CrashProfile("workers", coordinator_crashes=0)
COORDINATORS = CrashProfile("coordinators", worker_crashes=0)

CRASH_MUTANTS = Mutants[CrashProfile](seeds=60)
mutant = CRASH_MUTANTS.add


@mutant(ANY)
def a_step_begins_before_the_one_before_it_is_committed() -> Iterator[None]:
    async def commit(_: FunctionRuntime) -> None:
        return

    with patch.object(FunctionRuntime, "commit", commit):
        yield


@mutant(WORKERS)
def a_committed_step_runs_again() -> Iterator[None]:
    end_of = FunctionRuntime.end_of

    async def forgetful(runtime: FunctionRuntime, path: str, kind: Any, *more: Any) -> Any:
        found = await end_of(runtime, path, kind, *more)
        return None if kind == "step" else found

    with patch.object(FunctionRuntime, "end_of", forgetful):
        yield


@mutant(WORKERS)
def ends_are_delivered_in_another_order_than_that_of_the_log() -> Iterator[None]:
    begin = FunctionLog.__init__

    def reversed_log(log: FunctionLog, entries: Any = ()) -> None:
        begin(log, entries)
        log.deliveries.reverse()

    with patch.object(FunctionLog, "__init__", reversed_log):
        yield


@mutant(ANY)
def a_function_swallows_its_suspension() -> Iterator[None]:
    swallowed = type("Suspended", (Exception,), {})
    with (
        patch.object(runtime_module, "Suspended", swallowed),
        patch.object(ends_module, "Suspended", swallowed),
    ):
        yield


@mutant(ANY)
def a_waiting_function_holds_its_task() -> Iterator[None]:
    wait_for = operations.wait_for

    def hold(run: CodeRun, groups: list[list[str]]) -> None:
        wait_for(run, groups)
        run.is_held = True

    with patch.object(operations, "wait_for", hold):
        yield


@mutant(COORDINATORS)
def a_repeated_report_is_taken_twice() -> Iterator[None]:
    def unknown_part(_run: CodeRun, _after: int, reported: list[Operation]) -> list[Operation]:
        return reported

    with patch.multiple("rota.engine.runs.functions", unknown_part=unknown_part):
        yield


@mutant(ANY)
def a_report_is_answered_and_not_kept() -> Iterator[None]:
    def outcome(*_: Any) -> str:
        return "accepted"

    with patch.object(FunctionCommands, "_outcome", outcome):
        yield


@mutant(WORKERS)
def a_function_goes_on_in_memory_after_another_worker_reported() -> Iterator[None]:
    take = FunctionHost._take

    def outdated(host: FunctionHost, resumption: Any, lease: Any) -> FunctionRuntime | None:
        runtime = host._suspended.get(resumption.run_id)
        if runtime is None or runtime.is_closed:
            return take(host, resumption, lease)
        runtime.outbox.reported = resumption.reported - 1
        return runtime

    with patch.object(FunctionHost, "_take", outdated):
        yield


@mutant(WORKERS)
def a_replayed_function_forgets_what_it_has_to_undo() -> Iterator[None]:
    add_undo = FunctionRuntime.add_undo

    def forgetful(runtime: FunctionRuntime, path: str, undo: Any) -> None:
        if not runtime.log.recorded:
            add_undo(runtime, path, undo)

    with patch.object(FunctionRuntime, "add_undo", forgetful):
        yield
