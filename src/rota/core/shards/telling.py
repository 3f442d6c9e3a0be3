"""What is a worker told?"""

from typing import Literal

from msgspec.structs import replace

from rota.core.shards.events import BeatMember, RegisterMember
from rota.core.shards.members import OLD_PROTOCOL, Assignment, ShardPolicy
from rota.core.shards.service import Service


def assignment(
    service: Service, worker_id: str, policy: ShardPolicy, *, seq: int | None = None
) -> Assignment:
    """What a member has now; nothing, and why, if it is fenced or no member at all."""
    known = service.said(worker_id)
    if known is None or known.lease_ms != policy.lease_ms:
        known = _assignment(service, worker_id, policy)
        service.note_said(known)
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
    shards, epochs = service.told(worker_id)
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


def nothing(
    service: Service,
    event: RegisterMember | BeatMember,
    policy: ShardPolicy,
    *,
    status: Literal["ok", "fenced"],
    reason: str,
) -> Assignment:
    """The answer to somebody whose word does not count."""
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
