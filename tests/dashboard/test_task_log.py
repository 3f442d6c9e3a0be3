"""The log on the page of a task: followed while it runs, by attempt and level, never as markup."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.browsing import heading, settled, visiting
from tests.gateways.serving import Api, Json, Worker, held

pytest.importorskip("playwright", reason="the playwright package is not installed")

from playwright.async_api import Page, expect

pytestmark = pytest.mark.slow

EVIL = "<img src=x onerror=alert(1)> \x1b[31m </pre><script>alert(2)</script>"


async def running(api: Api, **task: Any) -> tuple[Worker, Json]:
    worker = await api.register(heartbeat_interval_ms=3_600_000)
    await api.submit(**task)
    (lease,) = await worker.lease()
    return worker, lease


async def send(api: Api, worker: Worker, lease: Json, *messages: str, **more: Any) -> None:
    level, dropped = more.pop("level", "info"), more.pop("dropped", 0)
    at_ms = api.clock.now_ms()
    lines = [
        {"at_ms": at_ms, "level": level, "logger": "rota.task", "message": one, **more}
        for one in messages
    ]
    answer = await worker.call("logs", [{**held(lease), "lines": lines, "dropped": dropped}])
    assert answer.json()["outcomes"][0]["outcome"] == "accepted"


def messages(page: Page) -> Any:
    return page.locator(".task-log .line pre")


async def test_lines_are_followed_while_the_task_runs_and_stay_after_it(api: Api) -> None:
    worker, lease = await running(api)

    async with visiting(api) as visit:
        page = await visit.open(f"/tasks/{lease['task_id']}")
        await heading(page, "work")
        await expect(page.get_by_text("Nothing logged yet.")).to_be_visible()
        await send(api, worker, lease, "resized a.png", fields={"bytes": 3, "by": "me"})
        await expect(messages(page)).to_have_text(
            [re.compile(r"^resized a\.png\s+bytes=3\s+by=me$")]
        )
        await send(api, worker, lease, "resized b.png", level="warning")
        await expect(messages(page)).to_have_count(2)
        await expect(page.get_by_text("following")).to_be_visible()
        await worker.finish(lease)

        await expect(page.get_by_text("following")).to_have_count(0)
        await expect(messages(page)).to_have_count(2)


async def test_lines_are_text_whatever_they_contain(api: Api) -> None:
    worker, lease = await running(api)
    await send(api, worker, lease, EVIL, fields={"<b>": "<i>x</i>"})

    async with visiting(api) as visit:
        page = await visit.open(f"/tasks/{lease['task_id']}")

        await expect(messages(page).first).to_contain_text("<img src=x onerror=alert(1)>")
        await expect(messages(page).first).to_contain_text("<b>=<i>x</i>")
        await expect(page.locator(".task-log img, .task-log script")).to_have_count(0)


async def test_attempts_and_levels_are_chosen_and_dropped_lines_are_told(api: Api) -> None:
    worker, lease = await running(api, max_attempts=2, backoff={"kind": "none"})
    await send(api, worker, lease, "first", dropped=12)
    await send(api, worker, lease, "broken", level="error", dropped=12)
    await worker.fail(lease)
    (second,) = await worker.lease()
    await send(api, worker, second, "second")

    async with visiting(api) as visit:
        page = await visit.open(f"/tasks/{lease['task_id']}")
        await expect(messages(page)).to_have_text(["first", "broken", "second"])
        await expect(page.locator(".task-log h3")).to_have_text(
            [re.compile("attempt 1 12 lines dropped"), "attempt 2"]
        )
        await page.get_by_label("level").select_option("error")
        await expect(messages(page)).to_have_text(["broken"])
        await page.get_by_label("level").select_option("debug")
        await page.get_by_label("attempt", exact=True).select_option("2")

        await expect(messages(page)).to_have_text(["second"])


async def test_times_are_shown_by_the_user_s_choice(api: Api) -> None:
    worker, lease = await running(api)
    await send(api, worker, lease, "once")

    async with visiting(api) as visit:
        page = await visit.open(f"/tasks/{lease['task_id']}")
        stamp = page.locator(".task-log .line time")
        await expect(stamp).to_have_text(re.compile(r"^(now|\d+ s ago|in .*|\d+ .* ago)$"))
        await page.evaluate("localStorage.setItem('rota.times', 'absolute')")
        await page.reload()

        await expect(stamp).to_have_text(re.compile(r"^\d\d:\d\d:\d\d\.\d{3}$"))


async def test_a_task_that_ended_without_a_line_has_no_log(api: Api) -> None:
    worker, lease = await running(api)
    await worker.finish(lease)

    async with visiting(api) as visit:
        page = await visit.open(f"/tasks/{lease['task_id']}")
        await heading(page, "work")
        await settled(page)
        await expect(page.get_by_role("heading", name="Payload")).to_be_visible()

        await expect(page.get_by_role("heading", name="Log")).to_have_count(0)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1_400, 400])
async def test_the_log_fits_its_page(api: Api, tmp_path: Path, theme: Any, width: int) -> None:
    worker, lease = await running(api, max_attempts=2, backoff={"kind": "none"})
    await send(api, worker, lease, "connecting to the warehouse", level="debug")
    await send(api, worker, lease, "picked 3 items", fields={"order": 17, "shelf": "B-4"})
    await send(api, worker, lease, "stock is low", level="warning", logger="shop.stock")
    trace = 'Traceback (most recent call last):\n  File "shop.py", line 7, in pick\nKeyError: 9'
    await send(api, worker, lease, f"cannot pick\n{trace}", level="error", dropped=3)
    await send(api, worker, lease, "x" * 400, level="critical")
    await worker.fail(lease)
    (second,) = await worker.lease()
    await send(api, worker, second, "picked all items")

    async with visiting(api, theme=theme, width=width) as visit:
        page = await visit.open(f"/tasks/{lease['task_id']}")
        await expect(messages(page)).to_have_count(6)
        await page.screenshot(path=tmp_path / f"log-{theme}-{width}.png", full_page=True)
        overflow = await page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )

    assert overflow <= 0
