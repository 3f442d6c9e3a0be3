"""Membership of a service: registration, fencing, leaving, and what operators change.

A new worker waits for a rebalance, together with others that come at the same time. A worker that
comes back under its old name takes over from its earlier incarnation at once: the shards stay with
the name, under higher epochs, and no other member is affected.

A worker id names one process at a time. The newest incarnation has it, and messages of an older one
change nothing. Incarnations that are numbers have an order; of others only those seen are known.
"""

from collections.abc import Collection, Mapping

from msgspec.structs import replace

from rota.core import access
from rota.core.access import Caller
from rota.core.limits import MAX_MEMBERS, MAX_SHARDS
from rota.core.shards import rebalancing, shard_count
from rota.core.shards.commands import (
    BeatMember,
    ConfigureService,
    DrainMember,
    LeaveMember,
    RegisterMember,
)
from rota.core.shards.members import (
    OLD_PROTOCOL,
    PROTOCOL,
    Departure,
    Member,
    ProtocolState,
    ShardPolicy,
)
from rota.core.shards.service import Service
from rota.errors import Forbidden, MemberNotFound, TooMany

MOST_REPLACED = 16  # earlier incarnations that a member's row keeps


# --- joining ------------------------------------------------------------------------------------


def register(service: Service, event: RegisterMember, *, now_ms: int, policy: ShardPolicy) -> None:
    """Make a worker a member, renew it, or let its new incarnation take over."""
    member = service.members.get(event.worker_id)
    if member is None:
        admit(service, event, now_ms=now_ms, policy=policy)
    elif not is_current(member, event):
        take_over(service, member, event, now_ms=now_ms, policy=policy)
    else:
        service.note_beat(event.worker_id, now_ms)
        if member.owner is None:
            owned = replace(service.members[event.worker_id], owner=access.owner_of(event.by))
            service.put_member(owned)
        if (event.weight, event.max_shards) != (member.weight, member.max_shards):
            # Its heartbeats, by which it was admitted, do not carry these.
            _put(service, service.members[event.worker_id], event)
            rebalancing.await_joins(service, now_ms=now_ms, policy=policy)
        if event.protocol == OLD_PROTOCOL:
            # Without incarnations this may be another process.
            service.protocol_states[event.worker_id].seq = -1
            note_count(service, event, now_ms=now_ms, policy=policy)
        # Protocol 2: a repeated message, perhaps older than the heartbeats that came since.


def admit(
    service: Service, event: RegisterMember | BeatMember, *, now_ms: int, policy: ShardPolicy
) -> None:
    """Make a worker that is no member one."""
    if len(service.members) >= MAX_MEMBERS:
        raise TooMany(
            f"service {service.name!r} has {MAX_MEMBERS} members already",
            service=service.name,
            most=MAX_MEMBERS,
        )
    member = Member(
        worker_id=event.worker_id,
        protocol=event.protocol,
        incarnation=event.incarnation,
        replaced=service.departed.pop(event.worker_id, ()),
        reported_count=event.shard_count,
        joined_ms=now_ms,
        seen_ms=now_ms,
        owner=access.owner_of(event.by),
    )
    _put(service, member, event)
    service.protocol_states[event.worker_id] = ProtocolState()
    shard_count.note_wish(service, event.shard_count, before=None, now_ms=now_ms, policy=policy)
    rebalancing.await_joins(service, now_ms=now_ms, policy=policy)


def take_over(
    service: Service,
    before: Member,
    event: RegisterMember | BeatMember,
    *,
    now_ms: int,
    policy: ShardPolicy,
) -> None:
    """Give the name, and all shards of the earlier incarnation, to the new one under new epochs.

    That includes shards being revoked; the rebalance that follows revokes them again. Messages of
    two incarnations may arrive in the wrong order, and then the earlier one lives: so a shard moves
    to another member only after the new one has released it, or its lease has run out.
    """
    worker_id = event.worker_id
    owned = service.owned.get(worker_id, ())
    kept = tuple([shard for shard in owned if shard < service.shard_count])
    service.release(worker_id, owned)
    foreign = tuple([one for one in kept if service.targets[one] != worker_id])
    service.set_targets(worker_id, foreign)
    member = replace(
        before,
        protocol=event.protocol,
        incarnation=event.incarnation,
        replaced=(*before.replaced, before.incarnation)[-MOST_REPLACED:],
        draining=False,
        fenced=None,
        joined_ms=now_ms,
        seen_ms=now_ms,
        owner=access.owner_of(event.by),
    )
    _put(service, member, event)
    service.protocol_states[worker_id] = ProtocolState()
    service.grant(worker_id, kept)
    note_count(service, event, now_ms=now_ms, policy=policy)
    # It may have another weight, or follow an incarnation that was draining.
    rebalancing.await_joins(service, now_ms=now_ms, policy=policy)


def _put(service: Service, member: Member, event: RegisterMember | BeatMember) -> None:
    if isinstance(event, RegisterMember):
        assert event.weight > 0
        member = replace(member, weight=event.weight, max_shards=event.max_shards)
    service.put_member(member)


