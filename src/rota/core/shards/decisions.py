"""What is decided about a service. Each is written as it stands; together they are its state.

Those that may be made by the thousand are kept from the garbage collector: of strings and numbers
alone, they are in no cycle.
"""

from msgspec import Struct

from rota.core.shards.members import Departure, Member


class PutService(Struct, frozen=True, kw_only=True, tag=True):
    """The service's own row: made, or changed."""

    name: str
    shard_count: int
    pinned: bool
    min_protocol: int
    generation: int
    superseded: tuple[int, ...] = ()  # shard counts that were in force before


class PutMember(Struct, frozen=True, tag=True):
    """A member joined, or something lasting about it changed."""

    service: str
    member: Member


class NoteBeat(Struct, frozen=True, tag=True, gc=False):
    """A member was heard of. Many a second: written narrow."""

    service: str
    worker_id: str
    seen_ms: int


class RemoveMember(Struct, frozen=True, tag=True):
    service: str
    worker_id: str
    incarnation: str
    reason: Departure


class SetTargets(Struct, frozen=True, tag=True, gc=False):
    """Whose these shards shall be; None: nobody's for now."""

    service: str
    worker_id: str | None
    shards: tuple[int, ...]


class RevokeShards(Struct, frozen=True, tag=True, gc=False):
    """The owner is asked to give these up: its assignment lists them no more."""

    service: str
    worker_id: str
    shards: tuple[int, ...]
    generation: int


class ReleaseShards(Struct, frozen=True, tag=True, gc=False):
    """Nobody owns these any more."""

    service: str
    worker_id: str
    shards: tuple[int, ...]
    forced: bool = False  # taken from an owner that may not know


class GrantShards(Struct, frozen=True, tag=True, gc=False):
    """The worker owns these from now on, each under the epoch beside it."""

    service: str
    worker_id: str
    shards: tuple[int, ...]
    epochs: tuple[int, ...]
    generation: int


class Rebalanced(Struct, frozen=True, tag=True):
    """Targets were computed anew; not stored, counted and logged."""

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
