"""Any graph runs to its end, in any order of arrival."""

import re
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from rota.core.workflow.decisions import (
    CloseScope,
    CreateToken,
    ExtendScope,
    OpenScope,
    SetBranchState,
    WriteContext,
)
from rota.core.workflow.definition.model import Definition
from rota.core.workflow.definition.validator import problems_of
from rota.core.workflow.states import BranchState, ScopeAction
from tests.core.workflow.driving import Drive, Failed
from tests.core.workflow.growing import CHILD, definitions
from tests.core.workflow.undoing import out_of_order, unpaired

ENDS: tuple[ScopeAction, ...] = ("complete", "cancel")
INPUT = {"n": 4, "lists": [["x"] * width for width in range(5)]}


NOT_JOINED = ("the branch it was in", "all its branches have ended", "a caller cancelled it")


class World(Drive):
    """A run whose tasks fail now and then, and to which all kinds of things happen."""

    trouble = 0.0

    @classmethod
    def begun(
        cls, definition: Definition, seed: int, trouble: float, slice_steps: int | None = None
    ) -> "World":
        handlers: dict[str, Any] = {"undo": lambda _: None}
        world = cls(
            definition,
            INPUT,
            handlers,
            workflows={"child": CHILD},
            seed=seed,
            slice_steps=slice_steps,
        )
        world.trouble = trouble
        handlers["work"] = handlers["pay"] = world.work
        return world

    def happen(self) -> None:  # noqa: C901 - a table
        dice = self.random.random()
        if dice < 0.15:
            self.restart()
        elif self.run.deferred and dice < 0.6:  # slices come sooner than other events
            self.turn_clock()
        elif dice < 0.2 and self.state == "running":
            self.pause()
            self.resume() if self.random.random() < 0.3 else None
        elif dice < 0.25:
            self.signal("go", dice)
        elif dice < 0.28 and self.run.timers:
            self.turn_clock()
        elif dice < 0.3:
            self.approve()
        elif dice < 0.31:
            self.signal("enough")
        elif dice < 0.32:
            self.end_scope()
        elif dice < 0.36:
            self.grow_scope()
        elif self.state == "paused" and (dice < 0.6 or not self.tasks):
            self.resume()
        elif not self.tasks and not self.children and not self.run.timers:
            self.signal("go")
            self.grow_scope(is_last=True)
        else:
            self.step()

    def approve(self) -> None:
        for name in list(self.run.waiting):
            if name != "go":
                self.signal(name, {"approved": self.random.random() < 0.7})

    def end_scope(self) -> None:
        """Complete or cancel one of the open scopes."""
        if self.run.scopes:
            number = self.random.choice(list(self.run.scopes))
            has_join = self.graph.joins_of(self.run.scopes[number].key)
            self.steer_scope(number, self.random.choice(ENDS if has_join else ENDS[1:]))

    def grow_scope(self, *, is_last: bool | None = None) -> None:
        """Add branches to one of the scopes that take them, perhaps the last ones."""
        growing = [one.number for one in self.run.scopes.values() if one.open is not None]
        if growing and self.run.failure is None:
            count = self.random.randrange(3)
            closes = self.random.random() < 0.5 if is_last is None else is_last
            number = self.random.choice(growing)
            if len(self.run.scopes[number].targets) + count < 8:
                self.add_branches(number, ["x"] * count, is_last=closes or not count)
            else:
                self.add_branches(number, [], is_last=True)

    def work(self, payload: Any) -> Any:
        if payload is not None and "mark" in payload:
            assert payload["mark"] == payload["of"], "a branch saw another one's data"
        if self.random.random() < self.trouble:
            raise Failed
        return {"of": (payload or {}).get("of"), "n": self.random.random()}

    def live(self) -> "World":
        for _ in range(5_000):
            if self.is_ended:
                return self
            self.happen()
        raise AssertionError(f"does not end: {self.run.tokens} {self.run.scopes}")


def run_world(
    definition: Definition, seed: int, trouble: float, slice_steps: int | None = None
) -> World:
    return World.begun(definition, seed, trouble, slice_steps).live()


