"""Divergence: a function that does something else than its log says is stopped, not run on."""

from typing import Any

import pytest

from rota import Run
from rota.core.workflow.functions.model import Divergence
from tests.sdk.functions.recording import RecordedRun, run


async def a(number: int = 1) -> int:
    return number


async def b() -> str:
    return "b"


async def c() -> str:
    return "c"


async def before(ctx: Run) -> Any:
    await ctx.step(a)
    await ctx.step(b)
    return await ctx.event("go")


def diverged(after: Any, *, is_strict: bool = False) -> Divergence | None:
    """What happens to a run that began with `before`, and goes on with other code."""
    recorded = RecordedRun(before)
    run(recorded)
    log = list(recorded.log)
    recorded.signals["go"] = [1]
    recorded.advance()
    recorded.function, recorded.is_strict = after, is_strict
    report = run(recorded)
    if report.divergence is not None:
        assert report.operations == []
        assert [one for one in recorded.log if one.kind != "event"] == log[:2], "it ran on"
    return report.divergence


def test_equal_code_does_not_diverge() -> None:
    assert diverged(before) is None


def test_a_step_that_was_added_before_recorded_ones_diverges() -> None:
    ran: list[str] = []

    async def after(ctx: Run) -> Any:
        await ctx.step(a)
        await ctx.step(lambda: ran.append("added"))
        await ctx.step(b)
        return await ctx.event("go")

    found = diverged(after)

    assert found is not None
    assert found.attempted == "step lambda#1"
    assert found.recorded == ["step b#1", "event go#1"], "what it did not ask for"
    assert found.path == "b#1"
    assert found.recorded_line == before.__code__.co_firstlineno + 2
    assert found.attempted_line == after.__code__.co_firstlineno + 2
    assert ran == []


def test_another_kind_under_a_known_path_diverges() -> None:
    async def after(ctx: Run) -> Any:
        await ctx.step(a)
        await ctx.using(name="b").call("b", {})
        return await ctx.event("go")

    found = diverged(after)

    assert found is not None
    assert (found.path, found.attempted) == ("b#1", "call b#1")


def test_a_return_before_the_end_of_the_log_diverges() -> None:
    async def after(ctx: Run) -> Any:
        return await ctx.step(a)

    found = diverged(after)

    assert found is not None
    assert (found.path, found.attempted) == ("b#1", None)


def test_an_error_before_the_end_of_the_log_diverges_and_undoes_nothing() -> None:
    undone: list[int] = []

    async def after(ctx: Run) -> Any:
        await ctx.using(undo=undone.append).step(a)
        raise KeyError("the new code is broken")

    assert diverged(after) is not None
    assert undone == []


def test_a_step_that_was_added_at_the_end_does_not_diverge() -> None:
    async def after(ctx: Run) -> Any:
        await before(ctx)
        return await ctx.step(c)

    assert diverged(after) is None


def test_a_new_scope_beside_recorded_steps_does_not_diverge() -> None:
    async def after(ctx: Run) -> Any:
        with ctx.scope("audit"):
            await ctx.step(c)
        return await before(ctx)

    assert diverged(after) is None


@pytest.mark.parametrize("is_strict", [True, False])
def test_other_arguments_are_noted_and_diverge_if_strict(is_strict: bool) -> None:  # noqa: FBT001 - a parameter
    async def with_argument(ctx: Run) -> Any:
        await ctx.step(a, 1)
        return await ctx.event("go")

    async def with_other(ctx: Run) -> Any:
        await ctx.step(a, 2)
        return await ctx.event("go")

    recorded = RecordedRun(with_argument)
    run(recorded)
    recorded.function, recorded.is_strict = with_other, is_strict
    report = run(recorded)

    assert (report.divergence is not None) == is_strict
    assert recorded.runtime is not None
    assert recorded.runtime.ends.changed_arguments == ["a#1"]


def test_code_that_is_not_deterministic_diverges_at_its_next_replay() -> None:
    import itertools  # noqa: PLC0415 - only here

    counter = itertools.count()

    async def function(ctx: Run) -> Any:
        await ctx.using(name=f"step-{next(counter)}").step(b)
        return await ctx.event("go")

    recorded = RecordedRun(function)
    run(recorded)
    report = run(recorded)

    assert report.divergence is not None
