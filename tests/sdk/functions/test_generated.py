"""Generated functions that fail, undo, race and are cancelled: a replay equals the record."""

import asyncio
import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rota.core.workflow.functions.model import FunctionReport
from rota.errors import RotaError
from tests.sdk.functions.recording import RecordedRun

MOST_RESUMES = 500
NAMES = st.sampled_from(["a", "b"])
LEAVES = st.one_of(
    st.tuples(st.just("step"), NAMES),
    st.tuples(st.just("undoable"), NAMES),
    st.tuples(st.just("unlucky"), NAMES),  # a step whose first attempt fails
    st.tuples(st.just("broken"), NAMES),  # a step that fails for good
    st.tuples(st.just("once"), NAMES),
    st.tuples(st.just("call"), NAMES),
    st.tuples(st.just("called with undo"), NAMES),
    st.tuples(st.just("event"), NAMES),
    st.tuples(st.just("event or timeout"), NAMES),
    st.tuples(st.just("race"), NAMES),  # a signal against the clock
)
PROGRAMS = st.recursive(
    st.lists(LEAVES, max_size=4),
    lambda inner: st.lists(
        st.one_of(
            LEAVES,
            st.tuples(st.just("gather"), st.lists(inner, min_size=1, max_size=3)),
            st.tuples(st.just("first"), st.lists(inner, min_size=1, max_size=2)),
            st.tuples(st.just("try"), inner),
        ),
        max_size=4,
    ),
    max_leaves=10,
)


class Unlucky(Exception):  # noqa: N818 - what a step raises
    """An attempt fails."""


class Interpreter:
    """A function that does what a program says, and notes what it does."""

    def __init__(self, program: list[Any]) -> None:
        self.program = program
        self.effects: list[str] = []
        self.tried: set[str] = set()

    async def __call__(self, ctx: Any) -> Any:
        seen: list[Any] = []
        await self.run(ctx, self.program, seen, "")
        return seen

    async def run(self, ctx: Any, program: list[Any], seen: list[Any], where: str) -> None:
        for number, (kind, what) in enumerate(program):
            at = f"{where}{number}"
            seen.append([at, await self.do(ctx, kind, what, seen, at)])

    async def do(self, ctx: Any, kind: str, what: Any, seen: list[Any], at: str) -> Any:
        match kind:
            case "gather":
                branches = [
                    self.run(ctx, one, seen, f"{at}.{number}.") for number, one in enumerate(what)
                ]
                await ctx.gather(*branches)
                return "gathered"
            case "first":
                named = {
                    f"n{number}": self.run(ctx, one, seen, f"{at}.{number}.")
                    for number, one in enumerate(what)
                }
                return (await ctx.first(**named))[0]
            case "try":
                return await self.tried_run(ctx, what, seen, at)
            case "race":
                which, value = await ctx.first(signal=ctx.event(what), late=ctx.sleep(hours=1))
                return [which, value]
            case _:
                return await self.operation(ctx, kind, what, at)

    async def tried_run(self, ctx: Any, program: list[Any], seen: list[Any], at: str) -> str:
        try:
            with ctx.scope("tried"):
                await self.run(ctx, program, seen, f"{at}.")
        except (Unlucky, TimeoutError, RotaError) as error:
            return f"caught {type(error).__name__}"
        return "went well"

    def operation(self, ctx: Any, kind: str, name: str, at: str) -> Any:  # noqa: PLR0911 - a table
        named = ctx.using(name=name)
        match kind:
            case "step":
                return named.step(self.effect, at)
            case "undoable":
                return named.using(undo=self.undo).step(self.effect, at)
            case "unlucky":
                return named.step(self.unlucky, at)
            case "broken":
                return named.using(max_attempts=1).step(self.broken, at)
            case "once":
                return named.once(self.effect, at)
            case "call":
                return ctx.call(name, {})
            case "called with undo":
                return ctx.using(undo=self.undo).call(name, {})
            case "event":
                return ctx.event(name)
            case _:
                return ctx.using(timeout_ms=5).event(name)

    async def effect(self, at: str) -> str:
        self.effects.append(at)
        for _ in range(len(at) % 3):
            await asyncio.sleep(0)
        return at

    async def unlucky(self, at: str) -> str:
        if at not in self.tried:
            self.tried.add(at)
            raise Unlucky(at)
        return await self.effect(at)

    async def broken(self, at: str) -> None:
        await self.effect(at)
        raise Unlucky(at)

    async def undo(self, result: Any) -> None:
        self.effects.append(f"undo {result}")
        await asyncio.sleep(0)


