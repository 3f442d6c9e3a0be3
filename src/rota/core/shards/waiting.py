"""Which registers are not answered yet?

An old client may read a single answer to its register, and take that for good until it has beaten.
So it is answered when there is something to say: when its first shards are granted, or when it is
clear that it gets none, and after one lease at the latest. It does not beat before it is answered,
so its lease begins with the answer.
"""

from rota.core.shards.events import RegisterMember
from rota.core.shards.members import OLD_PROTOCOL, ShardPolicy
from rota.core.shards.service import Service


def begin(service: Service, event: RegisterMember, *, now_ms: int) -> bool:
    """Whether this register has to wait for its answer."""
    worker_id = event.worker_id
    if event.protocol > OLD_PROTOCOL or service.told(worker_id)[0]:
        return False
    if service.rebalance_at_ms is None and not service.targeted.get(worker_id):
        return False  # there is nothing to wait for
    talk = service.talks[worker_id]
    if talk.pending_since_ms is None:
        talk.pending_since_ms = now_ms
    return True


def answer(service: Service, worker_id: str, *, now_ms: int) -> None:
    """A member is told what it has now, if it has waited for that."""
    talk = service.talks.get(worker_id)
    if talk is not None and talk.pending_since_ms is not None:
        talk.pending_since_ms = None
        service.note_beat(worker_id, now_ms)
        service.tell([worker_id])


def answer_those_left_out(service: Service, *, now_ms: int) -> None:
    """After a rebalance: whoever shall have nothing waits in vain."""
    for worker_id in _waiting(service):
        if not service.targeted.get(worker_id):
            answer(service, worker_id, now_ms=now_ms)


def answer_overdue(service: Service, *, now_ms: int, policy: ShardPolicy) -> None:
    for worker_id, since_ms in _waiting(service).items():
        if now_ms - since_ms >= policy.lease_ms:
            answer(service, worker_id, now_ms=now_ms)


def next_moment_ms(service: Service, policy: ShardPolicy) -> int | None:
    """When the first of those that wait has waited long enough."""
    since_ms = min(_waiting(service).values(), default=None)
    return None if since_ms is None else since_ms + policy.lease_ms


def is_waiting(service: Service, worker_id: str) -> bool:
    talk = service.talks.get(worker_id)
    return talk is not None and talk.pending_since_ms is not None


def _waiting(service: Service) -> dict[str, int]:
    return {
        worker_id: talk.pending_since_ms
        for worker_id, talk in service.talks.items()
        if talk.pending_since_ms is not None
    }
