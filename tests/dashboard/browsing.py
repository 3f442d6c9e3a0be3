"""A real browser before a real coordinator.

What a page must never do is checked at the end of each visit.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.gateways.serving import Api

pytest.importorskip("playwright", reason="the playwright package is not installed")

from playwright.async_api import Browser, Page, async_playwright, expect

CHROMIUM = "/usr/bin/chromium"
HAS_CHROMIUM = Path(CHROMIUM).exists()
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
]
# Others use this machine, too: what must come is waited for, however long that takes.
PATIENCE_MS = 60_000
expect.set_options(timeout=PATIENCE_MS)
# The browser itself notes refused requests; pages answer for those in words of their own.
NOTED_REFUSAL = re.compile(r"Failed to load resource: the server responded with a status of 4\d\d")


class Visit:
    """One page of one browser, and what it did that it should not."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.faults: list[str] = []
        page.on("console", self._note_console)
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("request", self._note_request)
        page.on("dialog", lambda dialog: self.faults.append(f"dialog: {dialog.message}"))

    async def open(self, path: str) -> Page:
        await self.page.goto(self.url + path)
        return self.page

    def _note_console(self, message: Any) -> None:
        if message.type in {"error", "warning"} and not NOTED_REFUSAL.match(message.text):
            self.faults.append(f"console: {message.text}")

    def _note_request(self, request: Any) -> None:
        if not request.url.startswith((self.url, "data:")):
            self.faults.append(f"outside: {request.url}")


class SharedBrowser:
    """One browser for many visits; it is launched for the first, and again should it have died."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._stack = AsyncExitStack()
        self._browser: Browser | None = None

    async def get(self) -> Browser:
        if self._browser is None or not self._browser.is_connected():
            await self.close()
            self._browser = await self._stack.enter_async_context(launched())
        return self._browser

    async def close(self) -> None:
        await self._stack.aclose()


_shared: SharedBrowser | None = None


@asynccontextmanager
async def share_browser() -> AsyncIterator[None]:
    """Have all visits on this event loop share a browser."""
    global _shared  # noqa: PLW0603 - one for each process
    _shared = SharedBrowser()
    try:
        yield
    finally:
        await _shared.close()
        _shared = None


@asynccontextmanager
async def launched() -> AsyncIterator[Browser]:
    if not HAS_CHROMIUM:
        pytest.skip(f"there is no browser at {CHROMIUM}")
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(
            executable_path=CHROMIUM, args=FLAGS, timeout=PATIENCE_MS
        )
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def visiting(api: Api, *, width: int = 1_400, theme: Any = "light") -> AsyncIterator[Visit]:
    """A visitor who has not been here before: nothing is cached, stored or remembered.

    Nothing may have gone wrong in the page when it closes.
    """
    async with AsyncExitStack() as stack:
        if _shared is not None and _shared.loop is asyncio.get_running_loop():
            browser = await _shared.get()
        else:
            browser = await stack.enter_async_context(launched())
        context = await browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=theme
        )
        stack.push_async_callback(context.close)
        context.set_default_timeout(PATIENCE_MS)
        visit = Visit(await context.new_page(), str(api.client.base_url).rstrip("/"))
        yield visit
    assert visit.faults == []


async def heading(page: Page, text: str) -> None:
    await expect(page.get_by_role("heading", level=1)).to_have_text(text)


async def settled(page: Page) -> None:
    """Nothing is still being fetched or laid out."""
    await expect(page.locator("main [aria-busy]")).to_have_count(0)