def check_story(world: World) -> None:
    """What the journal tells must hold together."""
    scopes = {one.number: one for one in world.of_kind(OpenScope)}
    closed: set[int] = set()
    states: dict[tuple[int, int], BranchState] = {}
    tokens = {one.number: one for one in world.of_kind(CreateToken)}
    writes: dict[str, Any] = {}
    for one in world.decisions:
        match one:
            case SetBranchState():
                states[one.scope, one.index] = one.state
            case WriteContext():
                writes[one.path[-1]] = one.value
            case ExtendScope():
                scope = scopes[one.number]
                scopes[one.number] = msgspec.structs.replace(scope, total=scope.total + one.count)
            case CloseScope():
                assert one.number not in closed, "a join fired twice"
                closed.add(one.number)
                _check_merge(scopes[one.number], states, writes, one.because)
            case _:
                pass
    if world.state == "completed":
        assert closed == set(scopes), "a scope was left open"
    assert len(tokens) == world.run.last_token
    assert all(
        state in {"completed", "failed", "timed_out", "cancelled"}
        for state in world.states.values()
    )


def _check_merge(
    scope: OpenScope, states: dict[tuple[int, int], Any], writes: dict[str, Any], because: str
) -> None:
    if because.startswith(NOT_JOINED):
        return
    merged = writes[f"{scope.key}_arrived"]
    arrived = [
        index
        for index in range(scope.total)
        if states.get((scope.number, index)) is BranchState.ARRIVED
    ]
    quorum = re.match(r"(\d+) of \d+ branches", because)
    assert quorum is None or len(arrived) == int(quorum.group(1)), "fired too late"
    if because.startswith("all branches"):
        assert all(
            states.get((scope.number, index)) is not BranchState.LIVE
            for index in range(scope.total)
        ), "fired too early"
    assert merged == arrived, "the merge holds other branches than those that arrived"
    assert writes[f"{scope.key}_marks"] == {str(index): index for index in arrived}
    failed = [
        index
        for index in range(scope.total)
        if states.get((scope.number, index)) is BranchState.FAILED
    ]
    assert len(writes[f"{scope.key}_failed"]) == len(failed)


@pytest.mark.slow
@settings(
    max_examples=2_000,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    definition=definitions(),
    seed=st.integers(0, 2**32),
    trouble=st.sampled_from([0.0, 0.05, 0.3]),
    slice_steps=st.sampled_from([None, None, 1, 3]),
)
def test_any_graph_runs_to_its_end_in_any_order_of_arrival(
    definition: Definition, seed: int, trouble: float, slice_steps: int | None
) -> None:
    assert not problems_of(definition)

    world = run_world(definition, seed, trouble, slice_steps)

    assert world.endings() == 1
    check_story(world)
    assert world.state == "completed" or not unpaired(world.performed)
    assert not out_of_order(world.performed)
    world.restart()
    if not trouble and world.state == "failed":
        assert world.error["type"] in {"quorum_unreachable", "join_timeout", "timeout"}


@pytest.mark.slow
@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    definition=definitions(),
    seed=st.integers(0, 2**32),
    slice_steps=st.sampled_from([None, 1, 3]),
)
def test_any_failed_run_goes_on_when_it_is_retried(
    definition: Definition, seed: int, slice_steps: int | None
) -> None:
    world = run_world(definition, seed, 0.3, slice_steps)
    for retries in range(1, 20):
        if world.state != "failed":
            break
        world.trouble = 0.0
        world.retry()
        world.live()
        world.restart()

        assert world.endings() == retries + 1


@pytest.mark.slow
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(definition=definitions(), seed=st.integers(0, 2**32), steps=st.integers(0, 15))
def test_any_run_can_be_cancelled_at_any_time(
    definition: Definition, seed: int, steps: int
) -> None:
    world = World.begun(definition, seed, 0.1, 1 + seed % 4)
    for _ in range(steps):
        if not world.is_ended:
            world.happen()
    was_ended = world.is_ended

    world.cancel("enough")
    world.trouble = 0.0
    world.live()

    assert was_ended or world.state == "cancelled" or "cancelled" in world.error
    assert not world.tasks
    assert not world.children
    assert was_ended or not unpaired(world.performed)
    world.restart()


@pytest.mark.slow
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(definition=definitions(), seed=st.integers(0, 2**32), steps=st.integers(0, 25))
def test_any_run_can_be_cancelled_by_force_and_tells_what_it_has_not_undone(
    definition: Definition, seed: int, steps: int
) -> None:
    world = World.begun(definition, seed, 0.3)
    for _ in range(steps):
        if not world.is_ended:
            world.happen()
    assume(not world.is_ended)

    world.cancel("enough", "force")
    while ("slice", 0) in world.run.timers:  # an event may have left its steps to a slice
        world.turn_clock()

    assert world.is_ended
    assert not world.tasks
    assert not world.children
    assert len(world.error.get("not_undone", ())) >= len(unpaired(world.performed))
    world.restart()
