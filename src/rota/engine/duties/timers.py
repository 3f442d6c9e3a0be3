"""Sleeps, waits, joins and runs whose time is over go on, or fail."""

from rota.core.workflow.commands import FireRunTimers
from rota.engine.duties.duty import Duty
from rota.engine.run_commands import TIMERS_PER_STEP

RUN_TIMERS = Duty(
    name="run_timers",
    interval_ms=1_000,
    event=lambda _now_ms, _settings: FireRunTimers(),
    full_step=TIMERS_PER_STEP,
    follows_hints=True,
)
