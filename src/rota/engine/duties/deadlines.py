"""Attempts past their deadline, and tasks that did not start in time, come to their end."""

from rota.core.events import ExpireAttempts
from rota.engine.duties.duty import Duty
from rota.engine.load import OVERDUE_PER_STEP

DEADLINES = Duty(
    name="deadlines",
    interval_ms=1_000,
    event=lambda _now_ms, _settings: ExpireAttempts(),
    full_step=OVERDUE_PER_STEP,
    follows_hints=True,
)
