"""The schedules that a program has in its code.

    @app.schedule("0 3 * * *", timezone="Europe/Berlin")
    @app.task
    def clean(days: int = 30) -> None: ...

A worker that registers deploys them: the coordinator makes the schedules of the app those of its
code. A schedule that an operator has changed meanwhile is pinned and stays as it is; one that the
code does not have any more is shown as orphaned, and goes on.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypedDict

import msgspec
from msgspec import Raw, Struct

from rota.core.schedules.model import MissedPolicy, OverlapPolicy, ScheduledRun, ScheduleSpec
from rota.core.schedules.targets import check_target
from rota.core.schedules.times import check_timing
from rota.errors import Invalid
from rota.messages.schedules import CodeScheduleItem, ScheduleSync, ScheduleSyncView
from rota.sdk.client.requests import Exchange
from rota.sdk.client.schedule_calls import sync_schedules
from rota.sdk.encoding import encode
from rota.sdk.functions.workflow import CodeWorkflow
from rota.sdk.options.durations import Duration, in_milliseconds
from rota.sdk.options.other_names import unknown_option
from rota.sdk.task import Task
from rota.sdk.workflow import Workflow

MAIN = "__main__"
Scheduled = Task[..., Any] | Workflow | CodeWorkflow[..., Any]


class ScheduleOptions(TypedDict, total=False):
    """The options of a schedule in code; times are in milliseconds since the Unix epoch."""

    name: str  # by default that of the task or workflow
    every_ms: int  # instead of a cron expression, or beside it
    every: Duration  # here and below: as the option with `_ms`, such as "5m" or a timedelta
    offset_ms: int
    offset: Duration
    at_ms: Sequence[int]
    timezone: str  # an IANA name
    exclude: Sequence[str]  # cron expressions, and dates such as 2026-12-25
    starts_at_ms: int
    starts_at: datetime
    ends_at_ms: int
    ends_at: datetime
    max_firings: int
    missed: MissedPolicy
    catch_up_ms: int
    catch_up: Duration
    overlap: OverlapPolicy
    jitter_ms: int
    jitter: Duration
    pause_on_failure: int
    with_times: bool  # the call gets `scheduled_for_ms` and `previous_success_ms`
    args: Sequence[Any]  # of the task's calls
    kwargs: Mapping[str, Any]  # of the task's calls
    input: Any  # of the workflow's runs


OWN_OPTIONS = {"name", "args", "kwargs", "input"}


class DeclaredSchedule(Struct, frozen=True):
    name: str
    spec: ScheduleSpec
    workflow: Any = None  # the `Workflow` or `CodeWorkflow` that is deployed before its schedule


def declare(target: Scheduled, cron: Sequence[str], options: ScheduleOptions) -> DeclaredSchedule:
    """Check a schedule in code, so that a mistake shows when the program is loaded."""
    if not isinstance(target, Task | Workflow | CodeWorkflow):
        raise Invalid("@app.schedule goes above @app.task, or is called with a workflow")
    name = options.get("name") or target.name
    known = ScheduleSpec.__struct_fields__
    fields = in_milliseconds(
        {field: value for field, value in options.items() if field not in OWN_OPTIONS}, known
    )
    unknown = [field for field in fields if field not in known]
    if unknown:
        text = unknown_option(unknown[0], ScheduleOptions.__annotations__)
        raise Invalid(f"schedule {name!r}: {text}", schedule=name)
    if cron:
        fields["cron"] = cron[0] if len(cron) == 1 else tuple(cron)
    try:
        spec = msgspec.convert(msgspec.to_builtins(fields), ScheduleSpec)
    except msgspec.ValidationError as error:
        raise Invalid(f"schedule {name!r}: {error}", schedule=name) from None
    spec = msgspec.structs.replace(spec, **_fired(target, options))
    check_target(spec)
    check_timing(spec)
    is_deployed = isinstance(target, CodeWorkflow) or (
        isinstance(target, Workflow) and target.is_built
    )
    return DeclaredSchedule(name, spec, target if is_deployed else None)


def _fired(target: Scheduled, options: ScheduleOptions) -> dict[str, Any]:
    if isinstance(target, Workflow):
        given = options.get("input")
        raw = Raw(encode({} if given is None else given))
        return {"run": ScheduledRun(workflow=target.name, input=raw)}
    if isinstance(target, CodeWorkflow):
        raw = target.encode_input(options.get("args", ()), options.get("kwargs", {}))
        return {"run": ScheduledRun(workflow=target.name, input=raw)}
    call = target.bind_call(options.get("args", ()), options.get("kwargs", {}))
    return {"task": call.new_task}


def source_of(target: Scheduled) -> str:
    """The name of an app that has none: the module of its first scheduled task."""
    module = MAIN if isinstance(target, Workflow) else target.function.__module__
    if module != MAIN:
        return module
    program = getattr(sys.modules.get(MAIN), "__file__", None)
    return Path(program).stem if program else MAIN


def deploy(source: str, declared: Iterable[DeclaredSchedule]) -> Exchange[ScheduleSyncView]:
    """Make the schedules of an app those of its code."""
    listed = list(declared)
    for one in listed:
        if one.workflow is not None:
            yield from one.workflow.deploying()
    items = [CodeScheduleItem(name=one.name, schedule=one.spec) for one in listed]
    synced: ScheduleSyncView = yield sync_schedules(ScheduleSync(source=source, items=items))
    return synced
