"""What the dashboard shows when the coordinator does not answer, and before it was ever used."""

import pytest

from tests.dashboard.browsing import heading, settled, visiting
from tests.gateways.serving import Api

pytest.importorskip("playwright", reason="the playwright package is not installed")

from playwright.async_api import Page, expect

pytestmark = pytest.mark.slow

BANNER = "The coordinator does not answer."
FINE = "Nothing is stuck."
CAN_START = "every task can start"
# Accepts requests and never answers, as a coordinator does whose process is stopped.
HANG = """() => {
  window.send = window.fetch;
  window.fetch = (path, { signal }) => new Promise((_, reject) => {
    signal?.addEventListener("abort", () => reject(signal.reason));
  });
}"""
ANSWER_MS = 15_000  # as in resource.js
# A script of the page instead of a broken connection: the browser notes each of those as an error.
BREAK = """() => {
  window.send = window.fetch;
  window.fetch = () => Promise.reject(new TypeError("Failed to fetch"));
}"""
MEND = "() => { window.fetch = window.send; }"


async def poll(page: Page) -> None:
    """Let the page ask again, as it does when the tab is shown again."""
    await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


async def test_a_page_says_that_the_coordinator_is_gone_and_greys_what_it_shows(api: Api) -> None:
    async with visiting(api) as visit:
        page = await visit.open("/")
        await heading(page, "Overview")
        await expect(page.get_by_text(FINE)).to_be_visible()
        await expect(page.get_by_text(CAN_START)).to_be_visible()

        await page.evaluate(BREAK)
        await poll(page)

        await expect(page.get_by_role("alert").filter(has_text=BANNER)).to_be_visible()
        await expect(page.locator(".frame.is-old")).to_have_count(1)
        await expect(page.get_by_text(FINE)).to_have_count(0)
        await expect(page.get_by_text(CAN_START)).to_have_count(0)
        await expect(
            page.locator(".alert [data-tone=green], .figure[data-tone=green]")
        ).to_have_count(0)
        await expect(
            page.get_by_text("Not known: the coordinator does not answer.")
        ).to_be_visible()

        await page.evaluate(MEND)
        await poll(page)

        await expect(page.get_by_text(BANNER)).to_have_count(0)
        await expect(page.get_by_text(FINE)).to_be_visible()
        await expect(page.locator(".frame.is-old")).to_have_count(0)


async def test_the_system_page_does_not_call_a_coordinator_healthy_that_is_gone(api: Api) -> None:
    async with visiting(api) as visit:
        page = await visit.open("/system")
        await heading(page, "System")
        await expect(page.get_by_text("all parts are healthy")).to_be_visible()

        await page.evaluate(BREAK)
        await poll(page)

        await expect(page.get_by_role("alert").filter(has_text=BANNER)).to_be_visible()
        await expect(page.get_by_text("Not known:")).to_be_visible()
        await expect(page.locator("main .badge", has_text="healthy")).to_have_count(0)


async def test_a_coordinator_that_hangs_is_as_good_as_gone(api: Api) -> None:
    async with visiting(api) as visit:
        await visit.page.clock.install()
        page = await visit.open("/")
        await heading(page, "Overview")
        await expect(page.get_by_text(FINE)).to_be_visible()

        await page.evaluate(HANG)
        await poll(page)
        await page.clock.fast_forward(ANSWER_MS * 2)

        await expect(page.get_by_role("alert").filter(has_text=BANNER)).to_be_visible()
        await expect(page.get_by_text(FINE)).to_have_count(0)
        await expect(page.get_by_text(CAN_START)).to_have_count(0)


async def test_the_overview_of_an_unused_coordinator_shows_the_first_steps(api: Api) -> None:
    async with visiting(api) as visit:
        page = await visit.open("/")
        await heading(page, "Overview")
        await expect(page.get_by_role("heading", name="First steps")).to_be_visible()

        side = page.get_by_role("navigation", name="pages")
        await expect(side.get_by_role("link", name="Overview", exact=True)).to_be_visible()
        await expect(side.get_by_role("link", name="Failures", exact=True)).to_be_visible()

        await api.post("/api/tasks", {"name": "greet"})

        await expect(page.get_by_role("heading", name="First steps")).to_have_count(0)


async def test_an_unknown_address_leads_back_to_the_pages(api: Api) -> None:
    async with visiting(api) as visit:
        page = await visit.open("/tasks/1/2/3")
        await heading(page, "Page not found")
        await page.get_by_role("main").get_by_role("link", name="overview").click()

        await heading(page, "Overview")
        await settled(page)
