"""Hundreds of bad days. `ROTA_SIMULATION_SEEDS=5000` for more, `ROTA_SIMULATION_SEED=7` for one."""

import os
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import patch

import pytest

from rota.engine.scheduler import DutyScheduler
from tests.simulation import profiles
from tests.simulation.profiles import profile_of
from tests.simulation.world import simulate

SEEDS_A_CHUNK = 8
ORDINARY_SEEDS = 16 * len(profiles.PROFILES)

_ROOT = Path(__file__).parents[2]
_DIGEST = (
    "from tests.simulation.profiles import profile_of\n"
    "from tests.simulation.world import simulate\n"
    "print(simulate({seed}, profile_of({seed})).trace.digest())"
)


def chosen_seeds() -> list[range]:
    """The seeds to run, in chunks that several processes can share out."""
    only = os.environ.get("ROTA_SIMULATION_SEED")
    if only is not None:
        return [range(int(only), int(only) + 1)]
    count = int(os.environ.get("ROTA_SIMULATION_SEEDS", ORDINARY_SEEDS))
    return [
        range(first, min(first + SEEDS_A_CHUNK, count)) for first in range(0, count, SEEDS_A_CHUNK)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("seeds", chosen_seeds(), ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_every_promise_holds_on_any_day(seeds: range) -> None:
    for seed in seeds:
        outcome = simulate(seed, profile_of(seed))

        assert outcome.completed > 0, f"nothing was done under seed {seed}"


def test_a_day_with_all_faults_leaves_work_done() -> None:
    outcomes = [simulate(seed, profiles.EVERYTHING) for seed in range(4)]

    assert sum(outcome.starts for outcome in outcomes) > len(outcomes)
    assert sum(outcome.completed for outcome in outcomes) > 10


@pytest.mark.slow
def test_the_same_seed_is_the_same_schedule_in_any_process() -> None:
    here = simulate(0, profile_of(0)).trace.digest()
    path = os.pathsep.join((str(_ROOT), str(_ROOT / "src")))
    environment = os.environ | {"PYTHONHASHSEED": "77", "PYTHONPATH": path}
    there = subprocess.run(
        [sys.executable, "-c", _DIGEST.format(seed=0)],
        check=True,
        capture_output=True,
        text=True,
        cwd=_ROOT,
        env=environment,
    )

    assert there.stdout.strip() == here


@pytest.mark.slow
def test_a_schedule_does_not_depend_on_the_speed_of_the_machine() -> None:
    usual = simulate(0, profile_of(0)).trace.digest()
    monotonic, counter = time.monotonic, time.perf_counter
    with (
        patch.object(time, "monotonic", lambda: monotonic() * 1_000),
        patch.object(time, "perf_counter", lambda: counter() * 1_000),
    ):
        slow = simulate(0, profile_of(0)).trace.digest()

    assert slow == usual


@pytest.mark.slow
def test_what_may_be_lost_is_a_wake_up() -> None:
    with patch.object(DutyScheduler, "hint", lambda *_: None):
        for seed in range(5):
            simulate(seed, profiles.CALM)
