"""Pages of workflows and runs, in a real browser."""

import re
from typing import Any

import pytest

from tests.dashboard.browsing import heading, settled, visiting
from tests.gateways.serving import Api
from tests.gateways.working import HOLD, Bench, Broken

pytest.importorskip("playwright", reason="the playwright package is not installed")

from playwright.async_api import Page, expect

pytestmark = pytest.mark.slow

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"
ORDER = """
name: order
description: Reserve, ask, ship.
input:
  type: object
  required: [lines]
  properties:
    lines: {type: array, items: {type: string}, minItems: 1}
    note: {type: string}
initial_node: begin
nodes:
  begin: {}
  reserve: {task: reserve, input: {line: branch.item}, retry: {max_attempts: 1}}
  approve: {approval: {title: "May it go out?"}}
  ship: {task: ship, retry: {max_attempts: 1}}
  apologize: {task: apologize}
transitions:
  - {id: each, from: begin, to: reserve, foreach: input.lines}
  - from: reserve
    to: approve
    synchronization: {joins_transition: each, merge: {target: state.shelves, strategy: collect}}
  - {from: approve, to: ship}
  - {from: approve, to: apologize, condition: "false", priority: 2}
"""
PARENT = """
name: parent
initial_node: inner
nodes:
  inner: {workflow: order, input: {lines: 'input.lines'}}
"""


def keep(_: Any) -> Any:
    return HOLD


def say(payload: Any) -> Any:
    return {"said": payload}


def refuse(_: Any) -> Any:
    raise Broken("the bank says no")


HANDLERS = {"reserve": say, "ship": say, "apologize": say}


async def waiting_run(api: Api, lines: list[str] | None = None) -> tuple[Bench, str]:
    """A run that has reserved its lines and waits for a yes."""
    bench = await Bench.at(api)
    run = await bench.carry_out(ORDER, {"lines": lines or ["tea", "cups", "pot"]}, HANDLERS)
    return bench, str(run["id"])


def node(page: Page, name: str) -> Any:
    return page.locator(f'.node[data-node="{name}"]')


async def test_a_run_is_painted_whole_with_what_it_has_not_reached(api: Api) -> None:
    _, run = await waiting_run(api)
    async with visiting(api) as visit:
        page = await visit.open(f"/runs/{run}")

        await expect(node(page, "reserve")).to_have_attribute("data-tone", "green")
        await expect(node(page, "reserve")).to_contain_text("\u00d7 3")
        await expect(node(page, "approve")).to_have_attribute("data-tone", "teal")
        await expect(node(page, "ship")).to_have_class(re.compile("is-unreached"))
        await expect(page.locator(".join")).to_contain_text("3 / 3")
        await expect(page.locator(".why")).to_contain_text("May it go out?")


async def test_a_run_goes_on_before_the_eyes_of_whoever_approves_it(api: Api) -> None:
    bench, run = await waiting_run(api)
    async with visiting(api) as visit:
        page = await visit.open(f"/runs/{run}")

        await page.get_by_role("button", name="approve", exact=True).click()
        await expect(node(page, "ship")).to_have_attribute("data-tone", "amber")
        await bench.drive(HANDLERS)
        await expect(page.locator(".badge.big")).to_have_text("completed")
        await expect(node(page, "ship")).to_have_attribute("data-tone", "green")

    assert (await bench.run(run))["state"] == "completed"


async def test_a_refused_approval_fails_the_run_and_it_says_where(api: Api) -> None:
    _, run = await waiting_run(api)
    async with visiting(api) as visit:
        page = await visit.open(f"/runs/{run}")

        await page.get_by_role("button", name="refuse", exact=True).click()
        await page.get_by_role("dialog").get_by_role("button", name="refuse", exact=True).click()
        await expect(page.locator(".badge.big")).to_have_text("failed")
        await expect(page.locator(".why")).to_contain_text("approve")


async def test_a_run_is_paused_resumed_and_cancelled(api: Api) -> None:
    bench, run = await waiting_run(api)
    async with visiting(api) as visit:
        page = await visit.open(f"/runs/{run}")

        await page.get_by_role("button", name="pause", exact=True).click()
        await expect(page.locator(".badge.big")).to_have_text("paused")
        await page.get_by_role("button", name="resume", exact=True).click()
        await expect(page.locator(".badge.big")).to_have_text("running")
        await page.get_by_role("button", name="cancel", exact=True).click()
        await page.get_by_role("button", name="cancel the run").click()
        await expect(page.locator(".badge.big")).to_have_text("cancelled")

    assert (await bench.run(run))["state"] == "cancelled"


