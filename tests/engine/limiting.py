"""Calls that tests of limits, tenants and settings of queues make over and over."""

from typing import Any

from rota.core.commands import Result
from rota.core.flows.commands import (
    ChangeSettings,
    LimitState,
    LookAtLimits,
    QueueChange,
)
from rota.core.ids import TaskId
from rota.core.tasks.model import NewTask, TaskError, TaskRecord
from rota.core.workers.model import WorkerRecord
from tests.engine.running import Engine, done

LONG_MS = 3_600_000


async def fleet(engine: Engine, **options: Any) -> WorkerRecord:
    fields = {"max_concurrent_tasks": 1_000, "heartbeat_interval_ms": LONG_MS, **options}
    return await engine.register(**fields)


async def submit(engine: Engine, count: int = 1, **options: Any) -> list[TaskId]:
    name = options.pop("name", "work")
    return await engine.submit_all([NewTask(name=name, **options) for _ in range(count)])


async def limit(engine: Engine, key: str) -> LimitState:
    (found,) = (await engine.execute(LookAtLimits(keys=(key,)))).items
    return found


def failed(task: TaskRecord, **options: Any) -> Result:
    return done(task, ok=False, error=TaskError(), **options)


async def change(engine: Engine, **options: Any) -> None:
    await engine.execute(ChangeSettings(queue="default", change=QueueChange(**options)))
