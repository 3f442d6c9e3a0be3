"""The functions whose workers are killed: they write down what they do, and wait to be killed."""

import asyncio
import os
from pathlib import Path

from rota import Rota, Run

app = Rota()
_folder = Path(os.environ["FAULTS_FOLDER"])
LOOK_S = 0.01  # between two looks for a file of another process


def write_down(line: str) -> None:
    with (_folder / "effects").open("a") as record:
        record.write(f"{line}\n")


async def stand(place: str) -> None:
    """Say that this place is reached, and stay there until the test lets go of it."""
    write_down(place)
    while not (_folder / f"leave {place}").exists():  # noqa: ASYNC110 - another process makes it
        await asyncio.sleep(LOOK_S)


async def effect(name: str) -> str:
    write_down(name)
    return name


async def standing(place: str) -> str:
    await stand(place)
    return place


@app.workflow
async def steps(ctx: Run) -> list[str]:
    return [await ctx.step(effect, "a"), await ctx.step(standing, "b"), await ctx.step(effect, "c")]


@app.workflow
async def between(ctx: Run) -> list[str]:
    first = await ctx.step(effect, "a")
    second = await ctx.step(effect, "b")
    await stand("between")
    return [first, second, await ctx.step(effect, "c")]


@app.workflow
async def waiting(ctx: Run) -> list[str]:
    return [await ctx.step(effect, "a"), await ctx.event("go"), await ctx.step(effect, "c")]


async def large() -> str:
    write_down("large")
    return "x" * 2_000_000


@app.workflow
async def beside(ctx: Run) -> list[int | str]:
    async def measured() -> int:
        text = await ctx.step(large)
        await ctx.step(standing, "b")  # the large result is committed before it begins
        return len(text)

    return [*await ctx.gather(measured(), ctx.step(effect, "a"))]


@app.workflow
async def undoing(ctx: Run) -> None:
    await ctx.using(undo=lambda: write_down("undo a")).step(effect, "a")
    await ctx.using(undo=lambda: standing("undo b")).step(effect, "b")
    raise ValueError("out of stock")
