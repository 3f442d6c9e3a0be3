"""Pages of workflows in code and of their runs, in a real browser."""

import re
from typing import Any

import pytest
import pytest_asyncio

from tests.dashboard.browsing import settled, visiting
from tests.dashboard.function_runs import (
    CHANGED,
    FIRST_LINE,
    PAID,
    SOURCE,
    asked,
    deploy,
    diverged_function,
    step,
    stopped,
    waiting_function,
)
from tests.gateways.serving import Api
from tests.gateways.working import Bench

pytest.importorskip("playwright", reason="the playwright package is not installed")

from playwright.async_api import Page, expect

pytestmark = pytest.mark.slow

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"
MOST_NODES = 250  # of a graph


@pytest_asyncio.fixture(loop_scope="session")
async def bench(api: Api) -> Bench:
    return await Bench.at(api)


def node(page: Page, name: str) -> Any:
    return page.locator(f'.node[data-node="{name}"]')


def wait(page: Page, kind: str) -> Any:
    return page.locator(f'.waits > li[data-kind="{kind}"]')


async def test_a_function_is_drawn_by_scope_with_a_map_as_one_stacked_node(
    api: Api, bench: Bench
) -> None:
    run = await waiting_function(api, bench, photos=10_000)
    async with visiting(api) as visit:
        page = await visit.open(f"/runs/{run}")

        await expect(node(page, "reserve")).to_have_attribute("data-tone", "green")
        await expect(node(page, "ship")).to_have_attribute("data-tone", "teal")
        await expect(node(page, "photos")).to_contain_text("\u00d7 10.0k")
        await expect(node(page, "photos").locator(".stack")).to_have_count(2)
        await expect(page.locator(".scope text")).to_have_text(["gather 1", "first 1"])


async def test_lines_at_which_a_function_waits_are_marked_in_its_source(
    api: Api, bench: Bench
) -> None:
    run = await waiting_function(api, bench)
    async with visiting(api) as visit:
        page = await visit.open(f"/runs/{run}")

        marked = page.locator(".source .is-at")
        await expect(marked).to_have_count(3)
        await expect(marked.first).to_have_attribute("data-line", str(FIRST_LINE + 4))
        await expect(marked.first).to_contain_text("photos#1")
        await expect(wait(page, "event")).to_contain_text("signal 'paid'")
        await expect(wait(page, "sleep")).to_contain_text("sleeps until 20")
        await expect(wait(page, "map")).to_contain_text("task resize: 0 of 3 done")
        await node(page, "price").click()
        await expect(page.locator(".source .is-shown")).to_contain_text("ctx.step(price, cart)")


async def test_a_function_goes_on_when_a_person_approves_or_sends_a_signal(
    api: Api, bench: Bench
) -> None:
    run = await waiting_function(api, bench)
    async with visiting(api) as visit:
        page = await visit.open(f"/runs/{run}")

        await wait(page, "event").get_by_role("button", name="send paid").click()
        await expect(wait(page, "event")).to_have_count(0)
        await expect(node(page, "paid")).to_have_attribute("data-tone", "green")
        await wait(page, "approval").get_by_role("button", name="approve", exact=True).click()
        await expect(wait(page, "approval")).to_have_count(0)
        await expect(
            page.get_by_role("heading", name="The function waits for a worker")
        ).to_be_visible()


async def test_the_form_of_an_approval_is_filled_in(api: Api, bench: Bench) -> None:
    await deploy(api)
    form = {
        "type": "object",
        "required": ["carrier"],
        "properties": {"carrier": {"type": "string"}},
    }
    request = {"type": "approval", "title": "Ship?", "form": form}
    run = await stopped(bench, [asked("ship#1", request, 6)], waits=[["ship#1"]])
    async with visiting(api) as visit:
        page = await visit.open(f"/runs/{run}")

        await page.get_by_label("carrier").fill("boat")
        await page.get_by_role("button", name="approve", exact=True).click()
        await expect(wait(page, "approval")).to_have_count(0)

    log = (await api.get(f"/api/runs/{run}/operations")).json()["items"]
    assert log[-1]["result"] == {"approved": True, "carrier": "boat"}


