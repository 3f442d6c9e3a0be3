"""A coordinator with something on it, for the commands of a page."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from tests.cli.processes import Running, coordinator
from tests.databases.schemas import schemas
from tests.databases.schemas import url as postgres_url
from tests.docs.commands.shell import LOOK_S, Terminal, until
from tests.docs.pages import ROOT, blocks

SECONDS = 30.0
STIR_S = LOOK_S  # between two tasks that make events for a command that follows them

Json = Any

WAITING = "{{name: waits_{0}, initial_node: {0}, nodes: {{{0}: {{wait_for: {{event: {0}}}}}}}}}"
FAILING = "{name: fails, initial_node: tally, nodes: {tally: {end: failed}}}"


class Stage:
    """A coordinator, a terminal beside it, and what the commands of a page need."""

    def __init__(self, folder: Path, home: "Home") -> None:
        self.folder = folder
        self.answer: dict[str, Json] = {}  # of the last command that gave an object
        self.url = url = home.url
        self.zeromq = home.zeromq
        self.receiver = home.receiver
        self.terminal = Terminal(folder, ROTA_URL=url, ROTA_PORT="0")
        self.api = httpx.Client(base_url=url, timeout=SECONDS)
        self.fixed: dict[str, str] = {}  # what stands for a placeholder on this page
        self._incarnation = 0
        self._open = ExitStack()
        self._open.enter_context(self.api)

    @property
    def postgres(self) -> str:
        """The address of a clean schema of a PostgreSQL server."""
        address = postgres_url()
        sign = "&" if "?" in address else "?"
        return f"{address}{sign}schema={schemas.lend(str(self.folder))}"

    def close(self) -> None:
        self._open.close()

    def call(self, method: str, path: str, body: Json = None, *, text: str = "") -> Json:
        sent = self.api.request(method, path, content=text or None, json=None if text else body)
        assert sent.is_success, f"{method} {path}: {sent.text}"
        return sent.json() if sent.content else None

    def move_to(self, url: str) -> None:
        """Another coordinator serves the rest of the page."""
        self.url = self.terminal.variables["ROTA_URL"] = url

    def write(self, name: str, text: str) -> Path:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def keep(self, process: Running) -> Running:
        """A process that runs until the page is through."""
        self._open.callback(process.stop)
        return process

    def afterwards(self, undo: Callable[[], object]) -> None:
        self._open.callback(undo)

    def worker(self, app: str) -> Running:
        process = self.keep(self.terminal.start(f"rota worker {app}"))
        process.wait_for("runs:")
        return process

    # --- tasks ----------------------------------------------------------------------------------

    def note(self, printed: str) -> None:
        """Keep what a command printed, for the next ones."""
        if token := re.search(r"\brota_[A-Za-z0-9_-]{20,}", printed):
            self.fixed["rota_…"] = token.group()
        try:
            found = json.loads(printed)
        except ValueError:
            return
        if isinstance(found, dict):
            self.answer |= found
            if found.get("leases"):
                self.fixed["TASK_ID"] = found["leases"][0]["task_id"]

    def task(self, name: str = "export", **options: Json) -> str:
        return str(self.call("POST", "/api/tasks", {"name": name, **options})["id"])

    def lease(
        self, name: str = "export", *, by: str = "stage", **options: Json
    ) -> tuple[dict[str, Json], Json]:
        """A task that a worker of this test holds, and the worker."""
        self.task(name, **options)
        worker = self.call(
            "POST",
            "/api/workers",
            {"worker_id": by, "node_id": "stage", "tasks": [name]},
        )
        leased = self.call(
            "POST",
            f"/api/workers/{by}/lease",
            {"incarnation": worker["incarnation"], "max": 1, "wait_ms": 5_000},
        )
        return leased["leases"][0], worker

    def failed_task(self, name: str = "charge") -> str:
        lease, worker = self.lease(name, max_attempts=1)
        result = {
            "task_id": lease["task_id"],
            "fence": lease["fence"],
            "ok": False,
            "error": {"type": "Refused", "message": "no"},
        }
        body = {"incarnation": worker["incarnation"], "results": [result]}
        self.call("POST", "/api/workers/stage/results", body)
        return str(lease["task_id"])

    @contextmanager
    def stirring(self) -> Iterator[None]:
        """Submit tasks again and again, for a command that waits for events."""
        done = threading.Event()

        def stir() -> None:
            with httpx.Client(base_url=self.url, timeout=SECONDS) as api:
                while not done.wait(STIR_S):
                    task = api.post("/api/tasks", json={"name": "stir"}).json()
                    api.post("/api/tasks/cancel", json={"ids": [task["id"]]})

        thread = threading.Thread(target=stir)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    # --- runs -----------------------------------------------------------------------------------

    def run(self, workflow: str, run_input: Json = None) -> str:
        body = {"workflow": workflow, "input": run_input or {}}
        return str(self.call("POST", "/api/runs", body)["id"])

    def waiting_run(self, signal: str = "paid") -> str:
        name = f"waits_{signal}"
        self.call("PUT", f"/api/workflows/{name}", text=WAITING.format(signal))
        return self.run(name)

    def failed_run(self) -> str:
        self.call("PUT", "/api/workflows/fails", text=FAILING)
        return self.run("fails")

    def token_of(self, run_id: str) -> str:
        return str(self.call("GET", f"/api/runs/{run_id}/tokens")["items"][0]["id"])

    def panel(self) -> None:
        """The workflow of the page about workflows, and a worker for it."""
        page = ROOT / "docs" / "how-to" / "write-a-workflow.md"
        self.write("panel.yaml", blocks(page, "yaml")[0].text)
        self.write("panel.py", blocks(page, "python")[0].text)
        self.worker("panel:app")

    def panel_run(self) -> str:
        text = (self.folder / "panel.yaml").read_text(encoding="utf-8")
        self.call("PUT", "/api/workflows/panel", text=text)
        return self._ended_run("panel", {"question": "Tea?", "judges": ["ada", "bob", "cleo"]})

    def example_run(self, name: str) -> str:
        """A run of an example, whose tasks a worker runs."""
        text = (self.folder / "examples" / "workflows" / f"{name}.yaml").read_text(encoding="utf-8")
        self.call("PUT", f"/api/workflows/{name}", text=text)
        return self._ended_run(name, {"topic": "tea", "documents": ["a", "b"]})

    def _ended_run(self, workflow: str, run_input: Json) -> str:
        run_id = self.run(workflow, run_input)
        ended = self.call("GET", f"/api/runs/{run_id}?wait_ms=20000")
        assert ended["state"] == "completed"
        return run_id

    def approve(self) -> None:
        """Answer every approval with yes, until the page is through."""
        done = threading.Event()

        def answer() -> None:
            with httpx.Client(base_url=self.url, timeout=SECONDS) as api:
                while not done.wait(LOOK_S):
                    for wait in api.get("/api/waits?kind=approval").json()["items"]:
                        body = {"name": wait["name"], "payload": {"approved": True}}
                        api.post(f"/api/runs/{wait['run_id']}/signal", json=body)

        thread = threading.Thread(target=answer)
        thread.start()
        self._open.callback(thread.join)
        self._open.callback(done.set)

    # --- services -------------------------------------------------------------------------------

    def members(self, service: str) -> list[Json]:
        found = self.call("GET", f"/api/services/{service}")
        return list(found["members"])

    def epoch_of(self, service: str, shard: int) -> int:
        """The epoch under which a member owns a shard, once one does."""
        found: list[int] = []

        def is_owned() -> bool:
            for one in self.members(service):
                found.extend(
                    epoch
                    for held, epoch in zip(one["shards"], one["epochs"], strict=True)
                    if held == shard
                )
            return bool(found)

        until(is_owned)
        return found[-1]

    def member(self, service: str, worker_id: str) -> None:
        """Register a member, or register it again: it sends no heartbeats."""
        self._incarnation += 1
        body = {"workerId": worker_id, "maxShardCount": 4, "incarnation": self._incarnation}
        self.call("POST", f"/api/services/{service}/members", body)


class Receiver(ThreadingHTTPServer):
    """A server on loopback that takes what webhooks and pushed queues send, and says yes."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Taking)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.paths: list[str] = []


class _Taking(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"] or 0))
        self.server.paths.append(self.path)
        self.send_response(HTTPStatus.OK)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: Json) -> None:  # noqa: A002 - its form
        """Say nothing."""


class Home(NamedTuple):
    """What the stages of several pages share: a coordinator, and a server that it may call."""

    url: str
    zeromq: str
    receiver: Receiver


@contextmanager
def opened_home(folder: Path, *flags: str) -> Iterator[Home]:
    with Receiver() as receiver:
        thread = threading.Thread(target=receiver.serve_forever, args=(LOOK_S,))
        thread.start()
        try:
            with coordinator(folder, "--outbound-allow", "127.0.0.1", *flags) as (process, url):
                announced = json.loads(process.wait_for('"url"'))
                yield Home(url, announced.get("shards") or "", receiver)
        finally:
            receiver.shutdown()
            thread.join()


@contextmanager
def opened_stage(folder: Path, home: Home) -> Iterator[Stage]:
    stage = Stage(folder, home)
    try:
        yield stage
    finally:
        stage.close()
