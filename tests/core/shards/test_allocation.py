"""Allocation against exhaustive search: near each quota, with the fewest moves."""

import random
from fractions import Fraction
from itertools import product

import pytest

from rota.core.shards.allocation import Allocation, MemberShare, allocate

CHUNKS = 20
CASES = 1_000  # in each

Held = dict[str, tuple[int, ...]]


def applied(held: Held, found: Allocation) -> Held:
    after = {worker_id: set(shards) for worker_id, shards in held.items()}
    for worker_id, shards in found.losses.items():
        after[worker_id] -= set(shards)
    for worker_id, shards in found.gains.items():
        assert not after.setdefault(worker_id, set()) & set(shards)
        after[worker_id] |= set(shards)
    return {worker_id: tuple(sorted(shards)) for worker_id, shards in after.items()}


def quotas_of(shard_count: int, claims: list[MemberShare]) -> dict[str, Fraction]:
    """What everybody is due, to the fraction: filled up together until all is given out."""
    quotas: dict[str, Fraction] = {}
    left, sharing = Fraction(shard_count), list(claims)
    while sharing:
        level = left / sum(claim.weight for claim in sharing)
        full = [one for one in sharing if one.most is not None and level * one.weight >= one.most]
        if not full:
            return quotas | {claim.worker_id: level * claim.weight for claim in sharing}
        for claim in full:
            quotas[claim.worker_id] = Fraction(claim.most or 0)
            left -= claim.most or 0
            sharing.remove(claim)
    return quotas


def fewest_moves(shard_count: int, claims: list[MemberShare], held: Held) -> int:
    """Of all ways to seat everybody less than one from the quota, the one that takes the least."""
    quotas = quotas_of(shard_count, claims)
    total = min(Fraction(shard_count), sum(quotas.values(), Fraction(0)))
    choices = [
        sorted({quotas[claim.worker_id].__floor__(), quotas[claim.worker_id].__ceil__()})
        for claim in claims
    ]
    return min(
        sum(
            max(0, len(held.get(claim.worker_id, ())) - seats)
            for claim, seats in zip(claims, seating, strict=True)
        )
        for seating in product(*choices)
        if sum(seating) == total
    )


