"""Minutes of trouble with shards.

`ROTA_SHARD_SCHEDULES=10000` for more of them, `ROTA_SHARD_SEED=7` for one.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.mutation import Mutant, seed_that_notices
from tests.simulation.shards import profiles
from tests.simulation.shards.mutants import MUTANTS
from tests.simulation.shards.profiles import PROFILES, Profile, profile_of
from tests.simulation.shards.world import simulate

ORDINARY_SCHEDULES = 50 * len(PROFILES)
SCHEDULES_A_CHUNK = 2 * len(PROFILES)

_ROOT = Path(__file__).parents[2]
_OUTCOME = (
    "from tests.simulation.shards.profiles import profile_of\n"
    "from tests.simulation.shards.world import simulate\n"
    "print(simulate({seed}, profile_of({seed})))"
)


def chosen_seeds() -> list[range]:
    """The seeds to run, in chunks that several processes can share out."""
    only = os.environ.get("ROTA_SHARD_SEED")
    if only is not None:
        return [range(int(only), int(only) + 1)]
    count = int(os.environ.get("ROTA_SHARD_SCHEDULES", ORDINARY_SCHEDULES))
    firsts = range(0, count, SCHEDULES_A_CHUNK)
    return [range(first, min(first + SCHEDULES_A_CHUNK, count)) for first in firsts]


@pytest.mark.slow
@pytest.mark.parametrize("seeds", chosen_seeds(), ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_every_promise_about_shards_holds_whatever_goes_wrong(seeds: range) -> None:
    for seed in seeds:
        outcome = simulate(seed, profile_of(seed))

        assert outcome.accepted > 0, f"nothing was done under seed {seed}"


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name.replace(" ", "-"))
def test_every_kind_of_trouble_heals(profile: Profile) -> None:
    outcome = simulate(0, profile)

    assert outcome.accepted > 0
    assert outcome.generation > 1


def test_a_minute_with_all_faults_is_no_idle_one() -> None:
    outcome = simulate(0, profiles.EVERYTHING)

    assert outcome.starts > 1
    assert outcome.moved > 5
    assert outcome.refused > 0


@pytest.mark.slow
def test_the_same_seed_is_the_same_minute_in_any_process() -> None:
    here = repr(simulate(0, profile_of(0)))
    path = os.pathsep.join((str(_ROOT), str(_ROOT / "src")))
    environment = os.environ | {"PYTHONHASHSEED": "77", "PYTHONPATH": path}
    there = subprocess.run(
        [sys.executable, "-c", _OUTCOME.format(seed=0)],
        check=True,
        capture_output=True,
        text=True,
        cwd=_ROOT,
        env=environment,
    )

    assert there.stdout.strip() == here


# --- mutants ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_broken_rule_about_shards_is_noticed_and_the_whole_one_is_not(
    mutant: Mutant[Profile],
) -> None:
    seed = seed_that_notices(mutant, simulate)

    simulate(seed, mutant.profile)
