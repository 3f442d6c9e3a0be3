"""Finished tasks and runs past their keeping time are forgotten, a bounded step at a time."""

from rota.core.events import PruneHistory
from rota.core.operating import PRUNED_PER_STEP
from rota.core.workflow.commands import PruneRuns
from rota.engine.duties.duty import Duty
from rota.engine.run_commands import RUNS_PRUNED_PER_STEP

PRUNING = Duty(
    name="pruning",
    interval_ms=10_000,
    event=lambda now_ms, settings: PruneHistory(now_ms - settings.history_keep_ms),
    full_step=PRUNED_PER_STEP,
)

RUN_PRUNING = Duty(
    name="run_pruning",
    interval_ms=10_000,
    event=lambda now_ms, settings: PruneRuns(now_ms - settings.history_keep_ms),
    full_step=RUNS_PRUNED_PER_STEP,
)
