"""A store in memory: decisions folded into rows, and a service restored from them."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import msgspec

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
from rota.core.shards.hydration import StoredShard, restored
from rota.core.shards.members import Member
from rota.core.shards.service import Service


@dataclass
class Rows:
    service: PutService | None = None
    members: dict[str, Member] = field(default_factory=dict)
    shards: dict[int, StoredShard] = field(default_factory=dict)

    def fold(self, decisions: Iterable[ShardDecision]) -> None:
        for decision in decisions:
            self._apply(decision)

    def _apply(self, decision: ShardDecision) -> None:
        match decision:
            case PutService():
                self.service = decision
            case PutMember(member=member):
                self.members[member.worker_id] = member
            case NoteBeat(worker_id=worker_id, seen_ms=seen_ms):
                member = self.members[worker_id]
                self.members[worker_id] = msgspec.structs.replace(member, seen_ms=seen_ms)
            case RemoveMember(worker_id=worker_id):
                del self.members[worker_id]
            case Rebalanced():
                pass
            case _:
                self._move(decision)

    def _move(self, decision: SetTargets | RevokeShards | ReleaseShards | GrantShards) -> None:
        match decision:
            case SetTargets(worker_id=worker_id, shards=shards):
                self._change(shards, target=worker_id)
            case RevokeShards(shards=shards, generation=generation):
                self._change(shards, revoked_in=generation)
            case ReleaseShards(shards=shards):
                self._change(shards, owner=None, revoked_in=None)
            case GrantShards(worker_id=worker_id, shards=shards, epochs=epochs):
                for shard, epoch in zip(shards, epochs, strict=True):
                    self._change([shard], owner=worker_id, epoch=epoch)

    def _change(self, shards: Iterable[int], **changes: object) -> None:
        for shard in shards:
            row = self.shards.get(shard) or StoredShard(shard, 0, None, None, None)
            self.shards[shard] = replace(row, **changes)  # type: ignore[arg-type]  # by name

    def restored(self, now_ms: int) -> Service:
        assert self.service is not None
        # In no order that could be counted on.
        shards = sorted(self.shards.values(), key=lambda row: -row.shard)
        return restored(self.service, self.members.values(), shards, now_ms=now_ms)
