"""Rebalancing: when targets are computed, what is revoked to reach them, and what is granted.

A rebalance starts from the current targets, not from the owners: shards on their way arrive. It
does not follow each change at once. Workers join in crowds, so it waits until no more join, up to a
limit. After a leave or a drain, shards have no owner, so it hardly waits.

Only passing time shows that no more join, never another join: it may be the first of many whose
messages are still to be read. And time counts only while the coordinator reads messages. Those that
came while it was busy are read afterwards, so the wait then begins again.
"""

from itertools import chain

from rota.core.shards import assignments
from rota.core.shards.allocation import MemberShare, allocate
from rota.core.shards.members import ShardPolicy
from rota.core.shards.ranges import Shards, include, is_all, picked, place_of, without
from rota.core.shards.service import Service


def await_joins(service: Service, *, now_ms: int, policy: ShardPolicy) -> None:
    """Plan the rebalance after a join, for when no other join has followed for a while."""
    if len(service.members) == 1:
        hasten(service, now_ms)
        return
    if service.first_join_ms is None:
        service.first_join_ms = now_ms
    due_ms = min(service.first_join_ms + policy.join_most_ms, now_ms + policy.join_quiet_ms)
    if service.urgent_at_ms is not None:
        due_ms = min(due_ms, service.urgent_at_ms)
    service.rebalance_at_ms = due_ms


def resume_listening(service: Service, since_ms: int, policy: ShardPolicy) -> None:
    """Wait for joins again: the coordinator read no messages until `since_ms`."""
    if service.first_join_ms is None or service.rebalance_at_ms is None:
        return
    due_ms = min(service.first_join_ms + policy.join_most_ms, since_ms + policy.join_quiet_ms)
    if service.urgent_at_ms is not None:
        due_ms = min(due_ms, service.urgent_at_ms)
    service.rebalance_at_ms = max(service.rebalance_at_ms, due_ms)


def hasten(service: Service, due_ms: int) -> None:
    """Have a rebalance by then, however many members join."""
    if service.urgent_at_ms is None or due_ms < service.urgent_at_ms:
        service.urgent_at_ms = due_ms
    if service.rebalance_at_ms is None or due_ms < service.rebalance_at_ms:
        service.rebalance_at_ms = due_ms


def listen(service: Service, until_ms: int) -> None:
    """Put a rebalance off until unknown members have reported the shards that they hold."""
    service.listening_until_ms = until_ms


def due_ms(service: Service) -> int | None:
    """When the next rebalance is due; None: none is planned."""
    if service.rebalance_at_ms is None or service.listening_until_ms is None:
        return service.rebalance_at_ms
    return max(service.rebalance_at_ms, service.listening_until_ms)


def is_due(service: Service, now_ms: int) -> bool:
    """Whether a sweep has to rebalance."""
    at_ms = due_ms(service)
    return at_ms is not None and at_ms <= now_ms


def is_urgent(service: Service, now_ms: int) -> bool:
    """Whether a rebalance must not wait for the next sweep."""
    at_ms = service.urgent_at_ms
    return at_ms is not None and at_ms <= now_ms and is_due(service, now_ms)


def rebalance(service: Service, *, now_ms: int) -> None:
    """Compute all targets, and revoke shards whose owner is no longer their target."""
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
    left_over = set(plan.left_over)  # some of it fresh, some taken from members
    placed = len(fresh) - (len(left_over.intersection(fresh)) if left_over else 0)
    if moved or placed:
        service.note_rebalanced(moved=moved, placed=placed)
    assignments.answer_those_left_out(service, now_ms=now_ms)


def _take_from(service: Service, losses: dict[str, Shards]) -> None:
    for shards in losses.values():
        service.set_targets(None, shards)


def _beyond_the_count(service: Service) -> dict[str, Shards]:
    """The targets of shards that are above the shard count now, by member."""
    beyond = service.targets[service.shard_count :]
    losses: dict[str, list[int]] = {}
    if beyond.count(None) < len(beyond):
        for shard, worker_id in enumerate(beyond, start=service.shard_count):
            if worker_id is not None:
                losses.setdefault(worker_id, []).append(shard)
    return {worker_id: tuple(shards) for worker_id, shards in losses.items()}


def _claims(service: Service) -> tuple[list[MemberShare], dict[str, Shards]]:
    """The members that may own shards, and the targets of those that may not."""
    claims: list[MemberShare] = []
    retired: dict[str, Shards] = {}
    for worker_id, member in sorted(service.members.items()):
        if not member.draining and member.fenced is None:
            claims.append(MemberShare(worker_id, member.weight, member.max_shards))
        elif service.targeted.get(worker_id):
            retired[worker_id] = service.targeted[worker_id]
    return claims, retired


def _joined(some: dict[str, Shards], more: dict[str, Shards]) -> dict[str, Shards]:
    joined = {**some}
    for worker_id, shards in more.items():
        include(joined, worker_id, shards)
    return joined


def _ask_back(service: Service, losses: dict[str, Shards], *, now_ms: int) -> None:
    """Revoke lost shards from their owners; those being revoked already stay so."""
    for worker_id, lost in sorted(losses.items()):
        service.revoke(worker_id, _kept(service, worker_id, lost), now_ms=now_ms)


def _kept(service: Service, worker_id: str, shards: Shards) -> Shards:
    """The shards that a worker owns and was not asked to give up."""
    owners, revoked = service.owners, service.revoked_from(worker_id)
    if not is_all(picked(owners, place_of(shards)), worker_id):
        shards = tuple([one for one in shards if owners[one] == worker_id])
    return without(shards, revoked) if revoked else shards


def grant_unowned(service: Service, *, now_ms: int) -> None:
    """Grant every unowned shard to its target."""
    for worker_id, shards in sorted(service.grantable.items()):
        # The command that fenced a member took its targets.
        assert service.members[worker_id].fenced is None
        service.grant(worker_id, shards)
        assignments.answer(service, worker_id, now_ms=now_ms)
