"""How many shards has a service?

Members name a number with all they say, and may disagree while a new version of a service is rolled
out. So only news counts: a member that names another number than before, or a newcomer that names
one that was never in force. Whoever repeats an old number changes nothing, unless all members do.
An operator may pin the number, and then members are not asked.
"""

from collections.abc import Iterable

from rota.core.limits import MAX_SHARDS
from rota.core.shards import rebalancing
from rota.core.shards.members import Member, ShardPolicy
from rota.core.shards.service import Service


def hear(
    service: Service, named: int, *, before: int | None, now_ms: int, policy: ShardPolicy
) -> None:
    """A member has named a number; before it named another, or is new."""
    assert 0 < named <= MAX_SHARDS

    if named == service.shard_count or _is_pinned(service):
        return
    if before is None:
        is_alone = len(service.members) == 1
        is_news = is_alone or named not in service.superseded
    else:
        is_news = named != before
    if is_news:
        change(service, named, now_ms=now_ms, policy=policy)


def agree(
    service: Service, departed: Iterable[Member], *, now_ms: int, policy: ShardPolicy
) -> None:
    """Those who did not agree with the others may be gone."""
    agreed = _agreed(service)
    if agreed is not None and any(one.reported_count != agreed for one in departed):
        change(service, agreed, now_ms=now_ms, policy=policy)


def unpin(service: Service, *, now_ms: int, policy: ShardPolicy) -> None:
    """Members are asked again."""
    agreed = _agreed(service)
    if agreed is not None:
        change(service, agreed, now_ms=now_ms, policy=policy)


def change(service: Service, shard_count: int, *, now_ms: int, policy: ShardPolicy) -> None:
    assert 0 < shard_count <= MAX_SHARDS

    service.configure(shard_count=shard_count)
    # Nobody else is there to be waited for.
    is_alone = len(service.members) <= 1
    rebalancing.hasten(service, now_ms if is_alone else now_ms + policy.leave_quiet_ms)


def _is_pinned(service: Service) -> bool:
    return service.pinned and service.shard_count > 0


def _agreed(service: Service) -> int | None:
    """The number that all members name, if it is not in force and could be."""
    members = service.members.values()
    named = next((member.reported_count for member in members), service.shard_count)
    if named == service.shard_count or _is_pinned(service):
        return None
    return named if all(member.reported_count == named for member in members) else None
