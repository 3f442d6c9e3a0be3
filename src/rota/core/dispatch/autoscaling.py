"""Autoscaling: the number of workers that the queued work needs, with the reason.

Theory of operation. Work is looked at by queue and capability set, since that is what decides who
can do it. The unit is the slot: room for one running task. Three terms say how many are wanted:

- arrivals: tasks that come in at a rate r and take d each keep r·d slots busy all the time
  (Little's law). A fleet that is busy all the time has a queue that grows without bound, so they
  are to be busy for `utilisation` of it only.
- running: what runs holds a slot until it is done. When tasks are long, the last minute may have
  brought none while all slots are in use, and giving these up would cut tasks off.
- backlog: what waits is to be worked off within `target_ms`. A task of d needs the part d/target
  of a slot for that, and never more than a whole one. When the oldest has waited for longer than
  the target, the figures are too good (longer tasks than before, slow workers), and
  the part grows by how late it is.

Arrivals and running are two views of the same slots, so the larger counts; the backlog comes on
top. Durations are the decayed averages of what has finished; as long as nothing has, the age of
what runs is used instead, and when nothing runs either, one worker measures it. All terms rise with
their inputs, so more work never wants fewer workers.

Arrivals are a rate over the last minute. A burst that ended a few seconds ago is therefore counted
in the backlog and, until the minute is over, as if more were to come: the error is on the side of
more workers, and short.

A pool that followed every figure would start and stop processes all the time. `resized` follows it
with hysteresis: it grows at once, since a burst costs latency now, and shrinks one by one, only
after a time in which less was wanted throughout.
"""

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import assert_never

import msgspec
from msgspec import Struct

DEFAULT_SLOTS = 10  # of a worker, when none is registered
MAX_WANTED_WORKERS = 10_000  # whatever the result
SHORTEST_MS = 1.0  # the clock knows no less, and a task that takes no time would want no worker
_DUST = 1e-9  # less of a worker than this is an error of floating point


class Term(StrEnum):
    """The term that decided the wanted number."""

    IDLE = "idle"  # nothing waits, runs or comes in
    PAUSED = "paused"  # what waits is not given out
    UNMEASURED = "unmeasured"  # no task has run yet: one worker measures how long one takes
    ARRIVALS = "arrivals"  # keeping up with what comes in
    RUNNING = "running"  # not cutting off what runs
    BACKLOG = "backlog"  # working off what waits


class Demand(Struct, frozen=True, kw_only=True):
    """The work of one queue and capability set, at one moment."""

    depth: int = 0  # tasks that wait
    oldest_age_ms: int | None = None  # of those
    running: int = 0
    running_for_ms: float | None = None  # by now, on average
    submitted_per_s: float = 0.0
    finished_per_s: float = 0.0
    duration_ms: float | None = None  # of an attempt, on average; None: none has ended yet
    workers: int = 0  # that can serve it: active and healthy
    capacity: int = 0  # slots of these
    free: int = 0  # of these, now
    is_paused: bool = False


class ScalePolicy(Struct, frozen=True, kw_only=True):
    target_ms: int = 30_000  # in which what waits should be worked off
    utilisation: float = 0.8  # share of the time that slots are to be busy with what comes in
    slots: int | None = None  # of a worker; None: as those that serve it have

    def __post_init__(self) -> None:
        if not (self.target_ms > 0 and 0 < self.utilisation <= 1 and self.slots != 0):
            raise ValueError("scaling needs target_ms > 0, 0 < utilisation <= 1 and slots > 0")


DEFAULT_SCALE_POLICY = ScalePolicy()


class Assessment(Struct, frozen=True, kw_only=True):
    utilisation: float | None  # share of slots in use; None: there are none
    drain_ms: float | None  # until what waits now is done; None: no worker does it
    wanted_capacity: float  # slots
    wanted_workers: int
    decided_by: Term
    explanation: str


def assess(demand: Demand, policy: ScalePolicy = DEFAULT_SCALE_POLICY) -> Assessment:
    """Judge one queue and capability set."""
    terms = wanted_slots(demand, policy)
    keeping_up = max(terms.get(Term.ARRIVALS, 0.0), terms.get(Term.RUNNING, 0.0))
    wanted = keeping_up + sum(
        slots for term, slots in terms.items() if term not in {Term.ARRIVALS, Term.RUNNING}
    )
    decided_by = max(terms, key=terms.__getitem__)
    return Assessment(
        utilisation=1 - demand.free / demand.capacity if demand.capacity else None,
        drain_ms=drain_ms(demand),
        wanted_capacity=wanted,
        wanted_workers=workers_for(wanted, slots_of_a_worker([demand], policy)),
        decided_by=decided_by,
        explanation=_explained(demand, policy, decided_by),
    )


def wanted_slots(demand: Demand, policy: ScalePolicy) -> dict[Term, float]:
    """The terms that apply, each in slots."""
    each_ms = expected_ms(demand)
    share = 0.0 if each_ms is None else min(1.0, each_ms / policy.target_ms)
    running = demand.running * share
    if demand.is_paused:
        return {Term.PAUSED: 0.0, Term.RUNNING: running}
    if each_ms is None:
        return {Term.UNMEASURED: 1.0} if demand.depth else {Term.IDLE: 0.0}
    if not (demand.depth or demand.running or demand.submitted_per_s):
        return {Term.IDLE: 0.0}
    late = max(1.0, (demand.oldest_age_ms or 0) / policy.target_ms)
    return {
        Term.BACKLOG: demand.depth * min(1.0, share * late),
        Term.ARRIVALS: demand.submitted_per_s * each_ms / 1_000 / policy.utilisation,
        Term.RUNNING: running,
    }


