"""The context of a decision: the policies, the time and the dice."""

from collections.abc import Callable

from msgspec import Struct

from rota.core.quotas import ValuePolicy
from rota.core.workers.circuit_breaker import BreakerPolicy
from rota.core.workers.eviction_guards import EvictionPolicy
from rota.core.workers.model import HealthPolicy
from rota.core.workers.scoring import ScoringPolicy
from rota.core.workers.selection import Strategy


class Rules(Struct, frozen=True, kw_only=True):
    """The policies a coordinator runs with."""

    health: HealthPolicy = HealthPolicy()
    scoring: ScoringPolicy = ScoringPolicy()
    breaker: BreakerPolicy = BreakerPolicy()
    eviction: EvictionPolicy = EvictionPolicy()
    strategy: Strategy = Strategy.WEIGHTED
    job_lease_ms: int = 15 * 60 * 1000
    unclaimed_lease_ms: int = 30_000
    values: ValuePolicy = ValuePolicy()
    max_workers: int = 50_000
    max_attempt_bytes: int = 4 * 1024**3  # of the artifacts of one attempt
    max_artifacts_bytes: int = 256 * 1024**3  # of all artifacts; one owner has a share of it


class Context(Struct, frozen=True, kw_only=True):
    """The input of every reducer beside its state and its command."""

    now_ms: int
    steady_ms: int  # by a clock that is never set, because locks and leases must not end early
    rules: Rules
    dice: Callable[[], float]  # in [0, 1); a parameter, so that a replay draws the same numbers
