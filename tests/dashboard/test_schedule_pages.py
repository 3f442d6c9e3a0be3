"""Pages of schedules, in a real browser."""

import re
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote
from zoneinfo import ZoneInfo

import pytest

from tests.dashboard.browsing import heading, settled, visiting
from tests.gateways.serving import Api, Json, served
from tests.gateways.test_login import token_in

pytest.importorskip("playwright", reason="the playwright package is not installed")

from playwright.async_api import expect

pytestmark = pytest.mark.slow

HOSTILE = "<img src=x onerror=alert(1)>/a b?c"
MINUTE_MS = 60_000
TASK = {"name": "clean", "queue": "mail", "payload": {"days": 30}}
NIGHTLY = {"cron": "0 3 * * *", "timezone": "Europe/Berlin", "task": TASK}
EVERY_MINUTE = {"every_ms": MINUTE_MS, "task": TASK}
WAITS = '{"initial_node": "n", "nodes": {"n": {"wait_for": {"event": "go"}}}, "transitions": []}'


def path(name: str, verb: str = "") -> str:
    return f"/api/schedules/{quote(name, safe='')}" + (f"/{verb}" if verb else "")


def address(name: str) -> str:
    return f"/schedules/{quote(name, safe='')}"


async def put(api: Api, name: str, body: Json, **more: Any) -> None:
    answer = await api.client.put(path(name), json={**body, **more})
    assert answer.status_code in {200, 201}, answer.text


async def scheduled(api: Api) -> None:
    """One schedule has fired and been skipped, one starts runs, one is paused."""
    await api.client.put("/api/workflows/waits", content=WAITS)
    await put(api, "often", EVERY_MINUTE)
    await put(api, "runs", {"cron": ["* * * * *", "0 3 1 * *"], "run": {"workflow": "waits"}})
    await put(api, "mail/nightly", NIGHTLY)
    await api.post(path("mail/nightly", "pause"), {"note": "the disk is full"})
    await api.turn(MINUTE_MS)
    await api.turn(MINUTE_MS)


async def test_a_list_shows_what_starts_when_and_how_it_went(api: Api) -> None:
    await scheduled(api)
    async with visiting(api) as visit:
        page = await visit.open("/schedules")

        often = page.locator("tbody tr", has_text="often")
        await expect(often).to_contain_text("task clean")
        await expect(often).to_contain_text("every 1 m")
        await expect(often.locator("td").nth(3).locator("time")).to_have_attribute(
            "title", re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
        )
        await expect(often.locator("td").nth(4)).to_contain_text("skipped: overlap")
        runs = page.locator("tbody tr", has_text="runs")
        await expect(runs).to_contain_text("run waits")
        await expect(runs).to_contain_text("0 3 1 * *")
        nightly = page.locator("tbody tr", has_text="mail/nightly")
        await expect(nightly.locator(".badge")).to_have_text("paused")
        await expect(nightly).to_contain_text("the disk is full")
        await expect(nightly).to_contain_text("0 3 * * * Europe/Berlin")
        await expect(nightly).to_contain_text("never")


async def test_a_list_marks_what_is_pinned_and_what_the_code_no_longer_has(api: Api) -> None:
    item = {"name": "kept", "schedule": NIGHTLY}
    sync = {"source": "shop", "items": [item, {**item, "name": "gone"}]}
    await api.post("/api/schedules/sync", sync)
    await put(api, "kept", NIGHTLY, cron="0 4 * * *")
    await api.post("/api/schedules/sync", {**sync, "items": [item]})
    async with visiting(api) as visit:
        page = await visit.open("/schedules")

        await expect(page.locator("tbody tr", has_text="kept").locator(".name")).to_contain_text(
            "pinned"
        )
        await page.get_by_role("link", name="gone").click()
        await expect(page.locator(".why")).to_contain_text("The code of shop no longer has it.")


async def test_many_schedules_come_page_by_page(api: Api) -> None:
    for number in range(60):
        await put(api, f"s{number:02}", NIGHTLY)
    async with visiting(api) as visit:
        page = await visit.open("/schedules")
        await expect(page.locator("tbody tr")).to_have_count(50)

        await page.get_by_role("button", name="next").click()
        await expect(page.locator("tbody tr")).to_have_count(10)
        await expect(page.locator("tbody")).to_contain_text("s59")


async def test_without_schedules_the_page_shows_how_to_make_one(api: Api) -> None:
    async with visiting(api) as visit:
        page = await visit.open("/schedules")

        await expect(page.locator("pre.sample")).to_contain_text(
            '@app.schedule("0 3 * * *", timezone="Europe/Berlin")\n@app.task'
        )


