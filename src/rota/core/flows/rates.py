"""Rates: whether a start is free now, and when the next one is.

A smooth rate is a virtual schedule (the generic cell rate algorithm): each start moves the time of
the next one on by one interval for each unit of its cost. The times are in microseconds, because
many starts may be due in one millisecond. A start counts in the millisecond in which its virtual
time lies, so no period has more than the limit, and the burst on top.

A window has the times of its last starts, and counts them.
"""

import msgspec

from rota.core import limits
from rota.core.flows.model import LimitRecord

MICROSECONDS = 1_000  # in a millisecond
MOST_IN_WINDOW = limits.MAX_WINDOW_RATE


def interval_us(record: LimitRecord) -> int:
    """The time between two starts of a smooth rate, rounded up so that it is never exceeded."""
    return -(-record.per_ms * MICROSECONDS // record.limit)


def opens_at_ms(record: LimitRecord, cost: int, *, now_ms: int) -> int | None:
    """When a start of this cost is free; None: it is free now."""
    if record.closed_until_ms > now_ms:
        return record.closed_until_ms
    if record.limit == 0:
        return now_ms + record.per_ms  # asked again then, and each time it is changed
    if record.mode == "window":
        return _window_opens_at_ms(record, cost, now_ms=now_ms)
    step_us = interval_us(record)
    # A cost that was declared before an operator lowered the burst must not wait without end.
    burst = max(record.burst, cost)
    free_us = _next_us(record, step_us, now_ms) - (burst - cost) * step_us
    free_ms = free_us // MICROSECONDS
    return free_ms if free_ms > now_ms else None


def _next_us(record: LimitRecord, step_us: int, now_ms: int) -> int:
    """The virtual time of the next start; one far ahead shows that the clock was set back."""
    most_us = (now_ms + 1) * MICROSECONDS + record.burst * step_us
    return min(record.next_start_us, most_us)


def _window_opens_at_ms(record: LimitRecord, cost: int, *, now_ms: int) -> int | None:
    starts = recent_starts(record, now_ms=now_ms)
    excess = len(starts) + min(cost, record.limit) - record.limit
    return None if excess <= 0 else starts[excess - 1] + record.per_ms


def recent_starts(record: LimitRecord, *, now_ms: int) -> list[int]:
    """The starts of the last period; one in the future shows that the clock was set back."""
    since_ms = now_ms - record.per_ms
    return [start_ms for start_ms in record.starts_ms if since_ms < start_ms <= now_ms]


def start(record: LimitRecord, cost: int, *, now_ms: int) -> None:
    """Note a start, whether it was free or not: a job may start in spite of the rate."""
    if record.limit == 0:
        return
    if record.mode == "window":
        starts = [*recent_starts(record, now_ms=now_ms), *[now_ms] * min(cost, record.limit)]
        record.starts_ms = starts[-record.limit :]
        return
    step_us = interval_us(record)
    next_us = max(_next_us(record, step_us, now_ms), now_ms * MICROSECONDS)
    record.next_start_us = next_us + cost * step_us


def closed(record: LimitRecord, *, until_ms: int) -> LimitRecord:
    """The rate, closed until a moment; one that is closed for longer stays so."""
    return msgspec.structs.replace(record, closed_until_ms=max(record.closed_until_ms, until_ms))


def is_idle(record: LimitRecord, *, now_ms: int) -> bool:
    """Whether nothing that has started still counts."""
    if record.closed_until_ms > now_ms:
        return False
    if record.mode == "window":
        return not recent_starts(record, now_ms=now_ms)
    return record.next_start_us <= now_ms * MICROSECONDS
