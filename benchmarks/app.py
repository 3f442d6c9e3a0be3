"""The tasks that the benchmarks run: no-ops, some of which report that they ran."""

import time
from functools import cache

from benchmarks import witness
from rota import Rota, Run

app = Rota()


@app.task
async def noop() -> None:
    """Do nothing, so that the figures show the cost of everything around the handler."""


@app.task
async def counted() -> None:
    _tally().count()


@app.task
async def call(submitted_ns: int) -> None:
    _caller().call(submitted_ns, time.monotonic_ns())


@app.task
async def fired(scheduled_for_ms: int, previous_success_ms: int | None = None) -> None:  # noqa: ARG001 - a schedule with times sends both
    """Note how late a firing of a schedule is."""
    _firing_log().note(scheduled_for_ms)


# --- durable functions --------------------------------------------------------------------------


def step() -> None:
    """Do nothing: what is measured is everything around it."""


@app.workflow
async def three_steps(ctx: Run) -> None:
    await ctx.step(step)
    await ctx.step(step)
    await ctx.step(step)


@app.workflow
async def child(ctx: Run) -> None:
    await ctx.step(step)


@app.workflow
async def family(ctx: Run, size: int) -> int:
    return len(await ctx.gather(*(ctx.run(child) for _ in range(size))))


@app.workflow
async def sleeper(ctx: Run, sleep_ms: int) -> None:
    await ctx.sleep(ms=sleep_ms)


@app.workflow
async def long(ctx: Run, steps: int) -> int:
    quick = ctx.using(checkpoint="with_next")
    for _ in range(steps):
        await quick.step(step)
    await ctx.event("go")
    return steps


@cache
def _caller() -> witness.Caller:
    return witness.Caller(witness.folder())


@cache
def _tally() -> witness.Tally:
    return witness.Tally(witness.folder())


@cache
def _firing_log() -> witness.FiringLog:
    return witness.FiringLog(witness.folder())
