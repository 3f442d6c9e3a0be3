"""API calls about schedules."""

from rota.messages import NoFields
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
from rota.sdk.client.requests import ApiCall, delete, get, path_at, post, put


def list_schedules(*, limit: int | None = None, cursor: str | None = None) -> ApiCall[SchedulePage]:
    return get("/api/schedules", SchedulePage, [("limit", limit), ("cursor", cursor)])


def get_schedule(name: str) -> ApiCall[ScheduleView]:
    return get(path_at("schedules", name), ScheduleView)


def put_schedule(name: str, request: SchedulePut) -> ApiCall[ScheduleView]:
    return put(path_at("schedules", name), ScheduleView, request)


def delete_schedule(name: str) -> ApiCall[ScheduleView]:
    return delete(path_at("schedules", name), ScheduleView)


def next_times(
    name: str, *, count: int | None = None, after_ms: int | None = None
) -> ApiCall[ScheduleTimes]:
    wanted = [("count", count), ("after_ms", after_ms)]
    return get(path_at("schedules", name, "next"), ScheduleTimes, wanted)


def pause_schedule(name: str, note: str = "") -> ApiCall[ScheduleView]:
    request = SchedulePauseRequest(note=note)
    return post(path_at("schedules", name, "pause"), ScheduleView, request, is_repeatable=True)


def resume_schedule(name: str) -> ApiCall[ScheduleView]:
    return post(path_at("schedules", name, "resume"), ScheduleView, NoFields(), is_repeatable=True)


def run_schedule(name: str) -> ApiCall[FiringView]:
    return post(path_at("schedules", name, "run"), FiringView, NoFields())


def backfill_schedule(name: str, request: ScheduleBackfill) -> ApiCall[BackfillCount]:
    is_repeatable = request.dry_run
    path = path_at("schedules", name, "backfill")
    return post(path, BackfillCount, request, is_repeatable=is_repeatable)


def sync_schedules(request: ScheduleSync) -> ApiCall[ScheduleSyncView]:
    return post("/api/schedules/sync", ScheduleSyncView, request, is_repeatable=True)
