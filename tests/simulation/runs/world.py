"""Runs of drawn workflows, with sub-workflows, and all that may befall them, from one seed.

The rules alone are simulated: tasks are plain functions, and time is turned by hand.
"""

import random
from dataclasses import dataclass

from rota.core.workflow.commands import SignalRun
from rota.core.workflow.decisions import CreateToken, RunDecision, SetTokenState
from rota.core.workflow.definition.model import Definition
from rota.core.workflow.events import RunEvent
from rota.core.workflow.runtime import signals
from rota.core.workflow.states import TokenState
from rota.errors import RotaError
from tests.core.workflow.driving import defined
from tests.core.workflow.test_properties import World
from tests.core.workflow.undoing import out_of_order, unpaired
from tests.old_stores.journals import thrown_definition
from tests.simulation.runs.profiles import Profile
from tests.simulation.trace import Violation

MOST_STEPS = 3_000
ASKING = (TokenState.PENDING, TokenState.WAITING_FOR_EVENT)
ANSWERED = (TokenState.COMPLETED, TokenState.FAILED, TokenState.WAITING_FOR_SIBLINGS)
STARTED = (TokenState.DISPATCHED, TokenState.WAITING_FOR_SUBWORKFLOW, TokenState.EXECUTING)
ROUNDS = """
name: rounds
initial_node: draft
nodes: {draft: {task: work, input: {of: "1"}}, ask: {approval: true}, publish: {task: pay}}
transitions:
  - {from: draft, to: ask}
  - {from: ask, to: draft, max_iterations: 3}
  - {from: ask, to: publish, priority: 2}
"""


@dataclass(frozen=True)
class Outcome:
    """What came of a schedule."""

    state: str
    steps: int
    undone: int
    answers: int
    refused: int


class RunWorld(World):
    """A run whose questions are answered by people, some of them twice, or before they are asked.

    Every token that asks must be answered by an answer that names it.
    """

    @property
    def answered(self) -> dict[int, str]:
        found: dict[int, str] = self.__dict__.setdefault("_answered", {})
        return found

    answers = 0
    refused = 0

    def approve(self) -> None:
        """Answer a question of each kind that can be seen."""
        for name, tokens in list(self.run.waiting.items()):
            if name != "go" and tokens:
                self.reply(name, next(iter(tokens)))

    def answer_again(self) -> None:
        """Answer a question that was answered before, or one that nobody asks."""
        if self.answered and self.random.random() < 0.7:
            token, name = self.random.choice(list(self.answered.items()))
            self.reply(name, token)
        elif self.graph.approvals:
            name = self.random.choice(sorted(self.graph.approvals))
            if name not in self.run.waiting:
                self.reply(name, None)

    def reply(self, name: str, token: int | None) -> None:
        """Send an answer as a gateway does, which refuses it if nothing asks for it."""
        self.answers += 1
        try:
            signals.check(self.run, SignalRun(run_id=1, name=name, token=token))
        except RotaError:
            self.refused += 1
            return
        if token is not None and token in self.run.tokens:
            self.answered[token] = name
        self.signal(name, {"approved": self.random.random() < 0.9}, token=token)

    def feed(self, event: RunEvent) -> list[RunDecision]:
        """Apply an event, which must not start or cancel more nodes than a slice has steps."""
        pending = {one for one, state in self.states.items() if state is TokenState.PENDING}
        decisions = super().feed(event)
        pending |= {one.number for one in decisions if isinstance(one, CreateToken)}
        started = {
            one.number
            for one in decisions
            if isinstance(one, SetTokenState) and one.number in pending and one.state in STARTED
        }
        if self.slice_steps is not None and len(started) > self.slice_steps:
            raise Violation(f"an event has started {len(started)} nodes")
        ended = sum(
            isinstance(one, SetTokenState) and one.state is TokenState.CANCELLED
            for one in decisions
        )
        if self.slice_steps is not None and ended > self.slice_steps:
            raise Violation(f"an event has cancelled {ended} tokens")
        return decisions

    def _carry_out(self, decision: RunDecision) -> None:
        before = None
        if isinstance(decision, SetTokenState):
            before = self.states[decision.number]
        super()._carry_out(decision)
        if not isinstance(decision, SetTokenState) or before not in ASKING:
            return
        node = self.graph.definition.nodes[self.token_nodes[decision.number]]
        is_answered = node.kind == "approval" and decision.state in ANSWERED
        if is_answered and decision.number not in self.answered:
            raise Violation(f"token {decision.number} was answered, although nobody answered it")


def simulate(seed: int, profile: Profile) -> Outcome:
    """Run one schedule to its end; raise `Violation` when a promise is broken."""
    try:
        return _simulated(seed, profile)
    except (AssertionError, KeyError) as error:  # of the checks after every event, or of the rules
        raise Violation(str(error)) from error


def _simulated(seed: int, profile: Profile) -> Outcome:
    dice = random.Random(f"{seed} {profile.name}")
    world = RunWorld.begun(_definition(dice, profile), seed, profile.trouble, profile.slice_steps)
    assert isinstance(world, RunWorld)
    for step in range(MOST_STEPS):
        if world.is_ended:
            _check_end(world)
            if world.state not in {"failed", "timed_out"} or dice.random() >= profile.retries:
                undone = sum(one.task == "undo" for one in world.performed)
                return Outcome(world.state, step, undone, world.answers, world.refused)
            world.retry()
        elif dice.random() < profile.cancels:
            world.cancel("enough")
        elif dice.random() < profile.stale_answers:
            world.answer_again()
        else:
            world.happen()
    raise Violation("the run does not end")


def _definition(dice: random.Random, profile: Profile) -> Definition:
    if profile.stale_answers and dice.random() < 0.5:
        return defined(ROUNDS)
    return thrown_definition(dice)


def _check_end(world: World) -> None:
    """A run that has not completed has undone all that was done in it, the last first."""
    left = unpaired(world.performed)
    if world.state != "completed" and left:
        raise Violation(f"{len(left)} payments were not undone")
    wrong = out_of_order(world.performed)
    if wrong:
        raise Violation(f"{len(wrong)} payments were undone before a later one")
    world.restart()
