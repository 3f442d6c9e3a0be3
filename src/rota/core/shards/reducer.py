"""The reducer of one service: decides the effects of a command.

A command first changes the service through its rule. Then the reducer rebalances if that is due,
and grants every unowned shard. So the reply has the state after all of this, and all changes of a
command share one generation.
"""

from typing import assert_never

from msgspec.structs import replace

from rota.core.shards import assignments, expiry, heartbeats, membership, rebalancing
from rota.core.shards.assignments import assignment
from rota.core.shards.commands import (
    BeatMember,
    ConfigureService,
    DrainMember,
    LeaveMember,
    RegisterMember,
    ServiceCommand,
    SweepServices,
)
from rota.core.shards.expiry import next_moment_ms
from rota.core.shards.members import Assignment, ShardPolicy
from rota.core.shards.service import Service

__all__ = ["assignment", "next_moment_ms", "reduce"]


def reduce(
    service: Service, event: ServiceCommand | SweepServices, *, now_ms: int, policy: ShardPolicy
) -> Assignment | None:
    """Decide one command and record its changes in the service. Only members get a reply."""
    service.begin()
    if service.swept_ms is None:
        service.swept_ms = now_ms
    refusal = _take_up(service, event, now_ms=now_ms, policy=policy)
    if service.rebalance_at_ms is not None and _is_due(service, event, now_ms):
        rebalancing.rebalance(service, now_ms=now_ms)
    if service.grantable:
        rebalancing.grant_unowned(service, now_ms=now_ms)
    if refusal is not None:
        return refusal
    if isinstance(event, BeatMember):
        return assignments.assignment(service, event.worker_id, policy, seq=event.seq)
    if isinstance(event, RegisterMember):
        told = assignments.assignment(service, event.worker_id, policy, seq=event.seq)
        is_pending = assignments.begin_waiting(service, event, now_ms=now_ms)
        return replace(told, is_pending=True) if is_pending else told
    return None


def _is_due(service: Service, event: ServiceCommand | SweepServices, now_ms: int) -> bool:
    if isinstance(event, SweepServices):
        return rebalancing.is_due(service, now_ms)
    return rebalancing.is_urgent(service, now_ms)


def _take_up(
    service: Service, event: ServiceCommand | SweepServices, *, now_ms: int, policy: ShardPolicy
) -> Assignment | None:
    match event:
        case BeatMember() | RegisterMember():
            return _hear(service, event, now_ms=now_ms, policy=policy)
        case LeaveMember():
            membership.leave(service, event, now_ms=now_ms, policy=policy)
        case DrainMember():
            membership.drain(service, event, now_ms=now_ms, policy=policy)
        case ConfigureService():
            membership.configure(service, event, now_ms=now_ms, policy=policy)
        case SweepServices():
            expiry.sweep(service, event, now_ms=now_ms, policy=policy)
        case _:
            assert_never(event)
    return None


def _hear(
    service: Service, event: BeatMember | RegisterMember, *, now_ms: int, policy: ShardPolicy
) -> Assignment | None:
    """Execute a worker's registration or heartbeat; return the refusal, if any."""
    membership.check_owner(service.members.get(event.worker_id), event.by)
    reason = membership.why_fenced(service, event)
    if reason is not None:
        return assignments.refusal(service, event, policy, status="fenced", reason=reason)
    if isinstance(event, RegisterMember):
        membership.register(service, event, now_ms=now_ms, policy=policy)
    elif membership.is_shut_out(service, event):
        reason = "no longer a member; register, or give up everything"
        return assignments.refusal(service, event, policy, status="ok", reason=reason)
    else:
        heartbeats.beat(service, event, now_ms=now_ms, policy=policy)
    return None
