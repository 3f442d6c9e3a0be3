"""What needs an answer, and failures that are acknowledged, in a real browser."""

import pytest

from tests.dashboard.browsing import heading, visiting
from tests.gateways.serving import Api
from tests.gateways.test_failures import fail_tasks
from tests.gateways.working import Bench

pytest.importorskip("playwright", reason="the playwright package is not installed")

from playwright.async_api import Locator, Page, expect

pytestmark = pytest.mark.slow

HOSTILE = "<img src=x onerror=alert(1)>"
ASK = """
name: ask
initial_node: ship
nodes:
  ship: {approval: {title: "Ship <img src=x onerror=alert(1)>?", timeout_ms: 3600000}}
  paid: {wait_for: {event: paid}}
transitions: [{from: ship, to: paid}]
"""
OUTER = "{name: outer, initial_node: order, nodes: {order: {workflow: ask}}}"
FAN = """
name: fan
initial_node: begin
nodes: {begin: {}, work: {task: work}, end: {}}
transitions:
  - {id: resize, from: begin, to: work, spawn_count: 20, max_parallel: 5}
  - {from: work, to: end, synchronization: {joins_transition: resize, merge: {target: output.all}}}
"""


async def started(api: Api, *texts: str) -> tuple[Bench, str]:
    """Keep workflows, and start a run of the last one; its id."""
    bench = await Bench.at(api)
    for text in texts:
        await bench.put(text)
    name = texts[-1].split("name: ")[1].split(",")[0].split("\n")[0]
    return bench, await bench.start(name)


def panel(page: Page, title: str) -> Locator:
    return page.locator(".panel").filter(has=page.get_by_role("heading", name=title, exact=True))


async def test_an_approval_is_answered_on_the_overview(api: Api) -> None:
    bench, run_id = await started(api, ASK)
    async with visiting(api) as visit:
        page = await visit.open("/")
        needs = panel(page, "Needs you")
        await expect(needs).to_contain_text(f"Ship {HOSTILE}?")
        await expect(needs).to_contain_text(run_id)
        await expect(needs).to_contain_text("due in")

        await needs.get_by_role("button", name="approve", exact=True).click()

        await expect(needs).to_contain_text("Signal 'paid' at paid")
        await needs.get_by_role("button", name="send …").click()
        await needs.get_by_label("payload as JSON").fill('{"cents": 5}')
        await needs.get_by_role("button", name="send paid").click()
        await expect(needs).to_have_count(0)
    assert (await bench.run(run_id))["state"] == "completed"


async def test_a_refusal_is_confirmed(api: Api) -> None:
    bench, run_id = await started(api, ASK)
    async with visiting(api) as visit:
        page = await visit.open("/needs")
        await heading(page, "Needs you")

        await page.get_by_role("button", name="refuse", exact=True).click()
        await page.get_by_role("dialog").get_by_role("button", name="refuse", exact=True).click()

        await expect(page.locator(".empty")).to_contain_text("No run waits")
    assert (await bench.run(run_id))["state"] == "failed"


async def test_a_list_of_runs_says_what_they_wait_for_and_whose_children_they_are(api: Api) -> None:
    await started(api, ASK, OUTER)
    bench, _ = await started(api, FAN)
    await bench.worker.lease(most=3)
    async with visiting(api) as visit:
        page = await visit.open("/runs")
        row = page.locator("tbody tr")

        await expect(row.filter(has_text="resize")).to_contain_text(
            "3 of 20 branches of 'resize' running"
        )
        child = row.filter(has_text="approval: Ship")
        await expect(child).to_contain_text("due in")
        await expect(child).to_contain_text("in outer")
        await expect(row.filter(has_text="child run of 'ask'")).to_have_count(1)

        await child.get_by_role("link", name="outer").click()
        await expect(page.get_by_role("heading", level=1)).to_contain_text("outer")
        await page.go_back()
        await row.filter(has_text="approval: Ship").get_by_role("link").first.click()
        await expect(page.locator(".page-title")).to_contain_text("child of outer")


async def test_failures_are_acknowledged_with_a_reason_and_that_is_undone(api: Api) -> None:
    await fail_tasks(api, ["row 1 is odd", "row 22 is odd"])
    async with visiting(api) as visit:
        page = await visit.open("/")
        await expect(panel(page, "Failing")).to_contain_text("2 tasks work failed")
        side = page.get_by_role("navigation", name="pages")
        await side.get_by_role("link", name="Failures").click()

        await page.get_by_role("button", name="acknowledge …").click()
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_contain_text("Acknowledge 2 tasks?")
        await dialog.get_by_label("reason").fill(HOSTILE)
        await dialog.get_by_role("button", name="acknowledge", exact=True).click()
        await expect(page.locator(".empty")).to_contain_text("No failed task needs attention")

        await page.get_by_role("link", name="acknowledged", exact=True).click()
        await expect(page.locator(".panel")).to_contain_text("is odd")
        await page.locator(".panel a.mono").first.click()
        await expect(page.locator(".facts").first).to_contain_text(HOSTILE)
        await page.goto(f"{visit.url}/")
        await heading(page, "Overview")
        await expect(panel(page, "Failing")).to_have_count(0)

        await page.goto(f"{visit.url}/failures?acknowledged=true")
        await page.get_by_role("button", name="undo", exact=True).click()
        await expect(page.locator(".empty")).to_contain_text("No failed task is acknowledged")
    # The counts of the overview are cached; the list is not.
    failed = (await api.get("/api/tasks?state=failed&acknowledged=false")).json()
    assert len(failed["items"]) == 2


async def test_a_traceback_is_seen_without_a_click(api: Api) -> None:
    worker = await api.register()
    await api.submit(max_attempts=1)
    (lease,) = await worker.lease()
    trace = 'Traceback (most recent call last):\n  File "shop.py", line 7, in pick\nKeyError: 9'
    details = {"traceback": trace}
    await worker.fail(lease, {"type": "KeyError", "message": "9", "details": details})

    async with visiting(api) as visit:
        for path in ("/failures", f"/tasks/{lease['task_id']}"):
            page = await visit.open(path)
            await expect(page.get_by_text('File "shop.py", line 7').first).to_be_visible()


async def test_draining_looks_the_same_for_workers_and_members(api: Api) -> None:
    await api.register("w1")
    await api.post("/api/services/feed/members", {"workerId": "m1", "maxShardCount": 8})
    seen = []
    async with visiting(api) as visit:
        for path, name in (("/workers", "w1"), ("/workers/w1", "w1"), ("/services/feed", "m1")):
            page = await visit.open(path)
            main = page.locator("main")
            await main.get_by_role("button", name="drain", exact=True).click()
            dialog = page.get_by_role("dialog")
            seen.append((await dialog.inner_text()).replace(name, "NAME"))
            await dialog.get_by_role("button", name="drain", exact=True).click()
            await expect(main.locator(".badge", has_text="healthy").first).to_be_visible()
            await expect(main.locator(".badge", has_text="draining").first).to_be_visible()
            await main.get_by_role("button", name="resume", exact=True).click()
            await expect(main.get_by_role("button", name="drain", exact=True)).to_be_visible()

    assert len(set(seen)) == 1, seen
