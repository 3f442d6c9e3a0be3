"""Runs that commands ask for: their definition and input are checked before they start."""

from msgspec import UNSET

from rota.core.ids import to_text
from rota.core.limits import STEPS_PER_SLICE
from rota.core.workflow.commands import StartRun
from rota.core.workflow.definition import schemas
from rota.core.workflow.events import RULES, RunStarted
from rota.core.workflow.program import input_schema
from rota.core.workflow.records import RunRecord
from rota.core.workflow.states import RunState
from rota.engine.runs.advancing.run_loader import RunLoader
from rota.engine.runs.advancing.run_tasks import RunTasks
from rota.errors import Invalid, WorkflowNotFound

FIRST_VERSION = 1


def asked_run(
    loader: RunLoader, tasks: RunTasks, command: StartRun, *, now_ms: int
) -> tuple[RunRecord, RunStarted]:
    """Return the run that a command asks for, whose key no run has, and its first event."""
    version = command.version or loader.current(command.workflow)
    program = None if version is None else loader.program(command.workflow, version)
    if version is None:
        is_tried_out = loader.program(command.workflow, FIRST_VERSION) is not None
        raise WorkflowNotFound(command.workflow, is_tried_out=is_tried_out)
    if program is None:
        raise WorkflowNotFound(command.workflow, version)
    problems = schemas.value_problems(input_schema(program), command.input)
    if problems:
        raise Invalid(f"input: {'; '.join(problems)}", field="input", problems=problems)
    timeout_ms = command.timeout_ms or program.definition.timeout_ms
    record = RunRecord(
        id=tasks.new_id(),
        workflow=command.workflow,
        version=version,
        state=RunState.RUNNING,
        input=command.input,
        key=command.key,
        timeout_ms=timeout_ms,
        created_at_ms=now_ms,
    )
    started = RunStarted(
        now_ms,
        command.input,
        timeout_ms=timeout_ms,
        rules=RULES,
        slice_steps=STEPS_PER_SLICE,
        run_id=to_text(record.id),
        headers=command.headers or UNSET,
    )
    return record, started
