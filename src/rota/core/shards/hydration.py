"""Restores a service from its rows, and from what its coordinators know beyond them.

A coordinator alone may forget its soft state: it rebalances again, and members that waited ask
again. Coordinators that share a service must know which rebalance the others put off and which
members they keep waiting, so soft state is stored with the service. When another coordinator has
changed a service, part of the knowledge of this one stays true: its exchange with each member, and
the moment since which it has been listening.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from operator import attrgetter

from msgspec import Struct

from rota.core.shards.decisions import PutService
from rota.core.shards.members import Member, Revoking
from rota.core.shards.ranges import by_worker
from rota.core.shards.service import Service

MOST_DEPARTED = 1_000  # names of former members that are stored for other coordinators


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


# --- soft state ---------------------------------------------------------------------------------


class SoftState(Struct, frozen=True, kw_only=True):
    rebalance_at_ms: int | None = None
    first_join_ms: int | None = None
    urgent_at_ms: int | None = None
    listening_until_ms: int | None = None
    waiting: dict[str, int] = {}  # members whose registration is not answered, and since when
    departed: dict[str, tuple[str, ...]] = {}  # incarnations that are not admitted again


def soft_state_of(service: Service) -> SoftState:
    return SoftState(
        rebalance_at_ms=service.rebalance_at_ms,
        first_join_ms=service.first_join_ms,
        urgent_at_ms=service.urgent_at_ms,
        listening_until_ms=service.listening_until_ms,
        waiting=service.waiting(),
        departed=dict(list(service.departed.items())[-MOST_DEPARTED:]),
    )


def restore_soft_state(service: Service, soft_state: SoftState) -> None:
    """Continue with what other coordinators have put off."""
    service.rebalance_at_ms = soft_state.rebalance_at_ms
    service.first_join_ms = soft_state.first_join_ms
    service.urgent_at_ms = soft_state.urgent_at_ms
    service.listening_until_ms = soft_state.listening_until_ms
    service.departed = dict(soft_state.departed)
    for worker_id in service.members:
        since_ms = soft_state.waiting.get(worker_id)
        if since_ms is not None or worker_id in service.protocol_states:
            service.protocol_states[worker_id].pending_since_ms = since_ms


def carry_over(before: Service, after: Service) -> None:
    """Copy what stays true of a service to `after`, its state as others have changed it."""
    after.awake_since_ms = before.awake_since_ms
    after.swept_ms = before.swept_ms
    for worker_id, member in after.members.items():
        known, state = before.members.get(worker_id), before.protocol_states.get(worker_id)
        if known is not None and state is not None and known.incarnation == member.incarnation:
            after.protocol_states[worker_id] = replace(state)
    for worker_id, several in after.revoking.items():
        earlier = {asked.generation: asked for asked in before.revoking.get(worker_id, ())}
        beats = after.protocol_states[worker_id].beats
        after.revoking[worker_id] = tuple(
            [_carried(earlier.get(asked.generation), asked, beats) for asked in several]
        )
    for worker_id in after.members:
        if _is_assigned_the_same(before, after, worker_id):
            after.note_unchanged(worker_id, before.changed_in(worker_id))


def _carried(known: Revoking | None, asked: Revoking, beats: int) -> Revoking:
    """The revocation, since this coordinator knows of it; heartbeats before that do not answer."""
    if known is None:
        return replace(asked, beats=beats)
    return replace(asked, since_ms=known.since_ms, beats=known.beats)


def push_due(before: Service, after: Service) -> set[str]:
    """The members whose assignment other coordinators have changed."""
    changed = {
        worker_id
        for worker_id, member in after.members.items()
        if not _is_assigned_the_same(before, after, worker_id)
        or (worker_id in before.members and before.members[worker_id].fenced != member.fenced)
    }
    # Registrations that wait here and have been answered elsewhere.
    answered = before.waiting().keys() & after.members.keys() - after.waiting().keys()
    return changed | answered


def _is_assigned_the_same(before: Service, after: Service, worker_id: str) -> bool:
    if before.assigned_to(worker_id) != after.assigned_to(worker_id):
        return False
    return before.revoked_from(worker_id) == after.revoked_from(worker_id)
