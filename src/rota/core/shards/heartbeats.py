"""A member's heartbeat: renews its lease, releases revoked shards, admits unknown members.

Nearly all heartbeats report no change and must cost next to nothing: the shards that one lists are
read only when the member was asked to give some up.
"""

from itertools import chain

from msgspec.structs import replace

from rota.core.shards import membership, rebalancing
from rota.core.shards.commands import BeatMember
from rota.core.shards.members import OLD_PROTOCOL, ProtocolState, Revoking, ShardPolicy
from rota.core.shards.ranges import Shards, without
from rota.core.shards.service import Service

BEATS_TO_RELEASE = 2  # of protocol 1: the first may have been sent before the revocation arrived


def beat(service: Service, event: BeatMember, *, now_ms: int, policy: ShardPolicy) -> None:
    """Take up a heartbeat, which lists the shards that the worker holds."""
    worker_id = event.worker_id
    member = service.members.get(worker_id)
    if member is None:
        membership.admit(service, event, now_ms=now_ms, policy=policy)
        if event.holds and len(service.members) == 1:
            # This store is new, or the members come from another coordinator. The heartbeats of
            # the others arrive within a lease.
            rebalancing.listen(service, now_ms + policy.lease_ms)
        _keep(service, event)
    elif not membership.is_current(member, event):
        membership.take_over(service, member, event, now_ms=now_ms, policy=policy)
    state = service.protocol_states[worker_id]
    if event.seq is not None:
        if event.seq <= state.seq:
            return  # repeated, or overtaken by a newer one
        state.seq = event.seq
    state.beats += 1
    state.held = event.holds
    if event.generation is not None:
        state.generation = event.generation
    service.note_beat(worker_id, now_ms)

    member = service.members[worker_id]
    if event.shard_count != member.reported_count:
        membership.note_count(service, event, now_ms=now_ms, policy=policy)
    if event.draining and not member.draining:
        service.put_member(replace(service.members[worker_id], draining=True))
        rebalancing.hasten(service, now_ms + policy.leave_quiet_ms)
    if worker_id in service.revoking:
        service.release(worker_id, _given_up(service, event, state))


def _keep(service: Service, event: BeatMember) -> None:
    """Let an unknown member, which worked on during a downtime, keep what no other member owns."""
    known = range(service.shard_count)
    kept = tuple(
        [
            shard
            for shard in sorted(set(event.holds))
            if shard in known and service.owners[shard] is None
        ]
    )
    service.set_targets(event.worker_id, kept)
    service.grant(event.worker_id, kept)


def _given_up(service: Service, event: BeatMember, state: ProtocolState) -> Shards:
    """The shards that the member was asked to give up, knows of, and no longer lists."""
    asked = service.revoking.get(event.worker_id)
    if asked is None:
        return ()
    heard = [one.shards for one in asked if _has_heard(service, event, state, one)]
    shards = tuple(sorted(chain(*heard))) if len(heard) > 1 else tuple(*heard)
    holds = set(event.holds)
    return shards if holds.isdisjoint(shards) else without(shards, tuple(sorted(holds)))


def _has_heard(service: Service, event: BeatMember, state: ProtocolState, asked: Revoking) -> bool:
    """Whether the member knew of the revocation when it sent this heartbeat."""
    if event.protocol == OLD_PROTOCOL:
        return state.beats >= asked.beats + BEATS_TO_RELEASE
    # The member cannot have seen a generation that does not exist yet.
    seen = event.generation
    return seen is not None and asked.generation <= seen <= service.generation
