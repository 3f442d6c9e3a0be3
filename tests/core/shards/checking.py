"""Invariants of a service between any two commands, computed from scratch."""

from typing import Any

from rota.core.shards.decisions import (
    GrantShards,
    ReleaseShards,
    RevokeShards,
    SetTargets,
    ShardDecision,
)
from rota.core.shards.service import Service

Standing = dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]


def standing(service: Service) -> Standing:
    """All that members could be told."""
    return {
        worker_id: (*service.assigned_to(worker_id), service.revoked_from(worker_id))
        for worker_id in service.members
    }


def check(service: Service) -> None:
    """The lists of shards, and all that is kept to find things quickly, agree."""
    count = service.shard_count
    assert len(service.owners) == len(service.epochs) == len(service.targets) >= count
    assert _by_worker(service.owners) == service.owned
    assert _by_worker(service.targets) == service.targeted
    assert service.untargeted == [shard for shard in range(count) if service.targets[shard] is None]
    waiting = [
        None if owner is not None else target
        for owner, target in zip(service.owners, service.targets, strict=True)
    ]
    assert _by_worker(waiting[:count]) == service.grantable == {}
    asked_in = service.asked_in()
    asked = [
        owner if asked_in[shard] is not None else None for shard, owner in enumerate(service.owners)
    ]
    assert _by_worker(asked) == {one: service.revoked_from(one) for one in service.revoking}
    assert all(one.shards for several in service.revoking.values() for one in several)
    assert service.unowned() == service.owners[:count].count(None)
    assert {*service.owners, *service.targets, None} <= {*service.members, None}
    assert not {*service.members} & service.departed.keys()
    _check_owners(service)


def _by_worker(column: list[str | None]) -> dict[str, tuple[int, ...]]:
    index: dict[str, tuple[int, ...]] = {}
    for shard, worker_id in enumerate(column):
        if worker_id is not None:
            index[worker_id] = (*index.get(worker_id, ()), shard)
    return index


def _check_owners(service: Service) -> None:
    """An owner without the target was asked to give up; no member is told both."""
    asked_in = service.asked_in()
    for shard, (owner, target) in enumerate(zip(service.owners, service.targets, strict=True)):
        if owner is None:
            assert asked_in[shard] is None
        else:
            assert owner == target or asked_in[shard] is not None
    for worker_id, (shards, epochs, revoked) in standing(service).items():
        assert not {*shards} & {*revoked}
        assert tuple(sorted([*shards, *revoked])) == service.owned.get(worker_id, ())
        assert epochs == tuple(service.epochs[shard] for shard in shards)
        assert all(asked_in[shard] is not None for shard in revoked)


def check_decisions(decisions: list[ShardDecision]) -> None:
    """Shards are named in their order, each once."""
    for one in decisions:
        if isinstance(one, SetTargets | RevokeShards | ReleaseShards | GrantShards):
            assert one.shards
            assert list(one.shards) == sorted(set(one.shards))


def lasting(service: Service) -> dict[str, Any]:
    """Everything about a service that outlives a restart."""
    columns = list(zip(service.owners, service.epochs, service.targets, strict=True))
    while columns and columns[-1] == (None, 0, None):
        columns.pop()  # never heard of, as far as the store is concerned
    return {
        "name": service.name,
        "shard_count": service.shard_count,
        "pinned": service.pinned,
        "min_protocol": service.min_protocol,
        "generation": service.generation,
        "superseded": service.superseded,
        "members": service.members,
        "columns": columns,
        "grantable": service.grantable,
        "untargeted": service.untargeted,
        "standing": standing(service),
        "revoking": [one for one in enumerate(service.asked_in()) if one[1] is not None],
    }
