"""Flow control as values: the limits that a task names, its flow, and the record of each limit.

Tasks of one lane with the same tenant and the same limits are one flow. A flow that a limit refuses
waits as one thing, however many tasks it has. A task that names no limit and no tenant has no flow.
"""

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from rota.core import limits
from rota.core.schedules.durations import Duration, DurationFields
from rota.errors import Invalid

LimitKey = Annotated[str, Meta(min_length=1, max_length=limits.MAX_LIMIT_KEY_LENGTH)]
FairKey = Annotated[str, Meta(min_length=1, max_length=limits.MAX_LIMIT_KEY_LENGTH)]
Hold = Literal["attempt", "task"]
OnFull = Literal["wait", "reject", "cancel_running", "cancel_queued"]
RateMode = Literal["smooth", "window"]
LimitKind = Literal["concurrency", "rate"]
FIRST_KEY = "\x02"  # keys of callers; those before are for limits of queues


class Concurrency(Struct, frozen=True, forbid_unknown_fields=True):
    """At most so many tasks of one key run at once."""

    key: LimitKey  # tasks with the same key share its slots, whatever their queue
    # 0 pauses the key. The value that a task name has changed last counts, unless it is pinned.
    limit: Annotated[int, Meta(ge=0, le=limits.MAX_CONCURRENCY)] = 1
    # `task`: the slot is kept through back-off and snooze, until the task has finished.
    hold: Hold = "attempt"
    # What a submission does when as many tasks as the limit run or wait already.
    on_full: OnFull = "wait"


class Rate(Struct, metaclass=DurationFields, frozen=True, forbid_unknown_fields=True):
    """At most so many starts of one key in a period, first attempts and retries alike."""

    key: LimitKey
    limit: Annotated[int, Meta(ge=1, le=limits.MAX_RATE)]
    per_ms: Annotated[int, Meta(ge=1, le=limits.MAX_RATE_PERIOD_MS)] = 1_000
    # Starts that may come at once after a quiet time; absent: as many as one start costs.
    burst: Annotated[int, Meta(ge=1, le=limits.MAX_RATE)] | None = None
    cost: Annotated[int, Meta(ge=1, le=limits.MAX_RATE)] = 1  # of one start
    # `smooth` spaces the starts evenly; `window` counts the starts of the last period exactly.
    mode: RateMode = "smooth"

    if TYPE_CHECKING:  # with durations; see `DurationFields`

        def __init__(  # noqa: PLR0917 - the fields in their order
            self,
            key: str,
            limit: int,
            per_ms: int = ...,
            burst: int | None = ...,
            cost: int = ...,
            mode: RateMode = ...,
            *,
            per: Duration = ...,
        ) -> None: ...


Concurrencies = (
    Concurrency | Annotated[list[Concurrency], Meta(max_length=limits.MAX_LIMITS_PER_TASK)]
)
Rates = Rate | Annotated[list[Rate], Meta(max_length=limits.MAX_LIMITS_PER_TASK)]


def listed_concurrency(given: Concurrencies | None) -> tuple[Concurrency, ...]:
    """The concurrency limits of a task, which names one, several or none."""
    if given is None:
        return ()
    return (given,) if isinstance(given, Concurrency) else tuple(given)


def listed_rates(given: Rates | None) -> tuple[Rate, ...]:
    """The rate limits of a task, which names one, several or none."""
    if given is None:
        return ()
    return (given,) if isinstance(given, Rate) else tuple(given)


def named_limits(concurrency: Concurrencies | None, rate: Rates | None) -> list[Concurrency | Rate]:
    """All limits that a task names."""
    return [*listed_concurrency(concurrency), *listed_rates(rate)]


def check_limits(concurrency: Concurrencies | None, rate: Rates | None) -> None:
    """Refuse limits that contradict each other or can never let a task start."""
    seen: set[str] = set()
    for one in named_limits(concurrency, rate):
        field = "rate" if isinstance(one, Rate) else "concurrency"
        if one.key < FIRST_KEY or "\x00" in one.key:
            raise Invalid(f"{field}.key: must not begin with a control character", field=field)
        if one.key in seen:
            raise Invalid(f"{field}: the key {one.key!r} is named twice", field=field)
        seen.add(one.key)
        if isinstance(one, Rate):
            _check_rate(one)


def _check_rate(rate: Rate) -> None:
    if rate.mode == "window":
        if rate.limit > limits.MAX_WINDOW_RATE:
            most = limits.MAX_WINDOW_RATE
            raise Invalid(f"rate.limit: a window counts at most {most} starts", field="rate.limit")
        if rate.cost > rate.limit:
            raise Invalid("rate.cost: one start costs more than the limit", field="rate.cost")
    elif rate.burst is not None and rate.cost > rate.burst:
        raise Invalid("rate.cost: one start costs more than the burst", field="rate.cost")


# --- flows ----------------------------------------------------------------------------------------


class Slot(Struct, frozen=True, array_like=True):
    """A concurrency limit as a flow names it."""

    key: str
    hold: Hold = "attempt"


class Charge(Struct, frozen=True, array_like=True):
    """A rate limit as a flow names it."""

    key: str
    cost: int = 1


class FlowSpec(Struct, frozen=True, array_like=True):
    """What the tasks of a flow have in common beside their lane."""

    tenant: str = ""  # of fairness inside the queue; empty: the tasks without a `fair_key`
    slots: tuple[Slot, ...] = ()
    charges: tuple[Charge, ...] = ()
    # Of the queue when the task was submitted: odd while priorities age, 0 before they ever did.
    era: int = 0

    @property
    def keys(self) -> list[str]:
        return [*(one.key for one in self.slots), *(one.key for one in self.charges)]


def flow_spec(
    concurrency: Concurrencies | None, rate: Rates | None, fair_key: str | None
) -> FlowSpec | None:
    """The flow of a task with these options, inside its lane; None: it has none."""
    if concurrency is None and rate is None and fair_key is None:
        return None
    return FlowSpec(
        fair_key or "",
        tuple(Slot(one.key, one.hold) for one in listed_concurrency(concurrency)),
        tuple(Charge(one.key, one.cost) for one in listed_rates(rate)),
    )


# --- limits ---------------------------------------------------------------------------------------


class LimitRecord(Struct, kw_only=True, omit_defaults=True):
    """One limit as the store has it. `running` is no part of it: leases say how many run."""

    key: str
    kind: LimitKind
    limit: int
    per_ms: int = 0
    burst: int = 1
    mode: RateMode = "smooth"
    is_pinned: bool = False  # by an operator: tasks no longer change it
    owner: str = ""  # the binding that named it first; empty: a caller without a binding
    declared: dict[str, tuple[int, ...]] = {}  # by task name: what its tasks have asked for last
    changed_at_ms: int = 0
    next_start_us: int = 0  # of a smooth rate: when the next start is free, in microseconds
    starts_ms: list[int] = msgspec.field(default_factory=list)  # of a window: the last starts
    closed_until_ms: int = 0  # of a rate that a handler has closed


class LimitUse(Struct):
    """A limit, and what uses it while a batch is decided."""

    record: LimitRecord
    load: int = 0  # tasks that run or are queued
    holder: int | None = None  # a task that has one of its slots
    running: list[int] = []  # tasks that have a slot, where a new task may cancel them
    queued: list[int] = []  # tasks that wait, where a new task may cancel them
