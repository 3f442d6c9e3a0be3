"""Minutes of trouble with locks and values. `ROTA_KV_SCHEDULES=10000` for more of them."""

import os

import pytest

from tests.simulation.kv import profiles
from tests.simulation.kv.mutants import MUTANTS
from tests.simulation.kv.profiles import PROFILES, Profile, profile_of
from tests.simulation.kv.world import simulate
from tests.simulation.mutation import Mutant, seed_that_notices

SCHEDULES = int(os.environ.get("ROTA_KV_SCHEDULES", "60"))
SCHEDULES_A_CHUNK = 15


@pytest.mark.parametrize("first", range(0, SCHEDULES, SCHEDULES_A_CHUNK))
@pytest.mark.slow
def test_every_promise_about_locks_and_values_holds_whatever_goes_wrong(first: int) -> None:
    for seed in range(first, min(first + SCHEDULES_A_CHUNK, SCHEDULES)):
        outcome = simulate(seed, profile_of(seed))

        assert min(outcome.fences, outcome.accepted, outcome.additions) > 0, outcome


def test_a_schedule_of_each_kind_holds() -> None:
    for seed in range(len(PROFILES)):
        simulate(seed, profile_of(seed))


def test_the_same_seed_is_the_same_schedule() -> None:
    assert simulate(3, profiles.EVERYTHING) == simulate(3, profiles.EVERYTHING)
    assert simulate(3, profiles.EVERYTHING) != simulate(4, profiles.EVERYTHING)


def test_what_comes_too_late_is_sent_and_refused() -> None:
    """Otherwise it would not be known that fences do anything."""
    assert sum(simulate(seed, profiles.SLEEPING).refused for seed in range(5)) > 0


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_broken_rule_is_noticed_and_the_whole_one_is_not(mutant: Mutant[Profile]) -> None:
    seed = seed_that_notices(mutant, simulate)

    simulate(seed, mutant.profile)
