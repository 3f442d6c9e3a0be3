"""Who is a member of a service, and how is it doing?"""

from enum import StrEnum
from typing import Literal

from msgspec import Struct

from rota.core.workers import HealthPolicy

OLD_PROTOCOL = 1
PROTOCOL = 2


class Departure(StrEnum):
    LEFT = "left"  # it said so
    EXPIRED = "expired"  # not heard of for a lease
    EVICTED = "evicted"  # it would not give up what it was asked to
    REFUSED = "refused"  # its protocol is no longer good enough for the service


class Member(Struct, frozen=True, kw_only=True):
    """What is known of a member for good; what it holds is kept by its service."""

    worker_id: str
    protocol: int = OLD_PROTOCOL
    incarnation: str = ""
    replaced: tuple[str, ...] = ()  # earlier incarnations, the newest last
    weight: int = 1_000  # thousandths
    max_shards: int | None = None
    reported_count: int  # the shard count it last named
    draining: bool = False  # it, or an operator, wants it to be rid of its shards
    fenced: str | None = None  # why its beats renew nothing any more
    joined_ms: int
    seen_ms: int


class ShardPolicy(Struct, frozen=True, kw_only=True):
    """The rules a coordinator runs its services with."""

    lease_ms: int = 15_000  # of a member, from the receipt of its last beat
    heartbeat_interval_ms: int = 5_000  # what members are asked for
    # Clocks run at different speeds. We wait this much longer than the lease says before a shard
    # moves on; a member stops as much earlier.
    drift: float = 0.02
    join_quiet_ms: int = 500  # without another join, before those that came are given their part
    join_most_ms: int = 3_000  # after the first of them, however many still come
    deaf_ms: int = 50  # what keeps us busy for longer than this keeps us from hearing who joins
    leave_quiet_ms: int = 50  # the same for leaves, drains and counts: somebody waits for these
    stuck_ms: int = 30_000  # a member that keeps a revoked shard for longer is stuck
    # What a stuck member of the old protocol loses: its membership, or only those shards.
    when_stuck: Literal["evict", "force"] = "evict"
    sweep_ms: int = 500  # how often time is looked at
    pause_ms: int = 1_000  # a sweep later than this means that we, not the members, were away
    health: HealthPolicy = HealthPolicy()

    @property
    def expiry_ms(self) -> int:
        """From the last beat of a member until its shards move on: later than it stops itself."""
        return int(self.lease_ms * (1 + self.drift))

    @property
    def news_wait_ms(self) -> int:
        """How long a beat may wait for news: the next one is there before its member seems late."""
        share = min(1.0, self.health.degraded_after / 2)
        return max(1, int(self.heartbeat_interval_ms * share))


class Assignment(Struct, frozen=True, kw_only=True):
    """What a member is told: as the answer to all it says, and whenever that changes."""

    service: str
    worker_id: str
    incarnation: str
    protocol: int
    shards: tuple[int, ...] = ()  # sorted
    epochs: tuple[int, ...] = ()  # beside them
    revoking: tuple[int, ...] = ()  # still owned, to be given up; sorted
    generation: int = 0
    changed_in: int = 0  # the generation since which it is told the same
    lease_ms: int
    heartbeat_interval_ms: int
    seq: int | None = None  # of the message that this answers; None in a push
    status: Literal["ok", "fenced", "reregister"] = "ok"
    reason: str | None = None
    # A client that reads only once is answered when there is something to say: not yet.
    is_pending: bool = False
