"""What a schedule fires: the task or the run of one firing, with its key and its times."""

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from rota.core.schedules.firing import PlannedFiring
from rota.core.schedules.model import ScheduleSpec, ScheduleState
from rota.core.tasks.headers import check_headers
from rota.core.tasks.model import NewTask
from rota.core.workflow.commands import StartRun, named_version
from rota.errors import Invalid

SCHEDULED_FOR, PREVIOUS_SUCCESS = "scheduled_for_ms", "previous_success_ms"
_EMPTY = (b"null", b"")


def check_target(spec: ScheduleSpec) -> None:
    """Refuse a schedule that has nothing to fire, or fields that its firings decide."""
    if (spec.task is None) == (spec.run is None):
        raise Invalid("give either task or run", field="task")
    if spec.task is not None:
        _check_task(spec.task)
        if spec.with_times:
            _check_object(spec.task.payload, "task.payload")
    if spec.run is not None:
        _, version = named_version(spec.run.workflow)
        if version is not None and spec.run.version not in {None, version}:
            raise Invalid(
                f"run.version: {spec.run.version} is not the version in {spec.run.workflow!r}",
                field="version",
            )
        try:
            msgspec.json.decode(spec.run.input)
        except msgspec.DecodeError as error:
            raise Invalid(f"run.input: {error}", field="input") from None
        if spec.with_times:
            _check_object(spec.run.input, "run.input")


def _check_task(task: NewTask) -> None:
    for field in ("key", "run_at_ms"):
        if getattr(task, field) is not None:
            raise Invalid(f"task.{field}: the schedule sets this; leave it out", field=field)
    if task.headers is not None:
        check_headers(task.headers)


def _check_object(value: Raw, field: str) -> None:
    text = bytes(value).strip()
    if text not in _EMPTY and not text.startswith(b"{"):
        raise Invalid(f"{field}: must be an object, because of with_times", field=field)


def key_of(name: str, planned: PlannedFiring) -> str:
    """The key of a firing. One on demand has no time of the schedule, but a number of its own.

    The number begins again when a schedule is deleted and made again, so the time is there as well.
    """
    if planned.is_manual:
        return f"schedule:{name}:run-{planned.nominal_ms}-{planned.number}"
    return f"schedule:{name}:{planned.nominal_ms}"


def task_of(name: str, spec: ScheduleSpec, planned: PlannedFiring, state: ScheduleState) -> NewTask:
    assert spec.task is not None
    payload = spec.task.payload
    if spec.with_times:
        payload = _with_times(payload, planned, state)
    return replace(spec.task, payload=payload, key=key_of(name, planned))


def start_of(
    name: str, spec: ScheduleSpec, planned: PlannedFiring, state: ScheduleState
) -> StartRun:
    assert spec.run is not None
    workflow, version = named_version(spec.run.workflow)
    given = _with_times(spec.run.input, planned, state) if spec.with_times else spec.run.input
    return StartRun(
        workflow=workflow,
        version=version or spec.run.version,
        input=msgspec.json.decode(given),
        key=key_of(name, planned),
        timeout_ms=spec.run.timeout_ms,
    )


def _with_times(value: Raw, planned: PlannedFiring, state: ScheduleState) -> Raw:
    """The object with the times as its last fields, and the rest as the author wrote it."""
    times = {SCHEDULED_FOR: planned.nominal_ms, PREVIOUS_SUCCESS: state.previous_success_ms}
    added = msgspec.json.encode(times)
    text = bytes(value).strip()
    if text in _EMPTY or not text[1:-1].strip():
        return Raw(added)
    return Raw(text[:-1] + b"," + added[1:])
