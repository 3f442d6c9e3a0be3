"""What may an operator decide about a service?"""

from msgspec.structs import replace

from rota.core.limits import MAX_SHARDS
from rota.core.shards import counting, leaving, rebalancing
from rota.core.shards.events import ConfigureService, DrainMember
from rota.core.shards.members import OLD_PROTOCOL, PROTOCOL, Departure, ShardPolicy
from rota.core.shards.service import Service
from rota.errors import MemberNotFound


def drain(service: Service, event: DrainMember, *, now_ms: int, policy: ShardPolicy) -> None:
    """A member shall give up its shards, or may have some again."""
    member = service.members.get(event.worker_id)
    if member is None:
        raise MemberNotFound(service.name, event.worker_id)
    if member.draining != event.draining:
        service.put_member(replace(member, draining=event.draining))
        rebalancing.hasten(service, now_ms + policy.leave_quiet_ms)


def configure(
    service: Service, event: ConfigureService, *, now_ms: int, policy: ShardPolicy
) -> None:
    """Set what is said, and leave the rest as it is."""
    assert event.shard_count is None or 0 < event.shard_count <= MAX_SHARDS
    assert event.min_protocol is None or OLD_PROTOCOL <= event.min_protocol <= PROTOCOL

    was_pinned = service.pinned
    service.configure(pinned=event.pinned, min_protocol=event.min_protocol)
    if event.shard_count is not None:
        if event.shard_count != service.shard_count:
            counting.change(service, event.shard_count, now_ms=now_ms, policy=policy)
    elif was_pinned and not service.pinned:
        counting.unpin(service, now_ms=now_ms, policy=policy)
    _refuse_old(service, now_ms=now_ms, policy=policy)


def _refuse_old(service: Service, *, now_ms: int, policy: ShardPolicy) -> None:
    refused = {
        worker_id: Departure.REFUSED
        for worker_id, member in service.members.items()
        if member.protocol < service.min_protocol
    }
    if refused:
        leaving.part(service, refused, now_ms=now_ms, policy=policy)
        rebalancing.hasten(service, now_ms + policy.leave_quiet_ms)
