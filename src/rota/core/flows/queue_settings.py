"""Settings of a queue that operators change while it runs."""

from typing import Annotated

from msgspec import Meta, Struct

from rota.core import limits
from rota.core.flows.model import FairKey, LimitRecord, RateMode

Weight = Annotated[float, Meta(ge=limits.MIN_TENANT_WEIGHT, le=limits.MAX_TENANT_WEIGHT)]


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


DEFAULT_SETTINGS = QueueSettings()
QUEUE_KEY = "\x01queue:"  # before the name of a queue in the keys of its own limits


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
