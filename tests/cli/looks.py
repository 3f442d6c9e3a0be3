"""Services to look at, as a coordinator would tell of them."""

import time
from collections.abc import Sequence
from typing import Any

from rota.core.shards.members import PROTOCOL
from rota.core.workers.model import Health
from rota.messages.shards import MemberView, ServiceView


def member(
    worker_id: str, shards: Sequence[int] = (), target: Sequence[int] | None = None, **more: Any
) -> MemberView:
    """A member that has its target, unless another one is given."""
    fields: dict[str, Any] = {
        "weight": 1.0,
        "draining": False,
        "health": Health.HEALTHY,
        "protocol": PROTOCOL,
        "last_heartbeat_ms": time.time_ns() // 1_000_000,
    }
    return MemberView(
        worker_id=worker_id,
        shards=tuple(shards),
        epochs=(1,) * len(shards),
        target=tuple(shards if target is None else target),
        **(fields | more),
    )


def service(shard_count: int, *members: MemberView, pinned: bool = False) -> ServiceView:
    owned = {shard for one in members for shard in one.shards}
    return ServiceView(
        name="orders",
        shard_count=shard_count,
        pinned=pinned,
        min_protocol=1,
        generation=7,
        member_count=len(members),
        unowned=len(set(range(shard_count)) - owned),
        moving=sum(len(set(one.shards) - set(one.target)) for one in members),
        members=list(members),
    )


def even(shard_count: int, members: int) -> ServiceView:
    """So many members with equally many shards each."""
    each = shard_count // members
    return service(
        shard_count,
        *(
            member(f"w{place:04}", range(place * each, place * each + each))
            for place in range(members)
        ),
    )
