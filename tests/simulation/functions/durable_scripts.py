"""Functions that are drawn from dice: what they do, and what must come of it."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, assert_never

from msgspec import Raw

from rota.core.workflow.functions.model import TASK_PREFIX
from rota.sdk.encoding import encode
from rota.sdk.functions.context import FunctionContext
from rota.sdk.functions.execution.runtime import FunctionRuntime
from rota.sdk.functions.operations import CodeTarget, Operations
from tests.simulation.functions.ledger import Play

Kind = Literal["step", "undoable", "call", "map", "run", "sleep", "event", "race"]
KINDS: tuple[Kind, ...] = ("step", "undoable", "call", "map", "run", "sleep", "event", "race")


class Broken(Exception):  # noqa: N818 - what a step raises
    """A step fails for good."""


@dataclass(frozen=True)
class Leaf:
    kind: Kind
    name: str


Statement = tuple[tuple[Leaf, ...], ...]  # branches side by side, each a list of operations


@dataclass(frozen=True)
class Script:
    """What a function does, one statement after the other; then it returns, or fails."""

    statements: tuple[Statement, ...]
    fails: bool = False

    @property
    def leaves(self) -> list[Leaf]:
        return [leaf for one in self.statements for branch in one for leaf in branch]

    @property
    def events(self) -> list[str]:
        return [leaf.name for leaf in self.leaves if leaf.kind in {"event", "race"}]


def drawn(dice: random.Random) -> Script:
    names = iter(f"o{number}" for number in range(1_000))

    def branch() -> tuple[Leaf, ...]:
        return tuple(Leaf(dice.choice(KINDS), next(names)) for _ in range(dice.randint(1, 2)))

    statements = tuple(
        tuple(branch() for _ in range(dice.choice((1, 1, 2, 3)))) for _ in range(dice.randint(1, 4))
    )
    return Script(statements, fails=dice.random() < 0.3)


CHILD = Script(((((Leaf("step", "inner")),),),))
# One of each kind, alone and beside others: what is tried with a crash at every await.
EVERYTHING = Script(
    (
        ((Leaf("undoable", "a"),),),
        ((Leaf("step", "b"), Leaf("call", "c")), (Leaf("undoable", "d"), Leaf("step", "e"))),
        ((Leaf("map", "f"),), (Leaf("run", "g"),)),
        ((Leaf("race", "h"),), (Leaf("sleep", "i"), Leaf("step", "j"))),
        ((Leaf("event", "k"),),),
    )
)
FAILING = Script(EVERYTHING.statements[:2], fails=True)


class Surroundings(Protocol):
    """The process that a function runs in, as its steps need it."""

    async def effect(self, play: Play, key: str) -> None: ...
    def saw(self, play: Play, key: str, *, is_step: bool) -> None: ...
    def caught(self, error: Exception) -> None: ...
    def begin_play(self, run_id: str) -> Play: ...


class ScriptedFunction(CodeTarget[..., Any]):
    """A script as a worker's host runs it."""

    is_async = True
    is_strict = False
    deployed_version: int | None = None

    def __init__(self, name: str, script: Script, process: Surroundings) -> None:
        self.name = name
        self._script = script
        self._process = process

    @property
    def task(self) -> str:
        return TASK_PREFIX + self.name

    def encode_input(self, args: Any, kwargs: Any) -> Raw:  # noqa: ARG002 - it has no input
        return Raw(encode({}))

    def body(
        self,
        runtime: FunctionRuntime,
        run_input: Raw,  # noqa: ARG002 - as above
        dice: random.Random | None = None,
    ) -> Callable[[], Awaitable[Raw]]:
        async def run() -> Raw:
            ctx = FunctionContext(Operations(runtime, self, dice=dice))
            play = self._process.begin_play(runtime.run_id)
            return Raw(encode(await _Performance(ctx, play, self._process).run(self._script)))

        return run


class _Performance:
    def __init__(self, ctx: FunctionContext, play: Play, process: Surroundings) -> None:
        self._ctx = ctx
        self._play = play
        self._process = process

    async def run(self, script: Script) -> list[Any]:
        results = []
        for branches in script.statements:
            if len(branches) == 1:
                results.append([await self._branch(branches[0])])
            else:
                results.append([*await self._ctx.gather(*map(self._branch, branches))])
        if script.fails:
            await self._leaf(Leaf("step", "last"))
            raise Broken("out of stock")
        return results

    async def _branch(self, leaves: tuple[Leaf, ...]) -> list[Any]:
        return [await self._leaf(one) for one in leaves]

    async def _leaf(self, leaf: Leaf) -> Any:
        self._play.asked[leaf.name] = len(self._play.steps)
        try:
            value = await self._begun(leaf)
        except Exception as error:
            self._process.caught(error)
            raise
        if leaf.kind != "race":
            is_step = leaf.kind in {"step", "undoable"}
            self._process.saw(self._play, leaf.name, is_step=is_step)
        return value

    def _begun(self, leaf: Leaf) -> Awaitable[Any]:  # noqa: PLR0911 - a table
        name, ctx = leaf.name, self._ctx.using(name=leaf.name)
        match leaf.kind:
            case "step":
                return ctx.step(self._effect, name)
            case "undoable":
                return ctx.using(undo=self._undo).step(self._effect, name)
            case "call":
                return ctx.call("work", {"of": name})
            case "map":
                return ctx.map("work", [{"of": name}] * 3, max_parallel=2)
            case "run":
                return ctx.run("child")
            case "sleep":
                return ctx.sleep(seconds=3)
            case "event":
                return ctx.event(name)
            case "race":
                return self._race(name)
            case _:
                assert_never(leaf.kind)

    async def _race(self, name: str) -> str:
        """A signal against the clock: one of them wins, and the other is given up."""

        async def signal() -> None:
            await self._ctx.event(name)
            self._process.saw(self._play, name, is_step=False)

        async def clock() -> None:
            await self._ctx.using(name=f"{name}-late").sleep(seconds=2)
            self._process.saw(self._play, f"{name}-late", is_step=False)

        which, _ = await self._ctx.first(signal=signal(), clock=clock())
        return which

    async def _effect(self, name: str) -> str:
        await self._process.effect(self._play, name)
        return f"{name}!"

    async def _undo(self, result: str) -> None:
        await self._process.effect(self._play, f"undo {result.removesuffix('!')}")


def results_of(script: Script, output: list[Any]) -> list[Any]:
    """What the function must return; of a race, what it did return, if that can be."""
    flat = [value for one in output for branch in one for value in branch]
    races = {leaf.name: value for leaf, value in zip(script.leaves, flat, strict=True)}

    values: dict[Kind, Callable[[str], Any]] = {
        "step": lambda name: f"{name}!",
        "undoable": lambda name: f"{name}!",
        "call": lambda name: {"of": name},
        "map": lambda name: [{"of": name}] * 3,
        "run": lambda _: [[["inner!"]]],
        "sleep": lambda _: None,
        "event": lambda name: f"signal {name}",
        "race": lambda name: races[name] if races[name] in {"signal", "clock"} else "a winner",
    }

    return [
        [[values[leaf.kind](leaf.name) for leaf in branch] for branch in one]
        for one in script.statements
    ]


async def turns(dice: random.Random) -> None:
    """Let others go on for a while, or for some turns of the loop."""
    if dice.random() < 0.5:
        await asyncio.sleep(dice.choice((0.001, 0.05, 0.4)))
    else:
        for _ in range(dice.randint(0, 3)):
            await asyncio.sleep(0)
