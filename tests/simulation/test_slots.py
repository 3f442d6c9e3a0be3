"""Days on which tasks share slots: at no instant are more handlers in a key than it has."""

import pytest

from tests.simulation import profiles
from tests.simulation.world import simulate

SEEDS_A_CHUNK = 12


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(4))
def test_no_slot_has_two_handlers_and_none_is_lost(chunk: int) -> None:
    for seed in range(chunk * SEEDS_A_CHUNK, (chunk + 1) * SEEDS_A_CHUNK):
        outcome = simulate(seed, profiles.LIMITED_TASKS)

        assert outcome.completed > 0, f"nothing was done under seed {seed}"


def test_tasks_with_slots_are_done_in_spite_of_faults() -> None:
    outcome = simulate(1, profiles.LIMITED_TASKS)

    assert outcome.completed > 10
