"""Schedules over HTTP: put, show, list, delete, pause, run, backfill, and their next times."""

from typing import Annotated, Any

from msgspec import Meta

from rota.core import limits
from rota.core.access import Action
from rota.core.schedules import changes
from rota.core.schedules.commands import (
    BackfillSchedule,
    CodeSchedule,
    DeleteSchedule,
    PauseSchedule,
    PutSchedule,
    ResumeSchedule,
    RunSchedule,
    ScheduleShown,
    SyncSchedules,
)
from rota.core.schedules.model import MomentMs, ScheduleSpec, encode_spec
from rota.core.schedules.targets import check_target
from rota.core.schedules.times import check_timing, upcoming
from rota.core.tasks.values import check_value
from rota.engine.queries.schedules import ScheduleFigures
from rota.errors import Invalid, ScheduleNotFound, TooLarge, TooMany
from rota.gateways.http.routing.endpoint import HttpCall, NoQuery, Routes
from rota.gateways.http.routing.parameters import PageQuery, page_of
from rota.gateways.http.routing.responses import HttpResponse, encoded
from rota.gateways.http.views.schedules import firing_view, schedule_view
from rota.gateways.validation import checked_name
from rota.messages import NoFields, Request
from rota.messages.schedules import (
    BackfillCount,
    FiringView,
    ScheduleBackfill,
    SchedulePage,
    SchedulePauseRequest,
    SchedulePut,
    ScheduleSync,
    ScheduleSyncView,
    ScheduleTimes,
    ScheduleView,
)

routes = Routes("Schedules")


class TimesQuery(Request, frozen=True, kw_only=True):
    count: Annotated[int, Meta(ge=1, le=limits.MAX_NEXT_TIMES)] = 10
    after_ms: Annotated[
        MomentMs | None, Meta(description="Times after this moment; absent: after now.")
    ] = None


# --- changing -----------------------------------------------------------------------------------


@routes.put(
    "/api/schedules/{name}",
    Action.SUBMIT,
    answer=ScheduleView,
    status=200,
    other_statuses=(201,),
    errors=(Invalid, TooMany),
)
async def put(call: HttpCall[SchedulePut, NoQuery]) -> HttpResponse:
    """Make a schedule, or change it.

    Fires a task or a run at the times of `cron`, `every_ms` and `at_ms` together. Times that change
    count from now on; otherwise a schedule goes on where it was. 201 for a new one.
    """
    name, body = _name(call), call.body
    command = PutSchedule(
        name=name,
        document=_document(call, _spec_of(body)),
        paused=body.paused,
        pinned=body.pinned,
        by=call.caller,
    )
    shown = await call.coordinator.execute(command)
    return encoded(await _view(call, shown), 201 if shown.is_new else 200)


def _spec_of(body: SchedulePut) -> ScheduleSpec:
    return ScheduleSpec(**{name: getattr(body, name) for name in ScheduleSpec.__struct_fields__})


def _document(call: HttpCall[Any, Any], spec: ScheduleSpec) -> bytes:
    """Check a schedule, and encode it as it is stored."""
    check_target(spec)
    check_timing(spec)
    most = call.settings.max_payload_bytes
    if spec.task is not None:
        check_value(spec.task.payload, "payload", most_bytes=most)
    if spec.run is not None:
        check_value(spec.run.input, "input", most_bytes=most)
    document = encode_spec(spec)
    if len(document) > limits.MAX_SCHEDULE_BYTES:
        raise TooLarge(
            f"a schedule has at most {limits.MAX_SCHEDULE_BYTES} bytes, not {len(document)}",
            limit=limits.MAX_SCHEDULE_BYTES,
        )
    return document


@routes.delete("/api/schedules/{name}", Action.SUBMIT, errors=(ScheduleNotFound,))
async def delete(call: HttpCall[None, NoQuery]) -> ScheduleView:
    """Delete a schedule with its history.

    The tasks and runs that it has fired stay.
    """
    command = DeleteSchedule(name=_name(call), by=call.caller)
    shown = await call.coordinator.execute(command)
    return schedule_view(shown.record, [])


@routes.post("/api/schedules/{name}/pause", Action.SUBMIT, errors=(ScheduleNotFound,))
async def pause(call: HttpCall[SchedulePauseRequest | None, NoQuery]) -> ScheduleView:
    """Pause a schedule: it does not fire until it is resumed."""
    note = "" if call.body is None else call.body.note
    command = PauseSchedule(name=_name(call), note=note, by=call.caller)
    return await _view(call, await call.coordinator.execute(command))


@routes.post("/api/schedules/{name}/resume", Action.SUBMIT, errors=(ScheduleNotFound,))
async def resume(call: HttpCall[NoFields | None, NoQuery]) -> ScheduleView:
    """Resume a paused schedule from its next time on."""
    command = ResumeSchedule(name=_name(call), by=call.caller)
    return await _view(call, await call.coordinator.execute(command))


