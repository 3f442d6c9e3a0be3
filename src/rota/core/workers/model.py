"""The worker: its registration, its states with their transition table, and its health.

Theory of operation. A worker promises to beat every `heartbeat_interval_ms`. Its health is the age
of its last beat, counted in those intervals, and is computed when asked: a stored verdict would be
wrong as soon as time passed. Its state is another matter, set by operators: whether it should be
given work. Its quality is a third (see `scoring` and `circuit_breaker`) and never frees a lease.
"""

import math
from collections.abc import Collection
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct

MAXIMUM_BEATS_PER_SECOND = 2_000  # of the whole fleet, which one coordinator takes with ease


class Health(StrEnum):
    HEALTHY = "healthy"  # beats on time, give or take one
    DEGRADED = "degraded"  # late; keeps its leases, and others are preferred
    UNHEALTHY = "unhealthy"  # taken for dead: its leases are released


class WorkerState(StrEnum):
    ACTIVE = "active"  # takes work
    DRAINING = "draining"  # finishes what it holds and takes nothing new; about to leave
    QUARANTINED = "quarantined"  # takes nothing new because of how it worked; under observation

    def to(self, after: "WorkerState") -> "WorkerState":
        """Return `after`, which the table must list for this state."""
        assert after in WORKER_TRANSITIONS[self], f"a worker that is {self} cannot become {after}"
        return after


# A state changes only through `to`. Operators may change their minds, so all reach each other.
WORKER_TRANSITIONS: dict[WorkerState, frozenset[WorkerState]] = {
    WorkerState.ACTIVE: frozenset({WorkerState.DRAINING, WorkerState.QUARANTINED}),
    WorkerState.DRAINING: frozenset({WorkerState.ACTIVE, WorkerState.QUARANTINED}),
    WorkerState.QUARANTINED: frozenset({WorkerState.ACTIVE, WorkerState.DRAINING}),
}


class HealthPolicy(Struct, frozen=True, kw_only=True):
    """The number of heartbeat intervals that may pass without a heartbeat."""

    degraded_after: float = 2.0
    unhealthy_after: float = 3.0

    def __post_init__(self) -> None:
        if not 0 < self.degraded_after <= self.unhealthy_after < math.inf:
            raise ValueError("health needs 0 < degraded_after <= unhealthy_after")


DEFAULT_HEALTH_POLICY = HealthPolicy()


class WorkerRecord(Struct, frozen=True, kw_only=True):
    id: str
    incarnation: int
    node_id: str
    capabilities: tuple[str, ...] = ()
    max_concurrent_tasks: int = 1
    tasks: tuple[str, ...] | None = None  # names it can run; None: any
    queues: tuple[str, ...] | None = None  # None: all
    heartbeat_interval_ms: int = 5_000
    group: str | None = None
    labels: dict[str, str] | list[str] | None = None
    state: WorkerState = WorkerState.ACTIVE
    last_heartbeat_ms: int
    started_at_ms: int
    load: dict[str, Any] = msgspec.field(default_factory=dict)
    # The binding that registered it (`Caller.binding`). None: the row is older than owners.
    owner: str | None = None


def health(
    *, age_ms: int, interval_ms: int, policy: HealthPolicy = DEFAULT_HEALTH_POLICY
) -> Health:
    """Judge a worker by the age of its last beat.

    A negative age means that the clock was set back; the worker counts as healthy.
    """
    assert interval_ms > 0

    if age_ms <= policy.degraded_after * interval_ms:
        return Health.HEALTHY
    if age_ms <= lease_ms(interval_ms, policy):
        return Health.DEGRADED
    return Health.UNHEALTHY


def lease_ms(interval_ms: int, policy: HealthPolicy = DEFAULT_HEALTH_POLICY) -> int:
    """The time for which leases outlive the last heartbeat: until the worker is unhealthy."""
    return int(policy.unhealthy_after * interval_ms)


def can_serve(worker: WorkerRecord, *, queue: str, name: str, requires: Collection[str]) -> bool:
    """Whether this kind of task is one for this worker, whatever its state, health and load."""
    if worker.queues is not None and queue not in worker.queues:
        return False
    if worker.tasks is not None and name not in worker.tasks:
        return False
    return all(capability in worker.capabilities for capability in requires)


def stretched_interval_ms(
    requested_ms: int, fleet: int, beats_per_second: int = MAXIMUM_BEATS_PER_SECOND
) -> int:
    """The interval a worker is given: the one it asked for, unless the fleet is too large for it.

    No worker beats more often than its equal part of the bound allows, so the whole fleet stays
    under it. At the smallest interval (100 ms) nothing is stretched before the fleet passes 200
    workers, at the default (5 s) before it passes 10,000.
    """
    assert fleet >= 0
    assert beats_per_second > 0

    equal_part_ms = -(-fleet * 1_000 // beats_per_second)  # rounded up, in whole numbers
    return max(requested_ms, equal_part_ms)
