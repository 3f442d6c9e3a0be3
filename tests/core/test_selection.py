from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.workers.scoring import score
from rota.core.workers.selection import Candidate, Strategy, share
from rota.core.workers.statistics import EMPTY, Outcome, record

GROWN_MS = 10**6


def no_dice(_sides: int) -> int:
    pytest.fail("dice were thrown")


def first_side(_sides: int) -> int:
    return 0


def candidate(
    worker_id: str,
    free: int,
    maximum: int = 10,
    *,
    failed: int = 0,
    age_ms: int = GROWN_MS,
    last_chosen: int = 0,
) -> Candidate:
    statistics = record(EMPTY, [Outcome(ok=False, duration_ms=1.0)] * failed, now_ms=0)
    return Candidate(
        worker_id=worker_id,
        free=free,
        maximum=maximum,
        score=score(free=free, maximum=maximum, statistics=statistics, age_ms=age_ms),
        last_chosen=last_chosen,
    )


@st.composite
def candidate_lists(draw: st.DrawFn) -> list[Candidate]:
    worker_ids = draw(st.lists(st.text("abc", min_size=1), unique=True, max_size=8))
    candidates = []
    for worker_id in worker_ids:
        maximum = draw(st.integers(1, 8))
        free = draw(st.integers(-1, maximum))
        age_ms = draw(st.sampled_from([0, 10_000, GROWN_MS]))
        failed, last_chosen = draw(st.integers(0, 2)), draw(st.integers(0, 3))
        candidates.append(
            candidate(
                worker_id, free, maximum, failed=failed, age_ms=age_ms, last_chosen=last_chosen
            )
        )
    return candidates


@given(st.integers(-1, 80), candidate_lists(), st.sampled_from(Strategy), st.data())
def test_every_strategy_fills_what_is_free_and_never_more(
    count: int, candidates: list[Candidate], strategy: Strategy, data: st.DataObject
) -> None:
    def dice(sides: int) -> int:
        return data.draw(st.integers(0, sides - 1))

    chosen = share(count, candidates, strategy=strategy, dice=dice)

    capacity = sum(max(0, one.free) for one in candidates)
    assert len(chosen) == min(max(0, count), capacity)
    assert all(taken <= candidates[index].free for index, taken in Counter(chosen).items())


@given(st.integers(0, 80), candidate_lists(), st.sampled_from(Strategy), st.data())
def test_who_gets_a_task_does_not_depend_on_the_order_of_the_candidates(
    count: int, candidates: list[Candidate], strategy: Strategy, data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(candidates))

    chosen = share(count, candidates, strategy=strategy, dice=first_side)
    again = share(count, shuffled, strategy=strategy, dice=first_side)

    assert [candidates[index].worker_id for index in chosen] == [
        shuffled[index].worker_id for index in again
    ]


@given(
    st.integers(0, 40),
    candidate_lists(),
    st.sampled_from([Strategy.WEIGHTED, Strategy.LEAST_LOADED, Strategy.ROUND_ROBIN]),
)
def test_only_power_of_two_throws_dice(
    count: int, candidates: list[Candidate], strategy: Strategy
) -> None:
    share(count, candidates, strategy=strategy, dice=no_dice)


@given(st.integers(0, 40), candidate_lists())
def test_weighted_gives_each_task_to_the_best_score_at_that_moment(
    count: int, candidates: list[Candidate]
) -> None:
    chosen = share(count, candidates, strategy=Strategy.WEIGHTED, dice=no_dice)

    free = [one.free for one in candidates]
    for index in chosen:
        scores = {
            other: candidates[other].score.total
            + candidates[other].score.slow_start
            * 0.5
            * (free[other] - candidates[other].free)
            / candidates[other].maximum
            for other in range(len(candidates))
            if free[other] > 0
        }
        assert scores[index] == pytest.approx(max(scores.values()))
        free[index] -= 1


def test_equals_are_taken_in_the_order_of_their_ids() -> None:
    candidates = [candidate("b", 2, 2), candidate("a", 2, 2)]

    for strategy in Strategy:
        assert share(1, candidates, strategy=strategy, dice=first_side) == [1]


def test_equal_shares_of_different_sizes_are_equals_in_spite_of_rounding() -> None:
    candidates = [candidate("b", 7, 10), candidate("a", 49, 70)]

    assert share(1, candidates, strategy=Strategy.WEIGHTED, dice=no_dice) == [1]


def test_one_candidate_takes_what_fits() -> None:
    assert share(5, [candidate("a", 3)], strategy=Strategy.WEIGHTED, dice=no_dice) == [0, 0, 0]
    full = candidate("b", 0)
    assert share(2, [full, candidate("a", 3)], strategy=Strategy.POWER_OF_TWO, dice=no_dice) == [
        1,
        1,
    ]


def test_a_lone_newcomer_is_given_work_at_once() -> None:
    newcomer = candidate("new", 2, age_ms=0)

    assert share(1, [newcomer], strategy=Strategy.WEIGHTED, dice=no_dice) == [0]


def test_a_newcomer_is_given_work_when_the_others_are_full() -> None:
    candidates = [candidate("new", 2, 2, age_ms=0), candidate("old", 1, 10)]

    chosen = share(3, candidates, strategy=Strategy.WEIGHTED, dice=no_dice)

    assert chosen == [1, 0, 0]


def test_weighted_passes_over_a_worker_that_fails() -> None:
    candidates = [candidate("a", 10, failed=5), candidate("b", 8)]

    assert share(1, candidates, strategy=Strategy.WEIGHTED, dice=no_dice) == [1]


def test_least_loaded_looks_at_free_shares_only() -> None:
    candidates = [candidate("a", 10, failed=5), candidate("b", 8)]

    chosen = share(4, candidates, strategy=Strategy.LEAST_LOADED, dice=no_dice)

    assert chosen == [0, 0, 0, 1]


def test_power_of_two_takes_the_better_of_the_two_it_draws() -> None:
    candidates = [candidate("a", 2), candidate("b", 5), candidate("c", 10)]

    # 0 then 0 draws the first and the second; the third and best is not looked at.
    assert share(1, candidates, strategy=Strategy.POWER_OF_TWO, dice=first_side) == [1]


def test_round_robin_starts_with_the_longest_waiting_and_takes_turns() -> None:
    candidates = [
        candidate("a", 1, last_chosen=1),
        candidate("b", 3, last_chosen=0),
        candidate("c", 3, last_chosen=2),
    ]

    chosen = share(6, candidates, strategy=Strategy.ROUND_ROBIN, dice=no_dice)

    assert chosen == [1, 0, 2, 1, 2, 1]
