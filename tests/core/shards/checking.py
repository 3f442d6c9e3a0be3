"""What must hold between any two events? All that a service keeps is found again, by hand."""

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
        worker_id: (*service.told(worker_id), service.revoked_from(worker_id))
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
    asked = [
        owner if shard in service.revoking else None for shard, owner in enumerate(service.owners)
    ]
    assert _by_worker(asked) == service.asked
    assert service.unowned() == service.owners[:count].count(None)
    assert {*service.owners, *service.targets, None} <= {*service.members, None}
    assert not {*service.members} & service.departed.keys()
    _check_owners(service)


def _by_worker(column: list[str | None]) -> dict[str, list[int]]:
    index: dict[str, list[int]] = {}
    for shard, worker_id in enumerate(column):
        if worker_id is not None:
            index.setdefault(worker_id, []).append(shard)
    return index


def _check_owners(service: Service) -> None:
    """Whoever owns what it shall not have was asked for it; nobody is told both."""
    for shard, (owner, target) in enumerate(zip(service.owners, service.targets, strict=True)):
        if owner is None:
            assert shard not in service.revoking
        else:
            assert owner == target or shard in service.revoking
    for worker_id, (shards, epochs, revoked) in standing(service).items():
        assert not {*shards} & {*revoked}
        assert sorted([*shards, *revoked]) == service.owned.get(worker_id, [])
        assert epochs == tuple(service.epochs[shard] for shard in shards)
        assert {*revoked} <= service.revoking.keys()


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
        "revoking": {shard: asked.generation for shard, asked in service.revoking.items()},
    }
