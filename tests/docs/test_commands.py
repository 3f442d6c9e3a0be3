"""Every shell command of the pages is run, or has a reason why it is not.

The commands of a page run in their order, in one folder, beside a real coordinator. What a page
leaves open is filled in: ids, the address of the coordinator, folders and hosts. A command that
runs until it is ended has to show a sign of life.
"""

import json
import re
import shlex
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import zmq

from tests.docs.pages import PAGES, ROOT, blocks, name_of
from tests.docs.shell import Command, commands
from tests.docs.stage import Stage, opened_stage

pytestmark = pytest.mark.slow

# Pages whose commands are run by another test.
ELSEWHERE = {
    "README.md": "make up: tests/test_up.py; make test: this run",
    "CONTRIBUTING.md": "they run the tests",
    "docs/tutorial.md": "tests/docs/test_tutorial.py",
    "docs/tutorial-functions.md": "tests/docs/test_tutorial.py",
    "docs/how-to/use-from-typescript.md": "tests/clients builds and runs the package",
    "docs/how-to/use-with-django.md": "tests/contrib/test_django_project.py",
    "docs/how-to/use-with-fastapi.md": "tests/contrib/test_asgi_processes.py",
    "docs/explanation/benchmarks.md": "they take an hour; tests/benchmarks runs them small",
    "docs/explanation/performance.md": "make bench: tests/benchmarks runs it small",
}
# Commands that are not run, by how they begin.
NOT_RUN = {
    "pip install": "needs a package index",
    "createdb": "creates a database on the user's server",
    "sudo ": "needs another user and a system folder; tokens.md has the same command",
    "rota replay RUN --code app:app --step": "asks at a terminal; tests/cli/test_code_replay.py",
    "cd /var/lib/rota": "tests/docs/test_production_page.py",
    "rm -rf rota.db": "tests/docs/test_production_page.py",
    "cp -p ": "tests/docs/test_production_page.py",
    "test ! -d": "tests/docs/test_production_page.py",
    "rota backup": "tests/docs/test_production_page.py",
    "curl -s http://127.0.0.1:7070/api/workers/shell-1/logs": "needs a lease; "
    "tests/gateways/test_logs.py",
    "rota webhooks test": "needs the receiver that the page names; tests/cli/test_webhooks.py",
}
# Commands that run until they are ended: how they begin or end, and their sign of life.
ENDLESS = (
    (r"^rota up|BIND_PORT=\d+ rota up", "http"),
    (r"^rota worker ", "runs:"),
    (r"^rota dev ", "http"),
    (r"^rota events --follow", "task-"),
    (r"^curl -N ", "event:"),
    (r"^rota services show \w+ --watch", "orders"),
)
# Commands that say nothing: what is so when they run.
SILENT: dict[str, Callable[[Stage], bool]] = {
    r"python orders.py$": lambda stage: any(
        one["worker_id"] not in {"web-1", "shell-1"} for one in stage.members("orders")
    ),
}
# Pages whose endless commands go on while the next ones run.
KEPT = {"docs/how-to/serve-over-tls.md"}


def pages() -> Iterator[Path]:
    for page in PAGES:
        if name_of(page) not in ELSEWHERE and any(True for _ in commands(page)):
            yield page


# --- what a page needs before its commands ----------------------------------------------------


def with_apps(stage: Stage) -> None:
    text = blocks(ROOT / "docs" / "tutorial.md", "python")[0].text
    stage.write("shop.py", text)
    stage.write("tasks.py", GREETING)


GREETING = """
from rota import Rota

app = Rota()


@app.task
def greet(name: str) -> str:
    return f"hello, {name}"
"""
FUNCTION = """
from rota import Rota, Run

app = Rota()


def charge(total: int) -> dict[str, bool]:
    return {"declined": False}


@app.workflow
async def order(ctx: Run) -> str:
    await ctx.step(charge, 10)
    await ctx.event("paid")
    return "done"
"""


def with_function(stage: Stage) -> None:
    stage.write("app.py", FUNCTION)
    worker = stage.worker("app:app")
    run_id = stage.fixed["RUN"] = stage.run("order")
    stage.until(lambda: "event" in str(stage.call("GET", f"/api/runs/{run_id}/operations")))
    worker.stop()


