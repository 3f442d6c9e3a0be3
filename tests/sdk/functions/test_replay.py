"""Replay equals record: whatever the interleaving, and wherever a worker dies."""

import asyncio
import random
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sdk.functions.recording import RecordedRun, run

NAMES = st.sampled_from(["a", "b", "c"])
LEAVES = st.one_of(
    st.tuples(st.just("step"), NAMES),
    st.tuples(st.just("quick"), NAMES),  # a step that is committed with the next one
    st.tuples(st.just("call"), NAMES),
    st.tuples(st.just("event"), NAMES),
    st.tuples(st.just("sleep"), st.just("s")),
    st.tuples(st.just("publish"), NAMES),
    st.tuples(st.just("once"), NAMES),
)
PROGRAMS = st.recursive(
    st.lists(LEAVES, max_size=4),
    lambda inner: st.lists(
        st.one_of(
            LEAVES,
            st.tuples(st.just("gather"), st.lists(inner, min_size=1, max_size=3)),
            st.tuples(st.just("first"), st.lists(inner, min_size=1, max_size=3)),
            st.tuples(st.just("scope"), inner),
        ),
        max_size=4,
    ),
    max_leaves=12,
)


class Interpreter:
    """A function that does what a program says, and counts what it does."""

    def __init__(self, program: list[Any]) -> None:
        self.program = program
        self.effects: list[str] = []

    async def effect(self, name: str, turns: int) -> str:
        self.effects.append(name)
        for _ in range(turns):
            await asyncio.sleep(0)
        return name.upper()

    async def __call__(self, ctx: Any) -> Any:
        seen: list[Any] = []  # across branches: their interleaving must be the same
        await self.run(ctx, self.program, seen, "")
        return [seen, ctx.random(), ctx.now().isoformat()]

    async def run(self, ctx: Any, program: list[Any], seen: list[Any], where: str) -> None:
        for number, (kind, what) in enumerate(program):
            at = f"{where}{number}"
            seen.append([at, await self.do(ctx, kind, what, seen, at), len(seen)])

    async def do(self, ctx: Any, kind: str, what: Any, seen: list[Any], at: str) -> Any:  # noqa: PLR0911 - a table
        match kind:
            case "step":
                return await ctx.using(name=what).step(self.effect, at, len(at) % 3)
            case "quick":
                quick = ctx.using(name=what, checkpoint="with_next")
                return await quick.step(self.effect, f"{at}?", len(at) % 3)
            case "once":
                return await ctx.using(name=what).once(self.effect, at, len(at) % 3)
            case "call":
                return await ctx.call(what, {})
            case "event":
                return await ctx.event(what)
            case "sleep":
                return await ctx.sleep(hours=1)
            case "publish":
                return ctx.publish(what, at)
            case "scope":
                with ctx.scope("inner"):
                    return await self.run(ctx, what, seen, f"{at}.")
            case "gather":
                branches = [
                    self.run(ctx, one, seen, f"{at}.{number}.") for number, one in enumerate(what)
                ]
                await ctx.gather(*branches)
                return "gathered"
            case _:
                named = {
                    f"n{number}": self.run(ctx, one, seen, f"{at}.{number}.")
                    for number, one in enumerate(what)
                }
                which, _ = await ctx.first(**named)
                return which


# `iscoroutinefunction` must see it.
def function_of(interpreter: Interpreter) -> Any:
    async def function(ctx: Any) -> Any:
        return await interpreter(ctx)

    return function


def by_place(output: Any) -> list[Any]:
    """What each place of a program has seen, whichever branch of a `gather` began first."""
    return sorted((at, repr(value)) for at, value, _ in output[0])


async def drive(recorded: RecordedRun, dice: random.Random) -> Any:
    """Run to the end; what a run waits for ends in any order, alone or together."""
    for _ in range(500):
        await recorded.resume()
        if recorded.ended is not None:
            return recorded.output
        pending = sorted(recorded.pending)
        if not pending and recorded.waits is not None and not recorded.is_due():
            raise AssertionError("the function waits for nothing")
        for path in dice.sample(pending, k=dice.randint(0, len(pending))):
            if path in recorded.pending:
                recorded.end(path, f"end of {path}")
        while recorded.waits is not None and not recorded.is_due():
            recorded.end(dice.choice(sorted(recorded.pending)), "late")
    raise AssertionError("the function never ends")


async def replayed(recorded: RecordedRun, seed: int | None = None) -> Any:
    """The output of the whole log, replayed by another worker."""
    again = RecordedRun(recorded.function)
    again.log, again.reported = list(recorded.log), recorded.reported
    again.dice = None if seed is None else random.Random(seed)
    await again.resume()
    assert again.ended is not None
    assert [one for one in again.log if one not in recorded.log] == []
    return again.output


