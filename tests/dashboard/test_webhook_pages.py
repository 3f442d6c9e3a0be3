"""Webhooks in the browser: made with a secret that is shown once, tested, looked at, deleted."""

import os
from pathlib import Path

import pytest

from tests.dashboard.browsing import heading, visiting
from tests.gateways.serving import served
from tests.gateways.test_webhooks import fail
from tests.outbound.receiving import answer, receiving

pytest.importorskip("playwright", reason="the playwright package is not installed")

from playwright.async_api import expect

pytestmark = pytest.mark.slow

HOSTILE = "<img src=x onerror=alert(1)>"


async def test_a_webhook_is_made_tested_and_deleted(tmp_path: Path) -> None:
    async with (
        receiving() as receiver,
        served(tmp_path, outbound_allow="127.0.0.1") as api,
        visiting(api) as visit,
    ):
        page = await visit.open("/webhooks")
        await heading(page, "Webhooks")
        await page.get_by_role("button", name="new webhook …").click()
        form = page.get_by_role("dialog")
        await form.get_by_label("name").first.fill("team chat")
        await form.get_by_label("URL of the receiver").fill("http://10.0.0.1/hook")
        await form.get_by_role("button", name="create").click()
        await expect(form.get_by_role("alert")).to_contain_text("not public")
        await form.get_by_label("URL of the receiver").fill(receiver.url)
        await form.get_by_label("what it is for").fill(HOSTILE)
        await form.get_by_role("button", name="create").click()
        await expect(page.get_by_text("copy the secret now")).to_be_visible()
        await page.get_by_role("link", name="team chat").click()
        await heading(page, "team chat")
        await page.get_by_role("button", name="send a test").click()
        await expect(page.get_by_text("the receiver answered 200")).to_be_visible()

        receiver.answer = lambda _: answer(500, HOSTILE.encode())
        await fail(api, queue="mail")
        await expect(page.get_by_text("task-failed", exact=True).last).to_be_visible()
        await api.turn(0)
        await expect(page.get_by_text("failing", exact=True)).to_be_visible()
        if folder := os.environ.get("ROTA_PICTURES"):
            await page.screenshot(path=f"{folder}/webhook.png", full_page=True)
        await page.get_by_role("button", name="switch off").click()
        await expect(page.get_by_role("button", name="switch on")).to_be_visible()
        await page.get_by_role("button", name="delete").click()
        await page.get_by_role("button", name="delete it").click()

        await expect(page.get_by_text("No webhook yet.")).to_be_visible()
        assert (await api.get("/api/webhooks")).json() == {"items": []}


async def test_the_form_changes_what_is_set(tmp_path: Path) -> None:
    async with served(tmp_path) as api, visiting(api) as visit:
        body = {"url": "https://hooks.example/x", "queues": ["mail"], "format": "slack"}
        await api.client.put("/api/webhooks/ops", json=body)
        page = await visit.open("/webhooks/ops")
        await heading(page, "ops")
        await page.get_by_role("button", name="change …").click()
        form = page.get_by_role("dialog")
        if folder := os.environ.get("ROTA_PICTURES"):
            await page.screenshot(path=f"{folder}/webhook_form.png", full_page=True)
        await form.get_by_label("events").fill("run-*, task-failed")
        await form.get_by_role("button", name="change").click()
        await expect(page.get_by_text("run-*")).to_be_visible()

        shown = (await api.get("/api/webhooks/ops")).json()
        assert shown["events"] == ["run-*", "task-failed"]
        assert (shown["queues"], shown["format"], shown["enabled"]) == (["mail"], "slack", True)


async def test_a_queue_is_pushed_from_its_settings(tmp_path: Path) -> None:
    async with (
        receiving() as receiver,
        served(tmp_path, outbound_allow="127.0.0.1") as api,
        visiting(api) as visit,
    ):
        await api.submit(queue="fn")
        page = await visit.open("/queues?queue=fn")
        await page.get_by_role("button", name="push …").click()
        form = page.get_by_role("dialog")
        await form.get_by_label("URL that its tasks are posted to").fill(receiver.url)
        await form.get_by_label("header fields").fill("no header")
        await form.get_by_role("button", name="push").click()
        await expect(form.get_by_role("alert")).to_contain_text("Name: value")
        await form.get_by_label("header fields").fill("X-Key: abc")
        await form.get_by_role("button", name="push").click()
        await expect(page.get_by_text("Copy the secret now")).to_be_visible()
        await receiver.wait_for(1)
        await expect(page.get_by_text(receiver.url)).to_be_visible()
        if folder := os.environ.get("ROTA_PICTURES"):
            await page.screenshot(path=f"{folder}/push.png", full_page=True)
        await page.get_by_role("button", name="stop pushing").click()
        await page.get_by_role("dialog").get_by_role("button", name="stop pushing").click()

        await expect(page.get_by_text("no, workers lease its tasks")).to_be_visible()
        assert receiver.requests[0].headers["x-key"] == "abc"