async def test_an_open_scope_is_shown_and_completed(api: Api) -> None:
    bench = await Bench.at(api)
    handlers = {
        **HANDLERS,
        "reserve": lambda payload: say(payload) if payload["line"] == "tea" else HOLD,
    }
    run = str((await bench.carry_out(ORDER, {"lines": ["tea", "cups", "pot"]}, handlers))["id"])
    async with visiting(api) as visit:
        page = await visit.open(f"/runs/{run}")
        scopes = page.locator("section", has=page.get_by_role("heading", name="Open scopes"))
        await expect(scopes).to_contain_text("2 live")
        await expect(scopes).to_contain_text("approve: 1 of all")

        await scopes.get_by_role("button", name="complete", exact=True).click()
        await page.get_by_role("button", name="complete the scope").click()
        await expect(page.locator(".why")).to_contain_text("May it go out?")
        await expect(scopes).to_have_count(0)

    assert (await bench.run(run))["context"]["state"] == {"shelves": [{"said": {"line": "tea"}}]}


async def test_a_failed_run_is_retried_and_forked(api: Api) -> None:
    bench, run = await waiting_run(api)
    await bench.steer(run, "signal", {"name": "approve", "payload": {"approved": True}})
    await bench.drive({**HANDLERS, "ship": refuse})
    async with visiting(api) as visit:
        page = await visit.open(f"/runs/{run}")
        await expect(page.locator(".why")).to_contain_text("the bank says no")
        await expect(node(page, "ship")).to_have_attribute("data-tone", "red")

        await page.get_by_role("button", name="retry", exact=True).click()
        await expect(page.locator(".badge.big")).to_have_text("running")
        await bench.drive(HANDLERS)
        await expect(page.locator(".badge.big")).to_have_text("completed")
        await page.get_by_role("button", name="fork …").click()
        await page.get_by_label("from node").select_option("ship")
        await page.get_by_role("dialog").get_by_role("button", name="fork", exact=True).click()
        await expect(page).not_to_have_url(re.compile(run))
        await expect(page.locator(".page-title")).to_contain_text("forked from")


async def test_the_way_that_an_error_took_is_painted_as_taken(api: Api) -> None:
    text = """
name: careful
initial_node: charge
nodes:
  charge: {task: charge, retry: {max_attempts: 1}, on_error: [{to: apologize}]}
  apologize: {task: say}
"""
    bench = await Bench.at(api)
    run = await bench.carry_out(text, {}, {"charge": refuse, "say": say})
    async with visiting(api) as visit:
        page = await visit.open(f"/runs/{run['id']}")

        await expect(node(page, "charge")).to_have_attribute("data-tone", "red")
        await expect(node(page, "apologize")).to_have_attribute("data-tone", "green")
        await expect(page.locator(".edge.is-error")).to_have_count(1)
        await expect(page.locator(".edge.is-error.is-untaken")).to_have_count(0)


async def test_the_slider_paints_the_graph_as_it_was(api: Api) -> None:
    _, run = await waiting_run(api)
    async with visiting(api) as visit:
        page = await visit.open(f"/runs/{run}")
        await expect(page.locator(".join")).to_contain_text("3 / 3")

        await page.get_by_role("slider").press("Home")
        await expect(page.locator(".slider .said")).to_contain_text("the run started")
        await expect(page.locator(".join")).to_contain_text("0 / 3")
        await expect(node(page, "reserve")).to_have_attribute("data-tone", "amber")
        await expect(page).to_have_url(re.compile(r"at=1\b"))
        await page.get_by_role("button", name="one step on").click()
        await expect(page.locator(".join")).to_contain_text("1 / 3")
        await page.get_by_role("button", name="back to now").click()
        await expect(page.locator(".join")).to_contain_text("3 / 3")
        await expect(page).not_to_have_url(re.compile("at="))


