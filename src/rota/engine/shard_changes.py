"""What did a batch change about a service, and how does the service stand?"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple, assert_never

from rota.core.shards.columns import Shards
from rota.core.shards.decisions import (
    GrantShards,
    NoteBeat,
    PutMember,
    PutService,
    Rebalanced,
    ReleaseShards,
    RemoveMember,
    RevokeShards,
    SetTargets,
    ShardDecision,
)
from rota.core.shards.members import Member, ShardPolicy
from rota.core.shards.service import Service


@dataclass
class ServiceChanges:
    """Which rows of a service are to be written, and what is counted after the commit."""

    is_put: bool = False
    members: set[str] = field(default_factory=set)  # put or removed
    seen: set[str] = field(default_factory=set)
    shards: list[Shards] = field(default_factory=list)  # put, some of them more than once
    beats: int = 0
    granted: int = 0
    forced: int = 0
    rebalances: list[Rebalanced] = field(default_factory=list)
    removed: list[RemoveMember] = field(default_factory=list)
    joined: list[Member] = field(default_factory=list)  # new, or another incarnation than before

    @property
    def are_lasting(self) -> bool:
        """Whether anything but the time of a member's last beat has changed."""
        return bool(self.is_put or self.members or self.shards)

    def note(self, decisions: Iterable[ShardDecision]) -> None:
        for one in decisions:
            match one:
                case NoteBeat():  # first, since nearly all are
                    self.beats += 1
                    self.seen.add(one.worker_id)
                case PutService():
                    self.is_put = True
                case PutMember():
                    self.members.add(one.member.worker_id)
                case RemoveMember():
                    self.members.add(one.worker_id)
                    self.removed.append(one)
                case SetTargets() | RevokeShards():
                    self.shards.append(one.shards)
                case ReleaseShards():
                    self.shards.append(one.shards)
                    self.forced += len(one.shards) if one.forced else 0
                case GrantShards():
                    self.shards.append(one.shards)
                    self.granted += len(one.shards)
                case Rebalanced():
                    self.rebalances.append(one)
                case _:
                    assert_never(one)


class ServiceGauges(NamedTuple):
    """How a service stands at the time of a sweep."""

    swept_ms: int
    generation: int
    shard_count: int
    members: int
    unowned: int
    stranded: int  # of the unowned ones: somebody has room for them
    revoking: int
    oldest_revoke_ms: int  # how long ago the oldest one was asked for; 0: none is
    imbalance: float  # shards that the fullest member has more than the emptiest, at weight 1
    lease_margin_ms: int | None  # of the member that has been silent for longest; None: no members


def gauges_of(service: Service, policy: ShardPolicy, *, now_ms: int) -> ServiceGauges:
    members, owned = service.members, service.owned
    loads = [
        len(owned[worker_id]) * 1_000 / one.weight if worker_id in owned else 0.0
        for worker_id, one in members.items()
        if not one.draining and one.fenced is None
    ]
    margin_ms = None
    if members:
        # A beat in the future, or before we were back, says as much as one that came then.
        seen_ms = max(min([one.seen_ms for one in members.values()]), service.awake_since_ms)
        margin_ms = policy.lease_ms - max(0, now_ms - seen_ms)
    asked = list(chain.from_iterable(service.revoking.values()))
    oldest_ms = min([one.since_ms for one in asked], default=now_ms)
    unowned = service.unowned()
    return ServiceGauges(
        swept_ms=now_ms,
        generation=service.generation,
        shard_count=service.shard_count,
        members=len(members),
        unowned=unowned,
        stranded=unowned if unowned and _has_room(service) else 0,
        revoking=sum(len(one.shards) for one in asked),
        oldest_revoke_ms=max(0, now_ms - oldest_ms),
        imbalance=max(loads) - min(loads) if loads else 0.0,
        lease_margin_ms=margin_ms,
    )


def _has_room(service: Service) -> bool:
    """Whether any member could own more than it does."""
    return any(
        member.max_shards is None or len(service.owned.get(worker_id, ())) < member.max_shards
        for worker_id, member in service.members.items()
        if not member.draining and member.fenced is None
    )
