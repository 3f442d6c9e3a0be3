"""The host of durable functions in a worker: starts them, keeps suspended ones, and resumes them.

A suspended function stays in memory, the least recently used ones make room for others. When its
run is resumed here and nothing was reported by another worker meanwhile, it goes on without a
replay. In all other cases its log is replayed.
"""

import random
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Protocol

import msgspec
from msgspec import Raw

from rota.core.tasks.logs import LogLine
from rota.core.workflow.functions.model import FunctionReport, Operation
from rota.messages import LeaseView
from rota.sdk.client import function_calls
from rota.sdk.client.client import Client
from rota.sdk.context import EXECUTION, Execution
from rota.sdk.functions.execution.large_results import ResultArtifacts
from rota.sdk.functions.execution.log import FunctionResumption, LoggedOperation
from rota.sdk.functions.execution.runtime import FunctionRuntime
from rota.sdk.middleware.chain import MiddlewareChain

MOST_SUSPENDED = 1_000  # functions that wait in the memory of one worker

Commit = Callable[[LeaseView, int, Sequence[Operation]], Awaitable[str | None]]
_decode = msgspec.json.Decoder(FunctionResumption).decode


class RunnableFunction(Protocol):
    """A workflow in code, as its host needs it."""

    is_async: bool
    is_strict: bool

    @property
    def deployed_version(self) -> int | None: ...

    def body(
        self, runtime: FunctionRuntime, run_input: Raw, dice: random.Random | None = None
    ) -> Callable[[], Awaitable[Raw]]: ...


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class FunctionHost:
    """Runs the functions of one worker, on one event loop."""

    def __init__(
        self,
        commit: Commit,
        *,
        clock: Callable[[], int] = wall_clock_ms,
        most_suspended: int = MOST_SUSPENDED,
        prepare: Callable[[FunctionRuntime], None] | None = None,
    ) -> None:
        """`prepare` changes runtimes before they start, for tests."""
        self.replays = 0  # functions that were not in memory
        self._commit = commit
        self._clock = clock
        self._most = most_suspended
        self._prepare = prepare
        self._suspended: OrderedDict[str, FunctionRuntime] = OrderedDict()

    @property
    def suspended(self) -> int:
        """How many suspended functions are in memory."""
        return len(self._suspended)

    async def run(
        self,
        function: RunnableFunction,
        execution: Execution,
        *,
        middleware: MiddlewareChain | None = None,
    ) -> FunctionReport:
        """Run the function of a leased task until it stops; middleware surrounds its steps."""
        lease = execution.lease
        resumption = _decode(lease.payload)
        committer = _LeaseCommitter(self._commit, lease)
        runtime = self._take(resumption, lease)
        ended: Sequence[LoggedOperation] = ()
        if runtime is None:
            runtime = await self._new_runtime(function, resumption, execution)
        else:
            ended = resumption.ended or ()
        # The function may have begun under an earlier task: its context follows the current one.
        runtime.execution = execution
        runtime.middleware = middleware
        EXECUTION.set(ResumedExecution(runtime))
        artifacts = ResultArtifacts(
            execution.client, lease, run_id=runtime.run_id, restarts=runtime.restarts
        )
        runtime.on_large, runtime.load = artifacts.store, artifacts.load
        body = function.body(runtime, resumption.input)
        try:
            report = await runtime.resume(
                body, committer, ended=ended, cancelled=resumption.cancelled
            )
        except BaseException:
            runtime.unwind()
            raise
        if report.waits is not None and function.is_async:
            self._keep(runtime)
        else:
            runtime.unwind()
        return report

    def close(self) -> None:
        """End the functions in memory; their runs go on elsewhere."""
        for runtime in self._suspended.values():
            runtime.unwind()
        self._suspended.clear()

    async def _new_runtime(
        self, function: RunnableFunction, resumption: FunctionResumption, execution: Execution
    ) -> FunctionRuntime:
        self.replays += 1
        log = resumption.log
        if log is None or execution.lease.attempt > 1:  # an earlier attempt may have reported more
            entries, page = await execution.client.arun(function_calls.whole_log(resumption.run_id))
            resumption = msgspec.structs.replace(
                resumption, reported=page.reported, restarts=page.restarts
            )
            log = entries
        runtime = FunctionRuntime(
            resumption,
            log,
            clock=self._clock,
            is_strict=function.is_strict,
            version=function.deployed_version,
        )
        if self._prepare is not None:
            self._prepare(runtime)
        return runtime

    def _take(self, resumption: FunctionResumption, lease: LeaseView) -> FunctionRuntime | None:
        """The function in memory, if it is where its run is."""
        runtime = self._suspended.pop(resumption.run_id, None)
        if runtime is None:
            return None
        is_current = (
            resumption.ended is not None
            and lease.attempt == 1
            and (runtime.restarts, runtime.outbox.reported)
            == (resumption.restarts, resumption.reported)
        )
        if is_current and not runtime.is_closed:
            return runtime
        runtime.unwind()
        return None

    def _keep(self, runtime: FunctionRuntime) -> None:
        self._suspended[runtime.run_id] = runtime
        while len(self._suspended) > self._most:
            self._suspended.popitem(last=False)[1].unwind()


FUNCTION_HOST: ContextVar[FunctionHost] = ContextVar("rota.functions.host")


class ResumedExecution:
    """The task that runs a function now, as the code of the function sees it."""

    def __init__(self, runtime: FunctionRuntime) -> None:
        self._runtime = runtime

    @property
    def _current(self) -> Execution:
        assert self._runtime.execution is not None
        return self._runtime.execution

    @property
    def lease(self) -> LeaseView:
        return self._current.lease

    @property
    def stop_reason(self) -> str | None:
        return self._current.stop_reason

    def note_progress(self, progress: Raw | None, partial: Raw | None) -> None:
        self._current.note_progress(progress, partial)

    @property
    def log_level(self) -> int:
        return self._current.log_level

    def keep_line(self, line: LogLine) -> None:
        """Keep a line, unless an earlier task has logged it before the replay."""
        if not self._runtime.ends.is_replaying:
            self._current.keep_line(line)

    @property
    def client(self) -> Client:
        return self._current.client

    def note_trace(self, traceparent: str) -> None:
        self._current.note_trace(traceparent)


class _LeaseCommitter:
    """Commits for the task that runs a function now."""

    def __init__(self, commit: Commit, lease: LeaseView) -> None:
        self._commit = commit
        self._lease = lease

    def commit(self, after: int, operations: Sequence[Operation]) -> Awaitable[str | None]:
        return self._commit(self._lease, after, operations)