def recorded_run(interpreter: Interpreter) -> RecordedRun:
    async def function(ctx: Any) -> Any:
        return await interpreter(ctx)

    return RecordedRun(function)


async def record(recorded: RecordedRun, dice: random.Random, cancel_at: int) -> FunctionReport:
    """Run to the end; what a run waits for succeeds, fails or is late, in any order."""
    for number in range(MOST_RESUMES):
        if number == cancel_at:
            recorded.cancelled = "enough"
        await recorded.resume()
        if recorded.ended is not None:
            return recorded.ended
        pending = sorted(recorded.pending)
        for path in dice.sample(pending, k=dice.randint(0, len(pending))):
            if path in recorded.pending:
                recorded.end(path, end_of(recorded, path, dice))
        while not recorded.is_due():
            path = dice.choice(sorted(recorded.pending))
            recorded.end(path, end_of(recorded, path, dice))
    raise AssertionError("the function never ends")


def end_of(recorded: RecordedRun, path: str, dice: random.Random) -> Any:
    kind = recorded.pending[path].kind
    if kind == "call" and dice.random() < 0.3:
        return {"failed": {"type": "error", "message": f"{path} failed"}}
    if kind == "event" and dice.random() < 0.3:
        return {"failed": {"type": "timeout", "message": f"nothing came for {path}"}}
    return None if kind == "sleep" else f"end of {path}"


async def replay(recorded: RecordedRun) -> FunctionReport:
    """The whole log, replayed by another worker."""
    again = RecordedRun(recorded.function)
    again.log, again.reported = list(recorded.log), recorded.reported
    again.cancelled = recorded.cancelled
    await again.resume()
    assert again.ended is not None
    assert again.log == recorded.log, "a replay adds to the log"
    return again.ended


def undone(recorded: RecordedRun) -> list[str]:
    return [one.path.removeprefix("undo/") for one in recorded.log if one.path.startswith("undo/")]


def undoable(recorded: RecordedRun) -> list[str]:
    """What is to be undone, in the order in which the function saw that it was done."""
    asked = {one.path for one in recorded.log if one.can_undo}
    failed = {one.path for one in recorded.log if one.state == "failed"}
    return [
        one.path
        for one in recorded.log
        if one.path in asked - failed
        and (one.state == "delivered" or (one.state == "done" and one.kind == "step"))
    ]


def check_same(first: FunctionReport, second: FunctionReport) -> None:
    assert second.divergence is None, second.divergence
    assert first.output == second.output
    assert _plain(first.error) == _plain(second.error)


def _plain(error: dict[str, Any] | None) -> Any:
    """An error without its trace, which has the frames of a replay in it."""
    if error is None:
        return None
    left = [one["path"] for one in error.get("not_undone", ())]
    return error["type"], error["message"], left


@given(PROGRAMS, st.integers(0, 2**32), st.booleans(), st.integers(0, 12))
def test_a_replay_of_failures_undos_races_and_cancels_gives_what_was_recorded(
    program: list[Any],
    seed: int,
    is_memory_kept: bool,  # noqa: FBT001 - generated
    cancel_at: int,
) -> None:
    async def main() -> None:
        interpreter = Interpreter(program)
        recorded = recorded_run(interpreter)
        recorded.is_memory_kept = is_memory_kept
        ended = await record(recorded, random.Random(seed), cancel_at)
        effects = list(interpreter.effects)

        assert len(set(effects)) == len(effects), "a step ran twice without a crash"
        check_same(ended, await replay(recorded))
        assert interpreter.effects == effects, "a replay ran a step"

    asyncio.run(main())


@given(PROGRAMS, st.integers(0, 2**32), st.integers(0, 12), st.integers(2, 15))
def test_what_was_done_is_undone_in_reverse_wherever_a_worker_dies(
    program: list[Any], seed: int, cancel_at: int, crash_at: int
) -> None:
    async def main() -> None:
        interpreter = Interpreter(program)
        recorded = recorded_run(interpreter)
        recorded.crash_at = crash_at

        ended = await record(recorded, random.Random(seed), cancel_at)

        assert ended.divergence is None
        if ended.error is None:
            assert undone(recorded) == []
        else:
            assert undone(recorded) == undoable(recorded)[::-1]
            assert "not_undone" not in ended.error
        check_same(ended, await replay(recorded))

    asyncio.run(main())
