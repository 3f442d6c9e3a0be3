"""Scheduled tasks whose moment has come are queued."""

from rota.core.events import QueueDueTasks
from rota.engine.duties.duty import Duty
from rota.engine.load import DUE_PER_STEP

DUE_TASKS = Duty(
    name="due_tasks",
    interval_ms=1_000,
    event=lambda _now_ms, _settings: QueueDueTasks(),
    full_step=DUE_PER_STEP,
    follows_hints=True,
)