async def test_a_schedule_shows_its_next_and_last_firings(api: Api) -> None:
    await scheduled(api)
    async with visiting(api) as visit:
        page = await visit.open("/schedules")

        await page.get_by_role("link", name="often").click()
        await heading(page, "often")
        await expect(page.locator(".upcoming tbody tr")).to_have_count(10)
        await expect(page.locator(".upcoming tbody tr").first).to_contain_text(
            re.compile(r"[A-Z][a-z]{2} \d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
        )
        firings = page.locator(".schedules tbody tr")
        await expect(firings).to_have_count(2)
        await expect(firings.first).to_contain_text("skipped: overlap")
        await firings.nth(1).get_by_role("link").click()
        await heading(page, "clean")

    tasks = (await api.get("/api/tasks")).json()["items"]
    assert len(tasks) == 1


async def test_a_firing_leads_to_its_run(api: Api) -> None:
    await scheduled(api)
    (_, firing) = (await api.get(path("runs"))).json()["firings"]
    async with visiting(api) as visit:
        page = await visit.open(address("runs"))

        await page.get_by_role("link", name=firing["run_id"]).click()
        await expect(page).to_have_url(re.compile(f"/runs/{firing['run_id']}"))


async def test_times_are_shown_by_the_clock_of_the_schedule(api: Api) -> None:
    await put(api, "nightly", NIGHTLY, timezone="Pacific/Auckland")
    async with visiting(api) as visit:
        page = await visit.open(address("nightly"))

        rows = page.locator(".upcoming tbody tr td:first-child")
        await expect(rows).to_have_text([re.compile(r" 03:00:00$")] * 10)


async def test_a_schedule_is_paused_with_a_note_and_resumed(api: Api) -> None:
    await put(api, "mail/nightly", NIGHTLY)
    async with visiting(api) as visit:
        page = await visit.open(address("mail/nightly"))
        tools = page.locator(".page-tools")

        await tools.get_by_role("button", name="pause").click()
        await page.get_by_label("note for others").fill("the disk is full")
        await page.get_by_role("button", name="pause it").click()
        await expect(page.locator(".why")).to_contain_text("the disk is full")
        paused = (await api.get(path("mail/nightly"))).json()
        await tools.get_by_role("button", name="resume").click()
        await expect(page.locator(".why")).to_have_count(0)

    assert (paused["paused"], paused["note"]) == (True, "the disk is full")
    assert not (await api.get(path("mail/nightly"))).json()["paused"]


async def test_a_schedule_is_run_now_and_deleted(api: Api) -> None:
    await put(api, "nightly", NIGHTLY)
    async with visiting(api) as visit:
        page = await visit.open(address("nightly"))
        await expect(page.locator("main")).to_contain_text("It has not fired yet.")

        await page.get_by_role("button", name="run now").click()
        await page.get_by_role("button", name="run it now").click()
        await expect(page.locator(".schedules tbody tr")).to_contain_text("on demand")
        await page.get_by_role("button", name="delete").click()
        await page.get_by_role("button", name="delete it").click()
        await heading(page, "Schedules")
        await expect(page.locator("main")).to_contain_text("No schedule yet")

    assert (await api.get(path("nightly"))).status_code == 404


async def test_a_schedule_that_is_over_says_so(api: Api) -> None:
    await put(api, "once", EVERY_MINUTE, max_firings=1)
    await api.turn(MINUTE_MS)
    async with visiting(api) as visit:
        page = await visit.open(address("once"))

        await expect(page.locator(".why")).to_contain_text("It has ended")
        await expect(page.locator(".facts")).to_contain_text("1 of at most 1")
        await expect(page.locator(".upcoming")).to_have_count(0)


async def test_an_unknown_schedule_says_so(api: Api) -> None:
    async with visiting(api) as visit:
        page = await visit.open(address("none"))

        await expect(page.get_by_role("alert")).to_contain_text("schedule_not_found")


async def test_a_reader_sees_schedules_and_changes_none(tmp_path: Path) -> None:
    secret, admin = token_in(tmp_path, "read"), token_in(tmp_path, "admin")
    async with served(tmp_path, require_token=True, zmq_port=None) as api, visiting(api) as visit:
        api.client.headers["authorization"] = f"Bearer {admin}"
        await put(api, "nightly", NIGHTLY)
        await api.post(path("nightly", "pause"), {"note": "the disk is full"})
        page = await visit.open("/schedules")
        await page.get_by_label("Token").fill(secret)
        await page.get_by_role("button", name="log in").click()

        await expect(page.locator("tbody tr")).to_contain_text(re.compile("by .+: the disk"))
        await page.get_by_role("link", name="nightly").click()
        await expect(page.locator(".upcoming tbody tr")).to_have_count(10)
        await expect(page.locator(".page-tools button")).to_have_count(0)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1_400])
