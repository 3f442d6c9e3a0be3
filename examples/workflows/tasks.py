"""The tasks of all workflows beside this file: `rota worker examples.workflows.tasks:app`.

They stand for real work: each takes a moment (ROTA_EXAMPLE_PAUSE_S, none in tests), so that there
is something to watch.
"""

import asyncio
import os
import zlib
from collections import Counter
from typing import Any

from rota import Discard, Rota, current

app = Rota()

PAUSE_S = float(os.environ.get("ROTA_EXAMPLE_PAUSE_S", "0.3"))
SLOW_JUDGE_S = 30.0


async def take_a_moment(name: str = "") -> None:
    """Some take longer than others, the same ones each time."""
    await asyncio.sleep(PAUSE_S * (0.5 + zlib.crc32(name.encode()) % 100 / 50))


# --- document_pipeline ------------------------------------------------------------------------


@app.task
async def fetch_document(name: str) -> dict[str, str]:
    await take_a_moment(name)
    if name.startswith("missing"):
        raise Discard(f"there is no document {name!r}")
    if name.startswith("flaky") and current().attempt == 1:
        raise ConnectionError("the other side hung up")
    return {"text": f"{name} says that everything works out, if slowly"}


@app.task
async def summarize(name: str, text: str) -> dict[str, Any]:
    await take_a_moment(name)
    return {"summary": f"{name}: {text[:20]}…", "words": len(text.split())}


@app.task
async def write_report(summaries: list[str], words: dict[str, int]) -> str:
    await take_a_moment()
    report = "\n".join([*summaries, f"{sum(words.values())} words in all"])
    context = current()
    if context.run_id is not None:
        await context.aattach("report.txt", report.encode(), media_type="text/plain")
    return report


# --- judging_panel ----------------------------------------------------------------------------


@app.task
async def draft_answer(question: str) -> dict[str, str]:
    await take_a_moment(question)
    return {"text": f"{question} It depends."}


@app.task
async def judge(draft: str, judge: str) -> dict[str, str]:
    if judge.startswith("slow"):
        await asyncio.sleep(SLOW_JUDGE_S)  # cancelled as soon as the others have judged
    await take_a_moment(judge)
    return {"verdict": "yes" if len(judge + draft) % 2 else "no"}


@app.task
async def tally(verdicts: list[str]) -> dict[str, Any]:
    await take_a_moment()
    ((winner, votes),) = Counter(sorted(verdicts)).most_common(1)
    return {"winner": winner, "votes": votes}


# --- release ----------------------------------------------------------------------------------


@app.task
async def build_release(version: str) -> dict[str, str]:
    await take_a_moment(version)
    return {"package": f"shop-{version}.tar.gz"}


@app.task
async def stage_release(package: str) -> dict[str, str]:
    await take_a_moment(package)
    return {"staged": package}


@app.task
async def roll_out(package: str, *, breaks: bool = False) -> dict[str, str]:
    await take_a_moment(package)
    if breaks:
        raise RuntimeError(f"{package} does not start")
    return {"released": package}


@app.task
async def unstage_release(node: str, result: dict[str, str], error: dict[str, Any]) -> None:
    """Undo `stage`: what it gave, and why it is to be undone, come along."""
    await take_a_moment(node)
    current().logger.info("unstaged", package=result["staged"], because=error["message"])


@app.task
async def discard_release(node: str, result: dict[str, str], error: dict[str, Any]) -> None:
    await take_a_moment(node)
    current().logger.info("discarded", package=result["package"], because=error["message"])


# --- nested -----------------------------------------------------------------------------------


@app.task
async def open_region(name: str) -> dict[str, str]:
    await take_a_moment(name)
    return {"currency": "CHF" if name == "alps" else "EUR"}


@app.task
async def count_stock(region: str, shop: str, currency: str) -> dict[str, Any]:
    await take_a_moment(region + shop)
    return {"count": len(shop) * 10, "currency": currency}


@app.task
async def total_stock(name: str, counts: list[int]) -> dict[str, int]:
    await take_a_moment(name)
    return {"total": sum(counts)}


@app.task
async def overview(regions: dict[str, int]) -> dict[str, int]:
    await take_a_moment()
    return {"total": sum(regions.values())}


# --- refine -----------------------------------------------------------------------------------


@app.task
async def write_draft(topic: str) -> dict[str, str]:
    await take_a_moment(topic)
    return {"text": f"On {topic}."}


@app.task
async def review(text: str) -> dict[str, Any]:
    await take_a_moment(text)
    return {"score": min(1.0, len(text.split()) / 10), "advice": "say more"}


@app.task
async def refine_draft(text: str, advice: str) -> dict[str, str]:
    await take_a_moment(advice)
    return {"text": f"{text} More is said now."}


# --- order ------------------------------------------------------------------------------------


class CardRefused(Exception):  # noqa: N818 - a workflow takes it up by this name
    """The bank says no."""


@app.task
async def check_order(number: int, lines: list[str]) -> dict[str, list[str]]:
    await take_a_moment(str(number))
    return {"lines": sorted(lines)}


@app.task
async def reserve_line(number: int, line: str) -> dict[str, str]:
    await take_a_moment(f"{number} {line}")
    return {"shelf": f"{zlib.crc32(line.encode()) % 40:02}-{line}"}


@app.task
async def price_order(shelves: list[str], cents: int) -> dict[str, int]:
    await take_a_moment()
    return {"cents": cents + 100 * len(shelves)}


@app.task
async def charge_order(number: int, cents: int, card: str) -> dict[str, int]:
    await take_a_moment(str(number))
    if card != "good":
        raise CardRefused(f"the bank refused {cents / 100:.2f} for order {number}")
    return {"charged_cents": cents}


@app.task
async def pack_order(shelves: list[str]) -> dict[str, str]:
    await take_a_moment(shelves[0])
    return {"parcel": f"P{zlib.crc32(''.join(shelves).encode()) % 100_000:05}"}


@app.task
async def ship_parcel(parcel: str) -> dict[str, str]:
    await take_a_moment(parcel)
    return {"tracking": f"{parcel}-CH"}


@app.task
async def write_apology(number: int) -> dict[str, str]:
    await take_a_moment(str(number))
    return {"text": f"Order {number} could not be charged. We are sorry."}
