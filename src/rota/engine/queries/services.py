"""Reads of services: their shards, members and checkpoints."""

from msgspec import Struct

from rota.core.shards.members import ShardPolicy
from rota.core.workers import model
from rota.core.workers.model import Health
from rota.engine.clock import Clock
from rota.engine.queries.reader import StoreReader
from rota.store.database import Transaction
from rota.store.shards import Checkpoint, ShardStore, StoredService, StoredServiceSummary

__all__ = ["MemberStatus", "ServiceQueries", "ServiceStatus", "StoredServiceSummary"]


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


class ServiceQueries:
    def __init__(
        self, reader: StoreReader, *, steady_clock: Clock, shard_policy: ShardPolicy
    ) -> None:
        self._read = reader.read
        self._steady_clock = steady_clock
        self._shard_policy = shard_policy
        self._started_at_ms = steady_clock.now_ms()

    def reset_start(self) -> None:
        """Set the time of the start again, when the clock of a shared store has been read."""
        self._started_at_ms = self._steady_clock.now_ms()

    async def all(self) -> list[StoredServiceSummary]:
        return await self._read(lambda tx: ShardStore(tx).summaries())

    async def by_name(self, name: str) -> ServiceStatus | None:
        def body(tx: Transaction) -> ServiceStatus | None:
            stored = ShardStore(tx).find(name)
            if stored is None:
                return None
            return _status_of(
                stored,
                self._shard_policy,
                now_ms=self._steady_clock.now_ms(),
                started_at_ms=self._started_at_ms,
            )

        return await self._read(body)

    async def exists(self, name: str) -> bool:
        return await self._read(lambda tx: ShardStore(tx).exists(name))

    async def checkpoint(self, name: str, shard: int) -> Checkpoint | None:
        """Return the last checkpoint that an owner of the shard has saved."""
        return await self._read(lambda tx: ShardStore(tx).checkpoint(name, shard))


def _status_of(
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
                    interval_ms=policy.heartbeat_interval_ms,
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
