"""One schedule of a function that races, fails and is cancelled, and broken rules of that."""

import random
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from rota.core.workflow.functions import operations, reducer, rewriting, signals
from rota.core.workflow.functions.model import Operation
from rota.core.workflow.functions.run import CodeRun
from tests.core.workflow.racing import CHECKS, Kind, RacingWorld, Statement
from tests.simulation.functions.world import Profile
from tests.simulation.mutation import Mutants
from tests.simulation.trace import Violation

KINDS: tuple[Kind, ...] = ("step", "call", "map", "run", "sleep", "event", "race")
MOST_STEPS = 1_000
RACES = Profile("races")

RACE_MUTANTS = Mutants[Profile](seeds=300)
mutant = RACE_MUTANTS.add


def simulate_race(seed: int, _profile: Profile) -> None:
    """Run a schedule; raises `Violation` when a promise is broken."""
    dice = random.Random(seed)
    script = tuple(
        Statement(dice.choice(KINDS), is_guarded=dice.random() < 0.5, can_undo=dice.random() < 0.5)
        for _ in range(dice.randint(1, 6))
    )
    world = RacingWorld(script)
    try:
        world.start()
        for _ in range(MOST_STEPS):
            if world.run.is_ended:
                break
            world.happen(dice.choice(world.choices()), dice.randint(0, 7))
        assert world.run.is_ended, "the run does not end"
        for check in CHECKS:
            check(world)
    except (AssertionError, KeyError, ValueError) as error:
        raise Violation(f"seed {seed}: {error!r}") from error


@mutant(RACES)
def a_signal_that_the_loser_has_taken_is_lost() -> Iterator[None]:
    def forget(run: CodeRun, path: str) -> None:
        run.unseen.pop(path, None)

    with patch.object(operations, "give_back_signal", forget):
        yield


@mutant(RACES)
def the_loser_of_a_race_stays_pending() -> Iterator[None]:
    def keep(run: CodeRun, operation: Operation) -> None:
        run.append(operation)

    with patch.object(operations, "withdraw", keep):
        yield


@mutant(RACES)
def a_signal_is_taken_out_of_order() -> Iterator[None]:
    put_aside = signals.put_aside

    def newest_first(run: CodeRun, name: str, signal: Any) -> None:
        put_aside(run, name, signal)
        run.signals[name].rotate(1)

    with patch.object(signals, "put_aside", newest_first):
        yield


@mutant(RACES)
def the_end_of_a_run_leaves_its_operations_under_way() -> Iterator[None]:
    with patch.object(operations, "cancel_all", lambda _: None):
        yield


@mutant(RACES)
def a_forced_end_does_not_say_what_was_not_undone() -> Iterator[None]:
    def nothing(_: CodeRun) -> list[dict[str, Any]]:
        return []

    with patch.object(rewriting, "not_undone", nothing):
        yield


@mutant(RACES)
def a_cancellation_does_not_resume_the_function() -> Iterator[None]:
    tell = reducer._tell_cancelled

    def whisper(run: CodeRun, reason: str) -> None:
        is_due = run.is_due
        tell(run, reason)
        run.is_due = is_due

    with patch.object(reducer, "_tell_cancelled", whisper):
        yield