def with_tasks(stage: Stage) -> None:
    for _ in range(20):
        stage.task("export", queue="reports")
    stage.failed_task()


def with_limits(stage: Stage) -> None:
    stage.task(rate={"key": "openai", "limit": 10, "per_ms": 1_000})
    stage.task(concurrency={"key": "user:7", "limit": 1})


def with_lock(stage: Stage) -> None:
    body = {"owner": "other", "ttl_ms": 60_000}
    stage.call("POST", "/api/locks/nightly-report/acquire", body)


def with_service(stage: Stage) -> None:
    page = ROOT / "docs" / "how-to" / "share-shards.md"
    stage.write("orders.py", blocks(page, "python")[0].text)
    stage.member("orders", "web-1")


def with_panel(stage: Stage) -> None:
    stage.panel()
    stage.write("tests/journals/.keep", "")


def with_stores(stage: Stage) -> None:
    stage.terminal.run("rota migrate --store sqlite:///rota.db")


def serve_with_tokens(stage: Stage, store: str) -> None:
    """Start the coordinator for whose store the first token was made."""
    process = stage.keep(stage.terminal.start(f"rota up --json --store {store}"))
    stage.move_to(json.loads(process.wait_for('"url"'))["url"])


PREPARED: dict[str, Callable[[Stage], object]] = {
    "docs/how-to/call-a-rate-limited-api.md": with_limits,
    "docs/how-to/cancel-and-redrive.md": with_tasks,
    "docs/how-to/change-a-running-function.md": with_function,
    "docs/how-to/follow-events.md": with_tasks,
    "docs/how-to/limit-what-runs-at-once.md": with_limits,
    "docs/how-to/lock-what-only-one-may-do.md": with_lock,
    "docs/how-to/log-from-tasks.md": with_apps,
    "docs/how-to/move-a-shard-coordinator.md": with_service,
    "docs/how-to/move-to-postgresql.md": with_stores,
    "docs/how-to/replay-a-run.md": with_panel,
    "docs/how-to/scale-workers.md": with_apps,
    "docs/how-to/serve-over-tls.md": with_apps,
    "docs/how-to/services-in-production.md": with_service,
    "docs/how-to/share-shards.md": with_service,
    "docs/how-to/write-a-workflow.md": with_panel,
}


# --- what stands for the placeholders of a command ----------------------------------------------


def run_for(stage: Stage, text: str) -> str:
    """A run that the command can be used on."""
    if signal := re.search(r"signal RUN_ID (\w+)", text):
        return stage.waiting_run(signal.group(1))
    if "runs retry" in text:
        return stage.failed_run()
    if (stage.folder / "panel.yaml").exists():
        return stage.panel_run()
    return stage.waiting_run()


def task_for(stage: Stage, text: str) -> str:
    if any(f"tasks {verb}" in text for verb in ("retry", "show", "acknowledge", "logs")):
        return stage.failed_task()
    if "/complete" in text or "/fail" in text:
        task = stage.task()
        stage.call("POST", f"/api/jobs/{task}/start", {"worker_id": "cron-1"})
        return task
    if "fence" in text or "running" in text:
        return stage.fixed["TASK_ID"]
    return stage.task()


def from_answers(stage: Stage, text: str) -> str:
    """The command with what the commands before it have printed."""
    leases = stage.answer.get("leases", [])
    if "/progress" in text and len(leases) > 1:  # the first has been reported
        text = text.replace("TASK_ID", leases[1]["task_id"])
    fixed = dict(stage.fixed)
    if "/api/jobs/" in text:
        fixed.pop("TASK_ID", None)  # a job is another task
    for known, value in fixed.items():
        text = re.sub(rf"(?<!\w){known}(?!\w)", value, text)
    if "token revoke TOKEN_ID" in text:
        listed = stage.terminal.json("rota token ls --json")
        text = text.replace("TOKEN_ID", listed["items"][0]["id"])
    if "/locks/" in text:
        text = text.replace('"fence": 12', f'"fence": {stage.answer.get("fence", 12)}')
    if "version" in stage.answer:
        text = text.replace("if_version=17", f"if_version={stage.answer['version']}")
    if "THE-PUBLIC-KEY" in text:
        public = zmq.curve_keypair()[0].decode()
        text = text.replace("'THE-PUBLIC-KEY-OF-FORTY-CHARACTERS'", shlex.quote(public))
    return text