class Fleet:
    """Members that come, go and change, and a service that grows and shrinks."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.shard_count = dice.randint(1, 14)
        self.claims = [self.newcomer(f"w{number}") for number in range(dice.randint(1, 5))]
        self.held: Held = {}
        # Not always balanced to begin with.
        for shard in range(self.shard_count):
            holder = dice.choice([*self.claims, None])
            if holder is not None:
                self.held[holder.worker_id] = (*self.held.get(holder.worker_id, ()), shard)

    def newcomer(self, worker_id: str) -> MemberShare:
        weight = self.dice.choice([1, 1, 1, 2, 3, 500, 1_000])
        return MemberShare(worker_id, weight, self.dice.choice([None, None, None, 0, 1, 2, 5]))

    def change(self) -> None:
        dice = self.dice
        match dice.randint(0, 4):
            case 0 if len(self.claims) > 1:
                gone = self.claims.pop(dice.randrange(len(self.claims)))
                self.held.pop(gone.worker_id, None)
            case 1 if len(self.claims) < 5:
                known = {claim.worker_id for claim in self.claims}
                free = [one for one in (f"w{number}" for number in range(6)) if one not in known]
                self.claims.append(self.newcomer(dice.choice(free)))
            case 2:
                place = dice.randrange(len(self.claims))
                self.claims[place] = self.newcomer(self.claims[place].worker_id)
            case _:
                self.shard_count = max(1, self.shard_count + dice.randint(-4, 4))
                for worker_id, shards in self.held.items():
                    self.held[worker_id] = tuple(one for one in shards if one < self.shard_count)

    def free(self) -> list[int]:
        held = {shard for shards in self.held.values() for shard in shards}
        free = [shard for shard in range(self.shard_count) if shard not in held]
        self.dice.shuffle(free)
        return free


def judge(fleet: Fleet) -> Held:
    """Hold one allocation against everything that is asked of it; gives what is held after it."""
    count, claims, held, free = fleet.shard_count, fleet.claims, fleet.held, fleet.free()

    found = allocate(count, claims, held, free)

    after = applied(held, found)
    given = sorted([*found.left_over, *(one for shards in after.values() for one in shards)])
    assert given == list(range(count))
    quotas = quotas_of(count, claims)
    for claim in claims:
        seats = len(after.get(claim.worker_id, ()))
        assert abs(seats - quotas[claim.worker_id]) < 1
        assert claim.most is None or seats <= claim.most
    if found.left_over:
        assert all(len(after.get(one.worker_id, ())) == one.most for one in claims)
    assert sum(map(len, found.losses.values())) == fewest_moves(count, claims, held)
    shuffled = fleet.dice.sample(claims, len(claims))
    assert allocate(count, shuffled, held, sorted(free)) == found
    assert allocate(count, claims, after, found.left_over) == Allocation({}, {}, found.left_over)
    return after


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_allocation_is_as_even_with_fewer_moves(chunk: int) -> None:
    dice = random.Random(chunk)

    cases = 0
    while cases < CASES:
        fleet = Fleet(dice)
        for _ in range(10):
            fleet.held = judge(fleet)
            fleet.change()
            cases += 1


def every_way(shard_count: int, claims: list[MemberShare]) -> list[tuple[str | None, ...]]:
    """All ways to give every shard to a member, or to none."""
    return list(product([None, *(claim.worker_id for claim in claims)], repeat=shard_count))


@pytest.mark.parametrize("seed", range(60))
def test_no_way_to_give_out_a_few_shards_is_better(seed: int) -> None:
    fleet = Fleet(random.Random(seed))
    fleet.claims, fleet.shard_count = fleet.claims[:3], min(fleet.shard_count, 5)
    ids = {claim.worker_id for claim in fleet.claims}
    fleet.held = {
        worker_id: tuple(one for one in shards if one < fleet.shard_count)
        for worker_id, shards in fleet.held.items()
        if worker_id in ids
    }
    before = {shard: worker_id for worker_id, shards in fleet.held.items() for shard in shards}
    quotas = quotas_of(fleet.shard_count, fleet.claims)
    unplaced = fleet.shard_count - sum(quotas.values())

    after = judge(fleet)

    kept = sum(before.get(shard) == one for one, shards in after.items() for shard in shards)
    assert kept == max(
        sum(before.get(shard) == owner for shard, owner in enumerate(way) if owner is not None)
        for way in every_way(fleet.shard_count, fleet.claims)
        if way.count(None) == unplaced
        and all(abs(way.count(one) - quota) < 1 for one, quota in quotas.items())
    )


# --- examples -----------------------------------------------------------------------------------


def claims_of(*worker_ids: str) -> list[MemberShare]:
    return [MemberShare(worker_id, 1_000) for worker_id in worker_ids]


def test_a_fresh_service_is_contiguous_in_the_order_of_ids() -> None:
    found = allocate(10, claims_of("c", "a", "b"), {}, range(10))

    assert found.gains == {"a": (0, 1, 2, 3), "b": (4, 5, 6), "c": (7, 8, 9)}
    assert list(found.gains) == ["a", "b", "c"]


def test_newcomers_get_the_highest_shards_of_a_lone_holder() -> None:
    found = allocate(10, claims_of("a", "b", "c"), {"a": tuple(range(10))}, ())

    assert found.losses == {"a": (4, 5, 6, 7, 8, 9)}
    assert found.gains == {"b": (4, 5, 6), "c": (7, 8, 9)}


def test_the_spare_seat_stays_with_who_holds_more_than_its_floor() -> None:
    held = {"a": (0, 1, 2), "b": (3, 4, 5), "c": (6, 7, 8, 9)}

    assert allocate(10, claims_of("a", "b", "c"), held, ()) == Allocation({}, {}, ())


def test_of_those_that_hold_no_more_the_largest_fraction_is_seated_first() -> None:
    claims = [MemberShare("a", 10), MemberShare("b", 15), MemberShare("c", 15)]

    found = allocate(3, claims, {}, range(3))

    # The quotas are 0.75, 1.125 and 1.125.
    assert found.gains == {"a": (0,), "b": (1,), "c": (2,)}


def test_weights_are_shares() -> None:
    claims = [MemberShare("a", 3_000), MemberShare("b", 1_000)]

    found = allocate(8, claims, {"a": (0, 1, 2, 3), "b": (4, 5, 6, 7)}, ())

    assert found.gains == {"a": (6, 7)}


def test_whoever_takes_only_so_many_leaves_the_rest_to_the_others() -> None:
    claims = [MemberShare("a", 1_000, 1), MemberShare("b", 1_000), MemberShare("c", 1_000)]

    found = allocate(9, claims, {}, range(9))

    assert found.gains == {"a": (0,), "b": (1, 2, 3, 4), "c": (5, 6, 7, 8)}


def test_what_nobody_takes_is_left_over() -> None:
    claims = [MemberShare("a", 1_000, 2), MemberShare("b", 5, 1)]

    found = allocate(5, claims, {"b": (0, 1)}, (2, 3, 4))

    assert found == Allocation({"a": (1, 2)}, {"b": (1,)}, (3, 4))


def test_nothing_is_given_to_nobody() -> None:
    assert allocate(3, (), {}, range(3)) == Allocation({}, {}, (0, 1, 2))


def test_limits_and_weights_of_any_size_are_told_apart() -> None:
    huge = 2**31
    claims = [
        MemberShare("a", huge, 7),
        MemberShare("b", huge + 1, 7),
        MemberShare("c", huge - 1, 7),
    ]

    found = allocate(21, claims, {}, range(21))

    assert {worker_id: len(shards) for worker_id, shards in found.gains.items()} == {
        "a": 7,
        "b": 7,
        "c": 7,
    }