async def test_pages_of_schedules_fit_and_take_no_data_for_markup(
    api: Api, width: int, theme: str
) -> None:
    await scheduled(api)
    task = {"name": HOSTILE, "queue": "q" * 100, "payload": {HOSTILE: HOSTILE}}
    await put(api, HOSTILE, EVERY_MINUTE, task=task, cron=["1,2,3 * * * *"] * 3)
    await put(api, "n" * 200, NIGHTLY)
    await api.post(path("n" * 200, "pause"), {"note": "x" * 1_000})
    await api.turn(MINUTE_MS)
    async with visiting(api, width=width, theme=theme) as visit:
        for name in ("", HOSTILE, "n" * 200, "often", "runs"):
            page = await visit.open(address(name))
            await expect(page.get_by_role("heading", level=1)).to_be_visible()
            await settled(page)

            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
            assert await page.locator("main img, main script").count() == 0, name


# --- forms ---------------------------------------------------------------------------------------


async def test_a_schedule_is_made_in_the_browser(api: Api) -> None:
    async with visiting(api) as visit:
        page = await visit.open("/schedules")

        await page.get_by_role("button", name="new schedule").click()
        form = page.get_by_role("dialog")
        await form.get_by_label("name", exact=True).fill("mail/nightly")
        await form.get_by_label("task", exact=True).fill("clean")
        await form.get_by_label("queue").fill("mail")
        await form.get_by_label("payload as JSON").fill('{"days": 30}')
        await form.get_by_label("cron expressions, one").fill("0 3 * * *\n0 4 1 * *")
        await form.get_by_label("time zone").fill("Pacific/Auckland")
        await expect(form.get_by_role("region", name="next firings").locator("tr")).to_have_count(5)
        await expect(form.locator(".preview tr").first).to_contain_text(" 03:00:00")
        await form.get_by_text("more", exact=True).click()
        await form.get_by_label("while an earlier one has not ended").select_option("queue_one")
        await form.get_by_label("pause after failures").fill("3")
        await form.get_by_role("button", name="create").click()
        await heading(page, "mail/nightly")

    made = (await api.get(path("mail/nightly"))).json()
    assert made["cron"] == ["0 3 * * *", "0 4 1 * *"]
    assert (made["timezone"], made["overlap"]) == ("Pacific/Auckland", "queue_one")
    assert (made["missed"], made["catch_up_ms"]) == ("last", 3_600_000)
    assert made["pause_on_failure"] == 3
    assert made["task"] == TASK


async def test_a_form_of_a_schedule_shows_its_times_before_it_is_made(api: Api) -> None:
    async with visiting(api) as visit:
        page = await visit.open("/schedules")
        await page.get_by_role("button", name="new schedule").click()
        form = page.get_by_role("dialog")
        preview = form.get_by_role("region", name="next firings")
        await expect(preview).to_contain_text("Give it a cron expression")

        await form.get_by_label("cron expressions, one").fill("61 * * * *")
        await expect(preview.locator(".is-wrong")).to_contain_text("cron")
        await form.get_by_label("cron expressions, one").fill("")
        await form.get_by_text("more", exact=True).click()
        await form.get_by_label("time zone").fill("Europe/Berlin")
        await form.get_by_label("single times").fill("2090-01-15 03:00\n2090-07-15 03:00")
        await expect(preview.locator("td:first-child")).to_have_text(
            ["Sun 2090-01-15 03:00:00", "Sat 2090-07-15 03:00:00"]
        )
        await form.get_by_label("single times").fill("tomorrow")
        await expect(preview).to_contain_text('"tomorrow" is not a time such as 2027-01-15 03:00')

    assert (await api.get("/api/schedules")).json()["items"] == []


async def test_a_schedule_is_changed_and_keeps_what_the_form_does_not_have(api: Api) -> None:
    task = {**TASK, "priority": 7, "max_attempts": 2}
    more = {"at_ms": [3_800_000_000_000], "exclude": ["2026-12-25"], "with_times": True}
    await put(api, "nightly", NIGHTLY, task=task, missed="all", catch_up_ms=86_400_000, **more)
    before = (await api.get(path("nightly"))).json()
    async with visiting(api) as visit:
        page = await visit.open(address("nightly"))

        await page.get_by_role("button", name="change").click()
        form = page.get_by_role("dialog")
        await form.get_by_label("cron expressions, one").fill("0 4 * * *")
        await expect(form.locator(".preview tr").first).to_contain_text(" 04:00:00")
        await form.get_by_role("button", name="change it").click()
        await expect(page.locator(".page-title")).to_contain_text("0 4 * * *")

    after = (await api.get(path("nightly"))).json()
    changed = {name for name, value in after.items() if before[name] != value}
    assert changed <= {"cron", "next_at_ms", "next_nominal_ms", "pinned", "updated_at_ms"}
    assert after["cron"] == "0 4 * * *"