@routes.post("/api/schedules/{name}/run", Action.SUBMIT, errors=(ScheduleNotFound,))
async def run(call: HttpCall[NoFields | None, NoQuery]) -> FiringView:
    """Fire a schedule now, paused or not, by its rule for overlaps."""
    shown = await call.coordinator.execute(RunSchedule(name=_name(call), by=call.caller))
    return firing_view(shown.firing)


@routes.post("/api/schedules/{name}/backfill", Action.SUBMIT, errors=(ScheduleNotFound, Invalid))
async def backfill(call: HttpCall[ScheduleBackfill, NoQuery]) -> BackfillCount:
    """Fire a schedule for its times in a range that has passed.

    A time that has fired already fires no second time while its task or run is kept.
    """
    asked = call.body
    if asked.from_ms >= asked.to_ms:
        raise Invalid("to_ms: must be after from_ms", field="to_ms")
    command = BackfillSchedule(
        name=_name(call),
        from_ms=asked.from_ms,
        to_ms=asked.to_ms,
        overlap=asked.overlap,
        is_dry_run=asked.dry_run,
        by=call.caller,
    )
    done = await call.coordinator.execute(command)
    return BackfillCount(count=done.count)


@routes.post("/api/schedules/sync", Action.SUBMIT, errors=(Invalid, TooMany))
async def sync(call: HttpCall[ScheduleSync, NoQuery]) -> ScheduleSyncView:
    """Make the schedules of an app those of its code.

    A schedule that an operator has changed is pinned and stays. One that the code does not have any
    more goes on, and is shown as orphaned.
    """
    asked = call.body
    names = [one.name for one in asked.items]
    if len(set(names)) < len(names):
        raise Invalid("items: a name is given twice", field="items")
    command = SyncSchedules(
        source=asked.source,
        schedules=tuple(
            CodeSchedule(one.name, _document(call, one.schedule)) for one in asked.items
        ),
        by=call.caller,
    )
    synced = await call.coordinator.execute(command)
    return ScheduleSyncView(
        changed=synced.changed,
        unchanged=synced.unchanged,
        pinned=synced.pinned,
        orphaned=synced.orphaned,
    )


# --- reading ------------------------------------------------------------------------------------


@routes.get("/api/schedules", Action.READ)
async def listing(call: HttpCall[None, PageQuery]) -> SchedulePage:
    """List schedules by name, each with its last firing."""
    limit = call.query.limit
    found = await call.coordinator.queries.schedules.page(
        queues=call.caller.queues, after=call.query.cursor or "", limit=limit + 1
    )
    page, next_cursor = page_of(found, limit, lambda one: one.record.name)
    return SchedulePage(
        items=[schedule_view(one.record, one.firings) for one in page], next_cursor=next_cursor
    )


@routes.get("/api/schedules/{name}", Action.READ, errors=(ScheduleNotFound,))
async def show(call: HttpCall[None, NoQuery]) -> ScheduleView:
    """Show a schedule with its last firings."""
    found = await _own(call)
    return schedule_view(found.record, found.firings)


@routes.get("/api/schedules/{name}/next", Action.READ, errors=(ScheduleNotFound,))
async def next_times(call: HttpCall[None, TimesQuery]) -> ScheduleTimes:
    """Show the next times of a schedule, paused or not."""
    found = await _own(call)
    return ScheduleTimes(items=_upcoming(call, found.record.spec))


@routes.post("/api/schedules/preview", Action.READ, errors=(Invalid,))
async def preview(call: HttpCall[SchedulePut, TimesQuery]) -> ScheduleTimes:
    """Show the next times of a schedule that is not stored.

    It needs no task and no run.
    """
    spec = _spec_of(call.body)
    check_timing(spec)
    return ScheduleTimes(items=_upcoming(call, spec))


def _upcoming(call: HttpCall[Any, TimesQuery], spec: ScheduleSpec) -> list[int]:
    after_ms = call.query.after_ms
    if after_ms is None:
        after_ms = call.coordinator.clock.now_ms()
    return upcoming(spec, after_ms, call.query.count)


def _name(call: HttpCall[Any, Any]) -> str:
    return checked_name(call.path["name"], "name")


async def _own(call: HttpCall[Any, Any]) -> ScheduleFigures:
    """The schedule, if its task goes to a queue that this caller may see."""
    name = _name(call)
    found = await call.coordinator.queries.schedules.by_name(name)
    if found is None:
        raise ScheduleNotFound(name)
    changes.check_access(call.caller, found.record.spec, name)
    return found


async def _view(call: HttpCall[Any, Any], shown: ScheduleShown) -> ScheduleView:
    found = await call.coordinator.queries.schedules.by_name(shown.record.name)
    return schedule_view(shown.record, [] if found is None else found.firings)
