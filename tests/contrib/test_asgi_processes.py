"""Servers as users start them: uvicorn with one process and with several, and a browser."""

import json
import os
import re
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("fastapi", reason="the extra `fastapi` is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")

from playwright.async_api import expect

from tests.cli.processes import Running
from tests.dashboard.browsing import heading, settled, visiting
from tests.docs.pages import ROOT, blocks
from tests.gateways.serving import Api
from tests.sdk.serving import PATIENCE_S, Server

PAGE = ROOT / "docs" / "how-to" / "use-with-fastapi.md"
EXAMPLE = ROOT / "examples" / "fastapi_app.py"
MOST_LINES = 10
OPEN = """
from fastapi import FastAPI
from rota import Rota
from rota.asgi import dashboard, lifespan

rota = Rota(embedded=True)
app = FastAPI(lifespan=lifespan(rota))
app.mount("/rota", dashboard(rota, authorize=lambda _: True))

@rota.task
def greet(name: str) -> str:
    return f"Hello, {name}!"

@app.post("/greetings")
async def start(name: str) -> str:
    return await (await greet.aenqueue(name)).aresult(30)

@app.get("/pid")
async def pid() -> int:
    import os
    return os.getpid()
"""

pytestmark = pytest.mark.slow


@contextmanager
def uvicorn(
    folder: Path, code: str, *arguments: str, **variables: str
) -> Iterator[tuple[Running, str]]:
    """A server on a free port, and its address."""
    (folder / "main.py").write_text(code, encoding="utf-8")
    server = Running(
        *("main:app", "--port", "0", "--app-dir", str(folder), *arguments),
        folder=folder,
        module="uvicorn",
        **variables,
    )
    try:
        line = server.wait_for("Uvicorn running on")
        found = re.search(r"http://[\d.:]+", line)
        assert found is not None
        yield server, found[0]
        server.signal(signal.SIGTERM)
        server.ends()
    finally:
        server.stop()


def ask(url: str, *, method: str = "GET") -> Any:
    request = urllib.request.Request(url, method=method, headers={"connection": "close"})
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return json.load(answer)


def test_the_wiring_takes_fewer_than_ten_lines() -> None:
    wiring = blocks(PAGE, "python")[0].text.strip().splitlines()

    assert len([line for line in wiring if line]) < MOST_LINES


def test_the_lines_of_the_page_and_the_example_serve(tmp_path: Path) -> None:
    code = blocks(PAGE, "python")[0].text
    with uvicorn(tmp_path, code) as (_, url):
        with urllib.request.urlopen(f"{url}/rota/", timeout=PATIENCE_S) as page:
            assert b"/rota/static/" in page.read()
        with pytest.raises(urllib.error.HTTPError, match="401"):
            ask(f"{url}/rota/api/tasks")

    with uvicorn(tmp_path, EXAMPLE.read_text(encoding="utf-8")) as (_, url):
        task_id = ask(f"{url}/greetings?name=Ada", method="POST")["id"]
        while (shown := ask(f"{url}/greetings/{task_id}"))["state"] != "succeeded":
            assert shown["state"] in {"queued", "running"}
    assert shown == {"state": "succeeded", "greeting": "Hello, Ada!"}


def test_events_stream_through_the_server(tmp_path: Path) -> None:
    with uvicorn(tmp_path, OPEN) as (_, url):
        request = urllib.request.Request(
            f"{url}/rota/api/events", headers={"accept": "text/event-stream"}
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as stream:
            assert stream.readline().startswith(b"retry:")
            assert ask(f"{url}/greetings?name=Ada", method="POST") == "Hello, Ada!"
            while not (line := stream.readline()).startswith(b"event: task-"):
                assert line


def test_several_processes_cannot_embed_and_say_what_to_do(tmp_path: Path) -> None:
    with uvicorn(tmp_path, OPEN, "--workers", "2") as (server, _):
        said = server.wait_for("Only one process of a server can embed the coordinator")

    assert "rota up --store sqlite:///FILE" in said
    assert "ROTA_URL" in said


def test_several_processes_share_a_coordinator_by_its_address(tmp_path: Path) -> None:
    code = OPEN.replace("lifespan(rota)", "lifespan(rota, worker=True)")
    with (
        Server(tmp_path) as coordinator,
        uvicorn(tmp_path, code, "--workers", "2", ROTA_URL=coordinator.url) as (server, url),
    ):
        server.wait_for("Application startup complete", times=2)
        pids: set[int] = set()
        while len(pids) < 2:
            pids.add(ask(f"{url}/pid"))
            assert ask(f"{url}/greetings?name=Ada", method="POST") == "Hello, Ada!"

    assert os.getpid() not in pids


async def test_the_dashboard_works_below_the_path_of_an_application(tmp_path: Path) -> None:
    with uvicorn(tmp_path, OPEN) as (_, url):
        ask(f"{url}/greetings?name=Ada", method="POST")
        api = cast("Api", SimpleNamespace(client=SimpleNamespace(base_url=f"{url}/rota")))
        async with visiting(api) as visit:
            page = await visit.open("/")
            await heading(page, "Overview")
            await page.get_by_role("link", name="Tasks", exact=False).first.click()
            await expect(page).to_have_url(re.compile(r"/rota/tasks"))
            await heading(page, "Tasks")
            await page.get_by_role("link", name="greet").first.click()
            await expect(page).to_have_url(re.compile(r"/rota/tasks.*greet|/rota/tasks/"))
            await settled(page)
            await page.reload()
            await settled(page)
            links = await page.eval_on_selector_all(
                "a[href^='/']", "all => all.map(one => one.getAttribute('href'))"
            )
            assert links
            assert [one for one in links if not one.startswith("/rota/")] == []
