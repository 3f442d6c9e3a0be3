"""What does a beat mean: for the lease, for what is to be given up, for somebody we do not know?

Nearly all beats say that nothing has changed, and must cost next to nothing: what a member holds is
looked at only when it was asked to give something up.
"""

from itertools import chain

from msgspec.structs import replace

from rota.core.shards import joining, rebalancing
from rota.core.shards.columns import Shards, without
from rota.core.shards.events import BeatMember
from rota.core.shards.fencing import is_same
from rota.core.shards.members import OLD_PROTOCOL, ShardPolicy
from rota.core.shards.service import Revoking, Service, Talk

BEATS_TO_RELEASE = 2  # of the old protocol: the first may have been sent before the revoke came


def beat(service: Service, event: BeatMember, *, now_ms: int, policy: ShardPolicy) -> None:
    """A worker lives, and says what it holds."""
    worker_id = event.worker_id
    member = service.members.get(worker_id)
    if member is None:
        joining.admit(service, event, now_ms=now_ms, policy=policy)
        if event.holds and len(service.members) == 1:
            # Everything of ours is lost, or they come from another coordinator: the others, too,
            # are heard of within a lease.
            rebalancing.listen(service, now_ms + policy.lease_ms)
        _keep(service, event)
    elif not is_same(member, event):
        joining.take_over(service, member, event, now_ms=now_ms, policy=policy)
    talk = service.talks[worker_id]
    if event.seq is not None:
        if event.seq <= talk.seq:
            return  # heard before, or overtaken by a newer one
        talk.seq = event.seq
    talk.beats += 1
    talk.held = event.holds
    if event.generation is not None:
        talk.generation = event.generation
    service.note_beat(worker_id, now_ms)

    member = service.members[worker_id]
    if event.shard_count != member.reported_count:
        joining.name_count(service, event, now_ms=now_ms, policy=policy)
    if event.draining and not member.draining:
        service.put_member(replace(service.members[worker_id], draining=True))
        rebalancing.hasten(service, now_ms + policy.leave_quiet_ms)
    if worker_id in service.revoking:
        service.release(worker_id, _given_up(service, event, talk))


def _keep(service: Service, event: BeatMember) -> None:
    """Somebody we do not know has worked on while we did not: it keeps what nobody else owns."""
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


def _given_up(service: Service, event: BeatMember, talk: Talk) -> Shards:
    """What the member was asked to give up, knows that, and has no more."""
    asked = service.revoking.get(event.worker_id)
    if asked is None:
        return ()
    heard = [one.shards for one in asked if _has_heard(service, event, talk, one)]
    shards = tuple(sorted(chain(*heard))) if len(heard) > 1 else tuple(*heard)
    holds = set(event.holds)
    return shards if holds.isdisjoint(shards) else without(shards, tuple(sorted(holds)))


def _has_heard(service: Service, event: BeatMember, talk: Talk, asked: Revoking) -> bool:
    """Whether whoever sends this beat knew by then that it was asked."""
    if event.protocol == OLD_PROTOCOL:
        return talk.beats >= asked.beats + BEATS_TO_RELEASE
    # A generation that we have not come to yet is none that it could have seen.
    seen = event.generation
    return seen is not None and asked.generation <= seen <= service.generation
