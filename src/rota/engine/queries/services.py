"""The status of a service, made from committed state."""

from msgspec import Struct

from rota.core.shards.members import ShardPolicy
from rota.core.workers import model
from rota.core.workers.model import Health
from rota.store.shards import StoredService, StoredServiceSummary

__all__ = ["MemberStatus", "ServiceStatus", "StoredServiceSummary", "view_of"]

BEATS_PER_LEASE = 3


class MemberStatus(Struct, frozen=True, kw_only=True):
    worker_id: str
    protocol: int
    incarnation: str
    shards: tuple[int, ...]  # owned, including those being revoked; sorted
    epochs: tuple[int, ...]  # of `shards`, in the same order
    target: tuple[int, ...]  # the shards that the plan assigns to it; sorted
    revoking: tuple[int, ...]  # owned, and being revoked; sorted
    weight: int  # thousandths
    max_shards: int | None
    draining: bool
    fenced: str | None  # why its heartbeats no longer renew its lease
    health: Health
    joined_ms: int
    seen_ms: int


class ServiceStatus(Struct, frozen=True, kw_only=True):
    name: str
    shard_count: int
    pinned: bool
    min_protocol: int
    generation: int
    members: tuple[MemberStatus, ...]  # by worker id
    unowned: int  # shards below `shard_count` without an owner
    moving: int  # shards that their owners were asked to release


def view_of(
    stored: StoredService, policy: ShardPolicy, *, now_ms: int, started_at_ms: int
) -> ServiceStatus:
    """Make the status of a service from its rows."""
    owned: dict[str | None, list[tuple[int, int]]] = {}
    targets: dict[str | None, list[int]] = {}
    revoking: dict[str | None, list[int]] = {}
    for row in stored.shards:
        owned.setdefault(row.owner, []).append((row.shard, row.epoch))
        targets.setdefault(row.target, []).append(row.shard)
        if row.owner is not None and row.revoked_in is not None:
            revoking.setdefault(row.owner, []).append(row.shard)
    shard_count = stored.service.shard_count
    known = sum(row.owner is not None and row.shard < shard_count for row in stored.shards)
    return ServiceStatus(
        name=stored.service.name,
        shard_count=shard_count,
        pinned=stored.service.pinned,
        min_protocol=stored.service.min_protocol,
        generation=stored.service.generation,
        members=tuple(
            MemberStatus(
                worker_id=one.worker_id,
                protocol=one.protocol,
                incarnation=one.incarnation,
                shards=tuple([shard for shard, _ in owned.get(one.worker_id, ())]),
                epochs=tuple([epoch for _, epoch in owned.get(one.worker_id, ())]),
                target=tuple(targets.get(one.worker_id, ())),
                revoking=tuple(revoking.get(one.worker_id, ())),
                weight=one.weight,
                max_shards=one.max_shards,
                draining=one.draining,
                fenced=one.fenced,
                health=model.health(
                    # Members could not send heartbeats while the coordinator was down.
                    age_ms=now_ms - max(one.seen_ms, started_at_ms),
                    interval_ms=policy.lease_ms // BEATS_PER_LEASE,
                    policy=policy.health,
                ),
                joined_ms=one.joined_ms,
                seen_ms=one.seen_ms,
            )
            for one in stored.members
        ),
        unowned=shard_count - known,
        moving=sum(len(shards) for shards in revoking.values()),
    )
