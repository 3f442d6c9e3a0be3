"""Every command about a service: from its members, from operators, and by time.

`protocol` 1 is the wire of old clients, which have no incarnations, generations and epochs. 2 is
the current wire. A rule that differs between them says so.

`by` is the caller that sent a command. It must own the member that the command names. None is the
coordinator itself, or a caller where access is not restricted.
"""

from msgspec import Raw

from rota.core.access import Caller
from rota.core.replies import CommandBase, Done
from rota.core.shards.members import Assignment


class RegisterMember(CommandBase[Assignment], frozen=True, kw_only=True, tag="RegisterMember"):
    """A worker joins a service. It holds only the shards that the reply names."""

    service: str
    worker_id: str
    shard_count: int
    protocol: int = 1
    incarnation: str = ""  # protocol 2 only; incarnations of digits alone are ordered as numbers
    weight: int = 1_000  # thousandths
    max_shards: int | None = None
    seq: int | None = None  # the reply repeats it
    by: Caller | None = None


class BeatMember(CommandBase[Assignment], frozen=True, kw_only=True, tag="BeatMember"):
    """A member's heartbeat, with the shards that it holds."""

    service: str
    worker_id: str
    shard_count: int
    holds: tuple[int, ...]
    protocol: int = 1
    incarnation: str = ""
    generation: int | None = None  # the newest one the member has seen; None: not reported
    seq: int | None = None  # rises with each heartbeat of an incarnation
    draining: bool = False  # the member is about to leave, and wants to release its shards
    by: Caller | None = None


class LeaveMember(CommandBase[Done], frozen=True, kw_only=True, tag="LeaveMember"):
    """A member leaves in good order: it no longer acts on any shard."""

    service: str
    worker_id: str
    incarnation: str | None = None  # None: any
    by: Caller | None = None


class DrainMember(CommandBase[Done], frozen=True, kw_only=True, tag="DrainMember"):
    """An operator drains a member of its shards, or lets it own shards again."""

    service: str
    worker_id: str
    draining: bool = True


class ConfigureService(CommandBase[Done], frozen=True, kw_only=True, tag="ConfigureService"):
    """An operator configures a service; None leaves a field unchanged."""

    service: str
    shard_count: int | None = None
    pinned: bool | None = None
    min_protocol: int | None = None


class SweepServices(CommandBase[Done], frozen=True, tag="SweepServices"):
    """Expire the leases that have run out, and rebalance if that is due.

    The engine executes it as the last shard command of its batch.
    """

    deaf_until_ms: int | None = None  # until then the coordinator was too busy to read messages


class SaveCheckpoint(CommandBase[Done], frozen=True, kw_only=True, tag="SaveCheckpoint"):
    """Save the position of a shard's owner. Refused when its epoch is old."""

    service: str
    shard: int
    epoch: int
    value: Raw
    worker_id: str | None = None  # the sender, if known; it must be the owner
    by: Caller | None = None


MemberCommand = RegisterMember | BeatMember | LeaveMember
ServiceCommand = MemberCommand | DrainMember | ConfigureService
ShardCommand = ServiceCommand | SweepServices | SaveCheckpoint
ShardReply = Assignment | Done
