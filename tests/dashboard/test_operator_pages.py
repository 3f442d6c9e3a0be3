"""Pages on which operators change things by hand: submitted tasks, values, locks and tokens."""

import re

import pytest
from click.testing import CliRunner

from rota.cli.main import cli
from tests.dashboard.browsing import heading, visiting
from tests.gateways.serving import Api

pytest.importorskip("playwright", reason="the playwright package is not installed")

from playwright.async_api import expect

pytestmark = pytest.mark.slow

RELATIVE = re.compile(r"^(now|\d+ s ago)$")
BY_THE_CLOCK = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$")


async def test_a_task_is_submitted_from_the_browser_and_its_arguments_are_listed(api: Api) -> None:
    async with visiting(api) as visit:
        page = await visit.open("/tasks")
        await heading(page, "Tasks")
        await page.get_by_role("button", name="submit a task …").click()
        form = page.get_by_role("dialog")
        await form.get_by_label("name").first.fill("greet")
        await form.get_by_label("payload").fill("{oops")
        await form.get_by_role("button", name="submit").click()
        await expect(form.get_by_role("alert")).to_contain_text("not JSON")
        await form.get_by_label("payload").fill('{"name": "Ada"}')
        await form.get_by_role("button", name="submit").click()
        await heading(page, "greet")

        await page.goto(f"{visit.url}/tasks")

        await expect(page.get_by_role("row").nth(1)).to_contain_text('name="Ada"')

    (task,) = (await api.get("/api/tasks")).json()["items"]
    assert (task["name"], task["payload"]) == ("greet", {"name": "Ada"})


async def test_the_figures_of_a_coordinator_have_the_words_of_people(api: Api) -> None:
    async with visiting(api) as visit:
        page = await visit.open("/system")
        await heading(page, "System")

        terms = (
            await page.locator(".panel", has_text="Figures since the start")
            .locator("dt")
            .all_inner_texts()
        )

    assert "evictions held back by guards" in terms
    assert "finished tasks deleted" in terms
    assert not {"held sweeps", "events told", "forgotten", "leased", "overloads"} & {*terms}


async def test_settings_are_listed_in_groups_and_a_port_is_no_amount(api: Api) -> None:
    async with visiting(api) as visit:
        page = await visit.open("/system")
        await heading(page, "System")
        settings = page.locator(".panel").filter(has=page.get_by_role("heading", name="Settings"))
        await expect(settings.locator("tbody").first).to_contain_text("Network")
        groups = await settings.locator("th").all_inner_texts()
        ports = settings.locator("tr").filter(has_text="Port of the HTTP API")

        assert "Other" not in groups  # each setting has a group
        assert {"Store", "Tasks", "Workers and shards", "History", "Limits"} < {*groups}
        assert re.fullmatch(r"\d+", await ports.locator(".value").inner_text())
        assert "`" not in await settings.inner_text()


async def test_the_empty_page_of_workflows_names_commands_that_exist(api: Api) -> None:
    async with visiting(api) as visit:
        page = await visit.open("/workflows")
        commands = page.locator(".empty code")
        await expect(commands.first).to_be_visible()

        for text in await commands.all_inner_texts():
            rota, *words, _file = text.split()
            assert rota == "rota"
            assert CliRunner().invoke(cli, [*words, "--help"]).exit_code == 0


async def test_values_are_put_changed_and_deleted(api: Api) -> None:
    async with visiting(api) as visit:
        page = await visit.open("/memory")
        await heading(page, "Memory")
        await page.get_by_role("button", name="put a value …").click()
        form = page.get_by_role("dialog")
        await form.get_by_label("key").fill("settings/mail from")
        await form.get_by_label("value, as JSON").fill('{"on": true}')
        await form.get_by_role("button", name="put").click()
        await expect(page.get_by_role("row").nth(1)).to_contain_text("settings/mail from")

        stored = await api.get("/api/memory/settings/mail%20from")
        assert stored.json()["value"] == {"on": True}

        await page.get_by_role("button", name="delete").click()
        await page.get_by_role("button", name="delete it").click()

        await expect(page.get_by_text("No value yet.")).to_be_visible()


async def test_a_held_lock_is_shown_with_its_holder(api: Api) -> None:
    await api.post("/api/locks/nightly/acquire", {"owner": "importer-1", "ttl_ms": 60_000})

    async with visiting(api) as visit:
        page = await visit.open("/locks")
        await heading(page, "Locks")

        await expect(page.get_by_role("row").nth(1)).to_contain_text("importer-1")


async def test_a_lock_is_released_under_the_fence_that_is_shown(api: Api) -> None:
    await api.post("/api/locks/a%2Fb/acquire", {"owner": "importer-1", "ttl_ms": 60_000})

    async with visiting(api) as visit:
        page = await visit.open("/locks")
        await page.get_by_role("button", name="release …").click()
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_contain_text("importer-1")
        await dialog.get_by_role("button", name="release it").click()

        await expect(page.get_by_text("No lock is held.")).to_be_visible()
    assert (await api.get("/api/locks/a%2Fb")).json()["holder"] is None


async def test_a_token_is_made_shown_once_and_revoked(api: Api) -> None:
    async with visiting(api) as visit:
        page = await visit.open("/access")
        await heading(page, "Access")
        await page.get_by_role("button", name="new token …").click()
        form = page.get_by_role("dialog")
        await form.get_by_label("name, for people").fill("billing")
        await form.get_by_role("button", name="create").click()
        await expect(form.get_by_role("alert")).to_contain_text("at least one scope")
        await form.get_by_role("checkbox", name="worker").check()
        await form.get_by_label("bound to these queues").fill("mail, reports")
        await form.get_by_role("button", name="create").click()
        await expect(page.get_by_text("copy the token now")).to_be_visible()

        (token,) = (await api.get("/api/tokens")).json()["items"]
        assert (token["name"], token["queues"]) == ("billing", ["mail", "reports"])

        await page.get_by_role("button", name="revoke").click()
        await page.get_by_role("button", name="revoke it").click()

        await expect(page.get_by_text("No token yet.")).to_be_visible()


async def test_times_are_shown_by_the_clock_on_request_and_stay_so(api: Api) -> None:
    await api.post("/api/tasks", {"name": "greet"})
    async with visiting(api) as visit:
        page = await visit.open("/tasks")
        when = page.get_by_role("row").nth(1).locator("time")
        await expect(when).to_have_text(RELATIVE)

        await page.get_by_role("button", name="times by the clock").click()
        await expect(when).to_have_text(BY_THE_CLOCK)
        await page.reload()

        await expect(when).to_have_text(BY_THE_CLOCK)
