"""Versions of functions: what makes one, and how a run goes on that has diverged."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from rota import Rota, Run
from rota.sdk.functions.definitions import FunctionSource
from rota.sdk.functions.workflow import CodeWorkflow
from rota.sdk.workflow import Workflow
from tests.sdk.functions.recording import RecordedRun, run


async def price(number: int) -> int:
    return number * 10


async def original(ctx: Run, number: int) -> int:
    """Sell something."""
    total = await ctx.step(price, number)
    return total + 1


def rewritten() -> Callable[..., Any]:
    # fmt: off
    async def original(ctx: Run, number: int) -> int:
        # Another comment, another layout, another description.
        total = await ctx.step(price,
                               number)

        return (total + 1)
    # fmt: on
    return original


def changed() -> Callable[..., Any]:
    async def original(ctx: Run, number: int) -> int:
        total = await ctx.step(price, number)
        return total + 2

    return original


def fingerprint_of(function: Callable[..., Any]) -> str:
    return FunctionSource(function).fingerprint


def test_comments_layout_and_descriptions_make_no_version_and_code_does() -> None:
    assert fingerprint_of(rewritten()) == fingerprint_of(original)
    assert fingerprint_of(changed()) != fingerprint_of(original)


def test_the_source_of_a_version_is_stored_with_its_first_line() -> None:
    definition = Rota("http://127.0.0.1:1").workflow(version=2)(original).definition

    assert definition.source.startswith("async def original(ctx: Run, number: int) -> int:")
    assert definition.first_line == original.__code__.co_firstlineno
    assert (definition.label, definition.description) == ("2", "Sell something.")


def test_a_workflow_is_decorated_or_made_from_its_source() -> None:
    app = Rota("http://127.0.0.1:1")
    document = {"name": "data", "initial_node": "a", "nodes": {"a": {}}}

    assert isinstance(app.workflow(original), CodeWorkflow)
    assert isinstance(app.workflow(name="other")(original), CodeWorkflow)
    assert isinstance(app.workflow(document), Workflow)
    assert isinstance(app.workflow("built"), Workflow)


async def before(ctx: Run) -> list[Any]:
    return [await ctx.step(price, 1), await ctx.event("go"), await ctx.step(price, 2)]


async def after(ctx: Run) -> list[Any]:
    return [await ctx.step(price, 1), await ctx.using(name="new").step(price, 3)]


def test_a_worker_with_the_old_code_goes_on_with_a_diverged_run() -> None:
    recorded = RecordedRun(before)
    run(recorded)
    recorded.signals["go"] = ["on"]
    recorded.advance()
    recorded.function = after
    assert run(recorded).divergence is not None
    log = list(recorded.log)

    recorded.function, recorded.ended, recorded.waits = before, None, None
    run(recorded)

    assert recorded.output == [10, "on", 20]
    assert recorded.log[: len(log)] == log


@pytest.mark.parametrize("is_memory_kept", [False, True])
def test_a_function_knows_why_it_was_cancelled(is_memory_kept: bool) -> None:  # noqa: FBT001 - a parameter
    reasons: list[str | None] = []

    async def waits(ctx: Run) -> None:
        reasons.append(ctx.cancelled)
        try:
            await ctx.event("go")
        except asyncio.CancelledError:
            reasons.append(ctx.cancelled)
            raise

    recorded = RecordedRun(waits)
    recorded.is_memory_kept = is_memory_kept

    async def main() -> None:
        await recorded.run()
        recorded.cancelled = "not wanted"
        assert (await recorded.run()).error is not None

    asyncio.run(main())

    assert (reasons[0], reasons[-1]) == (None, "not wanted")
