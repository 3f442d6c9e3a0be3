"""Functions whose worker and coordinator die: at every await, at every write, and at drawn ones.

The promises are checked at each commit, each effect and each end that a function sees: a run has
one outcome; no effect begins before the results that the function had seen are committed; a
committed step does not run again; ends are seen in the order of the log; a function that waits has
no task, and so no slot and no lease. See `functions/ledger.py`.
"""

import os

import pytest

from rota.core.workflow.states import RunState
from tests.simulation.database import Moment
from tests.simulation.functions.crash_mutants import ANY, CRASH_MUTANTS
from tests.simulation.functions.crashes import CrashProfile, Faults, simulate, simulate_faults
from tests.simulation.functions.durable_scripts import EVERYTHING, FAILING, Script
from tests.simulation.mutation import Mutant, seed_that_notices

SEEDS = int(os.environ.get("ROTA_FUNCTION_SCHEDULES", "100"))
SCRIPTS = pytest.mark.parametrize("script", [EVERYTHING, FAILING], ids=["returns", "fails"])

pytestmark = pytest.mark.slow


@SCRIPTS
def test_a_worker_may_die_at_every_await(script: Script) -> None:
    calm = simulate_faults(1, script, Faults())

    for number in range(1, calm.awaits + 1):
        ended = simulate_faults(1, script, Faults(awaits=frozenset({number})))

        assert ended.state is calm.state
        assert ended.workers == 2 or number == calm.awaits, f"it did not die at {number}"
        again = len(ended.effects) - len(set(ended.effects))
        assert again <= 2, "more than the steps under way ran again"


@SCRIPTS
@pytest.mark.parametrize("moment", Moment, ids=lambda one: one.name)
def test_a_coordinator_may_die_before_and_after_every_commit(
    script: Script, moment: Moment
) -> None:
    calm = simulate_faults(1, script, Faults())
    deaths = 0

    for number in range(1, calm.writes + 1):
        ended = simulate_faults(1, script, Faults(writes={number: moment}))

        deaths += ended.coordinators - 1
        assert ended.state is calm.state
        assert sorted(ended.effects) == sorted(set(ended.effects)), "its worker lives"
    assert deaths >= calm.writes - 1


def test_functions_keep_their_promises_under_drawn_crashes_and_cancels() -> None:
    states = {simulate(seed, ANY).state for seed in range(SEEDS)}

    assert states == {RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED}


def test_a_schedule_follows_from_its_seed() -> None:
    assert simulate(7, ANY) == simulate(7, ANY)


@pytest.mark.parametrize("mutant", CRASH_MUTANTS, ids=lambda one: one.name)
def test_a_broken_rule_of_running_functions_is_noticed(mutant: Mutant[CrashProfile]) -> None:
    seed = seed_that_notices(mutant, simulate)

    simulate(seed, mutant.profile)
