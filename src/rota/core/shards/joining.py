"""Who becomes a member, and what of a member that comes back?

A worker that is new waits for a rebalance, together with others that come at the same time. One
that comes back under its old name takes over from its earlier incarnation at once: the shards stay
with the name, under higher epochs, and nothing moves to anybody else.
"""

from msgspec.structs import replace

from rota.core.limits import MAX_MEMBERS
from rota.core.shards import counting, rebalancing
from rota.core.shards.events import BeatMember, RegisterMember
from rota.core.shards.fencing import MOST_REPLACED, is_same
from rota.core.shards.members import OLD_PROTOCOL, Member, ShardPolicy
from rota.core.shards.service import Service, Talk
from rota.errors import TooMany


def register(service: Service, event: RegisterMember, *, now_ms: int, policy: ShardPolicy) -> None:
    """A worker wants shards."""
    member = service.members.get(event.worker_id)
    if member is None:
        admit(service, event, now_ms=now_ms, policy=policy)
    elif not is_same(member, event):
        take_over(service, member, event, now_ms=now_ms, policy=policy)
    else:
        service.note_beat(event.worker_id, now_ms)
        if (event.weight, event.max_shards) != (member.weight, member.max_shards):
            # We knew it by its beats alone, which do not say.
            _put(service, service.members[event.worker_id], event)
            rebalancing.await_joins(service, now_ms=now_ms, policy=policy)
        if event.protocol == OLD_PROTOCOL:
            # Perhaps another process, for all we know.
            service.talks[event.worker_id].seq = -1
            name_count(service, event, now_ms=now_ms, policy=policy)
        # Otherwise it is the same message once more, and may be late: beats have come since.


def admit(
    service: Service, event: RegisterMember | BeatMember, *, now_ms: int, policy: ShardPolicy
) -> None:
    """A worker that is no member becomes one."""
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
    )
    _put(service, member, event)
    service.talks[event.worker_id] = Talk()
    counting.hear(service, event.shard_count, before=None, now_ms=now_ms, policy=policy)
    rebalancing.await_joins(service, now_ms=now_ms, policy=policy)


def take_over(
    service: Service,
    before: Member,
    event: RegisterMember | BeatMember,
    *,
    now_ms: int,
    policy: ShardPolicy,
) -> None:
    """A new incarnation has the name, and all that the one before owned, under new epochs.

    That goes for what was asked back as well; the rebalance that follows asks for it again. We may
    have heard two incarnations in the wrong order, and then the one before lives: so whatever moves
    to somebody else was given up by the new one, or its lease has run out.
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
    )
    _put(service, member, event)
    service.talks[worker_id] = Talk()
    service.grant(worker_id, kept)
    name_count(service, event, now_ms=now_ms, policy=policy)
    # It may have another weight, or be let in where the one before was drained.
    rebalancing.await_joins(service, now_ms=now_ms, policy=policy)


def _put(service: Service, member: Member, event: RegisterMember | BeatMember) -> None:
    if isinstance(event, RegisterMember):
        assert event.weight > 0
        member = replace(member, weight=event.weight, max_shards=event.max_shards)
    service.put_member(member)


def name_count(
    service: Service, event: RegisterMember | BeatMember, *, now_ms: int, policy: ShardPolicy
) -> None:
    """A known member says how many shards it thinks there are."""
    member = service.members[event.worker_id]
    before = member.reported_count
    if event.shard_count != before:
        service.put_member(replace(member, reported_count=event.shard_count))
        counting.hear(service, event.shard_count, before=before, now_ms=now_ms, policy=policy)
