"""What happens when members go: in good order, in silence, or because we will not have them?"""

from collections.abc import Mapping

from rota.core.shards import counting, rebalancing
from rota.core.shards.events import LeaveMember
from rota.core.shards.members import Departure, ShardPolicy
from rota.core.shards.service import Service


def leave(service: Service, event: LeaveMember, *, now_ms: int, policy: ShardPolicy) -> None:
    """A member says that it goes. What an earlier incarnation says comes too late."""
    member = service.members.get(event.worker_id)
    if member is None or event.incarnation not in (None, member.incarnation):
        return
    part(service, {event.worker_id: Departure.LEFT}, now_ms=now_ms, policy=policy)
    rebalancing.hasten(service, now_ms + policy.leave_quiet_ms)


def part(
    service: Service, departures: Mapping[str, Departure], *, now_ms: int, policy: ShardPolicy
) -> None:
    """These are members no more; what they owned is nobody's until the next rebalance."""
    departed = [service.members[worker_id] for worker_id in departures]
    for worker_id, reason in departures.items():
        service.remove_member(worker_id, reason)
    counting.agree(service, departed, now_ms=now_ms, policy=policy)
