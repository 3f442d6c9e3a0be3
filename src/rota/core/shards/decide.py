"""The one door to a service: what follows from an event?

An event changes the service through its rule; then comes the rebalance, if one is due, and whatever
nobody owns is granted. So the answer says how things stand after all that, and all that an event
changes is told under one generation.
"""

from typing import assert_never

from msgspec.structs import replace

from rota.core.shards import (
    beating,
    fencing,
    granting,
    joining,
    leaving,
    operating,
    rebalancing,
    sweeping,
    telling,
    waiting,
)
from rota.core.shards.events import (
    BeatMember,
    ConfigureService,
    DrainMember,
    LeaveMember,
    RegisterMember,
    ServiceEvent,
    SweepServices,
)
from rota.core.shards.members import Assignment, ShardPolicy
from rota.core.shards.service import Service
from rota.core.shards.sweeping import next_moment_ms
from rota.core.shards.telling import assignment

__all__ = ["assignment", "decide", "next_moment_ms"]


def decide(
    service: Service, event: ServiceEvent | SweepServices, *, now_ms: int, policy: ShardPolicy
) -> Assignment | None:
    """Take up one event; what it changes is in the service. Members are answered."""
    service.begin()
    if service.swept_ms is None:
        service.swept_ms = now_ms
    refusal = _take_up(service, event, now_ms=now_ms, policy=policy)
    if service.rebalance_at_ms is not None and _is_due(service, event, now_ms):
        rebalancing.rebalance(service, now_ms=now_ms)
    if service.grantable:
        granting.grant(service, now_ms=now_ms)
    if refusal is not None:
        return refusal
    if isinstance(event, BeatMember):
        return telling.assignment(service, event.worker_id, policy, seq=event.seq)
    if isinstance(event, RegisterMember):
        told = telling.assignment(service, event.worker_id, policy, seq=event.seq)
        is_pending = waiting.begin(service, event, now_ms=now_ms)
        return replace(told, is_pending=True) if is_pending else told
    return None


def _is_due(service: Service, event: ServiceEvent | SweepServices, now_ms: int) -> bool:
    if isinstance(event, SweepServices):
        return rebalancing.is_due(service, now_ms)
    return rebalancing.is_urgent(service, now_ms)


def _take_up(
    service: Service, event: ServiceEvent | SweepServices, *, now_ms: int, policy: ShardPolicy
) -> Assignment | None:
    match event:
        case BeatMember() | RegisterMember():
            return _hear(service, event, now_ms=now_ms, policy=policy)
        case LeaveMember():
            leaving.leave(service, event, now_ms=now_ms, policy=policy)
        case DrainMember():
            operating.drain(service, event, now_ms=now_ms, policy=policy)
        case ConfigureService():
            operating.configure(service, event, now_ms=now_ms, policy=policy)
        case SweepServices():
            sweeping.sweep(service, event, now_ms=now_ms, policy=policy)
        case _:
            assert_never(event)
    return None


def _hear(
    service: Service, event: BeatMember | RegisterMember, *, now_ms: int, policy: ShardPolicy
) -> Assignment | None:
    """Listen to a worker, or say why not."""
    reason = fencing.why_fenced(service, event)
    if reason is not None:
        return telling.nothing(service, event, policy, status="fenced", reason=reason)
    if isinstance(event, RegisterMember):
        joining.register(service, event, now_ms=now_ms, policy=policy)
    elif fencing.is_shut_out(service, event):
        reason = "no longer a member; register, or give up everything"
        return telling.nothing(service, event, policy, status="ok", reason=reason)
    else:
        beating.beat(service, event, now_ms=now_ms, policy=policy)
    return None
