"""The decisions about a service. Each is stored as it is; together they are its state.

Those that come by the thousand are left out of garbage collection (`gc=False`): they hold strings
and numbers only, so they are in no cycle.
"""

from msgspec import Struct

from rota.core.shards.members import Departure, Member


class PutService(Struct, frozen=True, kw_only=True, tag="PutService"):
    """Write the row of the service."""

    name: str
    shard_count: int
    pinned: bool
    min_protocol: int
    generation: int
    superseded: tuple[int, ...] = ()  # shard counts that were in force before


class PutMember(Struct, frozen=True, tag="PutMember"):
    """Write the row of a member."""

    service: str
    member: Member


class NoteBeat(Struct, frozen=True, tag="NoteBeat", gc=False):
    """Note the time of a heartbeat. Frequent, so it writes one column."""

    service: str
    worker_id: str
    seen_ms: int


class RemoveMember(Struct, frozen=True, tag="RemoveMember"):
    service: str
    worker_id: str
    incarnation: str
    reason: Departure


class SetTargets(Struct, frozen=True, tag="SetTargets", gc=False):
    """Set the member that is to own these shards; None: no member for now."""

    service: str
    worker_id: str | None
    shards: tuple[int, ...]


class RevokeShards(Struct, frozen=True, tag="RevokeShards", gc=False):
    """Ask the owner to give shards up: its assignment no longer lists them."""

    service: str
    worker_id: str
    shards: tuple[int, ...]
    generation: int


class ReleaseShards(Struct, frozen=True, tag="ReleaseShards", gc=False):
    """Take shards from their owner."""

    service: str
    worker_id: str
    shards: tuple[int, ...]
    forced: bool = False  # the owner may not know


class GrantShards(Struct, frozen=True, tag="GrantShards", gc=False):
    """Give shards to a worker, each under the epoch beside it."""

    service: str
    worker_id: str
    shards: tuple[int, ...]
    epochs: tuple[int, ...]
    generation: int


class Rebalanced(Struct, frozen=True, tag="Rebalanced"):
    """Report a rebalance, for metrics and the log. Not stored."""

    service: str
    moved: int  # shards with another target than before, new ones not counted
    placed: int  # shards that had no target before


ShardDecision = (
    PutService
    | PutMember
    | NoteBeat
    | RemoveMember
    | SetTargets
    | RevokeShards
    | ReleaseShards
    | GrantShards
    | Rebalanced
)
