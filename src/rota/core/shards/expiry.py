"""Expiry: what the passing of time does to a service.

A member whose heartbeats stop for its lease, and a little longer, is gone. But time may also have
passed because this coordinator was paused, or its clock was set. Then it could read no heartbeats,
and all leases begin again. All members that go in one sweep go together, and one rebalance follows.
"""

import dataclasses
from collections.abc import Iterator

from msgspec.structs import replace

from rota.core.shards import assignments, membership, rebalancing
from rota.core.shards.commands import SweepServices
from rota.core.shards.members import OLD_PROTOCOL, Departure, Member, Revoking, ShardPolicy
from rota.core.shards.ranges import Shards, include
from rota.core.shards.service import Service


def sweep(service: Service, event: SweepServices, *, now_ms: int, policy: ShardPolicy) -> None:
    """Remove expired and stuck members, and answer overdue registrations."""
    if event.deaf_until_ms is not None:
        rebalancing.resume_listening(service, event.deaf_until_ms, policy)
    swept_ms = now_ms if service.swept_ms is None else service.swept_ms
    service.swept_ms = now_ms
    if now_ms < swept_ms:
        _set_back(service, now_ms)
    elif now_ms - swept_ms > policy.sweep_ms + policy.pause_ms:
        service.awake_since_ms = now_ms

    departures = _expired(service, now_ms=now_ms, policy=policy)
    stuck = _stuck(service, now_ms=now_ms, policy=policy)
    for worker_id, shards in stuck.items():
        if worker_id in departures:
            continue
        member = service.members[worker_id]
        if member.protocol > OLD_PROTOCOL:
            # The member reads that it is fenced, or stops when its lease runs out.
            reason = f"kept revoked shards for more than {policy.stuck_ms} ms"
            service.put_member(replace(member, fenced=reason))
            service.mark_changed([worker_id])
            rebalancing.hasten(service, now_ms)
        elif policy.when_stuck == "evict":
            departures[worker_id] = Departure.EVICTED
        else:
            service.release(worker_id, shards, forced=True)
    if departures:
        membership.remove(service, departures, now_ms=now_ms, policy=policy)
        rebalancing.hasten(service, now_ms)
    assignments.answer_overdue(service, now_ms=now_ms, policy=policy)


def next_moment_ms(service: Service, policy: ShardPolicy) -> int | None:
    """When a sweep next has something to do; None: never, in the current state.

    Sweeps run every `sweep_ms` all the same: a late one shows that the coordinator was paused.
    """
    waiting = service.waiting()
    moments = [
        rebalancing.due_ms(service),
        assignments.next_overdue_ms(service, policy),
        *(
            _last_sign_ms(service, member) + policy.expiry_ms
            for member in service.members.values()
            if member.worker_id not in waiting
        ),
    ]
    moments += [
        max(asked.since_ms, service.awake_since_ms) + policy.stuck_ms
        for _, asked in _revoking(service)
    ]
    return min((moment for moment in moments if moment is not None), default=None)


def _last_sign_ms(service: Service, member: Member) -> int:
    return max(member.seen_ms, service.awake_since_ms)


def _expired(service: Service, *, now_ms: int, policy: ShardPolicy) -> dict[str, Departure]:
    latest_ms = now_ms - policy.expiry_ms
    if service.awake_since_ms > latest_ms:
        return {}
    waiting = service.waiting()
    return {
        worker_id: Departure.EXPIRED if member.fenced is None else Departure.EVICTED
        for worker_id, member in service.members.items()
        if member.seen_ms <= latest_ms and worker_id not in waiting
    }


def _stuck(service: Service, *, now_ms: int, policy: ShardPolicy) -> dict[str, Shards]:
    """The shards that members were asked to give up too long ago."""
    stuck: dict[str, Shards] = {}
    for worker_id, asked in _revoking(service):
        if now_ms - max(asked.since_ms, service.awake_since_ms) >= policy.stuck_ms:
            include(stuck, worker_id, asked.shards)
    return stuck


def _revoking(service: Service) -> Iterator[tuple[str, Revoking]]:
    """The revocations of members that are not fenced yet."""
    for worker_id, several in service.revoking.items():
        if service.members[worker_id].fenced is None:
            for asked in several:
                yield worker_id, asked


def _set_back(service: Service, now_ms: int) -> None:
    """Move times that are in the future, since the clock was set back, to now."""
    service.awake_since_ms = min(service.awake_since_ms, now_ms)
    for worker_id, member in service.members.items():
        if member.seen_ms > now_ms:
            service.note_beat(worker_id, now_ms)
    for worker_id, several in service.revoking.items():
        service.revoking[worker_id] = tuple(
            [dataclasses.replace(one, since_ms=min(one.since_ms, now_ms)) for one in several]
        )
    for worker_id, since_ms in service.waiting().items():
        service.protocol_states[worker_id].pending_since_ms = min(since_ms, now_ms)
    if service.rebalance_at_ms is not None:
        rebalancing.hasten(service, now_ms)
