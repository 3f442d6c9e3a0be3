"""What was committed, and was it all right? Decisions folded into rows, each one checked.

The fold is the simulation's own: it takes nothing from the service but its decisions, so a service
that decides one thing and believes another is noticed when the two are compared.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import assert_never

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
from tests.simulation.trace import Violation


def demand(is_true: bool, broken: str, *facts: object) -> None:  # noqa: FBT001 - reads like assert
    if not is_true:
        raise Violation(" ".join((broken, *map(str, facts))))


@dataclass(slots=True)
class Row:
    epoch: int = 0
    owner: str | None = None
    target: str | None = None
    revoked_in: int | None = None


@dataclass
class Ledger:
    service: PutService
    members: dict[str, Member] = field(default_factory=dict)
    rows: dict[int, Row] = field(default_factory=dict)
    # Who was ever granted a shard under which epoch: its id and its incarnation.
    grants: dict[tuple[int, int], tuple[str, str]] = field(default_factory=dict)
    replaced: dict[str, set[str]] = field(default_factory=dict)  # incarnations, by id
    commits: int = 0
    moved: int = 0

    # --- writing ----------------------------------------------------------------------------

    def commit(self, decisions: Iterable[ShardDecision]) -> None:
        for decision in decisions:
            self._apply(decision)
        self.commits += 1

    def _apply(self, decision: ShardDecision) -> None:
        match decision:
            case PutService():
                demand(decision.generation >= self.service.generation, "the generation fell")
                self.service = decision
            case PutMember() | NoteBeat() | RemoveMember():
                self._apply_to_member(decision)
            case SetTargets(worker_id=target, shards=shards):
                for shard in shards:
                    self._row(shard).target = target
            case RevokeShards():
                self._revoke(decision)
            case ReleaseShards():
                self._release(decision)
            case GrantShards():
                self._grant(decision)
            case Rebalanced(moved=moved):
                self.moved += moved
            case _:
                assert_never(decision)

    def _apply_to_member(self, decision: PutMember | NoteBeat | RemoveMember) -> None:
        match decision:
            case NoteBeat(worker_id=worker_id, seen_ms=seen_ms):
                member = self.members[worker_id]
                self.members[worker_id] = msgspec.structs.replace(member, seen_ms=seen_ms)
            case PutMember(member=member):
                self._put_member(member)
            case RemoveMember(worker_id=worker_id):
                del self.members[worker_id]
                self.replaced.pop(worker_id, None)
                for shard, row in self.rows.items():
                    demand(worker_id not in (row.owner, row.target), "removed with shard", shard)

    def _put_member(self, member: Member) -> None:
        """The newest incarnation has the name, and it never falls back to an earlier one."""
        replaced = self.replaced.setdefault(member.worker_id, set())
        before = self.members.get(member.worker_id)
        if before is not None and before.incarnation != member.incarnation:
            replaced.add(before.incarnation)
        demand(member.incarnation not in replaced, "an old incarnation came back:", member)
        self.members[member.worker_id] = member

    def _row(self, shard: int) -> Row:
        return self.rows.setdefault(shard, Row())

    def _revoke(self, decision: RevokeShards) -> None:
        self._demand_risen(decision.generation)
        for shard in decision.shards:
            row = self._row(shard)
            demand(row.owner == decision.worker_id, "revoked from another than its owner", shard)
            row.revoked_in = decision.generation

    def _release(self, decision: ReleaseShards) -> None:
        for shard in decision.shards:
            row = self._row(shard)
            demand(row.owner == decision.worker_id, "released by another than its owner", shard)
            row.owner = row.revoked_in = None

    def _grant(self, decision: GrantShards) -> None:
        """One owner an epoch, and a higher one each time."""
        self._demand_risen(decision.generation)
        demand(decision.worker_id in self.members, "granted to a stranger", decision)
        grantee = decision.worker_id, self.members[decision.worker_id].incarnation
        for shard, epoch in zip(decision.shards, decision.epochs, strict=True):
            row = self._row(shard)
            demand(row.owner is None, "granted while another owns it", shard, epoch, row.owner)
            demand(epoch > row.epoch, "granted under an old epoch", shard, epoch, row.epoch)
            demand((shard, epoch) not in self.grants, "two owners of one epoch", shard, epoch)
            self.grants[shard, epoch] = grantee
            row.owner, row.epoch = decision.worker_id, epoch

    def _demand_risen(self, generation: int) -> None:
        demand(generation == self.service.generation, "decided in a generation that is not put")

    # --- reading ----------------------------------------------------------------------------

    def restore(self, now_ms: int) -> Service:
        shards = [
            StoredShard(shard, row.epoch, row.owner, row.target, row.revoked_in)
            for shard, row in sorted(self.rows.items())
        ]
        return restored(self.service, list(self.members.values()), shards, now_ms=now_ms)

    def check_effect(self, shard: int, epoch: int, worker_id: str, incarnation: str) -> None:
        """An effect was accepted: it must be of the owner, by the epoch, now."""
        row = self.rows[shard]
        demand(row.epoch == epoch, "an effect of an old epoch was accepted", shard, epoch)
        demand(row.owner == worker_id, "an effect of another was accepted", shard, worker_id)
        grantee = self.grants[shard, epoch]
        demand(grantee == (worker_id, incarnation), "an effect of a zombie was accepted", shard)

    def check_same(self, service: Service, now_ms: int) -> None:
        """What is stored and what is known never differ."""
        stored, known = durable_parts(self.restore(now_ms)), durable_parts(service)
        demand(stored == known, "stored and known differ:", stored, known)


def durable_parts(service: Service) -> dict[str, object]:
    return {
        "count": service.shard_count,
        "generation": service.generation,
        "members": service.members,
        "shards": [
            shard
            for shard in zip(service.epochs, service.owners, service.targets, strict=True)
            if shard != (0, None, None)
        ],
        "owned": {worker: shards for worker, shards in service.owned.items() if shards},
        "targeted": service.targeted,
        "grantable": service.grantable,
        "revoking": [one for one in enumerate(service.asked_in()) if one[1] is not None],
    }
