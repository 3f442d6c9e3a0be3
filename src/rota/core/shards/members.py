"""The member of a service: its record, its protocol state, its policy and its assignment."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from msgspec import Struct

from rota.core.shards.ranges import Shards
from rota.core.workers.model import HealthPolicy

OLD_PROTOCOL = 1
PROTOCOL = 2


class Departure(StrEnum):
    LEFT = "left"  # the member said so
    EXPIRED = "expired"  # its lease ran out
    EVICTED = "evicted"  # it kept revoked shards for too long
    REFUSED = "refused"  # the service no longer takes its protocol


class Member(Struct, frozen=True, kw_only=True):
    """The stored row of a member. Its service keeps the shards that it owns."""

    worker_id: str
    protocol: int = OLD_PROTOCOL
    incarnation: str = ""
    replaced: tuple[str, ...] = ()  # earlier incarnations, the newest last
    weight: int = 1_000  # thousandths
    max_shards: int | None = None
    reported_count: int  # the shard count it last named
    draining: bool = False  # the member or an operator asked to move its shards away
    fenced: str | None = None  # the reason why its heartbeats no longer renew its lease
    joined_ms: int
    seen_ms: int
    # The binding that registered it (`Caller.binding`). None: the row is older than owners.
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class Revoking:
    """Shards that their owner was asked to give up, all at one time."""

    shards: Shards
    generation: int  # a heartbeat that has seen it, and does not list a shard, releases that shard
    since_ms: int
    beats: int  # of the owner at that moment: protocol 1 has no generations


@dataclass(slots=True)
class ProtocolState:
    """The recent exchange with a member. A restart forgets it, which is safe."""

    beats: int = 0
    seq: int = -1  # the highest one of this incarnation
    generation: int = -1  # the newest one that the member has seen
    pending_since_ms: int | None = None  # a registration of protocol 1 that waits for its answer
    held: tuple[int, ...] = ()  # the shards that its last heartbeat listed


class ShardPolicy(Struct, frozen=True, kw_only=True):
    """The policy that a coordinator runs its services with."""

    lease_ms: int = 15_000  # of a member, from the receipt of its last beat
    heartbeat_interval_ms: int = 5_000  # that members are asked to keep
    # Clocks run at different speeds. The coordinator waits this share longer than the lease before
    # a shard moves on; the member stops this share earlier.
    drift: float = 0.02
    join_quiet_ms: int = 500  # without another join, before a rebalance
    join_most_ms: int = 3_000  # from the first join to the rebalance, at most
    deaf_ms: int = 50  # a busy coordinator misses joins; longer than this counts
    leave_quiet_ms: int = 50  # like `join_quiet_ms`, after leaves, drains and new shard counts
    stuck_ms: int = 30_000  # a member that keeps a revoked shard for longer is stuck
    # A stuck member of protocol 1 loses its membership, or only the shards that it kept.
    when_stuck: Literal["evict", "force"] = "evict"
    sweep_ms: int = 500  # between two sweeps
    pause_ms: int = 1_000  # a sweep later than this means that the coordinator was paused
    health: HealthPolicy = HealthPolicy()

    @property
    def expiry_ms(self) -> int:
        """The time from the last heartbeat until the shards move on. The member stops earlier."""
        return int(self.lease_ms * (1 + self.drift))

    @property
    def news_wait_ms(self) -> int:
        """The time for which a heartbeat may wait for changes and its member not seem late."""
        share = min(1.0, self.health.degraded_after / 2)
        return max(1, int(self.heartbeat_interval_ms * share))


class Assignment(Struct, frozen=True, kw_only=True):
    """The shards of a member, sent as the answer to its messages and pushed when they change."""

    service: str
    worker_id: str
    incarnation: str
    protocol: int
    shards: tuple[int, ...] = ()  # sorted
    epochs: tuple[int, ...] = ()  # beside them
    revoking: tuple[int, ...] = ()  # still owned, to be given up; sorted
    generation: int = 0
    changed_in: int = 0  # the generation of the last change for this member
    lease_ms: int
    heartbeat_interval_ms: int
    seq: int | None = None  # of the message that this answers; None in a push
    status: Literal["ok", "fenced", "reregister"] = "ok"
    reason: str | None = None
    # A client of protocol 1 reads one answer only: this one waits until there are shards.
    is_pending: bool = False
