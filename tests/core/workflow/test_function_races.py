"""The rules of functions that fail, undo, race and are cancelled, in any order of events."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.workflow.racing import CHECKS, Kind, RacingWorld, Script, Statement

MOST_STEPS = 1_000
KINDS: list[Kind] = ["step", "call", "map", "run", "sleep", "event", "race"]

statements = st.builds(
    Statement, kind=st.sampled_from(KINDS), is_guarded=st.booleans(), can_undo=st.booleans()
)
scripts = st.lists(statements, min_size=1, max_size=6).map(tuple)


@pytest.mark.parametrize("check", CHECKS, ids=lambda one: one.__name__)
@given(script=scripts, data=st.data())
def test_a_function_that_fails_races_or_is_cancelled_keeps_the_rules(
    check: Callable[[RacingWorld], None], script: Script, data: st.DataObject
) -> None:
    world = RacingWorld(script)
    world.start()

    for _ in range(MOST_STEPS):
        if world.run.is_ended:
            break
        choice = data.draw(st.sampled_from(world.choices()))
        world.happen(choice, data.draw(st.integers(0, 7)))

    assert world.run.is_ended
    check(world)