def expected_ms(demand: Demand) -> float | None:
    """The expected duration of a task; None: not known."""
    known_ms = demand.running_for_ms if demand.duration_ms is None else demand.duration_ms
    return None if known_ms is None else max(known_ms, SHORTEST_MS)


def drain_ms(demand: Demand) -> float | None:
    """The time until the tasks that wait now are done, which a task submitted now will wait.

    Later tasks queue behind them, so they do not count. The pace is the better of the recent rate
    of finished tasks and of what the running tasks amount to: the first lags behind a pool that has
    just grown, the second is a rough guess when tasks are short.
    """
    if not demand.depth:
        return 0.0
    if demand.is_paused or not (demand.workers or demand.running):
        return None
    each_ms = expected_ms(demand)
    at_work_per_s = 1_000 * demand.running / each_ms if each_ms else 0.0
    pace_per_s = max(demand.finished_per_s, at_work_per_s)
    return 1_000 * demand.depth / pace_per_s if pace_per_s > 0 else None


def slots_of_a_worker(demands: Sequence[Demand], policy: ScalePolicy) -> float:
    """The slots of a worker: of the policy, or of the serving workers on average."""
    if policy.slots is not None:
        return policy.slots
    workers = sum(demand.workers for demand in demands)
    return sum(demand.capacity for demand in demands) / workers if workers else DEFAULT_SLOTS


def workers_for(slots: float, slots_each: float) -> int:
    """The number of workers that have so many slots; at least one for any slot."""
    assert slots_each > 0

    if slots <= 0:
        return 0
    exact = min(slots / slots_each, MAX_WANTED_WORKERS)
    return max(1, math.ceil(exact - _DUST))


def _explained(demand: Demand, policy: ScalePolicy, term: Term) -> str:
    each = f"{expected_ms(demand) or 0:.0f} ms each"
    match term:
        case Term.IDLE:
            return "nothing waits, runs or comes in"
        case Term.PAUSED:
            return f"the queue is paused: {demand.depth} waiting are not given out"
        case Term.UNMEASURED:
            return f"{demand.depth} waiting, and none has run yet: one worker finds out"
        case Term.ARRIVALS:
            return f"{demand.submitted_per_s:.2f} come in a second, {each}"
        case Term.RUNNING:
            return f"{demand.running} run, {each}"
        case Term.BACKLOG:
            age_ms = demand.oldest_age_ms or 0
            late = f"; the oldest is {age_ms} ms old" if age_ms > policy.target_ms else ""
            return f"{demand.depth} waiting, {each}, wanted within {policy.target_ms} ms{late}"
        case _:
            assert_never(term)


# --- a worker pool ------------------------------------------------------------------------


class PoolPolicy(Struct, frozen=True, kw_only=True):
    minimum: int = 1
    maximum: int = 1
    shrink_after_ms: int = 30_000  # of less being wanted throughout
    cool_down_ms: int = 3_000  # from any change to the next worker that is let go

    def __post_init__(self) -> None:
        if not 0 <= self.minimum <= self.maximum or self.maximum < 1:
            raise ValueError("a pool needs 0 <= minimum <= maximum and maximum >= 1")


class PoolState(Struct, frozen=True, kw_only=True):
    """The size of a pool, with the history that decides on its next change."""

    size: int
    changed_at_ms: int | None = None
    lower_since_ms: int | None = None  # since when less than `size` is wanted without a break
    most_since: int = 0  # that was wanted in that time


def resized(state: PoolState, wanted: int, *, now_ms: int, policy: PoolPolicy) -> PoolState:
    """Follow what is wanted: up at once, down one by one after a time of lower need."""
    wanted = max(policy.minimum, min(wanted, policy.maximum))
    if wanted >= state.size:
        is_larger = wanted > state.size
        return PoolState(size=wanted, changed_at_ms=now_ms if is_larger else state.changed_at_ms)

    if state.lower_since_ms is None or now_ms < state.lower_since_ms:
        return msgspec.structs.replace(state, lower_since_ms=now_ms, most_since=wanted)
    state = msgspec.structs.replace(state, most_since=max(state.most_since, wanted))
    if not _may_shrink(state, now_ms, policy):
        return state

    size = state.size - 1
    smaller = msgspec.structs.replace(state, size=size, changed_at_ms=now_ms)
    if state.most_since < size:
        return smaller  # even this is more than was wanted, so the next may go soon
    since_ms = now_ms if wanted < size else None
    return msgspec.structs.replace(smaller, lower_since_ms=since_ms, most_since=wanted)


def _may_shrink(state: PoolState, now_ms: int, policy: PoolPolicy) -> bool:
    assert state.lower_since_ms is not None

    is_cool = (
        state.changed_at_ms is None or not 0 <= now_ms - state.changed_at_ms < policy.cool_down_ms
    )
    return is_cool and now_ms - state.lower_since_ms >= policy.shrink_after_ms
