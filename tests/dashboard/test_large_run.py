"""A run with ten thousand branches: its page is there at once, and follows the hand."""

import time
from collections.abc import Awaitable, Callable

import pytest

from tests.dashboard.browsing import Visit, visiting
from tests.dashboard.large_run import large_run
from tests.gateways.serving import Api

pytest.importorskip("playwright", reason="the playwright package is not installed")

from playwright.async_api import Page, expect

pytestmark = pytest.mark.slow

ITEMS = 10_000
PAINTED_S = 2.0
ANSWERED_MS = 100.0
TRIES = 8  # the best of them counts: others use this machine, too
# How long until the page has changed after something was done to it, seen from inside.
TOOK = """async ([act, watched, argument]) => {
  const page = document.querySelector(watched);
  const before = performance.now();
  const changed = new Promise((done) => {
    const watcher = new MutationObserver(() => { watcher.disconnect(); done(); });
    const everything = { childList: true, subtree: true, characterData: true, attributes: true };
    watcher.observe(page, everything);
  });
  if (act === "slide") {
    const slider = document.querySelector(".slider input");
    slider.value = argument;
    slider.dispatchEvent(new Event("input", { bubbles: true }));
  } else {
    document.querySelector(argument).dispatchEvent(new MouseEvent("click", { bubbles: true }));
  }
  await changed;
  return performance.now() - before;
}"""


async def painted(visit: Visit, run: str) -> float:
    """Seconds until the graph stands there with its figures."""
    start = time.perf_counter()
    page = await visit.open(f"/runs/{run}")
    await expect(page.locator('.node[data-node="work"]')).to_contain_text("10.0k")
    return time.perf_counter() - start


async def best_of(tries: int, measure: Callable[[int], Awaitable[float]], enough: float) -> float:
    """The best of so many tries; no more of them than it takes."""
    best = float("inf")
    for number in range(tries):
        best = min(best, await measure(number))
        if best < enough:
            break
    return best


async def test_a_run_of_ten_thousand_branches_is_painted_at_once(api: Api) -> None:
    run = await large_run(api, ITEMS, left=5)
    async with visiting(api) as visit:
        took_s = await best_of(TRIES, lambda _: painted(visit, run), PAINTED_S)

        assert took_s < PAINTED_S
        await expect(visit.page.locator(".join")).to_contain_text("9,985 / 10.0k")
        await expect(visit.page.locator(".node")).to_have_count(4)  # foreach is one of them


async def test_a_run_of_ten_thousand_branches_follows_the_hand(api: Api) -> None:
    run = await large_run(api, ITEMS)
    async with visiting(api) as visit:
        await painted(visit, run)
        page = visit.page

        async def slide(number: int) -> float:
            at = 3_000 + 777 * number
            took: float = await page.evaluate(TOOK, ["slide", ".join", str(at)])
            await expect(page.locator(".slider .said")).to_contain_text(f"#{at}")
            await expect(page.locator(".slider .said")).to_contain_text("work[")
            return took

        async def choose(number: int) -> float:
            await _close(page)
            node = '.node[data-node="work"]'
            took: float = await page.evaluate(TOOK, ["click", node, node])
            await expect(page.locator(".panel", has_text="Node work")).to_be_visible()
            return took

        slid_ms = await best_of(TRIES, slide, ANSWERED_MS)
        chosen_ms = await best_of(TRIES, choose, ANSWERED_MS)

        assert slid_ms < ANSWERED_MS
        assert chosen_ms < ANSWERED_MS


async def _close(page: Page) -> None:
    panel = page.locator(".panel", has_text="Node work")
    if await panel.count():
        await panel.get_by_role("button", name="close").click()
        await expect(panel).to_have_count(0)


async def test_what_failed_among_ten_thousand_is_one_click_away(api: Api) -> None:
    run = await large_run(api, ITEMS)
    async with visiting(api) as visit:
        page = await visit.open(f"/runs/{run}?node=work")

        panel = page.locator(".panel", has_text="Node work")
        await panel.get_by_role("button", name="10 failed").click()
        await expect(panel.locator("tbody tr")).to_have_count(10)
        await expect(panel.locator("tbody tr").first).to_contain_text("Lost: item 7")
        await panel.get_by_role("button", name="10 failed").click()
        await expect(panel.locator("tbody tr")).to_have_count(25)
        await panel.get_by_role("button", name="later").click()
        await expect(panel.get_by_role("navigation")).to_contain_text("page 2")
