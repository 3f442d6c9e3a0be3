"""What the commands of a page need before they are run: files, tasks, runs, members, workers."""

import os
import re
import shutil
from collections.abc import Callable

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tests.databases.schemas import schemas
from tests.databases.schemas import url as postgres_url
from tests.databases.server import binaries
from tests.docs.commands.shell import until
from tests.docs.commands.stage import Stage
from tests.docs.pages import ROOT, blocks

HOW_TO = ROOT / "docs" / "how-to"
GREETING = """
from rota import Rota

app = rota_app = Rota()


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


def with_apps(stage: Stage) -> None:
    text = blocks(ROOT / "docs" / "tutorial.md", "python")[0].text
    stage.write("shop.py", f"{text}\n\nrota_app = app\n")
    stage.write("tasks.py", GREETING)


def function_run(stage: Stage) -> str:
    """A run of the function in `app.py` that waits for a signal, without a worker."""
    stage.write("app.py", FUNCTION)
    worker = stage.worker("app:app")
    run_id = stage.run("order")
    until(lambda: "event" in str(stage.call("GET", f"/api/runs/{run_id}/operations")))
    worker.stop()
    return run_id


def with_function(stage: Stage) -> None:
    stage.fixed["RUN"] = function_run(stage)


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
    stage.write("orders.py", blocks(HOW_TO / "share-shards.md", "python")[0].text)
    stage.member("orders", "web-1")


def with_panel(stage: Stage) -> None:
    stage.panel()
    stage.write("tests/journals/.keep", "")


def with_stores(stage: Stage) -> None:
    stage.terminal.run("rota migrate --store sqlite:///rota.db")


def with_database(stage: Stage) -> None:
    """A PostgreSQL server that `createdb` finds by its variables, and a name that is free there."""
    given = conninfo_to_dict(postgres_url())
    names = {"PGHOST": "host", "PGPORT": "port", "PGUSER": "user", "PGPASSWORD": "password"}
    stage.terminal.variables |= {
        name: str(given[key]) for name, key in names.items() if given.get(key) is not None
    }
    stage.terminal.variables["PATH"] = f"{binaries()}:{os.environ['PATH']}"
    name = f"rota_docs_{stage.folder.name}".lower().replace("-", "_")
    stage.fixed["--encoding UTF8 work"] = f"--encoding UTF8 {name}"

    def drop() -> None:
        with psycopg.connect(postgres_url(), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {name}")

    stage.afterwards(drop)


def without_backport(text: str) -> str:
    """Lines of the page about Django, on Django 6 as their comments say."""
    import django  # type: ignore[import-untyped]  # noqa: PLC0415 - Django has no types

    if django.VERSION < (6, 0):
        return text
    return text.replace('"django_tasks", ', "").replace("from django_tasks", "from django.tasks")


def with_django(stage: Stage) -> None:
    """A new project, with the lines that the page shows."""
    settings, tasks = blocks(HOW_TO / "use-with-django.md", "python")[:2]
    stage.terminal.run("python -m django startproject mysite .")
    queues = 'TASKS["default"]["QUEUES"] = ["default", "mail"]\n'
    with (stage.folder / "mysite" / "settings.py").open("a", encoding="utf-8") as file:
        shown = settings.text.replace("http://127.0.0.1:7070", stage.url)
        file.write(without_backport(shown) + queues)
    stage.write("mysite/tasks.py", without_backport(tasks.text))


def with_examples(stage: Stage) -> None:
    """The examples, a worker for their workflows, and a person who approves everything."""
    shutil.copytree(ROOT / "examples", stage.folder / "examples")
    stage.terminal.variables["ROTA_EXAMPLE_PAUSE_S"] = "0"
    stage.worker("examples.workflows.tasks:app")
    stage.approve()


def with_scaler(stage: Stage) -> None:
    """The token with which the scaler asks about its queue."""
    made = stage.terminal.json("rota token create --scope read --queue images --json")
    stage.terminal.variables["ROTA_TOKEN"] = made["token"]


def with_fastapi(stage: Stage) -> None:
    wiring, tasks = blocks(HOW_TO / "use-with-fastapi.md", "python")[:2]
    stage.write("main.py", wiring.text + tasks.text.partition("app = FastAPI()\n")[2])
    stage.terminal.variables["UVICORN_PORT"] = "0"


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
    "docs/how-to/run-on-postgresql.md": with_database,
    "docs/how-to/scale-workers.md": with_apps,
    "docs/how-to/serve-over-tls.md": with_apps,
    "docs/how-to/services-in-production.md": with_service,
    "docs/how-to/share-shards.md": with_service,
    "docs/how-to/use-with-django.md": with_django,
    "docs/how-to/use-with-fastapi.md": with_fastapi,
    "docs/how-to/write-a-workflow.md": with_panel,
    "examples/keda/README.md": with_scaler,
    "examples/patterns/README.md": with_examples,
    "examples/workflows/README.md": with_examples,
}


# --- commands inside sentences ------------------------------------------------------------------

ENDING = "{name: ends, initial_node: only, nodes: {only: {end: completed}}}"


def prepare_sentence(stage: Stage, text: str) -> None:
    """Make what a command inside a sentence is used on, and its placeholders."""
    stage.fixed |= {"NAME": "billing", "COUNT": "8", "FILE.yaml": "ends.yaml", "FILE": "ends.yaml"}
    for pattern, prepare in NEEDED:
        if re.search(pattern, text):
            prepare(stage)


def _with_quickstart(stage: Stage) -> None:
    stage.write("quickstart.py", blocks(ROOT / "README.md", "python")[0].text)


def _without_address(stage: Stage) -> None:
    """The program has its coordinator inside unless `ROTA_URL` names one."""
    del stage.terminal.variables["ROTA_URL"]


def _with_paused_run(stage: Stage) -> None:
    run_id = stage.fixed["RUN"] = function_run(stage)
    stage.call("POST", f"/api/runs/{run_id}/pause")


def _with_webhook(stage: Stage) -> None:
    stage.terminal.run(f"rota webhooks put billing --to {stage.receiver.url} --disabled")


def _with_dump(stage: Stage) -> None:
    with_database(stage)
    stage.terminal.variables["PGDATABASE"] = str(conninfo_to_dict(postgres_url())["dbname"])
    stage.fixed["--schema rota"] = f"--schema {schemas.lend(str(stage.folder))}"


NEEDED: tuple[tuple[str, Callable[[Stage], object]], ...] = (
    (r"quickstart", _with_quickstart),
    (r"python quickstart", _without_address),
    (r"shop:", with_apps),
    (r"module:app", lambda stage: stage.write("module.py", GREETING)),
    (r"(worker|dev) app:app", lambda stage: stage.write("app.py", FUNCTION)),
    (r"replay .*app:app", with_function),
    (r"runs resume RUN", _with_paused_run),
    (r"runs fork RUN ", with_function),
    (r"signal RUN enough", lambda stage: stage.fixed.update(RUN=stage.waiting_run("enough"))),
    (r"FILE", lambda stage: stage.write("ends.yaml", ENDING)),
    (r"services \w+ (NAME|orders)", lambda stage: stage.member("billing", "web-1")),
    (r"services show orders", lambda stage: stage.member("orders", "web-1")),
    (r"webhooks put NAME", _with_webhook),
    (r"services keys", lambda stage: stage.terminal.assign("ROTA_ZMQ_KEYS=keys.toml")),
    (r"pg_dump", _with_dump),
    (r"queues show reports", lambda stage: stage.task(queue="reports")),
)
