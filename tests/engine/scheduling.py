"""Schedules on a running engine: made, let go on, looked at."""

from typing import Any

import msgspec
from msgspec import Raw

from rota.core.schedules.commands import (
    BackfillSchedule,
    PauseSchedule,
    PutSchedule,
    ResumeSchedule,
    RunSchedule,
)
from rota.core.schedules.model import (
    Firing,
    ScheduledRun,
    ScheduleRecord,
    ScheduleSpec,
    encode_spec,
)
from rota.core.tasks.model import NewTask, TaskRecord
from rota.core.workers.model import WorkerRecord
from rota.engine.queries.schedules import ScheduleFigures
from tests.engine.running import Engine, done

START_MS = 1_800_000_000_000  # where the clock of a test begins: a full hour
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


def spec_of(**options: Any) -> ScheduleSpec:
    """A task every minute, unless changed."""
    fields: dict[str, Any] = {"every_ms": MINUTE_MS, **options}
    if "run" not in fields:
        fields.setdefault("task", NewTask(name="work"))
    return ScheduleSpec(**fields)


def put_of(name: str = "clean", **options: Any) -> PutSchedule:
    return PutSchedule(name=name, document=encode_spec(spec_of(**options)))


def run_of(workflow: str, **options: Any) -> ScheduledRun:
    given = options.pop("input", None)
    if given is not None:
        options["input"] = Raw(msgspec.json.encode(given))
    return ScheduledRun(workflow=workflow, **options)


class Schedules:
    """The calls about schedules that tests make over and over."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    async def put(self, name: str = "clean", **options: Any) -> ScheduleRecord:
        return (await self.engine.execute(put_of(name, **options))).record

    async def look(self, name: str = "clean") -> ScheduleFigures:
        found = await self.engine.coordinator.queries.schedules.by_name(name)
        assert found is not None
        return found

    async def firings(self, name: str = "clean") -> list[Firing]:
        """The history, the oldest first."""
        return (await self.look(name)).firings[::-1]

    async def outcomes(self, name: str = "clean") -> list[str]:
        return [one.outcome for one in await self.firings(name)]

    async def nominals(self, name: str = "clean") -> list[int]:
        """The times that have fired, from the start of the clock on, in minutes."""
        return [
            (one.nominal_ms - START_MS) // MINUTE_MS
            for one in await self.firings(name)
            if one.outcome == "fired"
        ]

    async def pause(self, name: str = "clean", note: str = "") -> ScheduleRecord:
        return (await self.engine.execute(PauseSchedule(name=name, note=note))).record

    async def resume(self, name: str = "clean") -> ScheduleRecord:
        return (await self.engine.execute(ResumeSchedule(name=name))).record

    async def run(self, name: str = "clean") -> Firing:
        return (await self.engine.execute(RunSchedule(name=name))).firing

    async def backfill(self, from_ms: int, to_ms: int, **options: Any) -> int:
        command = BackfillSchedule(name="clean", from_ms=from_ms, to_ms=to_ms, **options)
        return (await self.engine.execute(command)).count

    async def lease(self, worker: WorkerRecord) -> TaskRecord:
        (task,) = await self.engine.lease(worker, 1)
        return task

    async def work_off(self, worker: WorkerRecord, **result: Any) -> int:
        """End all queued tasks, with success unless told otherwise."""
        total = 0
        while leases := await self.engine.lease(worker):
            await self.engine.report(worker, *(done(one, **result) for one in leases))
            total += len(leases)
        return total
