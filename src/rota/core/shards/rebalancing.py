"""Whose shall each shard be from now on, and when is that asked?

A rebalance starts from the targets that there are, not from the owners: what is on its way arrives.
It is not done at once after each change. Workers come in crowds, so we wait until no more come, for
so long at the most; when somebody leaves or drains, shards wait, and we hardly do.

That no more come is found by time passing, never by one that does come: it may be the first of many
that we are about to hear. And it is found only while we listen. Who spoke while we were busy is
heard after that, so then the wait begins anew.
"""

from itertools import chain

from rota.core.shards import waiting
from rota.core.shards.allocation import Claim, allocate
from rota.core.shards.columns import Shards, include, is_all, picked, place_of, without
from rota.core.shards.members import ShardPolicy
from rota.core.shards.service import Service


def await_joins(service: Service, *, now_ms: int, policy: ShardPolicy) -> None:
    """Somebody joined: a rebalance is due when nobody has followed for a while."""
    if len(service.members) == 1:
        hasten(service, now_ms)
        return
    if service.first_join_ms is None:
        service.first_join_ms = now_ms
    due_ms = min(service.first_join_ms + policy.join_most_ms, now_ms + policy.join_quiet_ms)
    if service.urgent_at_ms is not None:
        due_ms = min(due_ms, service.urgent_at_ms)
    service.rebalance_at_ms = due_ms


def hear_again(service: Service, since_ms: int, policy: ShardPolicy) -> None:
    """We could hear nobody until then: it is not known whether more have joined."""
    if service.first_join_ms is None or service.rebalance_at_ms is None:
        return
    due_ms = min(service.first_join_ms + policy.join_most_ms, since_ms + policy.join_quiet_ms)
    if service.urgent_at_ms is not None:
        due_ms = min(due_ms, service.urgent_at_ms)
    service.rebalance_at_ms = max(service.rebalance_at_ms, due_ms)


def hasten(service: Service, due_ms: int) -> None:
    """A rebalance is due by then, whoever joins."""
    if service.urgent_at_ms is None or due_ms < service.urgent_at_ms:
        service.urgent_at_ms = due_ms
    if service.rebalance_at_ms is None or due_ms < service.rebalance_at_ms:
        service.rebalance_at_ms = due_ms


def listen(service: Service, until_ms: int) -> None:
    """Members are here that we did not know, so there may be more: hear what they hold first."""
    service.listening_until_ms = until_ms


def due_ms(service: Service) -> int | None:
    """When the next rebalance is; None: there is nothing to be done."""
    if service.rebalance_at_ms is None or service.listening_until_ms is None:
        return service.rebalance_at_ms
    return max(service.rebalance_at_ms, service.listening_until_ms)


def is_due(service: Service, now_ms: int) -> bool:
    """Whether time has come for it, as a sweep asks."""
    at_ms = due_ms(service)
    return at_ms is not None and at_ms <= now_ms


def is_urgent(service: Service, now_ms: int) -> bool:
    """Whether it must not wait for a sweep."""
    at_ms = service.urgent_at_ms
    return at_ms is not None and at_ms <= now_ms and is_due(service, now_ms)


def rebalance(service: Service, *, now_ms: int) -> None:
    """Compute all targets anew, and ask back what is no longer its owner's to keep."""
    service.rebalance_at_ms = service.first_join_ms = service.urgent_at_ms = None
    service.listening_until_ms = None
    losses = _beyond_the_count(service)
    _take_from(service, losses)
    fresh = service.untargeted

    claims, retired = _claims(service)
    free = chain(fresh, *retired.values())
    plan = allocate(service.shard_count, claims, service.targeted, free)
    _take_from(service, retired)
    _take_from(service, plan.losses)
    for worker_id, shards in plan.gains.items():
        service.set_targets(worker_id, shards)
    losses = _joined(_joined(losses, retired), plan.losses)
    _ask_back(service, losses, now_ms=now_ms)

    moved = sum(map(len, losses.values()))
    left_over = set(plan.left_over)  # some of it fresh, some taken from somebody
    placed = len(fresh) - (len(left_over.intersection(fresh)) if left_over else 0)
    if moved or placed:
        service.note_rebalanced(moved=moved, placed=placed)
    waiting.answer_those_left_out(service, now_ms=now_ms)


def _take_from(service: Service, losses: dict[str, Shards]) -> None:
    for shards in losses.values():
        service.set_targets(None, shards)


def _beyond_the_count(service: Service) -> dict[str, Shards]:
    """What members shall still have of shards that are no longer wanted."""
    beyond = service.targets[service.shard_count :]
    losses: dict[str, list[int]] = {}
    if beyond.count(None) < len(beyond):
        for shard, worker_id in enumerate(beyond, start=service.shard_count):
            if worker_id is not None:
                losses.setdefault(worker_id, []).append(shard)
    return {worker_id: tuple(shards) for worker_id, shards in losses.items()}


def _claims(service: Service) -> tuple[list[Claim], dict[str, Shards]]:
    """Who may be given shards, and what those shall have no more who may not."""
    claims: list[Claim] = []
    retired: dict[str, Shards] = {}
    for worker_id, member in sorted(service.members.items()):
        if not member.draining and member.fenced is None:
            claims.append(Claim(worker_id, member.weight, member.max_shards))
        elif service.targeted.get(worker_id):
            retired[worker_id] = service.targeted[worker_id]
    return claims, retired


def _joined(some: dict[str, Shards], more: dict[str, Shards]) -> dict[str, Shards]:
    joined = {**some}
    for worker_id, shards in more.items():
        include(joined, worker_id, shards)
    return joined


def _ask_back(service: Service, losses: dict[str, Shards], *, now_ms: int) -> None:
    """Revoke what these own and shall not have; what is being revoked already stays so."""
    for worker_id, lost in sorted(losses.items()):
        service.revoke(worker_id, _kept(service, worker_id, lost), now_ms=now_ms)


def _kept(service: Service, worker_id: str, shards: Shards) -> Shards:
    """Those of the shards that a worker owns, and was not asked for."""
    owners, revoked = service.owners, service.revoked_from(worker_id)
    if not is_all(picked(owners, place_of(shards)), worker_id):
        shards = tuple([one for one in shards if owners[one] == worker_id])
    return without(shards, revoked) if revoked else shards
