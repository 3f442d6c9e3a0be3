"""Settings of a queue that operators change while it runs."""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct

from rota.core import limits
from rota.core.events import Event
from rota.core.flows.model import FairKey, LimitRecord, RateMode
from rota.core.tasks.model import TaskRecord

Weight = Annotated[float, Meta(ge=limits.MIN_TENANT_WEIGHT, le=limits.MAX_TENANT_WEIGHT)]

Fairness = Literal["tasks", "time"]


class QueueRate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """At most so many starts of a queue's tasks in a period."""

    limit: Annotated[int, Meta(ge=1, le=limits.MAX_RATE)]
    per_ms: Annotated[int, Meta(ge=1, le=limits.MAX_RATE_PERIOD_MS)] = 1_000
    burst: Annotated[int, Meta(ge=1, le=limits.MAX_RATE)] = 1
    mode: RateMode = "smooth"


class QueueSettings(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an operator has set for a queue; None: no limit."""

    max_running: int | None = None  # tasks of the queue that run at once
    max_queued: int | None = None  # queued tasks beyond which submissions are refused
    rate: QueueRate | None = None  # of starts
    weights: dict[FairKey, Weight] = {}  # of tenants; 1 for those that are not listed
    fairness: Fairness = "tasks"  # what tenants have equal parts of: starts, or time of workers
    target_wait_ms: int | None = None  # how long tasks should wait at most
    aging_ms: int | None = None  # what one point of priority is worth; None: higher ones go first
    era: int = 0  # how often ageing was begun or ended


DEFAULT_SETTINGS = QueueSettings()
QUEUE_KEY = "\x01queue:"  # before the name of a queue in the keys of its own limits


def rank_of(settings: QueueSettings, *, priority: int, created_at_ms: int) -> int | None:
    """The place of a task in a queue whose priorities age; None: the priority is its place.

    A task that has waited `aging_ms` longer is worth one point of priority more. The rank says so
    without being changed: it is the moment at which a task of priority 0 would have the same place.
    """
    return None if settings.aging_ms is None else created_at_ms - priority * settings.aging_ms


def limits_of_queue(queue: str, settings: QueueSettings) -> list[LimitRecord]:
    """The limits that every task of a queue has, under keys that no caller can name."""
    found = []
    if settings.max_running is not None:
        found.append(
            LimitRecord(
                key=f"{QUEUE_KEY}running:{queue}", kind="concurrency", limit=settings.max_running
            )
        )
    if settings.rate is not None:
        rate = settings.rate
        found.append(
            LimitRecord(
                key=f"{QUEUE_KEY}rate:{queue}",
                kind="rate",
                limit=rate.limit,
                per_ms=rate.per_ms,
                burst=rate.burst,
                mode=rate.mode,
            )
        )
    return found


# --- targets for how long tasks wait --------------------------------------------------------------


def targets(settings: Mapping[str, QueueSettings]) -> list[tuple[str, int]]:
    """The queues that have a target for how long tasks wait, each with its target."""
    return [
        (queue, one.target_wait_ms)
        for queue, one in settings.items()
        if one.target_wait_ms is not None
    ]


def is_late(task: TaskRecord, settings: QueueSettings) -> bool:
    """Whether a task that has started had waited longer than its queue should let it wait.

    Only first attempts are asked about: a task does not say when it was queued again.
    """
    target_ms, options, started_ms = settings.target_wait_ms, task.options, task.started_at_ms
    if target_ms is None or started_ms is None:
        return False
    if task.attempt > 1 or task.log or options.debounce is not None:
        return False
    due_ms = options.run_at_ms or task.created_at_ms + (options.delay_ms or 0)
    return started_ms - max(due_ms, task.created_at_ms) > target_ms


def target_missed(queue: str, settings: QueueSettings) -> Event:
    return Event(
        type="queue-target-missed", subject=queue, data={"target_wait_ms": settings.target_wait_ms}
    )


def target_met(queue: str, settings: QueueSettings, *, missed_for_ms: int) -> Event:
    """The event that ends the one before it."""
    data = {"target_wait_ms": settings.target_wait_ms, "missed_for_ms": missed_for_ms}
    return Event(type="queue-target-met", subject=queue, data=data)