def note_count(
    service: Service, event: RegisterMember | BeatMember, *, now_ms: int, policy: ShardPolicy
) -> None:
    """Note the shard count that a known member reports."""
    member = service.members[event.worker_id]
    before = member.reported_count
    if event.shard_count != before:
        service.put_member(replace(member, reported_count=event.shard_count))
        shard_count.note_wish(
            service, event.shard_count, before=before, now_ms=now_ms, policy=policy
        )


# --- fencing ------------------------------------------------------------------------------------


def check_owner(member: Member | None, by: Caller | None) -> None:
    """Refuse a caller that speaks for a member which another binding registered."""
    if by is None or member is None or member.owner is None:
        return
    if not access.is_owner(by, member.owner):
        raise Forbidden(
            f"member {member.worker_id!r} was registered under another binding; use a token or a "
            "key with that binding, or another worker id",
            worker_id=member.worker_id,
        )


def why_fenced(service: Service, event: RegisterMember | BeatMember) -> str | None:
    """The reason to refuse a worker's message; None: accept it."""
    member = service.members.get(event.worker_id)
    if member is not None and is_current(member, event):
        return member.fenced
    if event.protocol < service.min_protocol:
        return f"the service takes workers of protocol {service.min_protocol} and later"
    if member is None:
        return _why_shut_out(service, event)
    if event.protocol < member.protocol:
        return f"a worker of protocol {member.protocol} has this name"
    if is_past(event.incarnation, newest=member.incarnation, replaced=member.replaced):
        return "a newer incarnation of this worker has registered"
    return None


def is_current(member: Member, event: RegisterMember | BeatMember) -> bool:
    """Whether the message is of the member's current incarnation."""
    return member.incarnation == event.incarnation and member.protocol == event.protocol


def is_past(incarnation: str, *, newest: str, replaced: Collection[str]) -> bool:
    """Whether an incarnation came before the newest one."""
    if incarnation in replaced:
        return True
    if not (_is_number(incarnation) and _is_number(newest)):
        return False
    return int(incarnation) < int(newest)


def _is_number(incarnation: str) -> bool:
    return incarnation.isascii() and incarnation.isdecimal()


def _why_shut_out(service: Service, event: RegisterMember | BeatMember) -> str | None:
    past = service.departed.get(event.worker_id)
    # A worker without an incarnation counts as a new process.
    if past is None or event.protocol == OLD_PROTOCOL or not event.incarnation:
        return None
    if is_past(event.incarnation, newest=past[-1], replaced=past):
        return "this incarnation is no longer a member; register with a new one"
    return None


def is_shut_out(service: Service, event: BeatMember) -> bool:
    """Whether an evicted client of protocol 1 still lists shards."""
    if event.protocol > OLD_PROTOCOL or not event.holds or event.worker_id in service.members:
        return False
    return event.incarnation in service.departed.get(event.worker_id, ())


# --- leaving ------------------------------------------------------------------------------------


def leave(service: Service, event: LeaveMember, *, now_ms: int, policy: ShardPolicy) -> None:
    """Remove a member that says so. The word of an earlier incarnation comes too late."""
    member = service.members.get(event.worker_id)
    check_owner(member, event.by)
    if member is None or event.incarnation not in (None, member.incarnation):
        return
    remove(service, {event.worker_id: Departure.LEFT}, now_ms=now_ms, policy=policy)
    rebalancing.hasten(service, now_ms + policy.leave_quiet_ms)


def remove(
    service: Service, departures: Mapping[str, Departure], *, now_ms: int, policy: ShardPolicy
) -> None:
    """Remove members. No one owns their shards until the next rebalance."""
    departed = [service.members[worker_id] for worker_id in departures]
    for worker_id, reason in departures.items():
        service.remove_member(worker_id, reason)
    shard_count.agree(service, departed, now_ms=now_ms, policy=policy)


# --- operators ----------------------------------------------------------------------------------


def drain(service: Service, event: DrainMember, *, now_ms: int, policy: ShardPolicy) -> None:
    """Move the shards of a member away, or let it have some again."""
    member = service.members.get(event.worker_id)
    if member is None:
        raise MemberNotFound(service.name, event.worker_id)
    if member.draining != event.draining:
        service.put_member(replace(member, draining=event.draining))
        rebalancing.hasten(service, now_ms + policy.leave_quiet_ms)


def configure(
    service: Service, event: ConfigureService, *, now_ms: int, policy: ShardPolicy
) -> None:
    """Set the fields that are given, and remove the members that are no longer accepted."""
    assert event.shard_count is None or 0 < event.shard_count <= MAX_SHARDS
    assert event.min_protocol is None or OLD_PROTOCOL <= event.min_protocol <= PROTOCOL

    was_pinned = service.pinned
    service.configure(pinned=event.pinned, min_protocol=event.min_protocol)
    if event.shard_count is not None:
        if event.shard_count != service.shard_count:
            shard_count.change(service, event.shard_count, now_ms=now_ms, policy=policy)
    elif was_pinned and not service.pinned:
        shard_count.unpin(service, now_ms=now_ms, policy=policy)
    refused = {
        worker_id: Departure.REFUSED
        for worker_id, member in service.members.items()
        if member.protocol < service.min_protocol
    }
    if refused:
        remove(service, refused, now_ms=now_ms, policy=policy)
        rebalancing.hasten(service, now_ms + policy.leave_quiet_ms)
