"""Guards against mass eviction: when not to act on health and quality.

If many workers look dead at once, the likelier cause is the network, or this coordinator itself;
releasing everything they hold would turn a hiccup into a stampede. The shares mean little among a
handful of workers, where one is already a large part, so they count from `minimum_fleet` up.
"""

import math
from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from rota.core.workers.model import WorkerRecord


class EvictionPolicy(Struct, frozen=True, kw_only=True):
    minimum_fleet: int = 10  # below this, no share and no cap counts
    mass_death_share: float = 0.15  # more than this of the fleet in one sweep is held back
    # How long a mass death holds a worker, in its own heartbeat intervals: six are two leases under
    # the default health rule. Enough for the network to heal, and limited, because the
    # workers may be dead.
    hold_intervals: float = 6.0
    sweep_cap: int = 100  # evictions in one sweep; the rest wait for the next
    ejected_share: float = 0.10  # no more than this of the fleet is ejected for its quality
    healthy_floor: float = 0.50  # with less than this of the fleet healthy, no worker is ejected
    pause_sweeps: float = (
        3.0  # a gap of more sweep intervals than this means that the coordinator paused
    )

    def __post_init__(self) -> None:
        shares = (self.mass_death_share, self.ejected_share, self.healthy_floor)
        if not all(0 <= one <= 1 for one in shares):
            raise ValueError("shares of the eviction policy must be from 0 to 1")
        if self.minimum_fleet < 1 or self.sweep_cap < 1:
            raise ValueError("the eviction policy needs minimum_fleet >= 1 and sweep_cap >= 1")
        if not (0 <= self.hold_intervals < math.inf and 1 <= self.pause_sweeps < math.inf):
            raise ValueError("the eviction policy needs hold_intervals >= 0 and pause_sweeps >= 1")


DEFAULT_EVICTION_POLICY = EvictionPolicy()


class HoldReason(StrEnum):
    MASS_DEATH = "mass_death"  # too many at once to be believed yet
    SWEEP_CAP = "sweep_cap"  # believed, but this sweep has evicted enough


class SweepState(Struct, frozen=True, kw_only=True):
    """The state that the health sweep keeps from one sweep to the next."""

    previous_sweep_ms: int | None = None  # None: this coordinator has not swept yet
    resumed_at_ms: int = 0  # when it last came back, after a start or a pause of its own
    held_since_ms: int | None = None  # since when a mass death has been held back


class Evictions(Struct, frozen=True, kw_only=True):
    evict: tuple[str, ...] = ()  # worker ids, the longest silent first
    held: bool = False  # a mass death holds some of them back
    reason: HoldReason | None = None  # why any were left for a later sweep; None: none were
    held_since_ms: int | None = None  # give this to the next sweep


def evictions(
    dying: Sequence[WorkerRecord],
    *,
    fleet: int,
    held_since_ms: int | None,
    now_ms: int,
    policy: EvictionPolicy = DEFAULT_EVICTION_POLICY,
) -> Evictions:
    """The unhealthy workers to evict in this sweep; `fleet` counts them too."""
    assert fleet >= len(dying)

    oldest_first = sorted(dying, key=lambda worker: (worker.last_heartbeat_ms, worker.id))
    if fleet < policy.minimum_fleet:
        return Evictions(evict=tuple(worker.id for worker in oldest_first))

    believed, since_ms = oldest_first, None
    if len(dying) > policy.mass_death_share * fleet:
        # A start in the future is from before the clock was set back; the hold starts again.
        since_ms = now_ms if held_since_ms is None else min(held_since_ms, now_ms)
        believed = [one for one in oldest_first if _held_until_ms(one, since_ms, policy) <= now_ms]
    evict = tuple(worker.id for worker in believed[: policy.sweep_cap])
    reason = _reason(len(dying), len(believed), len(evict))
    return Evictions(
        evict=evict,
        held=reason is HoldReason.MASS_DEATH,
        reason=reason,
        held_since_ms=since_ms,
    )


def _held_until_ms(worker: WorkerRecord, since_ms: int, policy: EvictionPolicy) -> float:
    # One that fell silent during the hold has a hold of its own: it may be a second hiccup.
    start_ms = max(since_ms, worker.last_heartbeat_ms)
    return start_ms + policy.hold_intervals * worker.heartbeat_interval_ms


def _reason(dying: int, believed: int, evicted: int) -> HoldReason | None:
    if believed < dying:
        return HoldReason.MASS_DEATH
    return HoldReason.SWEEP_CAP if evicted < believed else None


def was_paused(
    *,
    previous_sweep_ms: int | None,
    now_ms: int,
    sweep_interval_ms: int,
    policy: EvictionPolicy = DEFAULT_EVICTION_POLICY,
) -> bool:
    """Whether the coordinator was paused since its last sweep; None: it has just started.

    During a pause it read no heartbeats, so their ages do not count. A clock that was set back
    makes ages smaller, which needs no amnesty.
    """
    assert sweep_interval_ms > 0

    if previous_sweep_ms is None:
        return True
    return now_ms - previous_sweep_ms > policy.pause_sweeps * sweep_interval_ms


def amnesty_until_ms(*, resumed_at_ms: int, lease_ms: int) -> int:
    """The moment from which evictions are allowed: one whole lease after a pause."""
    assert lease_ms >= 0

    return resumed_at_ms + lease_ms


def may_eject(
    *, fleet: int, healthy: int, ejected: int, policy: EvictionPolicy = DEFAULT_EVICTION_POLICY
) -> bool:
    """Whether one more worker may be ejected for its quality.

    `healthy` counts those that beat on time and take work, the one in question among them;
    `ejected` counts those ejected already. The last worker stays whatever it does: poor work
    beats none. Below `minimum_fleet` that is the only limit.
    """
    assert fleet >= 0

    if healthy <= 1:
        return False
    if fleet < policy.minimum_fleet:
        return True
    is_share_left = ejected + 1 <= policy.ejected_share * fleet
    return is_share_left and healthy >= policy.healthy_floor * fleet
