"""Workers that have been silent for too long leave the registry, and their work moves on."""

from rota.core.events import SweepWorkers
from rota.core.registry import SWEEP_INTERVAL_MS
from rota.engine.duties.duty import Duty

HEALTH = Duty(
    name="health",
    interval_ms=SWEEP_INTERVAL_MS,
    event=lambda _now_ms, _settings: SweepWorkers(),
)
