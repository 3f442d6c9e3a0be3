"""A store of an earlier version opens, its runs replay, and its waiting tasks are worked off."""

import gzip
import lzma
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

import rota
from tests.cli.processes import coordinator
from tests.databases.schemas import Store, url
from tests.old_stores.filling import WORKFLOWS, Filler

HERE = Path(__file__).parent
VERSION = "before_redesign"
ENDED_TASKS = {"succeeded": 14, "failed": 1, "cancelled": 1}  # eight of the runs among them
FOR_EVER = ("--history-keep-ms", str(10**13))  # the stores are older than what is kept otherwise
LIVE_KEYS = {*(f"waits-{number}" for number in range(20)), "later", "leased"}

pytestmark = pytest.mark.slow


@pytest.fixture(params=["sqlite", "postgres"])
def old_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a copy of the store."""
    kind: Store = request.param
    if kind == "sqlite":
        path = tmp_path / "rota.db"
        path.write_bytes(lzma.decompress((HERE / f"{VERSION}.db.xz").read_bytes()))
        yield f"sqlite:///{path}"
        return
    name = f"old_store_{abs(hash(str(tmp_path))) % 10**12}"
    dump = gzip.decompress((HERE / f"{VERSION}.sql.gz").read_bytes()).decode()
    statements = "\n".join(line for line in dump.splitlines() if not line.startswith("\\"))
    with psycopg.connect(url(), autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}".encode())
        address = urlunsplit(urlsplit(url())._replace(path=f"/{name}"))
        try:
            with closing(psycopg.connect(address, autocommit=True)) as database:
                database.execute(statements.encode())
            yield address
        finally:
            server.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def items(filler: Filler, path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = filler.call("GET", path)["items"]
    return found


def check_replays(filler: Filler) -> None:
    for run in items(filler, "/api/runs"):
        journal = filler.call("GET", f"/api/runs/{run['id']}/journal?limit=1000")
        workflow = filler.call("GET", f"/api/workflows/{run['workflow']}/versions/{run['version']}")
        assert journal["items"]
        assert rota.replay(journal, workflow["definition"]) == []


def test_a_store_of_an_earlier_version_goes_on(old_store: str, tmp_path: Path) -> None:
    with coordinator(tmp_path, "--store", old_store, *FOR_EVER) as (_, address):
        filler = Filler(address)

        check_replays(filler)
        for state, count in ENDED_TASKS.items():
            assert len(items(filler, f"/api/tasks?state={state}")) == count
        assert filler.call("GET", "/api/memory/config%2Ftheme")["value"] == {"dark": True}
        assert {one["name"] for one in items(filler, "/api/workflows")} == WORKFLOWS.keys()
        assert [one["name"] for one in items(filler, "/api/tokens")] == ["old reader"]
        duplicate = filler.call("POST", "/api/tasks", {"name": "old.keyed", "key": "done-once"})
        assert duplicate["duplicate"]

        runs = {run["key"]: run["id"] for run in items(filler, "/api/runs")}
        filler.call("POST", f"/api/runs/{runs['waiting-run']}/signal", {"name": "go"})
        filler.register()  # under the id of the worker that was lost with the coordinator
        for run_id in runs.values():
            work_until_ended(filler, f"/api/runs/{run_id}", "completed")
        for task in items(filler, "/api/tasks?limit=1000"):
            if task["state"] not in ENDED_TASKS:
                work_until_ended(filler, f"/api/tasks/{task['id']}", "succeeded")

        ended = items(filler, "/api/tasks?state=succeeded&limit=1000")
        assert {task["key"] for task in ended} >= LIVE_KEYS
        check_replays(filler)


def work_until_ended(filler: Filler, path: str, state: str) -> None:
    """Lease and report as long as it takes; each lease waits for work that is not due yet."""
    for _ in range(100):
        found = filler.call("GET", path)
        if found["state"] not in {"running", "queued", "scheduled"}:
            break
        filler.work(50, wait_ms=500)
    assert filler.call("GET", path)["state"] == state
