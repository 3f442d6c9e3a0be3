"""Restores a service from its rows, when a coordinator starts or takes over.

What only the coordinator before knew is forgotten: the service rebalances again, and members that
waited ask again.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter

from rota.core.shards.decisions import PutService
from rota.core.shards.members import Member, Revoking
from rota.core.shards.ranges import by_worker
from rota.core.shards.service import Service


@dataclass(frozen=True, slots=True)
class StoredShard:
    """A row of a shard."""

    shard: int
    epoch: int
    owner: str | None
    target: str | None
    revoked_in: int | None  # the generation


def restored(
    stored: PutService, members: Iterable[Member], shards: Iterable[StoredShard], *, now_ms: int
) -> Service:
    """The service as it was before a restart. No member is blamed for the downtime."""
    known = {member.worker_id: member for member in members}
    service = Service(
        name=stored.name,
        shard_count=stored.shard_count,
        pinned=stored.pinned,
        min_protocol=stored.min_protocol,
        generation=stored.generation,
        _restored_in=stored.generation,
        superseded=stored.superseded,
        members=known,
        awake_since_ms=now_ms,
        # If the clock was set back during the downtime, the first sweep notices.
        swept_ms=max([now_ms, *(member.seen_ms for member in known.values())]),
        # A pending rebalance is forgotten. If there was none, this one moves nothing.
        rebalance_at_ms=now_ms,
        urgent_at_ms=now_ms,
    )
    most = stored.shard_count
    rows = sorted(shards, key=attrgetter("shard"))
    if rows:
        most = max(most, rows[-1].shard + 1)
    service.owners = [None] * most
    service.epochs = [0] * most
    service.targets = [None] * most
    revoking: dict[str, dict[int, list[int]]] = {}  # by owner and generation
    for row in rows:
        service.epochs[row.shard] = row.epoch
        service.owners[row.shard] = row.owner
        service.targets[row.shard] = row.target
        if row.revoked_in is not None and row.owner is not None:
            revoking.setdefault(row.owner, {}).setdefault(row.revoked_in, []).append(row.shard)
    service.owned = by_worker(service.owners)
    service.targeted = by_worker(service.targets)
    for owner, asked in revoking.items():
        service.revoking[owner] = tuple(
            [Revoking(tuple(asked[one]), one, now_ms, 0) for one in sorted(asked)]
        )
    service.find_grantable()
    return service
