"""Circuit breakers per worker and task name.

Theory of operation. A breaker is between one worker and one task name. Closed, work flows.
It opens when too many outcomes are failures: a whole row of them, or too large a share of the
decayed statistics. Open, no work flows, for a time that grows with each trip in quick
succession. After that it is half open: one task at a time goes through, and its outcome closes or
reopens the breaker. Only closed and open are ever stored; half open is an open breaker whose time
is up, computed when asked.

Closing forgives: the failures that opened the breaker are still in the statistics, and would open
it again at once. Their weights at closing time are kept, aged and taken off.

A breaker cannot distinguish a bad worker from bad tasks. `eviction_guards.may_eject` limits it.
"""

from enum import StrEnum
from typing import assert_never

import msgspec
from msgspec import Struct

from rota.core.workers.statistics import HALF_LIFE_MS, Statistics, decay_factor

PROBES = 1  # tasks that a half-open breaker lets run at one time
MAXIMUM_GROWTH = 10.0
MAXIMUM_GROWTHS = 32  # by then the longest time is long reached, and more would overflow


class BreakerState(StrEnum):
    CLOSED = "closed"  # work flows
    OPEN = "open"  # no work flows
    HALF_OPEN = "half-open"  # one task at a time, to see whether it works again

    def to(self, after: "BreakerState") -> "BreakerState":
        """Return `after`, which the table must list for this state."""
        assert after in BREAKER_TRANSITIONS[self], f"a breaker that is {self} cannot become {after}"
        return after


# A state changes only through `to`, or by time: an open breaker becomes half open when asked.
BREAKER_TRANSITIONS: dict[BreakerState, frozenset[BreakerState]] = {
    BreakerState.CLOSED: frozenset({BreakerState.OPEN}),
    BreakerState.OPEN: frozenset({BreakerState.HALF_OPEN}),
    BreakerState.HALF_OPEN: frozenset({BreakerState.CLOSED, BreakerState.OPEN}),
}


class BreakerPolicy(Struct, frozen=True, kw_only=True):
    failures_in_a_row: int = 20  # reacts at once, however much success went before
    minimum_samples: float = 20.0  # recent outcomes without which a share means little
    failure_share: float = 0.5
    open_ms: int = 10_000  # after the first trip
    growth: float = 2.0  # of that time, with each further trip
    maximum_open_ms: int = 300_000  # also: a breaker closed for longer starts from the first trip
    half_life_ms: int = HALF_LIFE_MS  # the one the statistics are recorded with

    def __post_init__(self) -> None:
        if self.failures_in_a_row < 1 or self.minimum_samples < 1:
            raise ValueError("a breaker needs failures_in_a_row >= 1 and minimum_samples >= 1")
        if not 0 < self.failure_share <= 1:
            raise ValueError("a breaker needs 0 < failure_share <= 1")
        if not (0 < self.open_ms <= self.maximum_open_ms and 1 <= self.growth <= MAXIMUM_GROWTH):
            raise ValueError(
                "a breaker needs 0 < open_ms <= maximum_open_ms and a growth from 1 to 10"
            )


DEFAULT_BREAKER_POLICY = BreakerPolicy()


class Breaker(Struct, frozen=True, kw_only=True):
    state: BreakerState = BreakerState.CLOSED  # as stored; ask `current_state`
    trips: int = 0  # in quick succession
    opened_at_ms: int = 0
    closed_at_ms: int = 0
    failures_in_a_row: int = 0
    forgiven_successes: float = 0.0  # weights in the statistics when the breaker last closed
    forgiven_failures: float = 0.0
    forgiven_at_ms: int = 0


CLOSED_BREAKER = Breaker()


