"""Whose word does not count?

A worker id is the name of one process at a time. The newest incarnation has it, and what an older
one still says changes nothing. Incarnations that are numbers have an order; of others we know only
which we have seen before.
"""

from collections.abc import Collection

from rota.core.shards.events import BeatMember, RegisterMember
from rota.core.shards.members import OLD_PROTOCOL, Member
from rota.core.shards.service import Service

MOST_REPLACED = 16  # earlier incarnations that a member's row remembers


def why_fenced(service: Service, event: RegisterMember | BeatMember) -> str | None:
    """Why what a worker says is not listened to; None: it is."""
    member = service.members.get(event.worker_id)
    if member is not None and is_same(member, event):
        return member.fenced
    if event.protocol < service.min_protocol:
        return f"the service takes workers of protocol {service.min_protocol} and later"
    if member is None:
        return _why_shut_out(service, event)
    if event.protocol < member.protocol:
        return f"a worker of protocol {member.protocol} has this name"
    if is_past(event.incarnation, newest=member.incarnation, replaced=member.replaced):
        return "a newer incarnation of this worker has registered"
    return None


def is_same(member: Member, event: RegisterMember | BeatMember) -> bool:
    """Whether it is the member as we know it that speaks."""
    return member.incarnation == event.incarnation and member.protocol == event.protocol


def is_past(incarnation: str, *, newest: str, replaced: Collection[str]) -> bool:
    """Whether this incarnation was before the newest one."""
    if incarnation in replaced:
        return True
    if not (_is_number(incarnation) and _is_number(newest)):
        return False
    return int(incarnation) < int(newest)


def _is_number(incarnation: str) -> bool:
    return incarnation.isascii() and incarnation.isdecimal()


def _why_shut_out(service: Service, event: RegisterMember | BeatMember) -> str | None:
    past = service.departed.get(event.worker_id)
    # Without an incarnation to go by, whoever registers is taken for somebody new.
    if past is None or event.protocol == OLD_PROTOCOL or not event.incarnation:
        return None
    if is_past(event.incarnation, newest=past[-1], replaced=past):
        return "this incarnation is no longer a member; register with a new one"
    return None


def is_shut_out(service: Service, event: BeatMember) -> bool:
    """Whether an old client that was put out still lists shards, as if nothing had happened."""
    if event.protocol > OLD_PROTOCOL or not event.holds or event.worker_id in service.members:
        return False
    return event.incarnation in service.departed.get(event.worker_id, ())
