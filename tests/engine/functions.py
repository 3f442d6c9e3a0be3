"""Functions on a running engine: put them, lease their tasks, and report as their worker would."""

from typing import Any

import msgspec
from msgspec import UNSET

from rota.core.tasks.model import TaskRecord
from rota.core.workers.model import WorkerRecord
from rota.core.workflow.commands import (
    LookAtOperations,
    OperationsNoted,
    OperationsShown,
    PutCode,
    ReportedOperations,
    ReportOperations,
    SignalRun,
    SteerRun,
    WorkflowKept,
)
from rota.core.workflow.functions.model import (
    CallRequest,
    CodeDefinition,
    FunctionReport,
    MapRequest,
    Operation,
    Resumption,
    SleepRequest,
)
from tests.engine.flows import Flows
from tests.engine.running import done

SOURCE = "async def order(ctx): ...\n"


def code(name: str = "order", fingerprint: str = "f" * 16, **options: Any) -> CodeDefinition:
    return CodeDefinition(name=name, fingerprint=fingerprint, source=SOURCE, **options)


def resumption_of(task: TaskRecord) -> Resumption:
    return msgspec.json.decode(task.payload, type=Resumption)


# --- operations ---------------------------------------------------------------------------------


def step(path: str, result: Any = None, **more: Any) -> Operation:
    return Operation(path=path, kind="step", state="done", result=result, **more)


def failed(path: str, kind: Any = "step") -> Operation:
    return Operation(path=path, kind=kind, state="failed", error={"type": "E", "message": path})


def call(path: str, task: str = "work", **options: Any) -> Operation:
    request = CallRequest(task=task, **options)
    return Operation(path=path, kind="call", state="pending", request=request)


def mapped(path: str, payloads: list[Any], **options: Any) -> Operation:
    request = MapRequest(call=CallRequest(task="work"), payloads=payloads, **options)
    return Operation(path=path, kind="map", state="pending", request=request)


def nap(path: str, until_ms: int) -> Operation:
    request = SleepRequest(due_at_ms=until_ms)
    return Operation(path=path, kind="sleep", state="pending", request=request)


def asked(path: str, kind: Any, request: Any) -> Operation:
    return Operation(path=path, kind=kind, state="pending", request=request)


def delivered(path: str, kind: Any = "call") -> Operation:
    return Operation(path=path, kind=kind, state="delivered")


class Functions(Flows):
    """The calls about functions that tests make over and over."""

    async def deploy(self, name: str = "order", **options: Any) -> WorkflowKept:
        return await self.command(PutCode(definition=code(name, **options)))

    async def start_code(self, run_input: Any = None, name: str = "order", **options: Any) -> int:
        await self.deploy(name, **options)
        return (await self.begin(name, run_input)).record.id

    async def resumed(self, worker: WorkerRecord) -> TaskRecord:
        """The one task that waits, which is that of a function."""
        (task,) = await self.engine.lease(worker)
        assert task.lane.name.startswith("workflow:"), task
        return task

    async def tell(
        self, worker: WorkerRecord, task: TaskRecord, after: int, *operations: Operation
    ) -> OperationsNoted:
        """Report operations, and go on."""
        item = ReportedOperations(task.id, task.fence, after, [*operations])
        return await self.command(
            ReportOperations(worker_id=worker.id, incarnation=worker.incarnation, items=[item])
        )

    async def stop(
        self,
        worker: WorkerRecord,
        task: TaskRecord,
        *operations: Operation,
        after: int | None = None,
        output: Any = UNSET,
        **more: Any,
    ) -> None:
        """End the task of a function with its report."""
        if after is None:
            after = resumption_of(task).reported
        report = FunctionReport(after=after, operations=[*operations], output=output, **more)
        outcomes = await self.engine.report(worker, done(task, result=msgspec.json.encode(report)))
        assert outcomes == ["accepted"]

    async def operations(self, run_id: int, **options: Any) -> OperationsShown:
        return await self.command(LookAtOperations(run_id=run_id, limit=1_000, **options))

    async def log(self, run_id: int) -> list[tuple[str, str]]:
        """The log as pairs of path and state."""
        shown = await self.operations(run_id)
        entries = [msgspec.json.decode(one, type=Operation) for one in shown.entries]
        return [(one.path, one.state) for one in entries]

    async def cancel(self, run_id: int, *, force: bool = False, reason: str = "") -> None:
        await self.command(SteerRun(run_id=run_id, action="cancel", force=force, reason=reason))

    async def accept(self, run_id: int) -> None:
        await self.command(SteerRun(run_id=run_id, action="resume", accept=True))

    async def answer(self, run_id: int, name: str, payload: Any, token: int | None = None) -> None:
        await self.command(SignalRun(run_id=run_id, name=name, payload=payload, token=token))
