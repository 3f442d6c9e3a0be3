"""The host of functions in a worker: what stays in memory, what is replayed, and what is read."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from rota import Run
from rota.core.workflow.functions.model import FunctionReport, Operation
from rota.messages import LeaseView
from rota.sdk.client.function_calls import LoggedOperationPage
from rota.sdk.encoding import encode
from rota.sdk.functions.context import FunctionContext
from rota.sdk.functions.execution.host import MOST_SUSPENDED, FunctionHost
from rota.sdk.functions.execution.log import LoggedOperation
from rota.sdk.functions.execution.runtime import FunctionRuntime
from rota.sdk.functions.execution.steps import LARGE_RESULT_BYTES
from rota.sdk.functions.operations import Operations
from tests.sdk.functions.recording import RUN_ID, STARTED_AT_MS, Target


class Hosted:
    """A function that counts how often it begins."""

    is_async = True
    is_strict = False
    deployed_version: int | None = None

    def __init__(self, function: Callable[[Run], Awaitable[Any]]) -> None:
        self.begun: list[str] = []
        self._function = function

    def body(
        self,
        runtime: FunctionRuntime,
        run_input: Raw,  # noqa: ARG002 - it has no input
        dice: random.Random | None = None,
    ) -> Callable[[], Awaitable[Raw]]:
        async def run() -> Raw:
            self.begun.append(runtime.run_id)
            ctx = FunctionContext(Operations(runtime, Target(), dice=dice))
            return Raw(encode(await self._function(ctx)))

        return run


class Attempt:
    """A leased task that resumes a function, with a client that notes what is read."""

    stop_reason = None
    log_level = 0

    def __init__(self, run_id: str = RUN_ID, attempt: int = 1, **resumption: Any) -> None:
        fields = {
            "run_id": run_id,
            "workflow": "order",
            "version": 1,
            "started_at_ms": STARTED_AT_MS,
            "log": [],
            "ended": [],
            **resumption,
        }
        self.reads = 0
        self.stored: dict[str, bytes] = {}
        self.whole_log: list[LoggedOperation] = []
        self.lease = LeaseView(
            task_id="1",
            fence=1,
            name="workflow:order",
            payload=Raw(encode(fields)),
            attempt=attempt,
            max_attempts=3,
        )

    @property
    def client(self) -> Any:
        return self

    async def arun(self, call: Any) -> Any:
        if hasattr(call, "close"):  # an exchange of several calls: for the whole log
            call.close()
            self.reads += 1
            return self.whole_log, LoggedOperationPage(items=[], reported=1)
        self.stored[call.path.rpartition("/")[2]] = call.body
        return None

    def note_progress(self, progress: Raw | None, partial: Raw | None) -> None:
        raise NotImplementedError

    def keep_line(self, line: Any) -> None:
        raise NotImplementedError

    def note_trace(self, traceparent: str) -> None:
        raise NotImplementedError


class Committed:
    """What functions have committed before they stopped."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []

    async def __call__(
        self, lease: LeaseView, after: int, operations: Sequence[Operation]
    ) -> str | None:
        assert lease.fence == 1
        assert after == len(self.operations)
        self.operations += operations
        return None


async def waits(ctx: Run) -> str:
    return f"{await ctx.event('go')}!"


def ended(report: FunctionReport) -> list[Any]:
    """What the log has when the signal has come, for another worker."""
    asked = msgspec.to_builtins(report.operations)
    return [*asked, {"path": "go#1", "kind": "event", "state": "done", "result": "on"}]


def output(report: FunctionReport) -> Any:
    assert isinstance(report.output, Raw)
    return msgspec.json.decode(report.output)


def test_a_suspended_function_goes_on_in_memory_if_nothing_was_reported_meanwhile() -> None:
    async def main() -> None:
        host, function = FunctionHost(Committed()), Hosted(waits)
        stopped = await host.run(function, Attempt())
        log = ended(stopped)

        again = await host.run(function, Attempt(reported=1, log=log, ended=log[1:]))

        assert output(again) == "on!"
        assert (len(function.begun), host.replays, host.suspended) == (1, 1, 0)

    asyncio.run(main())


@pytest.mark.parametrize("change", [{"reported": 2}, {"restarts": 1}, {"attempt": 2}])
def test_a_function_in_memory_is_replayed_if_its_run_is_elsewhere(change: dict[str, int]) -> None:
    async def main() -> None:
        host, function = FunctionHost(Committed()), Hosted(waits)
        log = ended(await host.run(function, Attempt()))
        options: dict[str, Any] = {"reported": 1, "log": log, "ended": log[1:], **change}
        attempt = Attempt(**options)
        attempt.whole_log = msgspec.json.decode(encode(log), type=list[LoggedOperation])

        again = await host.run(function, attempt)

        assert output(again) == "on!"
        assert (len(function.begun), host.replays) == (2, 2)

    asyncio.run(main())


def test_the_function_that_waited_longest_makes_room_for_another() -> None:
    async def main() -> None:
        host, function = FunctionHost(Committed(), most_suspended=2), Hosted(waits)
        for run_id in ("a1", "a2", "a3"):
            await host.run(function, Attempt(run_id))
        assert host.suspended == 2

        for run_id in ("a3", "a2", "a1"):
            log = ended(FunctionReport(operations=[asked_for_go()]))
            await host.run(function, Attempt(run_id, reported=1, log=log, ended=log[1:]))

        assert function.begun == ["a1", "a2", "a3", "a1"]
        assert MOST_SUSPENDED == 1_000

    asyncio.run(main())


def asked_for_go() -> Operation:
    return Operation(path="go#1", kind="event", state="pending")


def test_a_function_reads_nothing_before_its_steps_unless_the_log_is_missing() -> None:
    async def main() -> None:
        host, function = FunctionHost(Committed()), Hosted(waits)
        first, long = Attempt(), Attempt("a2", log=None, ended=None)

        await host.run(function, first)
        await host.run(function, long)

        assert (first.reads, long.reads) == (0, 1)

    asyncio.run(main())


@pytest.mark.parametrize("extra", [0, 1])
def test_a_result_of_more_than_a_mebibyte_is_an_artifact(extra: int) -> None:
    text = "x" * (LARGE_RESULT_BYTES - len('""') + extra)

    async def large(ctx: Run) -> int:
        first = len(await ctx.step(lambda: text))
        await ctx.event("go")
        return first

    async def main() -> None:
        attempt = Attempt()

        report = await FunctionHost(Committed()).run(Hosted(large), attempt)

        (done, _) = report.operations
        assert LARGE_RESULT_BYTES == 1024 * 1024
        if extra:
            assert bytes(done.result) == b'{"$artifact":"result-0-lambda%231"}'
            assert len(attempt.stored) == 1
        else:
            assert len(done.result) == LARGE_RESULT_BYTES
            assert not attempt.stored

    asyncio.run(main())
