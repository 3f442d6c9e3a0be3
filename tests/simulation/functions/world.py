"""One schedule of a function: a script, and what happens to it, both derived from a seed."""

import random
from dataclasses import dataclass

from tests.core.workflow.scripts import Kind, World, outcome_of, replayed
from tests.simulation.trace import Violation

MOST_STEPS = 500


@dataclass(frozen=True)
class Profile:
    """What a script is made of, and how often its worker crashes or repeats itself."""

    name: str
    kinds: tuple[Kind, ...] = ("step", "call", "map", "run", "sleep", "event")
    trouble: float = 0.3


def simulate(seed: int, profile: Profile) -> None:
    """Run a schedule; raises `Violation` when a promise is broken."""
    dice = random.Random(seed)
    script = tuple(
        tuple(dice.choice(profile.kinds) for _ in range(dice.randint(1, 4)))
        for _ in range(dice.randint(1, 4))
    )
    world = World(script)
    try:
        _play(world, dice, profile)
    except (AssertionError, KeyError) as error:
        raise Violation(f"seed {seed}: {error}") from error


def _play(world: World, dice: random.Random, profile: Profile) -> None:
    world.start()
    for _ in range(MOST_STEPS):
        if world.run.is_ended:
            break
        choices = world.choices()
        calm = [one for one in choices if one not in {"crash", "repeat"}]
        assert calm, "nothing can happen, and the run has not ended"
        picked = dice.choice(choices if dice.random() < profile.trouble else calm)
        world.happen(picked, dice.randint(0, 7))
    assert world.run.output == outcome_of(world.script), "another outcome"
    assert world.resumes <= len(world.script) + 1, "the function was resumed too often"
    assert replayed(world.journal).log == world.run.log, "a replay leads elsewhere"
