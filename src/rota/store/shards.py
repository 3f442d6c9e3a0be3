"""Services, their members, and the owner and epoch of every shard.

A batch changes a service in memory (`rota.core.shards.service`). The store keeps its durable part:
what a batch has changed is written at the end of the batch, each row once.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Raw, Struct

from rota.core.shards.decisions import PutService
from rota.core.shards.hydration import StoredShard
from rota.core.shards.members import Member
from rota.store.database import Transaction, decoding

SHARD_STATE = ("epoch", "owner", "target", "revoked_in")
FEW = 4  # shards of a range that are written one by one as quickly

_encode = msgspec.json.Encoder().encode
_decode_member = msgspec.json.Decoder(Member).decode
_service = decoding(
    PutService, pinned=bool, superseded=msgspec.json.Decoder(tuple[int, ...]).decode
)


class ShardRange(NamedTuple):
    """Shards that follow each other and are equal but for their number."""

    first: int
    last: int
    epoch: int
    owner: str | None
    target: str | None
    revoked_in: int | None  # the generation


class StoredServiceSummary(NamedTuple):
    """A service in numbers."""

    name: str
    shard_count: int
    pinned: bool
    min_protocol: int
    generation: int
    members: int
    unowned: int  # shards that should have an owner and have none
    moving: int  # shards that their owners were asked to give up


class StoredService(NamedTuple):
    """A service without its checkpoints."""

    number: int
    service: PutService
    members: list[Member]
    shards: list[StoredShard]


class StoredCheckpoint(NamedTuple):
    """A checkpoint to be written."""

    service: int  # its number
    shard: int
    epoch: int
    saved_at_ms: int
    value: bytes


class Checkpoint(Struct, frozen=True, kw_only=True):
    """The progress that the owner of a shard saved, and the epoch of that owner."""

    service: str
    shard: int
    epoch: int
    saved_at_ms: int
    value: Raw


_summary = decoding(StoredServiceSummary, pinned=bool)
_checkpoint = decoding(Checkpoint, value=Raw)


class ShardStore:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    # --- reading --------------------------------------------------------------------------------

    def service_names(self) -> list[str]:
        return self._tx.column("shards.service_names")

    def summaries(self) -> list[StoredServiceSummary]:
        """All services. The database counts: a service may have many rows."""
        return self._tx.records(_summary, "shards.summaries")

    def find(self, name: str) -> StoredService | None:
        service = self._tx.record(_service, "shards.service", name=name)
        if service is None:
            return None
        number = self._tx.value("shards.service_number", name=name)
        members: list[Member] = []
        names: dict[int | None, str] = {}
        for member_number, details, seen_ms in self._tx.rows("shards.members", service=number):
            member = msgspec.structs.replace(_decode_member(details), seen_ms=seen_ms)
            members.append(member)
            names[member_number] = member.worker_id
        shards = [
            StoredShard(shard, epoch, names.get(owner), names.get(target), revoked_in)
            for shard, epoch, owner, target, revoked_in in self._tx.rows(
                "shards.shards", service=number
            )
        ]
        return StoredService(number, service, members, shards)

    def exists(self, name: str) -> bool:
        return self._tx.value("shards.service_number", name=name) is not None

    def checkpoint(self, name: str, shard: int) -> Checkpoint | None:
        return self._tx.record(_checkpoint, "shards.checkpoint", service=name, shard=shard)

    # --- writing --------------------------------------------------------------------------------

    def put_service(self, service: PutService) -> int:
        """Write the row of a service; returns the number that its other rows refer to."""
        fields = msgspec.structs.asdict(service) | {"superseded": _encode(service.superseded)}
        self._tx.pipeline("shards.put_service", **fields)
        return int(self._tx.value("shards.service_number", name=service.name))

    def put_members(self, number: int, members: Sequence[Member]) -> None:
        rows = [(number, one.worker_id, _encode(one)) for one in members]
        self._tx.pipeline_many("shards.put_member", ("service", "worker_id", "details"), rows)
        self.record_heartbeats(number, members)

    def record_heartbeats(self, number: int, members: Iterable[Member]) -> None:
        """Write when these members were last seen, and nothing else."""
        rows = [(one.seen_ms, number, one.worker_id) for one in members]
        names = ("seen_ms", "service", "worker_id")
        self._tx.pipeline_many("shards.record_heartbeat", names, rows)

    def remove_members(self, number: int, worker_ids: Iterable[str]) -> None:
        """Delete members. No row may refer to them: the database may reuse their numbers."""
        gone = [(number, worker_id) for worker_id in worker_ids]
        for query in ("shards.drop_seen", "shards.drop_member"):
            self._tx.pipeline_many(query, ("service", "worker_id"), gone)

    def put_shards(self, number: int, ranges: Sequence[ShardRange]) -> None:
        """Write shards, at best in their order. A long range takes one statement."""
        wanted = {one.owner for one in ranges} | {one.target for one in ranges} | {None}
        numbers: dict[str | None, int | None] = {None: None}
        if len(wanted) > 1:
            named = [one for one in wanted if one is not None]
            found = self._tx.rows("shards.member_numbers", worker_ids=named, service=number)
            numbers |= dict(found)
        assert numbers.keys() == wanted, "shards belong to members"
        rows: list[tuple[object, ...]] = []
        for first, last, epoch, owner, target, revoked_in in ranges:
            state = (epoch, numbers[owner], numbers[target], revoked_in)
            shards = range(first, last + 1)
            if len(shards) <= FEW:
                rows += [(number, shard, *state) for shard in shards]
                continue
            values = dict(zip(SHARD_STATE, state, strict=True), service=number)
            changed = self._tx.execute("shards.update_range", first=first, last=last, **values)
            if changed < len(shards):
                self._tx.pipeline("shards.put_range", shards=list(shards), **values)
        self._tx.pipeline_many("shards.put_shard", ("service", "shard", *SHARD_STATE), rows)

    def put_checkpoints(self, checkpoints: Iterable[StoredCheckpoint]) -> None:
        self._tx.pipeline_many("shards.put_checkpoint", StoredCheckpoint._fields, checkpoints)
