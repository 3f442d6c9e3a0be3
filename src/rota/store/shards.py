"""Services, their members, and who owns which shard under which epoch.

A service is worked on in memory (`rota.core.shards.service`); the store keeps what is lasting about
it. What a batch has changed is written as it stands at the end, each row once, however often it
changed on the way there.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Raw, Struct

from rota.core.shards.agenda import Agenda
from rota.core.shards.decisions import PutService
from rota.core.shards.members import Member
from rota.core.shards.restoring import StoredShard
from rota.store.database import Row, Transaction

_encode = msgspec.json.Encoder().encode
_decode_member = msgspec.json.Decoder(Member).decode
_decode_counts = msgspec.json.Decoder(tuple[int, ...]).decode
_decode_agenda = msgspec.json.Decoder(Agenda).decode

FEW = 4  # shards in a row that are as quickly written one by one


class ShardRun(NamedTuple):
    """Shards in a row that stand alike, as a rebalance leaves them."""

    first: int
    last: int
    epoch: int
    owner: str | None
    target: str | None
    revoked_in: int | None  # the generation


class ServiceSummary(NamedTuple):
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
    """All that is kept of a service but for its checkpoints."""

    number: int
    service: PutService
    members: list[Member]
    shards: list[StoredShard]
    version: int = 0  # raised with every change, where several coordinators make them
    agenda: Agenda | None = None  # the same


class Checkpoint(Struct, frozen=True, kw_only=True):
    """How far the owner of a shard had come, and under which epoch it said so."""

    service: str
    shard: int
    epoch: int
    saved_at_ms: int
    value: Raw


class Shards:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    # --- reading --------------------------------------------------------------------------------

    def names(self) -> list[str]:
        return [name for (name,) in self._tx.rows("shards.names")]

    def summaries(self) -> list[ServiceSummary]:
        """All services, counted where the rows are: there may be many of a service."""
        return [
            ServiceSummary(
                name, count, bool(pinned), protocol, generation, members, count - owned, moving
            )
            for name, count, pinned, protocol, generation, members, owned, moving in self._tx.rows(
                "shards.summaries"
            )
        ]

    def find(self, name: str) -> StoredService | None:
        rows = self._tx.rows("shards.service", name)
        if not rows:
            return None
        number = rows[0][0]
        members: list[Member] = []
        names: dict[int | None, str] = {}
        for member_number, details, seen_ms in self._tx.rows("shards.members", number):
            member = msgspec.structs.replace(_decode_member(details), seen_ms=seen_ms)
            members.append(member)
            names[member_number] = member.worker_id
        shards = [
            StoredShard(shard, epoch, names.get(owner), names.get(target), revoked_in)
            for shard, epoch, owner, target, revoked_in in self._tx.rows("shards.shards", number)
        ]
        version, agenda = rows[0][7:]
        known = None if agenda is None else _decode_agenda(agenda)
        return StoredService(number, _service(rows[0]), members, shards, version, known)

    def versions(self) -> dict[str, int]:
        """Of every service."""
        return dict(self._tx.rows("shards.versions"))

    def seen_since(self, since_ms: int) -> list[tuple[int, str, int]]:
        """Members that were heard of since: the service's number, the worker, and when."""
        return [
            (number, worker_id, seen_ms)
            for number, worker_id, seen_ms in self._tx.rows("shards.seen_since", since_ms)
        ]

    def has(self, name: str) -> bool:
        return bool(self._tx.rows("shards.number", name))

    def checkpoint(self, name: str, shard: int) -> Checkpoint | None:
        for epoch, saved_at_ms, value in self._tx.rows("shards.checkpoint", name, shard):
            return Checkpoint(
                service=name, shard=shard, epoch=epoch, saved_at_ms=saved_at_ms, value=Raw(value)
            )
        return None

    # --- writing --------------------------------------------------------------------------------

    def put_service(self, service: PutService) -> int:
        """The answer is the number that the service's other rows go by."""
        self._tx.run(
            "shards.put_service",
            service.name,
            service.shard_count,
            service.pinned,
            service.min_protocol,
            service.generation,
            _encode(service.superseded),
        )
        return int(self._tx.rows("shards.number", service.name)[0][0])

    def note_version(self, number: int, version: int, agenda: Agenda) -> None:
        """Something about a service has changed: the others shall notice."""
        self._tx.run("shards.note_version", version, _encode(agenda), number)

    def put_members(self, number: int, members: Sequence[Member]) -> None:
        self._tx.put_many(
            "shards.put_member", [(number, one.worker_id, _encode(one)) for one in members]
        )
        self.note_seen(number, members)

    def note_seen(self, number: int, members: Iterable[Member]) -> None:
        """When these members were last heard of, and nothing else."""
        self._tx.put_many(
            "shards.note_seen", [(one.seen_ms, number, one.worker_id) for one in members]
        )

    def remove_members(self, number: int, worker_ids: Iterable[str]) -> None:
        """Nothing may name them any more: their numbers may be given to others."""
        gone = [(number, worker_id) for worker_id in worker_ids]
        self._tx.put_many("shards.drop_seen", gone)
        self._tx.put_many("shards.drop_member", gone)

    def put_shards(self, number: int, runs: Sequence[ShardRun]) -> None:
        """Quickest in the order of the shards. A run is a statement, however long it is."""
        wanted = {run.owner for run in runs} | {run.target for run in runs} | {None}
        numbers: dict[str | None, int | None] = {None: None}
        if len(wanted) > 1:
            named = [one for one in wanted if one is not None]
            numbers |= dict(self._tx.rows("shards.member_numbers", named, number))
        assert numbers.keys() == wanted, "shards belong to members"
        rows: list[tuple[object, ...]] = []
        for first, last, epoch, owner, target, revoked_in in runs:
            standing = epoch, numbers[owner], numbers[target], revoked_in
            shards = range(first, last + 1)
            if len(shards) <= FEW:
                rows += [(number, shard, *standing) for shard in shards]
            elif self._tx.run("shards.change_run", *standing, number, first, last) < len(shards):
                self._tx.run("shards.put_run", number, *standing, list(shards))
        self._tx.put_many("shards.put_shard", rows)

    def put_checkpoints(self, rows: Iterable[tuple[int, int, int, int, bytes]]) -> None:
        """Of each: the service's number, the shard, the epoch, when it was saved, the value."""
        self._tx.put_many("shards.put_checkpoint", rows)


def _service(row: Row) -> PutService:
    _, name, shard_count, pinned, min_protocol, generation, superseded = row[:7]
    return PutService(
        name=name,
        shard_count=shard_count,
        pinned=bool(pinned),
        min_protocol=min_protocol,
        generation=generation,
        superseded=_decode_counts(superseded),
    )
