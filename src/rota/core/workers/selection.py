"""Selection of the worker that gets each of several tasks.

Every strategy fills free slots and never more. Each task is given in turn, and its taker counts as
fuller for the next one, so a batch is spread as the same tasks would be one by one. Equal
candidates are taken in the order of their ids; dice are thrown only for power-of-two.
"""

import heapq
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import assert_never

from msgspec import Struct

from rota.core.workers.scoring import Score

Dice = Callable[[int], int]  # dice(n) is one of 0..n-1

MERIT_STEPS = 10**9  # merits closer than one step are equal; floating dust must not break ties


class Strategy(StrEnum):
    WEIGHTED = "weighted"  # the best score
    LEAST_LOADED = "least-loaded"  # the largest free share of its slots
    POWER_OF_TWO = "power-of-two"  # the better score of two drawn by lot
    ROUND_ROBIN = "round-robin"  # the one whose last turn is longest ago


class Candidate(Struct, frozen=True, kw_only=True):
    worker_id: str
    free: int
    maximum: int
    score: Score
    last_chosen: int = 0  # a number that rises with every choice; 0: never chosen


def share(
    count: int, candidates: Sequence[Candidate], *, strategy: Strategy, dice: Dice
) -> list[int]:
    """For each task in order, the index of its taker; shorter when capacity runs out."""
    wanted = max(0, count)
    open_indexes = [index for index, one in enumerate(candidates) if one.free > 0]
    if not open_indexes:
        return []
    if len(open_indexes) == 1:
        (only,) = open_indexes
        return [only] * min(wanted, candidates[only].free)

    open_indexes.sort(key=lambda index: candidates[index].worker_id)
    match strategy:
        case Strategy.WEIGHTED:
            return _share_by_merit(wanted, candidates, open_indexes, _by_score)
        case Strategy.LEAST_LOADED:
            return _share_by_merit(wanted, candidates, open_indexes, _by_free_share)
        case Strategy.POWER_OF_TWO:
            return _share_by_lot(wanted, candidates, open_indexes, dice)
        case Strategy.ROUND_ROBIN:
            return _share_in_turn(wanted, candidates, open_indexes)
        case _:
            assert_never(strategy)


def merit(candidate: Candidate, free: int) -> float:
    """The candidate's score as it would be with so many slots free."""
    score = candidate.score
    capacity_change = free / candidate.maximum - score.capacity
    return score.total + score.slow_start * score.capacity_weight * capacity_change


def _by_score(candidate: Candidate, free: int) -> int:
    return round(merit(candidate, free) * MERIT_STEPS)


def _by_free_share(candidate: Candidate, free: int) -> int:
    return round(free / candidate.maximum * MERIT_STEPS)


def _share_by_merit(
    wanted: int,
    candidates: Sequence[Candidate],
    open_indexes: Sequence[int],
    measure: Callable[[Candidate, int], int],
) -> list[int]:
    # The rank among the ids is before the index, so the heap settles ties by worker id.
    heap = [
        (-measure(candidates[index], candidates[index].free), rank, index, candidates[index].free)
        for rank, index in enumerate(open_indexes)
    ]
    heapq.heapify(heap)
    chosen: list[int] = []
    while heap and len(chosen) < wanted:
        _, rank, index, free = heap[0]
        chosen.append(index)
        if free > 1:
            left = (-measure(candidates[index], free - 1), rank, index, free - 1)
            heapq.heapreplace(heap, left)
        else:
            heapq.heappop(heap)
    return chosen


def _share_by_lot(
    wanted: int, candidates: Sequence[Candidate], open_indexes: Sequence[int], dice: Dice
) -> list[int]:
    drawn_from = list(open_indexes)
    free = {index: candidates[index].free for index in open_indexes}
    chosen: list[int] = []
    while drawn_from and len(chosen) < wanted:
        place = min(
            _two_places(len(drawn_from), dice),
            key=lambda place: (
                -_by_score(candidates[drawn_from[place]], free[drawn_from[place]]),
                candidates[drawn_from[place]].worker_id,
            ),
        )
        index = drawn_from[place]
        chosen.append(index)
        free[index] -= 1
        if free[index] == 0:
            # The last one takes the gap: removing from the middle would move all behind it.
            drawn_from[place] = drawn_from[-1]
            drawn_from.pop()
    return chosen


def _two_places(length: int, dice: Dice) -> tuple[int, int]:
    if length == 1:
        return 0, 0
    first, second = dice(length), dice(length - 1)
    assert 0 <= first < length
    assert 0 <= second < length - 1

    # Stepping over the first draw makes the two different without drawing again.
    return first, second + (second >= first)


def _share_in_turn(
    wanted: int, candidates: Sequence[Candidate], open_indexes: Sequence[int]
) -> list[int]:
    # The sort is stable, so candidates with equal last turns stay in the order of their ids.
    turns = sorted(open_indexes, key=lambda index: candidates[index].last_chosen)
    chosen: list[int] = []
    finished_rounds = 0
    while turns and len(chosen) < wanted:
        chosen.extend(turns[: wanted - len(chosen)])
        finished_rounds += 1
        turns = [index for index in turns if candidates[index].free > finished_rounds]
    return chosen
