"""The duties: commands that the coordinator executes by time, each at its interval."""

from collections.abc import Awaitable, Callable

from msgspec import Struct

from rota.core.commands import (
    ExpireAttempts,
    PruneHistory,
    QueueDueTasks,
    SweepWorkers,
    TakeInbox,
)
from rota.core.events import PruneEvents
from rota.core.flows.commands import WatchTargets
from rota.core.kv import SweepValues
from rota.core.locks import SweepLocks
from rota.core.replies import CommandBase, Done, Taken
from rota.core.schedules.commands import FireSchedules
from rota.core.shards.commands import SweepServices
from rota.core.tasks.operations import PRUNED_PER_STEP
from rota.core.workers.registry import SWEEP_INTERVAL_MS
from rota.core.workflow.commands import AdvanceRuns, FireRunTimers, PruneRuns, RecordWaits
from rota.engine.commit.loader import DUE_PER_STEP, OVERDUE_PER_STEP, TAKEN_PER_STEP
from rota.engine.events.recorder import PRUNED_PER_STEP as EVENTS_PRUNED_PER_STEP
from rota.engine.kv.domains import SWEPT_PER_STEP
from rota.engine.queries.queries import Queries
from rota.engine.runs.run_domain import RUNS_PRUNED_PER_STEP, TIMERS_PER_STEP, WAITS_PER_STEP
from rota.settings import Settings


class Duty(Struct, frozen=True, kw_only=True):
    """A command that is due at an interval."""

    name: str
    interval_ms: int = 1_000  # the longest pause; a hint of an earlier due time shortens it
    command: Callable[[int, Settings], CommandBase[Done | Taken]]  # made from time and settings
    full_step: int | None = None  # after a step of this size more may be due: run again at once
    follows_hints: bool = False  # commits hint at the next due time
    takes_turns: bool = False  # after a full step the other duties that follow hints come first
    is_due: Callable[[Queries], Awaitable[bool]] | None = None  # None: always


DUE_TASKS = Duty(
    name="due_tasks",
    command=lambda _now_ms, _settings: QueueDueTasks(),
    full_step=DUE_PER_STEP,
    follows_hints=True,
)
DEADLINES = Duty(
    name="deadlines",
    command=lambda _now_ms, _settings: ExpireAttempts(),
    full_step=OVERDUE_PER_STEP,
    follows_hints=True,
)
INBOX = Duty(
    name="inbox",
    command=lambda _now_ms, settings: TakeInbox(settings.max_payload_bytes),
    full_step=TAKEN_PER_STEP,
    # A read beside the writer, because most stores have an empty inbox.
    is_due=lambda queries: queries.tasks.has_inbox(),
)
RUN_TIMERS = Duty(
    name="run_timers",
    command=lambda _now_ms, _settings: FireRunTimers(),
    full_step=TIMERS_PER_STEP,
    follows_hints=True,
)
SCHEDULES = Duty(
    name="schedules",
    command=lambda _now_ms, _settings: FireSchedules(),
    full_step=1,
    # The leader knows when the next schedule is due.
    is_due=lambda queries: queries.schedules.is_due(),
)
TARGETS = Duty(
    name="targets",
    interval_ms=2_000,
    command=lambda _now_ms, _settings: WatchTargets(),
    is_due=lambda queries: queries.queues.has_target_news(),
)
RUN_SLICES = Duty(
    name="run_slices",
    command=lambda _now_ms, _settings: AdvanceRuns(),
    full_step=1,
    follows_hints=True,
    takes_turns=True,
)
HEALTH = Duty(
    name="health",
    interval_ms=SWEEP_INTERVAL_MS,
    command=lambda _now_ms, _settings: SweepWorkers(),
)
# While there are services, the reply of each sweep says when the next one is due.
SHARDS = Duty(name="shards", command=lambda _now_ms, _settings: SweepServices())
LOCKS = Duty(
    name="locks",
    command=lambda _now_ms, _settings: SweepLocks(),
    full_step=SWEPT_PER_STEP,
    is_due=lambda queries: queries.locks.is_sweep_due(),
)
VALUES = Duty(
    name="memory",
    interval_ms=5_000,
    command=lambda _now_ms, _settings: SweepValues(),
    full_step=SWEPT_PER_STEP,
    is_due=lambda queries: queries.kv.has_expired(),
)
PRUNING = Duty(
    name="pruning",
    interval_ms=10_000,
    command=lambda now_ms, settings: PruneHistory(now_ms - settings.history_keep_ms),
    full_step=PRUNED_PER_STEP,
)
RUN_PRUNING = Duty(
    name="run_pruning",
    interval_ms=10_000,
    command=lambda now_ms, settings: PruneRuns(now_ms - settings.history_keep_ms),
    full_step=RUNS_PRUNED_PER_STEP,
)
RUN_WAITS = Duty(
    name="run_waits",
    interval_ms=10_000,
    command=lambda _now_ms, _settings: RecordWaits(),
    full_step=WAITS_PER_STEP,
    # Only a store of an earlier version has such runs.
    is_due=lambda queries: queries.waits.has_unrecorded(),
)
EVENT_PRUNING = Duty(
    name="event_pruning",
    interval_ms=10_000,
    command=lambda now_ms, settings: PruneEvents(
        before_ms=now_ms - settings.events_keep_ms, most=settings.max_events
    ),
    full_step=EVENTS_PRUNED_PER_STEP,
)

DUTIES = (
    DUE_TASKS,
    DEADLINES,
    INBOX,
    RUN_TIMERS,
    SCHEDULES,
    TARGETS,
    RUN_SLICES,
    HEALTH,
    SHARDS,
    LOCKS,
    VALUES,
    PRUNING,
    RUN_PRUNING,
    RUN_WAITS,
    EVENT_PRUNING,
)
SWEEPS = (SHARDS, LOCKS)  # they end leases, which must not end early
