"""Pages of limits, and what tasks and queues say about theirs, in a real browser."""

import re
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.dashboard.browsing import heading, settled, visiting
from tests.gateways.serving import Api, served
from tests.gateways.test_login import token_in

pytest.importorskip("playwright", reason="the playwright package is not installed")

from playwright.async_api import expect

pytestmark = pytest.mark.slow

HOSTILE = "<img src=x onerror=alert(1)>/a b?c"
USER = {"key": "user:1", "limit": 2}
SLOW = {"key": "openai", "limit": 2, "per_ms": 60_000}


async def limited(api: Api) -> str:
    """Two of four tasks of a key run, one of two of a rate; gives the last one that waits."""
    worker = await api.register()
    for _ in range(4):
        await api.submit(concurrency=USER, fair_key="ann")
    for _ in range(2):
        await api.submit(name="ask", rate=SLOW)
    await worker.lease()
    waiting = (await api.get("/api/tasks?state=queued&name=work")).json()["items"]
    return str(waiting[0]["id"])


async def test_a_limit_shows_what_runs_and_what_waits(api: Api) -> None:
    await limited(api)
    async with visiting(api) as visit:
        page = await visit.open("/limits")

        slots = page.locator("tbody tr", has_text="user:1")
        await expect(slots).to_contain_text("2 of 2 running")
        await expect(slots.locator("td").nth(3)).to_have_text("2")
        await expect(slots.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "100")
        rate = page.locator("tbody tr", has_text="openai")
        await expect(rate).to_contain_text("2 per 60 s, next start in")


async def test_limits_are_found_by_kind_and_prefix_and_the_address_says_so(api: Api) -> None:
    await limited(api)
    async with visiting(api) as visit:
        page = await visit.open("/limits")

        await page.get_by_role("link", name="rate", exact=True).click()
        await expect(page).to_have_url(re.compile(r"/limits\?kind=rate"))
        await expect(page.locator("tbody")).not_to_contain_text("user:1")
        await page.get_by_role("link", name="all", exact=True).click()
        await page.get_by_label("key begins with").fill("user:")
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(re.compile(r"prefix=user"))
        await expect(page.locator("tbody tr")).to_have_count(1)


async def test_many_limits_come_page_by_page(api: Api) -> None:
    for number in range(60):
        await api.client.put(f"/api/limits/key:{number:02}", json={"limit": 1})
    async with visiting(api) as visit:
        page = await visit.open("/limits")
        await expect(page.locator("tbody tr")).to_have_count(50)

        await page.get_by_role("button", name="next").click()
        await expect(page.locator("tbody tr")).to_have_count(10)
        await expect(page.locator("tbody")).to_contain_text("key:59")
        await page.get_by_role("button", name="first").click()
        await expect(page.locator("tbody")).to_contain_text("key:00")


async def test_an_operator_pauses_a_key_and_unpins_it(api: Api) -> None:
    await limited(api)
    async with visiting(api) as visit:
        page = await visit.open("/limits")
        slots = page.locator("tbody tr", has_text="user:1")

        await slots.get_by_role("button", name="change").click()
        await page.get_by_label("0 pauses the key").fill("0")
        await expect(page.get_by_role("dialog")).to_contain_text("No task of this key starts")
        await page.get_by_role("button", name="pause it").click()
        await expect(slots).to_contain_text("2 of 0 running")
        await expect(slots.locator(".badge")).to_have_text("paused")
        await slots.get_by_role("button", name="unpin").click()
        await expect(page.get_by_role("dialog")).to_contain_text(
            "The value that tasks declared last"
        )
        await page.get_by_role("button", name="unpin it").click()
        await expect(slots).to_contain_text("2 of 2 running")
        await slots.get_by_role("button", name="pin", exact=True).click()
        await page.get_by_role("button", name="pin it").click()
        await expect(slots.locator(".chip")).to_have_text("pinned")

    assert (await api.get("/api/limits/user:1")).json()["pinned"]


async def test_an_operator_sets_a_rate_before_any_task_names_it(api: Api) -> None:
    async with visiting(api) as visit:
        page = await visit.open("/limits")
        await expect(page.locator("main")).to_contain_text("A limit exists as long as a task names")

        await page.get_by_role("button", name="set a limit").click()
        await page.get_by_label("key", exact=True).fill("mail/out")
        await page.locator("dialog select").select_option("rate")
        await page.get_by_label("0 pauses the key").fill("5")
        await page.get_by_label("in seconds").fill("0.5")
        await page.get_by_role("button", name="set and pin").click()
        await expect(page.locator("tbody tr")).to_contain_text("5 per 500 ms, free now")

    made = (await api.get("/api/limits/mail%2Fout")).json()
    assert (made["limit"], made["per_ms"], made["pinned"]) == (5, 500, True)


async def test_a_limit_that_is_refused_says_why_and_stays_open(api: Api) -> None:
    async with visiting(api) as visit:
        page = await visit.open("/limits")

        await page.get_by_role("button", name="set a limit").click()
        await page.get_by_label("key", exact=True).fill("k")
        await page.get_by_label("0 pauses the key").fill("99999999999")
        await page.get_by_role("button", name="set and pin").click()
        await expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("limit")


async def test_a_waiting_task_leads_to_its_limit(api: Api) -> None:
    task_id = await limited(api)
    async with visiting(api) as visit:
        page = await visit.open(f"/tasks/{task_id}")

        await expect(page.locator(".why")).to_contain_text(
            "limit 'user:1': 2 of 2 running, 1 before it"
        )
        await expect(page.locator(".facts")).to_contain_text("2 at once")
        await expect(page.locator(".facts")).to_contain_text("ann")
        await page.get_by_role("link", name="its limit").click()
        await heading(page, "Limits")
        await expect(page.locator("tbody tr")).to_contain_text("user:1")


