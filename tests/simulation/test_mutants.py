import pytest

from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.trace import Violation
from tests.simulation.world import simulate


def seed_that_notices(mutant: Mutant) -> int | None:
    for seed in range(mutant.seeds):
        with mutant.applied():
            try:
                simulate(seed, mutant.profile)
            except Violation:
                return seed
    return None


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_broken_rule_is_noticed_and_the_whole_one_is_not(mutant: Mutant) -> None:
    seed = seed_that_notices(mutant)

    assert seed is not None, f"{mutant.name} survived {mutant.seeds} seeds of {mutant.profile.name}"
    simulate(seed, mutant.profile)
