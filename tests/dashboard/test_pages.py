"""The dashboard as people use it: real pages, in a real browser, before a real coordinator."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.dashboard.browsing import heading, settled, visiting
from tests.dashboard.test_run_pages import waiting_run
from tests.gateways.serving import Api, served
from tests.gateways.test_login import token_in

pytest.importorskip("playwright", reason="the playwright package is not installed")

from playwright.async_api import expect

pytestmark = pytest.mark.slow

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"
CHANGING = (
    "cancel",
    "retry",
    "pause",
    "resume",
    "drain",
    "release",
    "quarantine",
    "acknowledge",
    "approve",
    "refuse",
    "fork",
    "start",
    "pin",
    "send",
)
# What a payload that was painted as markup would do.
INTRUDE = """async () => {
  const script = document.createElement("script");
  script.textContent = "window.wasRun = true";
  document.body.append(script);
  const image = document.createElement("div");
  image.setAttribute("onclick", "window.wasClicked = true");
  document.body.append(image);
  image.click();
  const asked = await fetch("http://elsewhere.invalid/").then(() => "answered", () => "refused");
  return { script: Boolean(window.wasRun), attribute: Boolean(window.wasClicked), fetch: asked };
}"""
TITLES = {
    "/": "Overview",
    "/tasks": "Tasks",
    "/queues": "Queues",
    "/limits": "Limits",
    "/schedules": "Schedules",
    "/needs": "Needs you",
    "/failures": "Failures",
    "/workers": "Workers",
    "/memory": "Memory",
    "/locks": "Locks",
    "/webhooks": "Webhooks",
    "/access": "Access",
    "/events": "Events",
    "/system": "System",
}


async def busy(api: Api) -> None:
    """Something of every kind, with the worst of names."""
    everywhere: dict[str, Any] = {"capabilities": [HOSTILE], "queues": ["default", HOSTILE, "mail"]}
    await api.register(f"w {HOSTILE}", node_id=HOSTILE, group=HOSTILE, **everywhere)
    worker = await api.register(**everywhere)
    await api.submit(name=HOSTILE, queue=HOSTILE, max_attempts=1, labels={HOSTILE: HOSTILE})
    (lease,) = await worker.lease()
    await worker.fail(
        lease, {"type": HOSTILE, "message": HOSTILE, "details": {"traceback": HOSTILE}}
    )
    await api.submit(payload={HOSTILE: [HOSTILE]}, key=HOSTILE)
    await api.submit(requires=["gpu"], queue="mail")
    await api.submit(delay_ms=60_000)
    await worker.lease(most=1)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1_400])
async def test_every_page_opens_fits_and_takes_no_data_for_markup(
    api: Api, width: int, theme: str
) -> None:
    await busy(api)
    tasks = (await api.get("/api/tasks")).json()["items"]
    paths = dict(TITLES) | {f"/tasks/{one['id']}": one["name"] for one in tasks}
    paths |= {f"/workers/{quote(one, safe='')}": one for one in ("w1", f"w {HOSTILE}")}
    async with visiting(api, width=width, theme=theme) as visit:
        for path, title in paths.items():
            page = await visit.open(path)

            await heading(page, title)
            await settled(page)
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
            assert await page.locator("main img, main script").count() == 0, path


async def test_what_is_stuck_is_said_on_the_first_page(api: Api) -> None:
    await api.register(capabilities=["cpu"])
    await api.submit(name="render", requires=["gpu"])
    async with visiting(api) as visit:
        page = await visit.open("/")

        line = page.locator(".alert", has_text="render")
        await expect(line).to_contain_text("no worker has capability 'gpu'")
        await line.click()
        await expect(page).to_have_url(
            re.compile(r"/tasks\?state=queued&queue=default&name=render")
        )
        await expect(page.locator("tbody")).to_contain_text("no worker has capability 'gpu'")


async def test_counts_and_lists_follow_what_happens_without_a_reload(api: Api) -> None:
    worker = await api.register()
    async with visiting(api) as visit:
        page = await visit.open("/tasks")
        await expect(page.get_by_role("status", name="")).to_contain_text(["live"])
        await page.evaluate("window.isSame = true")

        await api.submit(name="fresh")
        await expect(page.locator("tbody tr")).to_contain_text(["fresh"])
        (lease,) = await worker.lease()
        await worker.finish(lease, "done")

        await expect(page.locator("tbody tr .badge")).to_have_text("succeeded")
        await expect(page.locator(".states a", has_text="succeeded")).to_contain_text("1")
        assert await page.evaluate("window.isSame")


async def test_a_task_is_cancelled_and_sent_round_again(api: Api) -> None:
    task = await api.submit()
    async with visiting(api) as visit:
        page = await visit.open(f"/tasks/{task['id']}")

        await page.get_by_role("button", name="cancel", exact=True).click()
        await page.get_by_role("button", name="cancel the task").click()
        await expect(page.locator(".why .badge")).to_have_text("cancelled")
        await page.get_by_role("button", name="retry", exact=True).click()
        await expect(page.locator(".why .badge")).to_have_text("queued")

    assert (await api.task(task["id"]))["state"] == "queued"


async def test_a_dialog_that_is_refused_changes_nothing(api: Api) -> None:
    task = await api.submit()
    async with visiting(api) as visit:
        page = await visit.open(f"/tasks/{task['id']}")

        await page.get_by_role("button", name="cancel", exact=True).click()
        await expect(page.locator("dialog")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.locator("dialog")).to_have_count(0)

    assert (await api.task(task["id"]))["state"] == "queued"


async def test_a_bulk_change_says_how_many_before_it_does_it(api: Api) -> None:
    for _ in range(3):
        await api.submit(queue="mail")
    kept = await api.submit(queue="other")
    async with visiting(api) as visit:
        page = await visit.open("/tasks?queue=mail&state=queued")

        await page.get_by_role("button", name="cancel …").click()
        await expect(page.get_by_role("dialog")).to_contain_text("3 tasks that match the filter")
        await page.get_by_role("button", name="cancel 3 tasks").click()
        await expect(page.locator(".toasts")).to_contain_text("3 tasks cancelled")

    assert (await api.task(kept["id"]))["state"] == "queued"
    assert len((await api.get("/api/tasks?state=cancelled")).json()["items"]) == 3


async def test_a_queue_is_paused_and_resumed(api: Api) -> None:
    await api.submit(queue="mail/out")
    async with visiting(api) as visit:
        page = await visit.open("/queues")

        await page.get_by_role("button", name="pause", exact=True).click()
        await page.get_by_role("button", name="pause it").click()
        await expect(page.locator("tbody").first).to_contain_text("queue 'mail/out' is paused")
        await page.get_by_role("button", name="resume", exact=True).click()
        await expect(page.get_by_role("button", name="pause", exact=True)).to_be_visible()


async def test_failures_of_one_kind_go_round_again_together(api: Api) -> None:
    worker = await api.register()
    for _ in range(2):
        await api.submit(max_attempts=1)
    for number, lease in enumerate(await worker.lease()):
        await worker.fail(lease, f"row {number} is odd")
    async with visiting(api) as visit:
        page = await visit.open("/failures")

        await expect(page.locator(".panel")).to_contain_text("row 1 is odd")
        await page.get_by_role("button", name="retry all …").click()
        await page.get_by_role("button", name="retry 2 tasks").click()
        await expect(page.locator(".empty")).to_contain_text("No failed task needs attention")


async def test_a_worker_is_drained_and_resumed(api: Api) -> None:
    await api.register("w/1")
    async with visiting(api) as visit:
        page = await visit.open("/workers")
        await page.get_by_role("link", name="w/1").click()
        await heading(page, "w/1")

        await page.get_by_role("button", name="drain", exact=True).click()
        await page.get_by_role("dialog").get_by_role("button", name="drain", exact=True).click()
        await expect(page.locator(".why")).to_contain_text("gets nothing new")
        await page.get_by_role("button", name="resume", exact=True).click()
        await expect(page.locator(".why")).to_contain_text("heartbeats are on time")


async def test_filters_stand_in_the_address_and_the_way_back_works(api: Api) -> None:
    await api.submit(name="letter", queue="mail")
    await api.submit(name="other")
    async with visiting(api) as visit:
        page = await visit.open("/tasks")
        await expect(page.locator("tbody tr")).to_have_count(2)

        await page.locator("[data-search]").fill("letter queue:mail")
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(re.compile(r"/tasks\?name=letter&queue=mail$"))
        await expect(page.locator("tbody tr")).to_have_count(1)
        await page.go_back()
        await expect(page.locator("tbody tr")).to_have_count(2)


async def test_pages_of_a_list_are_addresses(api: Api) -> None:
    await api.post("/api/tasks", [{"name": f"t{number}"} for number in range(120)])
    async with visiting(api) as visit:
        page = await visit.open("/tasks")
        await expect(page.locator("tbody tr").first).to_contain_text("t119")

        await page.get_by_role("button", name="older").click()
        await expect(page.locator("tbody tr").first).to_contain_text("t69")
        await expect(page).to_have_url(re.compile("cursor="))
        await page.get_by_role("button", name="newest").click()
        await expect(page.locator("tbody tr").first).to_contain_text("t119")


async def test_keys_lead_everywhere(api: Api) -> None:
    async with visiting(api) as visit:
        page = await visit.open("/")
        await heading(page, "Overview")

        await page.keyboard.type("gt")
        await heading(page, "Tasks")
        await expect(page.locator("[data-search]")).to_be_visible()  # it comes after the heading
        await page.keyboard.press("/")
        await expect(page.locator("[data-search]")).to_be_focused()
        await page.keyboard.press("Escape")
        await page.keyboard.type("gw")
        await heading(page, "Workers")
        await page.keyboard.type("?")
        await expect(page.get_by_role("dialog", name="keys")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        await page.keyboard.press("Control+k")
        await expect(page.get_by_role("combobox", name="command")).to_be_focused()
        await page.keyboard.type("fail")
        await expect(page.get_by_role("option").first).to_contain_text("Failures")
        await page.keyboard.press("Enter")
        await heading(page, "Failures")


async def test_rows_are_walked_and_opened_by_keys(api: Api) -> None:
    await api.submit(name="older")
    await api.submit(name="newer")
    async with visiting(api) as visit:
        page = await visit.open("/tasks")
        await expect(page.locator("tbody tr")).to_have_count(2)

        await page.keyboard.press("j")
        await page.keyboard.press("j")
        await page.keyboard.press("Enter")
        await heading(page, "older")


async def test_the_choice_of_light_or_dark_is_kept(api: Api) -> None:
    async with visiting(api, theme="light") as visit:
        page = await visit.open("/")
        await heading(page, "Overview")
        await page.keyboard.press("t")
        await expect(page.locator("html")).to_have_attribute("data-theme", "dark")

        await page.reload()
        await expect(page.locator("html")).to_have_attribute("data-theme", "dark")


async def test_a_narrow_screen_has_a_menu(api: Api) -> None:
    async with visiting(api, width=400) as visit:
        page = await visit.open("/")
        await expect(page.get_by_role("navigation", name="pages")).to_be_hidden()

        await page.get_by_role("button", name="menu").click()
        await page.get_by_role("link", name="Queues").click()
        await heading(page, "Queues")
        await expect(page.get_by_role("navigation", name="pages")).to_be_hidden()


async def test_a_browser_without_a_token_logs_in_and_out(tmp_path: Path) -> None:
    secret = token_in(tmp_path, "admin")
    async with served(tmp_path, require_token=True, zmq_port=None) as api, visiting(api) as visit:
        page = await visit.open("/tasks")

        await page.get_by_label("Token").fill("rota_wrong")
        await page.get_by_role("button", name="log in").click()
        await expect(page.get_by_role("alert")).to_contain_text("not known")
        await page.get_by_label("Token").fill(secret)
        await page.get_by_role("button", name="log in").click()
        await heading(page, "Tasks")
        assert await page.evaluate("document.cookie") == ""
        await page.get_by_role("button", name="log out").click()
        await expect(page.get_by_label("Token")).to_be_visible()


async def test_a_read_only_token_sees_no_button_that_changes_anything(tmp_path: Path) -> None:
    secret, admin = token_in(tmp_path, "read"), token_in(tmp_path, "admin")
    async with served(tmp_path, require_token=True, zmq_port=None) as api, visiting(api) as visit:
        api.client.headers["authorization"] = f"Bearer {admin}"
        _, run = await waiting_run(api)
        await busy(api)
        await api.post("/api/services/feed/members", {"workerId": "a", "maxShardCount": 8})
        await api.post("/api/locks/nightly/acquire", {"owner": "a", "ttl_ms": 600_000})
        page = await visit.open("/")
        await page.get_by_label("Token").fill(secret)
        await page.get_by_role("button", name="log in").click()
        await expect(page.locator(".side .note")).to_have_text("read-only token")

        queued = (await api.get("/api/tasks?state=queued")).json()["items"][0]
        paths = {**TITLES, f"/tasks/{queued['id']}": queued["name"]}
        paths |= {"/workflows": "Workflows", "/workflows/order": "order", "/runs": "Runs"}
        paths |= {"/services/feed": "feed", "/workers/w1": "w1", f"/runs/{run}": f"order {run}"}
        for path, title in paths.items():
            await visit.open(path)
            await heading(page, title)
            await settled(page)
            for verb in CHANGING:
                named = page.locator("main button, main a.button", has_text=re.compile(f"^{verb}"))
                await expect(named).to_have_count(0)
            assert await page.locator("main form input[type=number], main select").count() <= 1


async def test_the_browser_itself_refuses_scripts_and_hosts_that_are_not_ours(api: Api) -> None:
    async with visiting(api) as visit:
        page = await visit.open("/")
        await heading(page, "Overview")

        outcome = await page.evaluate(INTRUDE)

        assert outcome == {"script": False, "attribute": False, "fetch": "refused"}
        # Each was noticed, which also shows that the other tests would notice it.
        assert len([fault for fault in visit.faults if "Content Security Policy" in fault]) >= 3
        visit.faults.clear()


async def test_a_coordinator_that_stops_is_said_to_be_unreachable(tmp_path: Path) -> None:
    async with served(tmp_path) as api, visiting(api) as visit:
        page = await visit.open("/tasks")
        await heading(page, "Tasks")
        await page.route("**/api/**", lambda route: route.abort())
        visit.page.remove_listener("console", visit._note_console)

        await expect(page.locator(".live")).to_contain_text("unreachable")
        await heading(page, "Tasks")
