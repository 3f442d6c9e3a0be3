import pytest

from tests.simulation.mutants import MUTANTS
from tests.simulation.mutation import Mutant, seed_that_notices
from tests.simulation.profiles import Profile
from tests.simulation.world import simulate


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_broken_rule_is_noticed_and_the_whole_one_is_not(mutant: Mutant[Profile]) -> None:
    seed = seed_that_notices(mutant, simulate)

    simulate(seed, mutant.profile)