async def test_the_settings_of_a_queue_are_shown_and_changed(api: Api) -> None:
    for _ in range(2):
        await api.submit(queue="mail/out")
    async with visiting(api) as visit:
        page = await visit.open("/queues?queue=mail%2Fout")
        settings = page.locator(".panel", has_text="mail/out: settings")
        await expect(settings).to_contain_text("no limit")

        await settings.get_by_role("button", name="change").click()
        await page.get_by_label("tasks that run at once").fill("3")
        await page.get_by_label("starts", exact=True).fill("5")
        await page.get_by_label("weights of tenants").fill("ann=2\nbob=0.5")
        await page.get_by_role("dialog").get_by_role("button", name="change").click()
        await expect(settings).to_contain_text("0 of 3")
        await expect(settings).to_contain_text("5 per 1 s")
        await expect(settings).to_contain_text("ann 2")
        await expect(page.locator("tbody").first).to_contain_text("at most 3 running")

        await settings.get_by_role("button", name="change").click()
        await page.get_by_label("tasks that run at once").fill("")
        await page.get_by_label("weights of tenants").fill("ann")
        submit = page.get_by_role("dialog").get_by_role("button", name="change")
        await submit.click()
        await expect(page.get_by_role("alert")).to_contain_text("tenant=2")
        await page.get_by_label("weights of tenants").fill("")
        await submit.click()
        await expect(page.locator("tbody").first).not_to_contain_text("running")

    (queue,) = (await api.get("/api/queues")).json()["items"]
    assert (queue["max_running"], queue["weights"]) == (None, {})
    assert queue["rate"]["limit"] == 5


async def test_tenants_of_a_queue_are_shown_with_their_shares(api: Api) -> None:
    await api.client.patch("/api/queues/reports", json={"weights": {"ann": 3}})
    worker = await api.register(max_concurrent_tasks=4)
    for tenant in ("ann", "bob"):
        for _ in range(8):
            await api.submit(queue="reports", fair_key=tenant)
    await worker.lease(4)
    async with visiting(api) as visit:
        page = await visit.open("/queues?queue=reports")

        tenants = page.locator(".panel", has_text="reports: tenants")
        ann = tenants.locator("tbody tr", has_text="ann").locator("td")
        await expect(ann).to_have_text(["ann", "3", " 75 %", "75 %", "5", "3"])
        bob = tenants.locator("tbody tr", has_text="bob").locator("td")
        await expect(bob).to_have_text(["bob", "1", " 25 %", "25 %", "7", "1"])


async def test_a_missed_target_is_on_the_overview_and_on_the_queue(api: Api) -> None:
    await api.submit(queue="mail")
    async with visiting(api) as visit:
        page = await visit.open("/queues?queue=mail")
        settings = page.locator(".panel", has_text="mail: settings")
        await settings.get_by_role("button", name="change").click()
        await page.get_by_label("seconds that tasks should wait at most").fill("30")
        await page.get_by_label("fairness").select_option("time")
        await page.get_by_role("dialog").get_by_role("button", name="change").click()
        await expect(settings).to_contain_text("30 s")
        await expect(settings).to_contain_text("is met")
        await expect(settings).to_contain_text("time of workers")

        await api.turn(31_000)
        await expect(settings).to_contain_text("missed since")
        await expect(page.locator("tbody tr").first).to_contain_text("target missed since")
        await visit.open("/")
        line = page.locator("a.alert", has_text="the target of their queue")
        await expect(line).to_contain_text("Tasks of mail wait longer than 30 s")
        await line.click()
        await heading(page, "Queues")


async def test_a_reader_sees_limits_and_changes_none(tmp_path: Path) -> None:
    secret, admin = token_in(tmp_path, "read"), token_in(tmp_path, "admin")
    async with served(tmp_path, require_token=True, zmq_port=None) as api, visiting(api) as visit:
        api.client.headers["authorization"] = f"Bearer {admin}"
        await api.client.put("/api/limits/k", json={"limit": 1})
        await api.submit()
        page = await visit.open("/limits")
        await page.get_by_label("Token").fill(secret)
        await page.get_by_role("button", name="log in").click()

        await expect(page.locator("tbody tr")).to_contain_text("0 of 1 running")
        await expect(page.locator("main button")).to_have_count(0)
        await visit.open("/queues?queue=default")
        await expect(page.locator("main")).to_contain_text("default: settings")
        await expect(page.locator("main button")).to_have_count(0)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1_400])
async def test_pages_of_limits_fit_and_take_no_data_for_markup(
    api: Api, width: int, theme: str
) -> None:
    await limited(api)
    key = quote(HOSTILE, safe="")
    assert (await api.client.put(f"/api/limits/{key}", json={"limit": 3})).status_code == 200
    await api.client.put(f"/api/limits/{'k' * 300}", json={"limit": 3})
    body = {"max_running": 3, "weights": {HOSTILE: 2}}
    assert (await api.client.patch("/api/queues/default", json=body)).status_code == 200
    task = await api.submit(concurrency={"key": HOSTILE, "limit": 3}, fair_key=HOSTILE)
    async with visiting(api, width=width, theme=theme) as visit:
        for path in ("/limits", "/queues?queue=default", f"/tasks/{task['id']}"):
            page = await visit.open(path)
            await expect(page.get_by_role("heading", level=1)).to_be_visible()
            await settled(page)

            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
            assert await page.locator("main img, main script").count() == 0, path
