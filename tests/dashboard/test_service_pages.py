"""Pages of services and events, in a real browser."""

import re
from urllib.parse import quote

import pytest

from tests.dashboard.browsing import heading, settled, visiting
from tests.gateways.serving import Api

pytest.importorskip("playwright", reason="the playwright package is not installed")

from playwright.async_api import expect

pytestmark = pytest.mark.slow

HOSTILE = "<img src=x onerror=alert(1)>"


async def join(api: Api, service: str, worker_id: str, shards: int = 8) -> None:
    path = f"/api/services/{quote(service, safe='')}/members"
    answer = await api.post(path, {"workerId": worker_id, "maxShardCount": shards})
    assert answer.status_code in {200, 201}, answer.text


async def test_a_service_shows_its_shards_and_whose_they_are(api: Api) -> None:
    await join(api, "feed", "a")
    async with visiting(api) as visit:
        page = await visit.open("/services")
        await expect(page.locator("tbody tr")).to_contain_text("all owned")

        await page.get_by_role("link", name="feed").click()
        await heading(page, "feed")
        field = page.locator(".strip-field canvas")
        await expect(field).to_have_attribute("aria-label", "8 shards, 0 unowned, 0 moving")
        await page.get_by_label("look up a shard").fill("3")
        await expect(page.locator(".strip-tools .said")).to_contain_text("shard 3: a at epoch 1")
        painted = await field.evaluate(
            "canvas => canvas.getContext('2d').getImageData(4, 4, 1, 1).data[3]"
        )
        assert painted == 255


async def test_a_member_is_drained_and_the_count_is_pinned(api: Api) -> None:
    await join(api, "feed", "a")
    async with visiting(api) as visit:
        page = await visit.open("/services/feed")

        await page.get_by_role("button", name="drain", exact=True).click()
        await page.get_by_role("dialog").get_by_role("button", name="drain", exact=True).click()
        await expect(page.locator("tbody").first).to_contain_text("draining")
        await page.get_by_role("button", name="resume", exact=True).click()
        await expect(page.get_by_role("button", name="drain", exact=True)).to_be_visible()
        await page.get_by_label("number of shards").fill("12")
        await page.get_by_role("button", name="pin", exact=True).click()
        await page.get_by_role("dialog").get_by_role("button", name="pin", exact=True).click()
        await expect(page.locator(".page-title")).to_contain_text("12 shards, pinned")
        await page.get_by_role("button", name="unpin").click()
        await expect(page.locator(".page-title")).not_to_contain_text("pinned")


async def test_a_member_that_joins_is_seen_without_a_reload(api: Api) -> None:
    await join(api, "feed", "a")
    async with visiting(api) as visit:
        page = await visit.open("/services/feed")
        await expect(page.locator(".page-title")).to_contain_text("1 member")

        await join(api, "feed", "b")
        await expect(page.locator(".page-title")).to_contain_text("2 members")


async def test_events_come_by_themselves_and_can_be_filtered_and_held(api: Api) -> None:
    await api.submit(name="first")
    async with visiting(api) as visit:
        page = await visit.open("/events")
        await expect(page.locator("tbody tr").first).to_contain_text("first")
        await expect(page.locator(".live")).to_contain_text("live")

        await api.submit(name="second")
        await expect(page.locator("tbody tr").first).to_contain_text("second")
        await page.get_by_role("link", name="worker", exact=True).click()
        await expect(page).to_have_url(re.compile("/events\\?"))
        await expect(page.locator("main")).not_to_contain_text("second")


@pytest.mark.parametrize("width", [400, 1_400])
async def test_pages_of_services_fit_and_take_no_data_for_markup(api: Api, width: int) -> None:
    await join(api, HOSTILE, HOSTILE)
    await join(api, "large", "w" * 100, shards=5_000)
    async with visiting(api, width=width) as visit:
        for path in (
            "/services",
            f"/services/{quote(HOSTILE, safe='')}",
            "/services/large",
            "/events",
        ):
            page = await visit.open(path)
            await expect(page.get_by_role("heading", level=1)).to_be_visible()
            await settled(page)

            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
            assert await page.locator("main img, main script").count() == 0, path
