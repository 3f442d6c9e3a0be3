"""Everything that can happen to a service: what its members say, what operators ask, and time.

`protocol` 1 is the wire of old clients, which know nothing of incarnations, generations and
epochs; 2 is ours. The rules that differ say so.
"""

from msgspec import Raw, Struct


class RegisterMember(Struct, frozen=True, kw_only=True, tag=True):
    """A worker wants shards of a service. It holds none that it was not told of in the answer."""

    service: str
    worker_id: str
    shard_count: int
    protocol: int = 1
    incarnation: str = ""  # of protocol 2; digits alone are ordered as numbers
    weight: int = 1_000  # thousandths
    max_shards: int | None = None
    seq: int | None = None  # given back with the answer


class BeatMember(Struct, frozen=True, kw_only=True, tag=True):
    """A member lives, and says what it holds."""

    service: str
    worker_id: str
    shard_count: int
    holds: tuple[int, ...]
    protocol: int = 1
    incarnation: str = ""
    generation: int | None = None  # the newest one it has seen; None: it does not say
    seq: int | None = None  # rises from beat to beat of an incarnation
    draining: bool = False  # it is about to leave, and wants to be rid of its shards


class LeaveMember(Struct, frozen=True, kw_only=True, tag=True):
    """A member goes in good order: it acts on nothing any more."""

    service: str
    worker_id: str
    incarnation: str | None = None  # None: whichever it is


class DrainMember(Struct, frozen=True, kw_only=True, tag=True):
    """An operator wants a member to give up its shards, or to have some again."""

    service: str
    worker_id: str
    draining: bool = True


class ConfigureService(Struct, frozen=True, kw_only=True, tag=True):
    """An operator decides; None leaves a field as it is."""

    service: str
    shard_count: int | None = None
    pinned: bool | None = None
    min_protocol: int | None = None


class SweepServices(Struct, frozen=True, tag=True):
    """Time has passed: leases may have run out, a rebalance may be due.

    Of what came at the same time it is the last to be taken up.
    """

    deaf_until_ms: int | None = None  # the end of the last time that we could not hear anybody


class SaveCheckpoint(Struct, frozen=True, kw_only=True, tag=True):
    """How far the owner of a shard has come. Refused when its epoch is old."""

    service: str
    shard: int
    epoch: int
    value: Raw
    worker_id: str | None = None  # who says so, if that is known: it has to be the owner


MemberEvent = RegisterMember | BeatMember | LeaveMember
ServiceEvent = MemberEvent | DrainMember | ConfigureService
ShardEvent = ServiceEvent | SweepServices | SaveCheckpoint
