"""A coordinator in a few lines: the log of one run, kept as the real one keeps it."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from rota.core.workflow.functions.model import (
    REMOTE_KINDS,
    EventRequest,
    FunctionReport,
    Operation,
    SleepRequest,
)
from rota.sdk.encoding import encode
from rota.sdk.functions.context import BlockingContext, FunctionContext
from rota.sdk.functions.errors import LeaseLost
from rota.sdk.functions.execution.log import FunctionResumption, LoggedOperation, is_withdrawal
from rota.sdk.functions.execution.runtime import FunctionRuntime
from rota.sdk.functions.execution.threads import run_in_thread
from rota.sdk.functions.operations import CodeTarget, Operations

RUN_ID = "00000000000000ab"
STARTED_AT_MS = 1_700_000_000_000
MOST_RESUMES = 1_000


class Target(CodeTarget[..., Any]):
    name = "order"

    def encode_input(self, args: Sequence[Any], kwargs: Any) -> Raw:
        return Raw(encode({"args": list(args), **kwargs}))


class Crash(LeaseLost):
    """The worker dies here."""


class RecordedRun:
    """One run of a function: its log, its clock, and what it waits for."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.log: list[Operation] = []
        self.reported = 0
        self.restarts = 0
        self.now_ms = STARTED_AT_MS
        self.signals: dict[str, list[Any]] = {}
        self.answers: dict[str, Any] = {}  # results of calls, maps, child runs, by path or name
        self.cancelled: str | None = None
        self.ended: FunctionReport | None = None
        self.input: Any = None
        self.waits: list[list[str]] | None = None
        self.reports = 0
        self.crash_at: int | None = None  # the number of the report at which the worker dies
        self.is_memory_kept = False
        self.is_strict = False
        self.dice: random.Random | None = None
        self.runtime: FunctionRuntime | None = None

    # --- what the coordinator does ----------------------------------------------------------------

    async def commit(self, after: int, operations: Sequence[Operation]) -> str | None:
        """Commit as the coordinator does, or die before or after it."""
        await asyncio.sleep(0)
        self.reports += 1
        if self.crash_at == self.reports * 2:
            raise Crash
        self.take(after, operations)
        if self.crash_at == self.reports * 2 + 1:
            raise Crash
        return self.cancelled

    def take(self, after: int, operations: Sequence[Operation]) -> None:
        assert after <= self.reported, "a report has a gap"
        for one in operations[self.reported - after :]:
            self.log.append(msgspec.json.decode(encode(one), type=Operation))
            self.reported += 1
        self.advance()

    @property
    def pending(self) -> dict[str, Operation]:
        found = {one.path: one for one in self.log if one.state == "pending"}
        for one in self.log:
            if one.state in {"done", "failed"}:
                found.pop(one.path, None)
        return found

    def advance(self) -> None:
        """End what can end now."""
        for path, one in self.pending.items():
            request = one.request
            if isinstance(request, EventRequest) and self.signals.get(request.name):
                self.end(path, self.signals[request.name].pop(0))
            elif isinstance(request, SleepRequest) and request.due_at_ms <= self.now_ms:
                self.end(path, None)
            elif path in self.answers:
                self.end(path, self.answers[path])

    def end(self, path: str, result: Any) -> None:
        kind = self.pending[path].kind
        failed = isinstance(result, dict) and "failed" in result
        self.log.append(
            Operation(
                path=path,
                kind=kind,
                state="failed" if failed else "done",
                result=None if failed else result,
                error=result["failed"] if failed else None,
                ended_at_ms=self.now_ms,
            )
        )

    @property
    def unseen(self) -> list[Operation]:
        seen = {one.path for one in self.log if one.state == "delivered" or is_withdrawal(one)}
        asked = {one.path for one in self.log if one.state == "pending"}
        return [
            one
            for one in self.log
            if one.kind in REMOTE_KINDS
            and one.state in {"done", "failed"}
            and one.path in asked
            and one.path not in seen
        ]

    def is_due(self) -> bool:
        if self.waits is None or self.cancelled:
            return True
        ended = {one.path: one.state for one in self.log if one.state in {"done", "failed"}}
        return any(
            all(path in ended for path in group)
            or any(ended.get(path) == "failed" for path in group)
            for group in self.waits
        )

    # --- what the worker does ---------------------------------------------------------------------

    def resumption(self) -> FunctionResumption:
        return FunctionResumption(
            run_id=RUN_ID,
            workflow="order",
            version=1,
            started_at_ms=STARTED_AT_MS,
            restarts=self.restarts,
            reported=self.reported,
        )

    async def resume(self) -> FunctionReport | None:
        """Run the function until it stops; None: its worker died."""
        runtime, ended = self.runtime, self.unseen
        if runtime is None or runtime.outbox.reported != self.reported or not self.is_memory_kept:
            if runtime is not None:
                runtime.unwind()
            runtime = FunctionRuntime(
                self.resumption(), as_logged(self.log), clock=self.clock, is_strict=self.is_strict
            )
            runtime.sleep = self.sleep
            ended = []
        self.runtime = runtime
        try:
            report = await runtime.resume(
                self.body(runtime), self, ended=as_logged(ended), cancelled=self.cancelled
            )
        except LeaseLost:
            runtime.unwind()
            self.runtime = None
            return None
        self.take(report.after, report.operations)
        self.waits = report.waits
        if report.waits is None:
            self.ended = report
            runtime.unwind()
        elif not asyncio.iscoroutinefunction(self.function):
            runtime.unwind()
            self.runtime = None
        if report.restart is not UNSET:
            self.restarts += 1
            self.log, self.reported, self.ended = [], 0, None
            self.input = msgspec.json.decode(report.restart)
            self.runtime, self.waits = None, None
        return report

    def body(self, runtime: FunctionRuntime) -> Callable[[], Awaitable[Raw]]:
        operations = Operations(runtime, Target(), dice=self.dice)

        async def run() -> Raw:
            args = [] if self.input is None else self.input["args"]
            if asyncio.iscoroutinefunction(self.function):
                value = await self.function(FunctionContext(operations), *args)
            else:
                value = await run_in_thread(
                    lambda: self.function(BlockingContext(operations), *args)
                )
            return Raw(encode(value))

        return run

    async def run(self) -> FunctionReport:
        """Resume the function until it has ended, or waits for what the test has to do."""
        for _ in range(MOST_RESUMES):
            report = await self.resume()
            if self.ended is not None:
                return self.ended
            self.advance()
            if report is not None and not self.is_due():
                return report
        raise AssertionError("the function never ends")

    def clock(self) -> int:
        self.now_ms += 1
        return self.now_ms

    async def sleep(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1_000)
        await asyncio.sleep(0)

    # --- what tests read --------------------------------------------------------------------------

    @property
    def paths(self) -> list[str]:
        return list(dict.fromkeys(one.path for one in self.log))

    @property
    def output(self) -> Any:
        assert self.ended is not None
        assert self.ended.error is None, self.ended.error
        assert self.ended.divergence is None, self.ended.divergence
        assert self.ended.output is not UNSET
        return msgspec.json.decode(self.ended.output)


def as_logged(log: Sequence[Operation]) -> list[LoggedOperation]:
    return [msgspec.json.decode(msgspec.json.encode(one), type=LoggedOperation) for one in log]


def run(recorded: RecordedRun) -> FunctionReport:
    return asyncio.run(recorded.run())
