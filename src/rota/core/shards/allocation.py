"""Allocation of shards to members: balanced, with the smallest possible movement.

Theory of operation. Each member has a quota: the shards divided by weight, to the fraction. Where a
member takes only so many, the rest is divided among the others in the same way. Shards are whole,
so each member gets its quota rounded down, and the shards left over go one each to members with a
fraction: first to those that hold more than their quota rounded down, since they would have to give
one away otherwise; then to the largest fraction; then to the lowest id. So no member is a whole
shard away from its quota, and no allocation with that property moves fewer shards.

A member that holds more than its share gives up the highest shards. A member that holds less is
given free ones, the lowest shards to the lowest ids. Nothing else moves, so the cost is that of the
members and of the shards that change hands, whatever the number of all shards.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rota.core.shards.ranges import Shards

# The precision of ratios of limit and weight: exact for weights below 2**32.
RATIO_BITS = 64


class MemberShare(NamedTuple):
    """A member that may be given shards."""

    worker_id: str
    weight: int
    most: int | None = None  # shards it takes; None: any number


class Allocation(NamedTuple):
    """The shards that change hands, sorted."""

    gains: dict[str, Shards]
    losses: dict[str, Shards]
    left_over: Shards  # that no member may take


def allocate(
    shard_count: int,
    claims: Sequence[MemberShare],
    held: Mapping[str, Shards],
    free: Iterable[int],
) -> Allocation:
    """Divide `shard_count` shards, of which members hold some and the others are free."""
    shares = shares_of(shard_count, claims, held)
    losses: dict[str, Shards] = {}
    loose = list(free)
    for worker_id, share in shares.items():
        excess = len(held.get(worker_id, ())) - share
        if excess > 0:
            losses[worker_id] = held[worker_id][-excess:]
            loose += losses[worker_id]
    to_give = tuple(sorted(loose))

    gains: dict[str, Shards] = {}
    given = 0
    for worker_id in sorted(shares):
        wanted = shares[worker_id] - len(held.get(worker_id, ()))
        if wanted > 0:
            gains[worker_id] = to_give[given : given + wanted]
            given += wanted
    return Allocation(gains, losses, to_give[given:])


def shares_of(
    shard_count: int, claims: Sequence[MemberShare], held: Mapping[str, Shards]
) -> dict[str, int]:
    """The number of shards for each member."""
    assert all(claim.weight > 0 for claim in claims)

    shares: dict[str, int] = {}
    shards_left = shard_count
    weight_left = sum(claim.weight for claim in claims)
    for claim, most in _by_ratio(claims):
        if most * weight_left > shards_left * claim.weight:
            break  # its quota is below its limit, and so are all that follow
        shares[claim.worker_id] = most
        shards_left -= most
        weight_left -= claim.weight

    fractions: list[tuple[bool, int, str]] = []
    unlimited, weights = shards_left, weight_left
    for claim in claims:
        if claim.worker_id not in shares:
            floor, fraction = divmod(unlimited * claim.weight, weights)
            shares[claim.worker_id] = floor
            shards_left -= floor
            if fraction:
                holds_more = len(held.get(claim.worker_id, ())) > floor
                fractions.append((not holds_more, -fraction, claim.worker_id))
    if weights:
        assert shards_left <= len(fractions)
        for _, _, worker_id in sorted(fractions)[:shards_left]:
            shares[worker_id] += 1
    return shares


def _by_ratio(claims: Sequence[MemberShare]) -> list[tuple[MemberShare, int]]:
    """The members with a limit, in the order in which equal filling reaches it."""
    limited = [(claim, claim.most) for claim in claims if claim.most is not None]
    return sorted(limited, key=lambda one: (one[1] << RATIO_BITS) // one[0].weight)
