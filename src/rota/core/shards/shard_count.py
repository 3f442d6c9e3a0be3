"""The shard count of a service, and which report of it counts.

Members report a number with every message, and may disagree while a new version of a service is
rolled out. So only changes count: a member that reports another number than before, or a new member
that reports one that was never in force. Repeating an old number changes nothing, unless all
members do. An operator may pin the number, and then reports do not count.
"""

from collections.abc import Iterable

from rota.core.limits import MAX_SHARDS
from rota.core.shards import rebalancing
from rota.core.shards.members import Member, ShardPolicy
from rota.core.shards.service import Service


def note_wish(
    service: Service, named: int, *, before: int | None, now_ms: int, policy: ShardPolicy
) -> None:
    """Take up the number that a member reports; `before` is its last report, None for a new one."""
    assert 0 < named <= MAX_SHARDS

    if named == service.shard_count or _is_pinned(service):
        return
    if before is None:
        is_change = len(service.members) == 1 or named not in service.superseded
    else:
        is_change = named != before
    if is_change:
        change(service, named, now_ms=now_ms, policy=policy)


def agree(
    service: Service, departed: Iterable[Member], *, now_ms: int, policy: ShardPolicy
) -> None:
    """Adopt the number of the remaining members, if a departed one had disagreed."""
    agreed = _agreed(service)
    if agreed is not None and any(one.reported_count != agreed for one in departed):
        change(service, agreed, now_ms=now_ms, policy=policy)


def unpin(service: Service, *, now_ms: int, policy: ShardPolicy) -> None:
    """Adopt the number that all members report."""
    agreed = _agreed(service)
    if agreed is not None:
        change(service, agreed, now_ms=now_ms, policy=policy)


def change(service: Service, shard_count: int, *, now_ms: int, policy: ShardPolicy) -> None:
    assert 0 < shard_count <= MAX_SHARDS

    service.configure(shard_count=shard_count)
    # A single member waits for no other.
    is_alone = len(service.members) <= 1
    rebalancing.hasten(service, now_ms if is_alone else now_ms + policy.leave_quiet_ms)


def _is_pinned(service: Service) -> bool:
    return service.pinned and service.shard_count > 0


def _agreed(service: Service) -> int | None:
    """The number that all members report, if it is not in force and could be."""
    members = service.members.values()
    named = next((member.reported_count for member in members), service.shard_count)
    if named == service.shard_count or _is_pinned(service):
        return None
    return named if all(member.reported_count == named for member in members) else None
