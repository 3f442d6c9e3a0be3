"""Collects the changes of a batch to one service, and measures the gauges of a service."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple, assert_never

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
from rota.core.shards.ranges import Shards
from rota.core.shards.service import Service


@dataclass
class ServiceChanges:
    """The rows of a service to write, and the figures to count after the commit."""

    is_put: bool = False
    members: set[str] = field(default_factory=set)  # put or removed
    seen: set[str] = field(default_factory=set)
    shards: list[Shards] = field(default_factory=list)  # to put; a shard may occur more than once
    beats: int = 0
    granted: int = 0
    forced: int = 0
    rebalances: list[Rebalanced] = field(default_factory=list)
    removed: list[RemoveMember] = field(default_factory=list)
    joined: list[Member] = field(default_factory=list)  # new members, or new incarnations

    @property
    def are_lasting(self) -> bool:
        """Whether anything other than the time of a member's last heartbeat has changed."""
        return bool(self.is_put or self.members or self.shards)

    def note(self, decisions: Iterable[ShardDecision]) -> None:
        for one in decisions:
            match one:
                case NoteBeat():  # first, because it is by far the most frequent
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
    """The gauges of a service at the time of a sweep."""

    swept_ms: int
    generation: int
    shard_count: int
    members: int
    unowned: int
    stranded: int  # unowned, although some member has room
    revoking: int
    oldest_revoke_ms: int  # the age of the oldest revocation; 0: there is none
    imbalance: float  # shards of the fullest member minus those of the emptiest, at weight 1
    lease_margin_ms: int | None  # of the member that is silent for longest; None: no members


def gauges_of(service: Service, policy: ShardPolicy, *, now_ms: int) -> ServiceGauges:
    members, owned = service.members, service.owned
    loads = [
        len(owned[worker_id]) * 1_000 / one.weight if worker_id in owned else 0.0
        for worker_id, one in members.items()
        if not one.draining and one.fenced is None
    ]
    margin_ms = None
    if members:
        # A heartbeat in the future counts as one of now. A heartbeat from before the coordinator
        # was back counts as one of that moment.
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
    """Whether any member can own more shards than it does."""
    return any(
        member.max_shards is None or len(service.owned.get(worker_id, ())) < member.max_shards
        for worker_id, member in service.members.items()
        if not member.draining and member.fenced is None
    )
