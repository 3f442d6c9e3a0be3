"""Whose shall each shard be?

Theory of operation. Everybody is due a quota: the shards divided by weight, to the fraction. Where
somebody takes no more than so many, what is over is divided among the others in the same way. A
seat is a whole shard, so everybody gets their quota rounded down, and the seats that are left over
go one each to some of those with a fraction: first to those who hold more than their quota rounded
down, since they would have to give a shard away otherwise; then to the largest fraction; then to
the lowest id. So nobody is a whole shard away from their quota, and there is no allocation with
that property that moves fewer shards.

Whoever holds more than their seats gives up the excess, the highest shards first. Whoever holds
less is given of what is free, the lowest shards to the lowest ids. Nothing else moves, so the cost
is that of the members and of the shards that change hands, whatever the number of all shards.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rota.core.shards.columns import Shards

# So finely are ratios of limit and weight told apart: exact, for weights below 2**32.
RATIO_BITS = 64


class Claim(NamedTuple):
    """A member that may be given shards."""

    worker_id: str
    weight: int
    most: int | None = None  # shards it takes; None: any number


class Allocation(NamedTuple):
    """What changes, and nothing of what stays; all shards in their order."""

    gains: dict[str, Shards]
    losses: dict[str, Shards]
    left_over: Shards  # that nobody may take


def allocate(
    shard_count: int,
    claims: Sequence[Claim],
    held: Mapping[str, Shards],
    free: Iterable[int],
) -> Allocation:
    """Hand out `shard_count` shards, of which the claimants hold some, and the others are free."""
    seats = seats_of(shard_count, claims, held)
    losses: dict[str, Shards] = {}
    loose = list(free)
    for worker_id, seat_count in seats.items():
        excess = len(held.get(worker_id, ())) - seat_count
        if excess > 0:
            losses[worker_id] = held[worker_id][-excess:]
            loose += losses[worker_id]
    to_give = tuple(sorted(loose))

    gains: dict[str, Shards] = {}
    given = 0
    for worker_id in sorted(seats):
        wanted = seats[worker_id] - len(held.get(worker_id, ()))
        if wanted > 0:
            gains[worker_id] = to_give[given : given + wanted]
            given += wanted
    return Allocation(gains, losses, to_give[given:])


def seats_of(
    shard_count: int, claims: Sequence[Claim], held: Mapping[str, Shards]
) -> dict[str, int]:
    """How many shards each claimant shall have."""
    assert all(claim.weight > 0 for claim in claims)

    seats: dict[str, int] = {}
    seats_left = shard_count
    weight_left = sum(claim.weight for claim in claims)
    for claim, most in _by_ratio(claims):
        if most * weight_left > seats_left * claim.weight:
            break  # its quota is less than it takes, and so it is with all that follow
        seats[claim.worker_id] = most
        seats_left -= most
        weight_left -= claim.weight

    fractions: list[tuple[bool, int, str]] = []
    quota_seats, weights = seats_left, weight_left
    for claim in claims:
        if claim.worker_id not in seats:
            floor, fraction = divmod(quota_seats * claim.weight, weights)
            seats[claim.worker_id] = floor
            seats_left -= floor
            if fraction:
                holds_more = len(held.get(claim.worker_id, ())) > floor
                fractions.append((not holds_more, -fraction, claim.worker_id))
    if weights:
        assert seats_left <= len(fractions)
        for _, _, worker_id in sorted(fractions)[:seats_left]:
            seats[worker_id] += 1
    return seats


def _by_ratio(claims: Sequence[Claim]) -> list[tuple[Claim, int]]:
    """The claimants that take only so many, those first that reach it first as all fill up."""
    limited = [(claim, claim.most) for claim in claims if claim.most is not None]
    return sorted(limited, key=lambda one: (one[1] << RATIO_BITS) // one[0].weight)