async def test_a_diverged_run_shows_both_sides_and_goes_on_with_the_new_code(
    api: Api, bench: Bench
) -> None:
    run = await diverged_function(api, bench)
    async with visiting(api) as visit:
        page = await visit.open(f"/runs/{run}")

        await expect(page.locator(".facing.is-old")).to_contain_text("step price#1")
        await expect(page.locator(".facing.is-old")).to_contain_text("ctx.step(price, cart)")
        await expect(page.locator(".facing.is-new")).to_contain_text("step quote#1")
        await expect(page.locator(".facing.is-new")).to_contain_text("ctx.step(quote, cart)")
        difference = page.get_by_role("group", name="difference")
        await expect(difference.locator(".is-old")).to_contain_text("price")
        await expect(difference.locator(".is-new")).to_contain_text("quote")
        await page.get_by_role("button", name="resume and accept").click()
        await expect(page.get_by_role("dialog")).to_contain_text("step price#1")
        await page.get_by_role("button", name="accept the new code").click()
        await expect(page.locator(".badge.big")).to_have_text("running")

    log = (await api.get(f"/api/runs/{run}/operations")).json()["items"]
    assert {one["path"] for one in log} == {"paid#1"}


@pytest.mark.parametrize(
    ("way", "sure", "state"),
    [
        ("resume", "resume the run", "running"),
        ("cancel", "cancel the run", "running"),  # a worker is to undo
        ("end at once", "end it at once", "cancelled"),
    ],
)
async def test_a_diverged_run_is_resumed_or_cancelled_when_that_is_confirmed(
    api: Api, bench: Bench, way: str, sure: str, state: str
) -> None:
    run = await diverged_function(api, bench)
    async with visiting(api) as visit:
        page = await visit.open(f"/runs/{run}")

        await page.get_by_role("button", name=way, exact=True).click()
        await page.get_by_role("button", name="go back").click()
        assert (await bench.run(run))["state"] == "paused"
        await page.get_by_role("button", name=way, exact=True).click()
        await page.get_by_role("button", name=sure).click()
        await expect(page.locator(".diverged")).to_have_count(0)

    assert (await bench.run(run))["state"] == state
    resumed = [lease["payload"] for lease in await bench.worker.lease()]
    assert len(resumed) == (state == "running")
    assert ["cancelled" in payload for payload in resumed] in ([], [way == "cancel"])


async def test_steps_that_were_not_undone_are_named_by_their_paths(api: Api, bench: Bench) -> None:
    await deploy(api)
    operations = [step("price#1", can_undo=True), asked("paid#1", PAID, 5)]
    run = await stopped(bench, operations, waits=[["paid#1"]])
    await bench.steer(run, "cancel", {"force": True})
    async with visiting(api) as visit:
        page = await visit.open(f"/runs/{run}")

        await expect(page.get_by_text("not undone")).to_have_text("not undone: price#1")


async def test_a_function_is_forked_from_one_of_its_steps(api: Api, bench: Bench) -> None:
    run = await diverged_function(api, bench)
    async with visiting(api) as visit:
        page = await visit.open(f"/runs/{run}")

        await page.get_by_role("button", name="fork …").click()
        await page.get_by_label("from operation").fill("paid#1")
        await page.get_by_role("dialog").get_by_role("button", name="fork", exact=True).click()
        await expect(page).not_to_have_url(re.compile(run))
        await expect(page.locator(".page-title")).to_contain_text("forked from")
        await expect(node(page, "price")).to_have_attribute("data-tone", "green")


