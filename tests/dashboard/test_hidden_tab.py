"""A hidden tab asks for nothing, and is up to date when it is shown again."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.dashboard.browsing import Visit, heading, settled, visiting
from tests.dashboard.test_run_pages import waiting_run
from tests.gateways.serving import Api, until

pytest.importorskip("playwright", reason="the playwright package is not installed")

from playwright.async_api import Page, expect

pytestmark = pytest.mark.slow

LONG_MS = 120_000  # longer than any page waits between two looks
PAINTED_MS = 100  # a page is painted in less, and plays no step in so little
# A browser without a screen never hides a tab, so the page is told that it did. Requests are noted
# where they begin: one that was begun is noted before anything else can run.
WATCHED = """
window.isAway = false;
window.asked = [];
Object.defineProperty(Document.prototype, "hidden", { get: () => window.isAway });
Object.defineProperty(Document.prototype, "visibilityState", {
  get: () => (window.isAway ? "hidden" : "visible"),
});
const send = window.fetch;
window.fetch = (path, ...more) => {
  window.asked.push(path);
  return send(path, ...more);
};
"""
TURN = """(isAway) => {
  window.isAway = isAway;
  window.asked = [];
  document.dispatchEvent(new Event("visibilitychange"));
}"""


@asynccontextmanager
async def watching(api: Api) -> AsyncIterator[Visit]:
    """A browser whose clock can be turned, and whose tab can be hidden."""
    async with visiting(api) as visit:
        await visit.page.clock.install()
        await visit.page.add_init_script(WATCHED)
        yield visit


async def look_away(page: Page) -> None:
    await page.evaluate(TURN, True)  # noqa: FBT003 - the argument of a function over there


async def look_again(page: Page) -> None:
    await page.evaluate(TURN, False)  # noqa: FBT003 - as above


async def forget(page: Page) -> None:
    await page.evaluate("window.asked = []")


async def asked_meanwhile(page: Page) -> list[str]:
    """What was asked for since the tab was hidden or shown, or since we forgot, and a long time."""
    await page.clock.run_for(LONG_MS)
    asked: list[str] = await page.evaluate("window.asked")
    return asked


async def live(page: Page) -> None:
    await expect(page.locator("main h1")).to_have_count(1)  # the module of the page is there
    await settled(page)
    await expect(page.locator(".live")).to_have_text("live")


async def test_a_hidden_tab_asks_for_nothing_and_catches_up_when_it_is_shown(api: Api) -> None:
    worker = await api.register()
    await api.submit(name="before")
    async with watching(api) as visit:
        page = await visit.open("/tasks")
        await live(page)
        await expect(page.locator("tbody tr")).to_contain_text(["before"])
        await forget(page)
        assert "/api/overview" in await asked_meanwhile(page)
        await live(page)

        await look_away(page)
        await until(api, "rota_event_watchers", 0.0)
        await api.submit(name="meanwhile")
        (lease, *_) = await worker.lease(most=1)
        await worker.finish(lease, "done")
        assert await asked_meanwhile(page) == []
        await expect(page.locator(".live")).to_have_text("paused")
        await expect(page.locator("tbody tr")).to_have_count(1)

        await look_again(page)
        await expect(page.locator("tbody tr")).to_contain_text(["meanwhile", "before"])
        await expect(page.locator("tbody tr .badge")).to_have_text(["queued", "succeeded"])
        await live(page)
        await until(api, "rota_event_watchers", 1.0)
        asked = await page.evaluate("window.asked")
        assert asked.count("/api/events") == 1
        await api.submit(name="after")
        await expect(page.locator("tbody tr")).to_contain_text(["after", "meanwhile", "before"])


async def test_events_that_came_while_the_tab_was_hidden_are_all_told(api: Api) -> None:
    await api.submit(name="before")
    async with watching(api) as visit:
        page = await visit.open("/events")
        await live(page)
        await expect(page.locator("tbody tr")).to_contain_text(["before"])

        await look_away(page)
        for number in range(3):
            await api.submit(name=f"meanwhile {number}")
        assert await asked_meanwhile(page) == []
        await look_again(page)

        names = ["meanwhile 2", "meanwhile 1", "meanwhile 0", "before"]
        await expect(page.locator("tbody tr")).to_contain_text(names)


@pytest.mark.parametrize("path", ["/", "/tasks/00000000000000ff", "/runs/00000000000000ff"])
async def test_no_page_asks_while_it_is_hidden_even_one_that_was_refused(
    api: Api, path: str
) -> None:
    async with watching(api) as visit:
        page = await visit.open(path)
        await live(page)
        await forget(page)
        assert await asked_meanwhile(page) != []

        await look_away(page)

        assert await asked_meanwhile(page) == []


async def test_a_tab_that_is_opened_hidden_loads_once_and_then_asks_for_nothing(api: Api) -> None:
    await api.submit(name="before")
    async with watching(api) as visit:
        await visit.page.add_init_script("window.isAway = true")
        page = await visit.open("/tasks")
        await heading(page, "Tasks")
        await expect(page.locator("tbody tr")).to_contain_text(["before"])
        await settled(page)

        await forget(page)
        assert await asked_meanwhile(page) == []


async def test_a_hand_that_paused_still_holds_when_the_tab_is_shown_again(api: Api) -> None:
    async with watching(api) as visit:
        page = await visit.open("/tasks")
        await live(page)
        await page.keyboard.press("p")
        await expect(page.locator(".live")).to_have_text("paused")

        await look_away(page)
        await look_again(page)

        assert await asked_meanwhile(page) == []
        await page.keyboard.press("p")
        await live(page)


async def test_a_run_that_is_played_stands_still_while_nobody_looks(api: Api) -> None:
    _, run = await waiting_run(api)
    async with watching(api) as visit:
        page = await visit.open(f"/runs/{run}")
        await live(page)
        await page.clock.pause_at(await page.evaluate("Date.now() / 1000 + 1"))
        await page.get_by_role("button", name="play from here").click()
        await page.clock.run_for(PAINTED_MS)
        await expect(page.locator(".slider .said b")).not_to_be_empty()

        await look_away(page)

        assert await asked_meanwhile(page) == []
        await look_again(page)
        await expect(page.get_by_role("button", name="play from here")).to_be_visible()