def observe(
    breaker: Breaker,
    *,
    succeeded: int,
    failed: int,
    statistics: Statistics,
    now_ms: int,
    policy: BreakerPolicy = DEFAULT_BREAKER_POLICY,
) -> Breaker:
    """The breaker after a batch of outcomes, which `statistics` already include.

    Returns the same breaker when nothing changed, so that nothing need be written.
    """
    assert succeeded >= 0
    assert failed >= 0

    state = current_state(breaker, now_ms=now_ms, policy=policy)
    match state:
        case BreakerState.OPEN:
            return breaker  # of a task leased before it opened
        case BreakerState.HALF_OPEN if failed:
            return _opened(breaker, state, now_ms, policy)
        case BreakerState.HALF_OPEN:
            return _closed(breaker, state, statistics, now_ms) if succeeded else breaker
        case BreakerState.CLOSED:
            counted = _counted(breaker, succeeded, failed)
            is_tripped = failed > 0 and _is_failing(counted, statistics, policy)
            return _opened(counted, state, now_ms, policy) if is_tripped else counted
        case _:
            assert_never(state)


def current_state(
    breaker: Breaker, *, now_ms: int, policy: BreakerPolicy = DEFAULT_BREAKER_POLICY
) -> BreakerState:
    if breaker.state is BreakerState.CLOSED:
        return BreakerState.CLOSED
    # The distance counts both ways, so a clock set far back cannot keep a breaker open without end.
    is_open = abs(now_ms - breaker.opened_at_ms) < open_ms(breaker.trips, policy)
    return BreakerState.OPEN if is_open else BreakerState.HALF_OPEN


def allowance(
    breaker: Breaker, *, now_ms: int, policy: BreakerPolicy = DEFAULT_BREAKER_POLICY
) -> int | None:
    """The number of tasks of this name that may run on this worker at one time; None: any."""
    state = current_state(breaker, now_ms=now_ms, policy=policy)
    match state:
        case BreakerState.CLOSED:
            return None
        case BreakerState.OPEN:
            return 0
        case BreakerState.HALF_OPEN:
            return PROBES
        case _:
            assert_never(state)


def open_ms(trips: int, policy: BreakerPolicy = DEFAULT_BREAKER_POLICY) -> int:
    """The time for which a breaker stays open after so many trips in quick succession."""
    growths = min(max(0, trips - 1), MAXIMUM_GROWTHS)
    return int(min(policy.maximum_open_ms, policy.open_ms * policy.growth**growths))


def _counted(breaker: Breaker, succeeded: int, failed: int) -> Breaker:
    # The order inside a batch is unknown; one success among it speaks for the worker.
    row = 0 if succeeded else breaker.failures_in_a_row + failed
    if row == breaker.failures_in_a_row:
        return breaker
    return msgspec.structs.replace(breaker, failures_in_a_row=row)


def _is_failing(breaker: Breaker, statistics: Statistics, policy: BreakerPolicy) -> bool:
    if breaker.failures_in_a_row >= policy.failures_in_a_row:
        return True
    aged = decay_factor(statistics.updated_at_ms - breaker.forgiven_at_ms, policy.half_life_ms)
    successes = max(0.0, statistics.success_weight - breaker.forgiven_successes * aged)
    failures = max(0.0, statistics.failure_weight - breaker.forgiven_failures * aged)
    samples = successes + failures
    return samples >= policy.minimum_samples and failures >= policy.failure_share * samples


def _opened(breaker: Breaker, state: BreakerState, now_ms: int, policy: BreakerPolicy) -> Breaker:
    was_closed = state is BreakerState.CLOSED
    has_held = was_closed and now_ms - breaker.closed_at_ms > policy.maximum_open_ms
    return msgspec.structs.replace(
        breaker,
        state=state.to(BreakerState.OPEN),
        trips=1 if has_held else breaker.trips + 1,
        opened_at_ms=now_ms,
        failures_in_a_row=0,
    )


def _closed(breaker: Breaker, state: BreakerState, statistics: Statistics, now_ms: int) -> Breaker:
    return msgspec.structs.replace(
        breaker,
        state=state.to(BreakerState.CLOSED),
        closed_at_ms=now_ms,
        forgiven_successes=statistics.success_weight,
        forgiven_failures=statistics.failure_weight,
        forgiven_at_ms=statistics.updated_at_ms,
    )