async def test_operations_are_listed_by_scope_and_values_are_shown(api: Api, bench: Bench) -> None:
    run = await waiting_function(api, bench)
    async with visiting(api) as visit:
        page = await visit.open(f"/runs/{run}?tab=operations")

        await expect(page.locator(".scope-row").first).to_have_text("gather#1.0")
        row = page.locator("tr", has_text="notify#1")
        await expect(row).to_contain_text("step")
        await expect(row.locator("td").nth(3)).to_have_text("2")
        await row.get_by_role("button", name='{"of"').click()
        await expect(page.get_by_role("group", name="result")).to_contain_text("notify#1")
        page = await visit.open(f"/runs/{run}?tab=published")
        await expect(page.get_by_role("group", name="published values")).to_contain_text("packed")
        await expect(page.get_by_role("list", name="stream log")).to_contain_text("labels")
        page = await visit.open(f"/runs/{run}?tab=journal")
        await expect(page.locator(".journal > li").nth(1)).to_contain_text(
            "the function waits for photos#1, ship#1"
        )


async def test_versions_of_a_function_show_their_source_and_what_changed(api: Api) -> None:
    await deploy(api)
    await deploy(api, CHANGED)
    async with visiting(api) as visit:
        page = await visit.open("/workflows/order?tab=versions")

        await expect(page.get_by_role("group", name="source of order, version 2")).to_contain_text(
            "ctx.step(quote, cart)"
        )
        difference = page.get_by_role("group", name="difference")
        await expect(difference.locator(".is-old")).to_contain_text("price")
        await expect(difference.locator(".is-new")).to_contain_text("quote")
        await page.get_by_role("combobox", name="version").select_option("1")
        await expect(page.get_by_role("group", name="source of order, version 1")).to_contain_text(
            "ctx.step(price, cart)"
        )


async def test_what_is_painted_of_a_very_large_function_is_bounded(api: Api, bench: Bench) -> None:
    source = SOURCE + "\n".join("    # more" for _ in range(3_000))
    await deploy(api, source)
    steps = [step(f"step_{number}#1") for number in range(MOST_NODES + 50)]
    run = await stopped(bench, [*steps, asked("paid#1", PAID, 5)], waits=[["paid#1"]])
    async with visiting(api) as visit:
        page = await visit.open(f"/runs/{run}")
        await settled(page)

        await expect(page.locator(".node")).to_have_count(MOST_NODES)
        await expect(page.locator(".graph-legend").first).to_contain_text("of 301 names")
        await expect(page.locator(".source")).to_contain_text("more lines")
        await expect(page.locator(".source > div")).to_have_count(2_001)


@pytest.mark.parametrize(("width", "theme"), [(400, "dark"), (1_400, "light")])
async def test_pages_of_functions_fit_and_take_no_data_for_markup(
    api: Api, bench: Bench, width: int, theme: str
) -> None:
    diverged = await diverged_function(api, bench)
    await deploy(api, SOURCE + HOSTILE)
    operations = [
        step(f"{HOSTILE}#1", result=HOSTILE),
        step(f"scope {HOSTILE}/x#1", state="failed", error={"type": HOSTILE, "message": HOSTILE}),
        asked(f"ship[{HOSTILE}]", {"type": "approval", "title": HOSTILE}, 6),
        {"path": "log#1", "kind": "stream", "state": "done"}
        | {"result": {"stream": HOSTILE, "value": HOSTILE}},
    ]
    run = await stopped(bench, operations, waits=[[f"ship[{HOSTILE}]"]])
    async with visiting(api, width=width, theme=theme) as visit:
        for path in (
            f"/runs/{run}?node=ship",
            f"/runs/{run}?tab=operations",
            f"/runs/{run}?tab=published",
            f"/runs/{run}?tab=journal&at=2",
            f"/runs/{diverged}",
            "/workflows/order?tab=versions",
        ):
            page = await visit.open(path)
            await expect(page.get_by_role("heading", level=1)).to_be_visible()
            await settled(page)

            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
            assert await page.locator("main img, main script").count() == 0, path
