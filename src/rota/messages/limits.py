"""Limits of keys, and settings of queues, on the wire."""

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from rota.core import limits
from rota.core.flows.model import FairKey, LimitKind, RateMode
from rota.core.flows.queue_settings import Fairness, QueueRate, Weight
from rota.messages.base import Answer, Request

LimitValue = Annotated[int, Meta(ge=0, le=limits.MAX_RATE)]
PeriodMs = Annotated[int, Meta(ge=1, le=limits.MAX_RATE_PERIOD_MS)]
AgingMs = Annotated[int, Meta(ge=1, le=limits.MAX_AGING_MS)]
TargetMs = Annotated[int, Meta(ge=1, le=limits.MAX_TARGET_WAIT_MS)]
Cost = Annotated[int, Meta(ge=1, le=limits.MAX_RATE)]


class KeyLimitView(Answer, frozen=True, kw_only=True):
    """A limit as clients see it."""

    key: str
    kind: LimitKind
    limit: int  # tasks that run at once, or starts in a period
    running: int  # slots that are taken; 0 for a rate
    waiting: int  # queued tasks that name it
    per_ms: int | None = None  # the period of a rate
    burst: int | None = None  # starts of a rate that may come at once
    mode: RateMode | None = None  # of a rate
    opens_at_ms: int | None = None  # when a rate that is closed now lets the next start through
    pinned: bool  # set by an operator: tasks do not change it


class KeyLimitPage(Answer, frozen=True, kw_only=True):
    items: list[KeyLimitView]
    next_cursor: str | None = None


class KeyLimitPut(Request, frozen=True, kw_only=True):
    """A limit that an operator sets; other fields stay unchanged."""

    limit: LimitValue | None = None  # needed for a key that is not known yet
    per_ms: PeriodMs | None = None  # of a rate; a new key with a period is a rate
    burst: Cost | None = None
    mode: RateMode | None = None
    pinned: bool = True  # false: the next value that tasks declare counts again


class KeyLimitDeleted(Answer, frozen=True, kw_only=True):
    key: str
    limit: KeyLimitView | None = None  # what tasks declared last; null: no task names it


class LimitRecountView(Answer, frozen=True, kw_only=True):
    """What limits count, compared with leases and queued tasks."""

    limits: int  # that are known
    slots: int  # tasks that have a slot
    flows: int  # sets of queued tasks with the same lane, tenant and limits
    differences: list[str]  # sentences, at most 20; there should be none


class LimitConsume(Request, frozen=True, kw_only=True):
    cost: Cost = 1


class LimitConsumed(Answer, frozen=True, kw_only=True):
    key: str
    consumed: bool  # false: it was not free, and nothing was counted
    opens_at_ms: int | None = None  # when to try again


class QueuePatch(Request, frozen=True, kw_only=True):
    """Changed settings of a queue; what is not given stays, null resets."""

    # Tasks of the queue that run at once.
    max_running: Annotated[int, Meta(ge=0, le=limits.MAX_CONCURRENCY)] | UnsetType | None = UNSET
    # Queued tasks beyond which submissions are refused with 429 `queue_full`.
    max_queued: Annotated[int, Meta(ge=0, le=limits.MAX_QUEUED)] | UnsetType | None = UNSET
    rate: QueueRate | UnsetType | None = UNSET  # of starts
    # Shares of tenants (`fair_key`); 1 for those that are not listed.
    weights: (
        Annotated[dict[FairKey, Weight], Meta(max_length=limits.MAX_WEIGHTS)] | UnsetType | None
    ) = UNSET
    # What tenants share by their weights: starts (`tasks`), or the time of workers (`time`).
    fairness: Fairness | UnsetType | None = UNSET
    # What one point of priority is worth: a task that has waited so much longer goes first. Null: a
    # higher priority always goes first. Tasks keep the place that they had when they came.
    aging_ms: AgingMs | UnsetType | None = UNSET
    # How long tasks should wait at most. Longer waits are reported, and change nothing.
    target_wait_ms: TargetMs | UnsetType | None = UNSET
    paused: bool | UnsetType = UNSET


class TenantView(Answer, frozen=True, kw_only=True):
    """A tenant of a queue: the tasks that have the same `fair_key`."""

    key: str
    weight: float  # 1 unless the queue says otherwise
    waiting: int  # queued tasks
    running: int
    # Its part of what the tenants of the queue have had lately, from 0 to 1: of starts, or of time,
    # as `fairness` says. What is a minute ago counts half. Null: they had nothing.
    share: float | None = None


class TenantPage(Answer, frozen=True, kw_only=True):
    items: list[TenantView]  # those with the most tasks first
    total: int  # tenants that have tasks
