"""Pictures of every page of the dashboard, light and dark, wide and narrow: `make pictures`.

A coordinator and the shop of `make up` run for a while on a store of their own, and Chromium looks
at every page. Everything goes to .rota/pictures; the few that README and docs show are
written to docs/pictures as well. With `--url` the pictures are of a coordinator that is up already.
"""

import argparse
import asyncio
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from shop_life import ROOT, ROTA, Shop

ALL = ROOT / ".rota" / "pictures"
KEPT = ROOT / "docs" / "pictures"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
WIDE, NARROW = {"width": 1_400, "height": 900}, {"width": 400, "height": 860}
LIVED_S = 100.0  # so long the shop lives before it is looked at
PATIENCE_S = 60.0
PATIENCE_MS = 30_000
# What README and docs show: page, theme.
SHOWN = (
    ("overview", "light"),
    ("overview", "dark"),
    ("failures", "light"),
    ("run", "light"),
    ("service", "dark"),
)


def ask(url: str, path: str) -> Any:
    with urllib.request.urlopen(url + path, timeout=30) as answer:
        return json.load(answer)


def first(url: str, path: str, **wanted: Any) -> Any:
    """The first item of a listing that is as wanted; waits until there is one."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        for item in ask(url, path)["items"]:
            if all(item[name] == value for name, value in wanted.items()):
                return item
        time.sleep(0.5)
    message = f"{path}: no item with {wanted} within {PATIENCE_S:.0f} s"
    raise TimeoutError(message)


def pages(url: str) -> dict[str, str]:
    """The address of every page, with something on it that is worth a look."""
    failed = first(url, "/api/tasks?state=failed")["id"]
    waiting = first(url, "/api/tasks?state=queued", name="render_video")["id"]
    run = first(url, "/api/runs?workflow=order&state=completed")["id"]
    worker = quote(first(url, "/api/workers", id="shop-1")["id"], safe="")
    return {
        "overview": "/",
        "needs": "/needs",
        "tasks": "/tasks",
        "tasks_filtered": "/tasks?state=failed&queue=payments",
        "task": f"/tasks/{failed}",
        "task_waiting": f"/tasks/{waiting}",
        "queues": "/queues",
        "queue": "/queues?queue=labels",
        "limits": "/limits",
        "failures": "/failures",
        "workers": "/workers",
        "worker": f"/workers/{worker}",
        "workflows": "/workflows",
        "workflow": "/workflows/order",
        "runs": "/runs",
        "run": f"/runs/{run}?node=reserve",
        "run_journal": f"/runs/{run}?tab=journal&at=6",
        "schedules": "/schedules",
        "schedule": "/schedules/count_stock",
        "services": "/services",
        "service": "/services/orders",
        "events": "/events",
        "system": "/system",
    }


# --- looking --------------------------------------------------------------------------------------


def browser_path() -> str:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        sys.exit("no Chromium here; `python scripts/browser.py` installs Debian's")
    return found


@asynccontextmanager
async def looking(theme: Any, size: Any) -> AsyncIterator[Any]:
    from playwright.async_api import async_playwright  # noqa: PLC0415 - only pictures need it

    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=browser_path(), args=FLAGS)
        context = await browser.new_context(viewport=size, color_scheme=theme)
        page = await context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        yield page
        await browser.close()


async def settled(page: Any) -> None:
    """Wait until nothing on the page is still being fetched or laid out."""
    from playwright.async_api import expect  # noqa: PLC0415 - as above

    # By selectors, not by functions: the page's policy lets nobody evaluate a text.
    await page.wait_for_selector("main h1")
    await page.wait_for_selector(".live[data-live=live]")
    await expect(page.locator("main [aria-busy]")).to_have_count(0, timeout=PATIENCE_MS)


async def take(url: str, folder: Path, names: list[str]) -> list[Path]:
    """Take the pictures of the named pages; the answer is their files."""
    found, taken = pages(url), []
    for theme in ("light", "dark"):
        for width, size in (("wide", WIDE), ("narrow", NARROW)):
            async with looking(theme, size) as page:
                for name in names or list(found):
                    await page.goto(url + found[name])
                    await settled(page)
                    file = folder / f"{name}-{theme}-{width}.png"
                    await page.screenshot(path=file, full_page=width == "narrow")
                    taken.append(file)
    return taken


def keep() -> None:
    """The few that README and docs show."""
    KEPT.mkdir(parents=True, exist_ok=True)
    for name, theme in SHOWN:
        suffix = "" if theme == "light" else f"-{theme}"
        shutil.copy(ALL / f"{name}-{theme}-wide.png", KEPT / f"{name}{suffix}.png")


# --- what is looked at ----------------------------------------------------------------------------


@contextmanager
def living(lived_s: float) -> Iterator[str]:
    """A coordinator with the shop on it; gives its address when the shop has lived for a while."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(ROTA), "up", "--port", "0", "--zmq-port", "0", "--json"]
        command += ["--store", f"sqlite:///{folder}/rota.db"]
        serving = subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE)
        assert serving.stdout is not None
        url = json.loads(serving.stdout.readline())["url"]
        shop = Shop(url)
        shop.open()
        try:
            time.sleep(lived_s)
            yield url
        finally:
            shop.close()
            serving.send_signal(signal.SIGTERM)
            serving.wait(PATIENCE_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", help="look at this coordinator instead of one of our own")
    parser.add_argument("--lived", type=float, default=LIVED_S, help="seconds the shop lives first")
    parser.add_argument("--folder", type=Path, help="put them here, and nothing into docs")
    parser.add_argument("names", nargs="*", help="pages; none: all")
    chosen = parser.parse_args()
    folder = chosen.folder or ALL
    folder.mkdir(parents=True, exist_ok=True)
    if chosen.url:
        taken = asyncio.run(take(chosen.url, folder, chosen.names))
    else:
        with living(chosen.lived) as url:
            taken = asyncio.run(take(url, folder, chosen.names))
    if chosen.folder is None and not chosen.names:
        keep()
    print(f"{len(taken)} pictures in {folder}")


if __name__ == "__main__":
    main()
