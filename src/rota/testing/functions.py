"""Durable functions in tests: fakes for their steps, and a replay of everything they do.

Each time a function stops, its log is replayed twice, with the branches of `gather` and `first`
started in a shuffled order. A function that does something else then is not deterministic: its test
fails, and says where.
"""

import asyncio
import copy
import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from rota.core.workflow.functions.model import FunctionReport, Operation
from rota.messages import LeaseView, OperationsItem, ResultItem
from rota.sdk.client import function_calls
from rota.sdk.client.client import Client
from rota.sdk.encoding import encode
from rota.sdk.functions.errors import LeaseLost
from rota.sdk.functions.execution.host import FunctionHost
from rota.sdk.functions.execution.log import FunctionResumption, LoggedOperation
from rota.sdk.functions.execution.replay import ReplayedRun, replay_log
from rota.sdk.functions.execution.runtime import FunctionRuntime
from rota.sdk.functions.execution.steps import plain_function
from rota.sdk.functions.workflow import CodeWorkflow, ResumptionTask
from rota.sdk.task import Task
from rota.testing.handlers import call_apart

SEEDS = (1, 2)  # of the shuffled replays
KEPT = frozenset({"accepted", "duplicate"})


class TestedFunctions:
    """Runs and checks the functions of one test."""

    __test__ = False  # pytest does not collect it

    def __init__(self, client: Client, clock: Callable[[], int]) -> None:
        self.capabilities: set[str] = set()
        self._client = client
        self._clock = clock
        self._fakes: dict[Any, Callable[..., Any]] = {}

    # --- fakes ----------------------------------------------------------------------------------

    def fake(self, original: Callable[..., Any] | str, replacement: Callable[..., Any]) -> None:
        known = original if isinstance(original, str) else plain_function(original)
        self._fakes[known] = replacement

    def fake_task(self, task: Task[..., Any]) -> Task[..., Any]:
        """The task with the function that a test has put in place of its own."""
        found = self._fakes.get(task.function) or self._fakes.get(task.name)
        if found is None or isinstance(task, ResumptionTask):
            return task
        faked = copy.copy(task)
        faked.function = found
        faked.is_async = asyncio.iscoroutinefunction(found)
        return faked

    # --- running --------------------------------------------------------------------------------

    def host(self, worker_id: str, incarnation: int) -> FunctionHost:
        """A host that keeps nothing in memory: each resumption is a replay."""

        async def commit(
            lease: LeaseView, after: int, operations: Sequence[Operation]
        ) -> str | None:
            item = OperationsItem(
                task_id=lease.task_id,
                fence=lease.fence,
                after=after,
                operations=msgspec.Raw(encode(operations)),
            )
            call = function_calls.report_operations(
                worker_id, incarnation=incarnation, items=[item]
            )
            (outcome,) = self._client.run(call).outcomes
            if outcome.outcome not in KEPT:
                raise LeaseLost(f"the report of the function is {outcome.outcome}")
            return outcome.cancelled

        return FunctionHost(commit, clock=self._clock, most_suspended=0, prepare=self._prepare)

    def _prepare(self, runtime: FunctionRuntime) -> None:
        runtime.fakes = self._fakes
        runtime.sleep = _pass

    # --- checking -------------------------------------------------------------------------------

    def check(self, workflow: CodeWorkflow[..., Any], lease: LeaseView, item: ResultItem) -> None:
        """Replay what a function has done, and fail the test if it does something else."""
        assert item.result is not None
        report = msgspec.json.decode(item.result, type=FunctionReport)
        if report.divergence is not None:
            raise AssertionError(
                f"workflow {workflow.name!r} does something else when it is replayed: "
                f"{report.divergence.message}"
            )
        if report.restart is not msgspec.UNSET:
            return
        resumption = msgspec.json.decode(lease.payload, type=FunctionResumption)
        log, _ = self._client.run(function_calls.whole_log(resumption.run_id))
        expected = outcome_of(report)
        for seed in SEEDS:
            replayed = self._replayed(workflow, resumption, _seen(log, report), seed)
            found = replayed.outcome
            if replayed.would_call:
                found = {"calls": replayed.would_call}
            if found != expected:
                raise AssertionError(
                    f"workflow {workflow.name!r} does something else when it is replayed: at first "
                    f"{expected}, then {found}. Clocks, random numbers, the order of sets "
                    "and files, and state that branches share belong in steps"
                )

    def _replayed(
        self,
        workflow: CodeWorkflow[..., Any],
        resumption: FunctionResumption,
        log: Sequence[LoggedOperation],
        seed: int,
    ) -> ReplayedRun:
        dice = random.Random(seed)  # noqa: S311 - a test that can be repeated

        def replay() -> ReplayedRun:
            return asyncio.run(
                replay_log(workflow, resumption, log, client=self._client, dice=dice)
            )

        return call_apart(replay)


def outcome_of(report: FunctionReport) -> Any:
    if report.output is not msgspec.UNSET:
        report = msgspec.structs.replace(report, output=msgspec.Raw(encode(report.output)))
    return ReplayedRun(report=report).outcome


def _seen(log: Sequence[LoggedOperation], report: FunctionReport) -> list[LoggedOperation]:
    """The log as far as the function that stopped has seen it."""
    if report.waits is None:
        return [*log]
    seen = {one.path for one in log if one.state == "delivered"}
    asked = {one.path for one in log if one.state == "pending"}
    return [
        one
        for one in log
        if one.state not in {"done", "failed"} or one.path not in asked or one.path in seen
    ]


async def _pass(_: float) -> None:
    """Let a short wait take no time."""
    await asyncio.sleep(0)
