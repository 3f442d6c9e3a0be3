"""The assignment that a member is sent, and registrations that wait for theirs.

A client of protocol 1 may read a single answer to its registration, and acts on that until its
first heartbeat. So it is answered when there is something to say: when its first shards are
granted, or when it is clear that it gets none, and after one lease at the latest. It sends no
heartbeat before it is answered, so its lease begins with the answer.
"""

from typing import Literal

from msgspec.structs import replace

from rota.core.shards.commands import BeatMember, RegisterMember
from rota.core.shards.members import OLD_PROTOCOL, Assignment, ShardPolicy
from rota.core.shards.service import Service


def assignment(
    service: Service, worker_id: str, policy: ShardPolicy, *, seq: int | None = None
) -> Assignment:
    """The shards of a member now; none, with the reason, if it is fenced or not a member."""
    known = service.cached_assignment(worker_id)
    if known is None or known.lease_ms != policy.lease_ms:
        known = _assignment(service, worker_id, policy)
        service.cache_assignment(known)
    return known if seq is None else replace(known, seq=seq)


def _assignment(service: Service, worker_id: str, policy: ShardPolicy) -> Assignment:
    member = service.members.get(worker_id)
    if member is None or member.fenced is not None:
        return Assignment(
            service=service.name,
            worker_id=worker_id,
            incarnation="" if member is None else member.incarnation,
            protocol=OLD_PROTOCOL if member is None else member.protocol,
            generation=service.generation,
            lease_ms=policy.lease_ms,
            heartbeat_interval_ms=policy.heartbeat_interval_ms,
            status="reregister" if member is None else "fenced",
            reason="not a member" if member is None else member.fenced,
        )
    shards, epochs = service.assigned_to(worker_id)
    return Assignment(
        service=service.name,
        worker_id=worker_id,
        incarnation=member.incarnation,
        protocol=member.protocol,
        shards=shards,
        epochs=epochs,
        revoking=service.revoked_from(worker_id),
        generation=service.generation,
        changed_in=service.changed_in(worker_id),
        lease_ms=policy.lease_ms,
        heartbeat_interval_ms=policy.heartbeat_interval_ms,
    )


def refusal(
    service: Service,
    event: RegisterMember | BeatMember,
    policy: ShardPolicy,
    *,
    status: Literal["ok", "fenced"],
    reason: str,
) -> Assignment:
    """The answer to a worker whose message is refused: no shards, and the reason."""
    return Assignment(
        service=service.name,
        worker_id=event.worker_id,
        incarnation=event.incarnation,
        protocol=event.protocol,
        generation=service.generation,
        lease_ms=policy.lease_ms,
        heartbeat_interval_ms=policy.heartbeat_interval_ms,
        seq=event.seq,
        status=status,
        reason=reason,
    )


# --- registrations that wait --------------------------------------------------------------------


def begin_waiting(service: Service, event: RegisterMember, *, now_ms: int) -> bool:
    """Whether this registration has to wait for its answer."""
    worker_id = event.worker_id
    if event.protocol > OLD_PROTOCOL or service.assigned_to(worker_id)[0]:
        return False
    if service.rebalance_at_ms is None and not service.targeted.get(worker_id):
        return False  # there is nothing to wait for
    state = service.protocol_states[worker_id]
    if state.pending_since_ms is None:
        state.pending_since_ms = now_ms
    return True


def answer(service: Service, worker_id: str, *, now_ms: int) -> None:
    """Answer the registration of a member, if it waits."""
    state = service.protocol_states.get(worker_id)
    if state is not None and state.pending_since_ms is not None:
        state.pending_since_ms = None
        service.note_beat(worker_id, now_ms)
        service.mark_changed([worker_id])


def answer_those_left_out(service: Service, *, now_ms: int) -> None:
    """Answer members that a rebalance gave no shards."""
    for worker_id in service.waiting():
        if not service.targeted.get(worker_id):
            answer(service, worker_id, now_ms=now_ms)


def answer_overdue(service: Service, *, now_ms: int, policy: ShardPolicy) -> None:
    for worker_id, since_ms in service.waiting().items():
        if now_ms - since_ms >= policy.lease_ms:
            answer(service, worker_id, now_ms=now_ms)


def next_overdue_ms(service: Service, policy: ShardPolicy) -> int | None:
    """When the first waiting registration is overdue; None: none waits."""
    since_ms = min(service.waiting().values(), default=None)
    return None if since_ms is None else since_ms + policy.lease_ms
