"""Finished tasks and runs, and notices, are forgotten past their time, a bounded step at a time."""

from rota.core.events import PruneHistory
from rota.core.notices import PruneNotices
from rota.core.operating import PRUNED_PER_STEP
from rota.core.workflow.commands import PruneRuns
from rota.engine.duties.duty import Duty
from rota.engine.notices import PRUNED_PER_STEP as NOTICES_PRUNED_PER_STEP
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

NOTICE_PRUNING = Duty(
    name="event_pruning",
    interval_ms=10_000,
    event=lambda now_ms, settings: PruneNotices(
        before_ms=now_ms - settings.events_keep_ms, most=settings.max_events
    ),
    full_step=NOTICES_PRUNED_PER_STEP,
)