async def test_the_journal_says_what_was_weighed_and_decided(api: Api) -> None:
    _, run = await waiting_run(api)
    async with visiting(api) as visit:
        page = await visit.open(f"/runs/{run}?tab=journal")

        first = page.locator(".journal > li").first
        await expect(first).to_contain_text("the run started")
        await expect(first).to_contain_text("each fans out into 3 branches")
        last = page.locator(".journal > li").nth(3)
        await expect(last).to_contain_text(re.compile(r"reserve\[\d\] done, 3 of 3"))
        await expect(page.locator(".journal")).not_to_contain_text("token")
        await first.get_by_role("button", name="show").click()
        await expect(page.locator(".slider .said")).to_contain_text("as it was")


async def test_a_node_opens_to_its_tokens_by_mouse_and_by_key(api: Api) -> None:
    _, run = await waiting_run(api)
    async with visiting(api) as visit:
        page = await visit.open(f"/runs/{run}")

        await node(page, "reserve").click()
        panel = page.locator(".panel", has_text="Node reserve")
        await expect(panel.locator("tbody tr")).to_have_count(3)
        await expect(panel).to_contain_text("[2] of 3")
        await expect(page).to_have_url(re.compile("node=reserve"))
        await node(page, "approve").focus()
        await page.keyboard.press("Enter")
        await expect(page.locator(".panel", has_text="Node approve")).to_be_visible()


async def test_a_sub_run_opens_in_place(api: Api) -> None:
    bench = await Bench.at(api)
    await bench.put(ORDER)
    run = await bench.carry_out(PARENT, {"lines": ["tea"]}, HANDLERS)
    async with visiting(api) as visit:
        page = await visit.open(f"/runs/{run['id']}?node=inner")

        await page.get_by_role("button", name="open child run").click()
        inner = page.locator(".subrun")
        await expect(inner.locator('.node[data-node="reserve"]')).to_have_attribute(
            "data-tone", "green"
        )


async def test_the_timeline_tells_waiting_from_running(api: Api) -> None:
    bench = await Bench.at(api)
    await bench.put(ORDER)
    run = await bench.start("order", {"lines": ["tea"]})
    api.clock.turn(2_000)
    (lease,) = await bench.worker.lease()
    api.clock.turn(3_000)
    await bench.worker.finish(lease, {})
    async with visiting(api) as visit:
        page = await visit.open(f"/runs/{run}")

        await expect(page.locator(".spans .span.is-waiting").first).to_be_visible()
        await expect(page.locator(".spans")).to_contain_text("reserve[0]")


async def test_a_form_made_from_the_schema_starts_a_run(api: Api) -> None:
    bench = await Bench.at(api)
    await bench.put(ORDER)
    async with visiting(api) as visit:
        page = await visit.open("/workflows/order")
        await heading(page, "order")
        await expect(page.locator(".node")).to_have_count(5)

        await page.get_by_role("link", name="start a run").click()
        await page.locator(".form textarea").fill("tea\ncups")
        await page.get_by_role("button", name="start a run").click()
        await expect(page).to_have_url(re.compile("/runs/[0-9a-f]{16}"))
        await expect(node(page, "reserve")).to_contain_text("\u00d7 2")


async def test_versions_are_held_against_each_other(api: Api) -> None:
    bench = await Bench.at(api)
    await bench.put(ORDER)
    await bench.put(ORDER.replace("May it go out?", "Shall it go out?"))
    async with visiting(api) as visit:
        page = await visit.open("/workflows/order?tab=versions")

        difference = page.get_by_role("group", name="difference")
        await expect(difference.locator(".is-old")).to_contain_text("May it go out?")
        await expect(difference.locator(".is-new")).to_contain_text("Shall it go out?")


@pytest.mark.parametrize("width", [400, 1_400])
@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_pages_of_runs_fit_and_take_no_data_for_markup(
    api: Api, width: int, theme: str
) -> None:
    bench, run = await waiting_run(api, [HOSTILE, "tea"])
    await bench.steer(run, "signal", {"name": HOSTILE, "payload": {HOSTILE: HOSTILE}})
    async with visiting(api, width=width, theme=theme) as visit:
        for path in (
            "/workflows",
            "/workflows/order",
            "/workflows/order?tab=start",
            "/workflows/order?tab=definition",
            "/runs",
            f"/runs/{run}?node=reserve",
            f"/runs/{run}?tab=journal&at=2",
            f"/runs/{run}?tab=data",
        ):
            page = await visit.open(path)
            await expect(page.get_by_role("heading", level=1)).to_be_visible()
            await settled(page)

            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
            assert await page.locator("main img, main script").count() == 0, path