async def test_the_name_of_another_schedule_is_not_taken(api: Api) -> None:
    await put(api, "nightly", NIGHTLY)
    async with visiting(api) as visit:
        page = await visit.open("/schedules")

        await page.get_by_role("button", name="new schedule").click()
        form = page.get_by_role("dialog")
        await form.get_by_label("name", exact=True).fill("nightly")
        await form.get_by_label("task", exact=True).fill("other")
        await form.get_by_label("interval in seconds").fill("60")
        await form.get_by_role("button", name="create").click()
        await expect(form.get_by_role("alert")).to_contain_text("named nightly already")

    assert (await api.get(path("nightly"))).json()["task"] == TASK


async def test_a_changed_schedule_of_code_can_follow_the_code_again(api: Api) -> None:
    sync = {"source": "shop", "items": [{"name": "kept", "schedule": NIGHTLY}]}
    await api.post("/api/schedules/sync", sync)
    await put(api, "kept", NIGHTLY, cron="0 4 * * *")
    async with visiting(api) as visit:
        page = await visit.open(address("kept"))

        await page.get_by_role("button", name="change").click()
        await page.get_by_label("let the code of shop change it again").check()
        await page.get_by_role("button", name="change it").click()
        await expect(page.locator(".toasts")).to_contain_text("kept is changed")

    assert not (await api.get(path("kept"))).json()["pinned"]


async def test_a_backfill_counts_the_times_before_it_fires_them(api: Api) -> None:
    await put(api, "hourly", {**NIGHTLY, "cron": "0 * * * *", "overlap": "allow"})
    async with visiting(api) as visit:
        page = await visit.open(address("hourly"))

        await page.get_by_role("button", name="backfill").click()
        form = page.get_by_role("dialog")
        await form.get_by_label("from, by the clock of Europe/Berlin").fill("2020-03-29 00:30")
        await form.get_by_label("until").fill("2020-03-29 05:30")
        await form.get_by_role("button", name="count the times").click()
        await expect(form.get_by_role("status")).to_contain_text("has 4 times in this range")
        none = (await api.get("/api/tasks")).json()["items"]
        await form.get_by_label("until").fill("2020-03-29 04:30")
        await form.get_by_role("button", name="count the times").click()
        await form.get_by_role("button", name="fire 3 times").click()
        await expect(page.locator(".toasts")).to_contain_text("3 times fired")

    assert none == []
    assert len((await api.get("/api/tasks")).json()["items"]) == 3


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1_400])
async def test_forms_of_schedules_fit(api: Api, width: int, theme: str) -> None:
    await put(api, HOSTILE, {**NIGHTLY, "exclude": ["2026-12-25"]})
    async with visiting(api, width=width, theme=theme) as visit:
        for name in ("change", "backfill"):
            page = await visit.open(address(HOSTILE))
            await page.get_by_role("button", name=name).click()
            form = page.get_by_role("dialog")
            await expect(form).to_be_visible()

            assert await form.evaluate("it => it.scrollWidth <= it.clientWidth"), name
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name


@pytest.mark.parametrize(
    ("zone", "days"),
    [
        ("Australia/Lord_Howe", ["2026-04-04", "2026-10-03"]),  # shifts of half an hour
        ("Europe/Berlin", ["2026-03-28", "2026-10-24"]),
        ("Pacific/Apia", ["2011-12-29"]),  # a day that was left out
        ("UTC", ["2026-03-28"]),
    ],
)
async def test_times_in_a_form_are_those_of_the_clock_of_the_zone(
    api: Api, zone: str, days: list[str]
) -> None:
    first = [round(datetime.fromisoformat(f"{day}T00:00Z").timestamp() * 1000) for day in days]
    moments = [start + quarter * 900_000 for start in first for quarter in range(3 * 96)]
    async with visiting(api) as visit:
        page = await visit.open("/schedules")
        script = """async ([zone, moments, texts]) => {
          const { readTime, writeTime } = await import("/static/pages/zoned_times.js");
          const read = (text) => readTime(text, zone, "at");
          const written = moments.map((at) => writeTime(at, zone));
          return [texts.map(read), written, written.map(read)];
        }"""
        shown = [datetime.fromtimestamp(one / 1000, ZoneInfo(zone)) for one in moments]
        texts = [one.strftime("%Y-%m-%d %H:%M") for one in shown]
        read, written, again = await page.evaluate(script, [zone, moments, texts])

    assert again == moments  # what the form shows for a moment means that moment
    repeated = {text for text in texts if texts.count(text) > 1}
    for moment, text, found, form in zip(moments, texts, read, written, strict=True):
        if text not in repeated:
            assert (found, form) == (moment, text)
        else:
            assert found in {one for one, same in zip(moments, texts, strict=True) if same == text}