def filled_in(stage: Stage, text: str) -> str:
    """The command with everything that its page leaves to the reader."""
    text = from_answers(stage, text)
    if "/shards/3/checkpoint" in text and '"epoch": 1' in text:
        text = text.replace('"epoch": 1', f'"epoch": {stage.epoch_of("orders", 3)}')
    if "orders web-1" in text:
        stage.member("orders", "web-1")  # its lease may be over
    if re.search(r"\bRUN_ID\b", text):
        run_id = run_for(stage, text)
        text = re.sub(r"\bRUN_ID\b", run_id, text)
        if "--token-id TOKEN_ID" in text:
            text = text.replace("TOKEN_ID", stage.token_of(run_id))
    if re.search(r"\bTASK_ID\b", text):
        text = re.sub(r"\bTASK_ID\b", task_for(stage, text), text)
    for place, own in (
        ("http://127.0.0.1:7070", stage.url),
        ("http://rota.internal:7070", stage.url),
        ("http://10.0.0.5:7070", stage.url),
        ("localhost:7070", stage.url.removeprefix("http://")),
        ("tcp://127.0.0.1:5555", stage.zeromq),
        ("--zmq-port 5555", "--zmq-port 0"),
        ("BIND_PORT=5555", "BIND_PORT=0"),
        ("/var/lib/rota", str(stage.folder)),
        ("/etc/rota", str(stage.folder)),
        ("10.0.0.5:7070", "127.0.0.1:7070"),
        ("10.0.0.6:7070", "127.0.0.1:7070"),
        ("10.0.0.5", "127.0.0.1"),
        ("10.0.0.6", "127.0.0.1"),
    ):
        text = text.replace(place, own)
    return re.sub(r"postgresql://rota@[\w.:]+/\w+", lambda _: shlex.quote(stage.postgres), text)


@pytest.mark.parametrize("page", list(pages()), ids=name_of)
def test_every_command_of_a_page_works(page: Path, tmp_path: Path) -> None:
    with opened_stage(tmp_path) as stage:
        if name_of(page) in PREPARED:
            PREPARED[name_of(page)](stage)
        for command in commands(page):
            if not any(command.text.startswith(one) for one in NOT_RUN):
                _run(stage, page, command)


def _run(stage: Stage, page: Path, command: Command) -> None:
    place = f"{name_of(page)}, line {command.line}"
    text = filled_in(stage, command.text)
    try:
        if not stage.terminal.assign(text):
            _execute(stage, text, is_kept=name_of(page) in KEPT)
    except AssertionError as error:
        raise AssertionError(f"{place}: {error}") from error


def _execute(stage: Stage, text: str, *, is_kept: bool) -> None:
    for pattern, is_so in SILENT.items():
        if re.search(pattern, text):
            process = stage.keep(stage.terminal.start(text))
            stage.until(partial(is_so, stage))
            process.signal(signal.SIGINT)
            assert process.ends() in {0, 130}, process.output
            return
    for pattern, sign in ENDLESS:
        if re.search(pattern, text):
            if is_kept:
                line = stage.keep(stage.terminal.start(text)).wait_for(sign)
                if served := re.search(r"https://127.0.0.1:\d+", line):
                    stage.fixed["https://rota.example:7070"] = served.group()
                return
            with stage.stirring():
                stage.terminal.show_life(text, sign)
            return
    stage.note(stage.terminal.run(text))
    if "token create" in text and " --store " in text:
        serve_with_tokens(stage, text.rpartition(" ")[2])


def test_every_reason_not_to_run_a_command_is_still_needed() -> None:
    listed = [one.text for page in pages() for one in commands(page)]

    assert {one for one in NOT_RUN if not any(text.startswith(one) for text in listed)} == set()
    assert {name for name in ELSEWHERE if not (ROOT / name).exists()} == set()