@given(PROGRAMS, st.integers(0, 2**32), st.booleans())
def test_a_replay_of_any_interleaving_gives_what_was_recorded(
    program: list[Any],
    seed: int,
    is_memory_kept: bool,  # noqa: FBT001 - generated
) -> None:
    async def main() -> None:
        interpreter = Interpreter(program)
        recorded = RecordedRun(function_of(interpreter))
        recorded.is_memory_kept = is_memory_kept
        output = await drive(recorded, random.Random(seed))
        effects = list(interpreter.effects)

        assert len(set(effects)) == len(effects), "a step ran twice without a crash"
        assert await replayed(recorded) == output
        shuffled = await replayed(recorded, seed=seed)
        assert by_place(shuffled) == by_place(output), "the order of ready branches counts"
        assert interpreter.effects == effects, "a replay ran a step"

    asyncio.run(main())


@given(PROGRAMS, st.integers(0, 2**32), st.integers(2, 9))
def test_a_step_does_not_run_again_once_it_is_committed(
    program: list[Any], seed: int, crash_at: int
) -> None:
    async def main() -> None:
        interpreter = Interpreter(program)
        recorded = RecordedRun(function_of(interpreter))
        recorded.crash_at = crash_at
        dice = random.Random(seed)
        committed: set[str] = set()
        effects: list[str] = []

        for _ in range(500):
            before = len(interpreter.effects)
            await recorded.resume()
            again = [one for one in interpreter.effects[before:] if one in committed]
            assert again == []
            if recorded.ended is not None:
                break
            effects = list(interpreter.effects)
            done = {
                one.result
                for one in recorded.log
                if one.kind in {"step", "once"} and one.state == "done"
            }
            committed = {one for one in effects if one.upper() in done}
            for path in sorted(recorded.pending):
                if dice.random() < 0.5 or recorded.waits is not None:
                    recorded.end(path, f"end of {path}")
        assert recorded.ended is not None
        unknown = recorded.ended.error
        assert unknown is None or unknown["type"] == "unknown_outcome"
        if unknown is None:
            assert await replayed(recorded) == recorded.output

    asyncio.run(main())


async def double(number: int) -> int:
    return number * 2


async def three_kinds(ctx: Any) -> list[Any]:
    first = await ctx.step(double, 1)
    both = await ctx.gather(ctx.step(double, first), ctx.using(undo=lambda: None).step(double, 5))
    which, paid = await ctx.first(paid=ctx.event("paid"), late=ctx.sleep(days=3))
    ctx.publish("status", which)
    return [first, both, which, paid, ctx.random(), str(ctx.uuid()), ctx.now().isoformat()]


@pytest.mark.parametrize("crash_at", range(2, 12))
def test_a_worker_may_die_before_and_after_every_report(crash_at: int) -> None:
    expected = RecordedRun(three_kinds)
    expected.signals["paid"] = [7]
    run(expected)
    recorded = RecordedRun(three_kinds)
    recorded.signals["paid"] = [7]
    recorded.crash_at = crash_at

    run(recorded)

    assert recorded.output[:6] == expected.output[:6]
    assert recorded.paths == expected.paths


@pytest.mark.parametrize("length", range(30))
def test_a_worker_may_take_over_at_every_entry_of_the_log(length: int) -> None:
    """Each prefix of the log is one that a dead worker may have left."""
    whole = RecordedRun(three_kinds)
    whole.signals["paid"] = [7]
    run(whole)
    recorded = RecordedRun(three_kinds)
    recorded.log = whole.log[:length]
    by_function = [one for one in recorded.log if one not in whole.unseen]
    ends = {one.path for one in whole.log if one.state == "pending"}
    recorded.reported = sum(not (one.path in ends and one.state == "done") for one in by_function)
    recorded.signals["paid"] = [] if any(one.result == 7 for one in recorded.log) else [7]
    recorded.advance()

    run(recorded)

    assert recorded.output[:6] == whole.output[:6]


def test_a_thousand_recorded_steps_are_replayed_in_a_tenth_of_a_second() -> None:
    async def long(ctx: Any) -> int:
        return sum([await ctx.step(double, number) for number in range(1_000)])

    recorded = RecordedRun(long)
    run(recorded)
    assert len(recorded.log) == 1_000

    async def replay() -> float:
        again = RecordedRun(recorded.function)
        again.log, again.reported = list(recorded.log), recorded.reported
        began = time.process_time()  # other processes of the machine do not count
        await again.resume()
        took_s = time.process_time() - began
        assert again.output == 999_000
        return took_s

    took_s = min(asyncio.run(replay()) for _ in range(3))

    assert took_s < 0.1
