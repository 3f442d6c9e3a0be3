"""Seeded schedules of several coordinators on one store, and the mistakes they must find."""

import pytest

from tests.simulation.replicas.mutants import MUTANTS
from tests.simulation.replicas.world import live_through

SEEDS = range(10)
TIMELY_SEEDS = range(4)
MOST_SEEDS = 6  # in which a mistake must show


@pytest.mark.parametrize("seed", SEEDS)
async def test_every_promise_holds_whichever_replica_is_asked(seed: int) -> None:
    world = await live_through(seed)

    assert world.acknowledged
    assert world.accepted
    assert world.runs
    assert world.epochs


@pytest.mark.parametrize("seed", TIMELY_SEEDS)
async def test_nobody_who_speaks_in_time_is_thought_gone_by_any_replica(seed: int) -> None:
    world = await live_through(seed, is_timely=True)

    assert world.epochs


@pytest.mark.parametrize("name", MUTANTS)
async def test_a_replica_that_trusts_its_memory_is_found_out(name: str) -> None:
    applied, is_timely = MUTANTS[name]
    for seed in range(MOST_SEEDS):
        with applied():
            try:
                await live_through(seed, is_timely=is_timely)
            except Exception:  # noqa: BLE001 - whatever breaks, it was noticed
                return

    pytest.fail(f"{name} survived {MOST_SEEDS} seeds")
