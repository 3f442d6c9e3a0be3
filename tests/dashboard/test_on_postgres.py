"""The dashboard before a coordinator on PostgreSQL: every page, with something on it."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.dashboard.browsing import Visit, heading, settled, visiting
from tests.dashboard.test_run_pages import node, waiting_run
from tests.dashboard.test_service_pages import join
from tests.databases.schemas import schemas, url
from tests.gateways.replicas import served_pair
from tests.gateways.serving import Api, Worker, served
from tests.gateways.working import HOUR_MS

pytest.importorskip("playwright", reason="the playwright package is not installed")

from playwright.async_api import expect

pytestmark = pytest.mark.slow

TASKS: dict[str, dict[str, Any]] = {
    "greet": {},
    "charge": {"max_attempts": 1, "labels": {"tenant": "large"}},
    "paint": {},
    "render": {"requires": ["gpu"], "queue": "mail"},
    "remind": {"delay_ms": HOUR_MS},
}
# A field that is not there, or of another kind than the page reads.
UNREAD = re.compile(r"\bundefined\b|\bNaN\b|Invalid Date|\[object ")
# The address of a database is long, and must not push what stands beside it out of the panel.
IN_SIGHT = """[...document.querySelectorAll("main .scroll")]
    .every((one) => one.scrollWidth <= one.clientWidth)"""
LEFT = "net::ERR_ABORTED"  # a browser that leaves a page ends its requests


class Shop:
    """A coordinator with something of every kind."""

    def __init__(self, api: Api, worker: Worker, run: str, tasks: dict[str, str]) -> None:
        self.api = api
        self.worker = worker
        self.run = run
        self.tasks = tasks  # ids by name


@pytest_asyncio.fixture(loop_scope="session")
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    settings = {
        "store": url(),
        "postgres_schema": schemas.lend(str(tmp_path)),
        "shard_lease_ms": HOUR_MS,  # the clock of the database goes on: nobody is to be missed
        "zmq_port": None,
    }
    async with served(tmp_path, **settings) as api:
        yield await furnished(api)
    schemas.take_back()


async def furnished(api: Api) -> Shop:
    bench, run = await waiting_run(api)
    await join(api, "feed", "member")
    tasks = {}
    for name, more in TASKS.items():
        tasks[name] = (await api.submit(name=name, payload={"for": name}, **more))["id"]
    leases = {lease["name"]: lease for lease in await bench.worker.lease()}
    assert await bench.worker.finish(leases["greet"], {"said": "hello"}) == "accepted"
    assert await bench.worker.fail(leases["charge"], "the bank says no") == "accepted"
    return Shop(api, bench.worker, run, tasks)


def note_refusals(visit: Visit) -> None:
    """Every request of these pages is one that must be answered."""

    def answered(response: Any) -> None:
        if response.status >= 400:
            visit.faults.append(f"{response.status}: {response.url}")

    def failed(request: Any) -> None:
        if request.failure != LEFT:
            visit.faults.append(f"{request.failure}: {request.url}")

    visit.page.on("response", answered)
    visit.page.on("requestfailed", failed)


def pages_of(shop: Shop) -> dict[str, tuple[str, list[str]]]:
    """What must stand on each, under its title."""
    task = {name: f"/tasks/{number}" for name, number in shop.tasks.items()}
    return {
        "/": ("Overview", ["render", "no worker has capability 'gpu'", "order", "mail"]),
        "/tasks": ("Tasks", ["greet", "charge", "paint", "render", "remind", "reserve"]),
        "/tasks?state=failed&name=charge": ("Tasks", ["charge"]),
        "/tasks?label=tenant%3Dlarge": ("Tasks", ["charge"]),
        task["greet"]: ("greet", ["succeeded", "hello", "w1"]),
        task["charge"]: ("charge", ["failed", "the bank says no", "tenant"]),
        task["paint"]: ("paint", ["running", "w1"]),
        task["render"]: ("render", ["queued", "no worker has capability 'gpu'"]),
        task["remind"]: ("remind", ["scheduled"]),
        "/queues": ("Queues", ["default", "mail"]),
        "/failures": ("Failures", ["charge", "the bank says no"]),
        "/workers": ("Workers", ["w1", "n1"]),
        "/workers/w1": ("w1", ["paint"]),
        "/workflows": ("Workflows", ["order", "running"]),
        "/workflows/order": ("order", ["Reserve, ask, ship.", "approve"]),
        "/runs": ("Runs", ["order", shop.run]),
        f"/runs/{shop.run}": (f"order {shop.run}", ["May it go out?", "reserve", "ship"]),
        f"/runs/{shop.run}?tab=journal": (
            f"order {shop.run}",
            ["branch 2 of each has arrived at approve"],
        ),
        "/services": ("Services", ["feed", "all owned"]),
        "/services/feed": ("feed", ["8 shards", "1 member", "member"]),
        "/events": ("Events", ["task-failed", "run-started", "member-joined"]),
        "/system": ("System", ["all parts are healthy", "postgres"]),
    }


async def test_every_page_opens_on_postgres_and_shows_what_is_there(shop: Shop) -> None:
    async with visiting(shop.api) as visit:
        note_refusals(visit)
        for path, (title, words) in pages_of(shop).items():
            page = await visit.open(path)

            await heading(page, title)
            await settled(page)
            for word in words:
                await expect(page.locator("main")).to_contain_text(word)
            await expect(page.locator("main .problem")).to_have_count(0)
            await expect(page.locator("main")).not_to_contain_text(UNREAD)
            assert await page.evaluate(IN_SIGHT), path
            await expect(page.locator(".live")).to_have_text("live")


async def test_pages_follow_and_change_what_happens_on_postgres(shop: Shop) -> None:
    async with visiting(shop.api) as visit:
        note_refusals(visit)
        page = await visit.open("/tasks?name=fresh")
        await expect(page.locator(".live")).to_have_text("live")
        await shop.api.submit(name="fresh")
        await expect(page.locator("tbody tr .badge")).to_have_text("queued")
        (lease,) = await shop.worker.lease(most=1)
        await shop.worker.finish(lease, "done")
        await expect(page.locator("tbody tr .badge")).to_have_text("succeeded")

        await visit.open(f"/tasks/{shop.tasks['render']}")
        await page.get_by_role("button", name="cancel", exact=True).click()
        await page.get_by_role("button", name="cancel the task").click()
        await expect(page.locator(".why .badge")).to_have_text("cancelled")
        await visit.open(f"/runs/{shop.run}")
        await page.get_by_role("button", name="approve", exact=True).click()
        await expect(node(page, "ship")).to_have_attribute("data-tone", "amber")


async def test_the_system_page_says_who_leads_and_who_follows(tmp_path: Path) -> None:
    async with served_pair(tmp_path) as (a, b):
        for one in (a, b):
            await one.node.coordinator.membership.beat()
        async with visiting(b) as visit:
            page = await visit.open("/system")
            await settled(page)

            rows = page.locator("table.replicas tr")
            await expect(rows).to_have_count(2)
            await expect(rows.nth(0)).to_contain_text("aleader")
            await expect(rows.nth(1)).to_contain_text("bfollower")
            facts = page.locator("dl.facts").first
            for words in ("rolefollower", "leadera", "epoch", "changes of leader"):
                await expect(facts).to_contain_text(words)
            await expect(page.locator("main")).to_contain_text("follows the leader, epoch")
            assert await page.evaluate(IN_SIGHT)
