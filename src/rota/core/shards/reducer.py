"""The reducer of one service: decides the effects of a command.

A command first changes the service through its rule. Then the reducer rebalances if that is due,
and grants every unowned shard. So the reply has the state after all of this, and all changes of a
command share one generation.
"""

from typing import assert_never

from msgspec.structs import replace

from rota.core.context import Context
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
from rota.core.shards.decisions import ShardDecision
from rota.core.shards.expiry import next_moment_ms
from rota.core.shards.members import Assignment, ShardPolicy
from rota.core.shards.service import Service

__all__ = ["assignment", "next_moment_ms", "reduce"]


def reduce(
    service: Service, command: ServiceCommand | SweepServices, context: Context
) -> tuple[list[ShardDecision], Assignment | None]:
    """Decide one command and change the service. Only members get a reply.

    The decisions of a command that is refused half-way stay in the service.
    """
    now_ms, policy = context.steady_ms, context.rules.shards
    service.begin()
    if service.swept_ms is None:
        service.swept_ms = now_ms
    refusal = _take_up(service, command, now_ms=now_ms, policy=policy)
    if service.rebalance_at_ms is not None and _is_due(service, command, now_ms):
        rebalancing.rebalance(service, now_ms=now_ms)
    if service.grantable:
        rebalancing.grant_unowned(service, now_ms=now_ms)
    reply = refusal
    if refusal is None and isinstance(command, BeatMember):
        reply = assignments.assignment(service, command.worker_id, policy, seq=command.seq)
    elif refusal is None and isinstance(command, RegisterMember):
        reply = _registered(service, command, now_ms=now_ms, policy=policy)
    return service.take_decisions(), reply


def _registered(
    service: Service, command: RegisterMember, *, now_ms: int, policy: ShardPolicy
) -> Assignment:
    """The answer to a registration, which is pending if it has to wait for shards."""
    told = assignments.assignment(service, command.worker_id, policy, seq=command.seq)
    is_pending = assignments.begin_waiting(service, command, now_ms=now_ms)
    return replace(told, is_pending=True) if is_pending else told


def _is_due(service: Service, command: ServiceCommand | SweepServices, now_ms: int) -> bool:
    if isinstance(command, SweepServices):
        return rebalancing.is_due(service, now_ms)
    return rebalancing.is_urgent(service, now_ms)


def _take_up(
    service: Service, command: ServiceCommand | SweepServices, *, now_ms: int, policy: ShardPolicy
) -> Assignment | None:
    match command:
        case BeatMember() | RegisterMember():
            return _hear(service, command, now_ms=now_ms, policy=policy)
        case LeaveMember():
            membership.leave(service, command, now_ms=now_ms, policy=policy)
        case DrainMember():
            membership.drain(service, command, now_ms=now_ms, policy=policy)
        case ConfigureService():
            membership.configure(service, command, now_ms=now_ms, policy=policy)
        case SweepServices():
            expiry.sweep(service, command, now_ms=now_ms, policy=policy)
        case _:
            assert_never(command)
    return None


def _hear(
    service: Service, command: BeatMember | RegisterMember, *, now_ms: int, policy: ShardPolicy
) -> Assignment | None:
    """Execute a worker's registration or heartbeat; return the refusal, if any."""
    membership.check_owner(service.members.get(command.worker_id), command.by)
    reason = membership.why_fenced(service, command)
    if reason is not None:
        return assignments.refusal(service, command, policy, status="fenced", reason=reason)
    if isinstance(command, RegisterMember):
        membership.register(service, command, now_ms=now_ms, policy=policy)
    elif membership.is_shut_out(service, command):
        reason = "no longer a member; register, or give up everything"
        return assignments.refusal(service, command, policy, status="ok", reason=reason)
    else:
        heartbeats.beat(service, command, now_ms=now_ms, policy=policy)
    return None
