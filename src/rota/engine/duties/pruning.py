"""Finished tasks past their keeping time are forgotten, a bounded step at a time."""

from rota.core.events import PruneHistory
from rota.core.operating import PRUNED_PER_STEP
from rota.engine.duties.duty import Duty

PRUNING = Duty(
    name="pruning",
    interval_ms=10_000,
    event=lambda now_ms, settings: PruneHistory(now_ms - settings.history_keep_ms),
    full_step=PRUNED_PER_STEP,
)
