"""Replays the log of a run against code, without effects: what the code would do there.

Recorded operations give their recorded answers. The function stops where its log ends, and what it
would begin there is listed, not begun.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from rota.core.workflow.functions.model import FunctionReport, Operation
from rota.errors import Invalid
from rota.sdk.client import run_calls
from rota.sdk.client.client import Client
from rota.sdk.encoding import encode
from rota.sdk.functions.execution.host import RunnableFunction
from rota.sdk.functions.execution.log import FunctionResumption, LoggedOperation
from rota.sdk.functions.execution.runtime import FunctionRuntime


class ReplayedRun(Struct, frozen=True, kw_only=True):
    """Where a function came to with the log of a run."""

    report: FunctionReport
    would_call: list[str] = []  # what it would begin next, as `kind path`
    changed_arguments: list[str] = []  # steps that have other arguments than those recorded

    @property
    def outcome(self) -> Any:
        """What can be compared: the outcome as JSON has it, without times and traces."""
        report = self.report
        if report.divergence is not None:
            return {"diverged": report.divergence.message}
        if report.error is not None:
            return {"error": report.error.get("type"), "message": report.error.get("message")}
        if report.waits is not None:
            return {"waits": sorted(path for group in report.waits for path in group)}
        output = report.output
        return {"output": msgspec.json.decode(output) if isinstance(output, Raw) else None}


class _DryCommitter:
    async def commit(self, after: int, operations: Sequence[Operation]) -> str | None:
        raise AssertionError(f"a dry run has committed {operations!r} after {after}")


async def replay_log(
    function: RunnableFunction,
    resumption: FunctionResumption,
    log: Sequence[LoggedOperation],
    *,
    client: Client,
    dice: random.Random | None = None,
) -> ReplayedRun:
    """Run a function with the recorded answers; `dice` shuffles the start of its branches.

    `client` reads results that are artifacts.
    """
    runtime = FunctionRuntime(
        resumption,
        log,
        clock=lambda: resumption.started_at_ms,
        is_strict=function.is_strict,
        is_dry=True,
        version=function.deployed_version,
    )

    async def load(name: str) -> bytes:
        return client.run(run_calls.get_artifact(resumption.run_id, name))

    runtime.load = load
    body = function.body(runtime, resumption.input, dice)
    try:
        report = await runtime.resume(body, _DryCommitter(), cancelled=resumption.cancelled)
    finally:
        runtime.unwind()
    return ReplayedRun(
        report=report,
        would_call=runtime.frontier,
        changed_arguments=runtime.ends.changed_arguments,
    )


def with_answers(
    log: Sequence[LoggedOperation], answers: Mapping[str, Any]
) -> list[LoggedOperation]:
    """The log with other results of some operations, and without what followed the first of them.

    What came after a changed answer may not be what the function does with it.
    """
    changed: list[LoggedOperation] = []
    left = dict(answers)
    for entry in log:
        is_end = entry.state in {"done", "failed"}
        if is_end and entry.path in left:
            result = Raw(encode(left.pop(entry.path)))
            changed.append(msgspec.structs.replace(entry, state="done", result=result, error=None))
            if not left:
                break
        else:
            changed.append(entry)
    if left:
        raise Invalid(f"the log of the run has no ended operation {min(left)!r}")
    return changed
