"""The contract of the core: the signature of a reducer, and the context that it decides in.

Tasks and workers, values, locks and shards each have a reducer. The engine loads the state that a
batch of commands needs, reduces the commands one after the other, and writes the decisions.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

from msgspec import Struct

from rota.core.quotas import ValuePolicy
from rota.core.shards.members import ShardPolicy
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
    shards: ShardPolicy = ShardPolicy()
    max_workers: int = 50_000
    max_attempt_bytes: int = 4 * 1024**3  # of the artifacts of one attempt
    max_artifacts_bytes: int = 256 * 1024**3  # of all artifacts; one owner has a share of it


class Context(Struct, frozen=True, kw_only=True):
    """The input of every reducer beside its state and its command."""

    now_ms: int
    steady_ms: int  # by a clock that is never set, because locks and leases must not end early
    rules: Rules
    dice: Callable[[], float]  # in [0, 1); a parameter, so that a replay draws the same numbers


State_contra = TypeVar("State_contra", contravariant=True)
Command_contra = TypeVar("Command_contra", contravariant=True)
DecisionT = TypeVar("DecisionT")
Reply_co = TypeVar("Reply_co", covariant=True)


class Reducer(Protocol[State_contra, Command_contra, DecisionT, Reply_co]):
    """The signature of every reducer.

    A reducer is a function of the state, one command and the context. It returns the decisions to
    write and the reply to the caller. It also notes the decisions in the state, so that the next
    command of the batch sees them. It refuses a command by raising a `RotaError`.
    """

    def __call__(
        self, state: State_contra, command: Command_contra, context: Context, /
    ) -> tuple[list[DecisionT], Reply_co]: ...
