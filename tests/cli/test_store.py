"""Does a copied store go on exactly where the other stopped? And does a killed copy?"""

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from websockets.sync.client import ClientConnection, connect

from rota.core.kv import KvEntry
from rota.core.quotas import Usage
from rota.core.workflow.records import Artifact
from rota.engine.runs.artifact_io import LARGEST_IN_ROW
from rota.errors import StoreError, StoreLocked
from rota.store.copying.copier import copy, open_side
from rota.store.copying.tables import PROGRESS_TABLE
from rota.store.database import Transaction
from rota.store.kv import KvStore
from rota.store.postgres.address import address_of
from rota.store.postgres.database import PostgresDatabase
from rota.store.sqlite.database import SqliteDatabase
from rota.store.workflow.artifacts import ArtifactStore
from tests.cli.processes import Running, run
from tests.databases.schemas import OPTIONS, url
from tests.sdk.serving import Server

TWO_STEPS = {
    "initial_node": "first",
    "nodes": {"first": {"task": "step"}, "second": {"task": "step"}},
    "transitions": [{"from": "first", "to": "second"}],
}
ARTIFACTS = {"small": b"small", "large": b"0123456789abcdef" * (LARGEST_IN_ROW // 16 + 1)}
MEMBERS = "/api/services/feed/members"
PATIENCE_S = 60.0
SHARDS = 4

pytestmark = pytest.mark.slow
_numbers = count(1)


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """A schema that does not exist yet, and is gone afterwards."""
    schema = f"rota_copy_{os.getpid()}_{next(_numbers)}"
    yield f"{url()}{'&' if '?' in url() else '?'}schema={schema}"
    with psycopg.connect(url(), autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())


def sqlite_url(folder: Path) -> str:
    return f"sqlite:///{folder}/rota.db"


class Talk:
    """What is said to a coordinator over HTTP, by a caller who wants success."""

    def __init__(self, server: Server) -> None:
        self.client = httpx.Client(base_url=server.url, timeout=PATIENCE_S)

    def get(self, path: str) -> Any:
        return self._answer(self.client.get(path))

    def post(self, path: str, body: Any = None) -> Any:
        return self._answer(self.client.post(path, json=body))

    def put(self, path: str, body: Any) -> Any:
        return self._answer(self.client.put(path, json=body))

    def _answer(self, response: httpx.Response) -> Any:
        assert response.status_code in {200, 201}, response.text
        return response.json()

    def lease(self, worker: dict[str, Any], wait_ms: int = 10_000) -> dict[str, Any]:
        wish = {"incarnation": worker["incarnation"], "max": 1, "wait_ms": wait_ms}
        path = f"/api/workers/{worker['id']}/lease"
        (lease,) = self.post(path, wish)["leases"]
        return dict(lease)

    def finish(self, worker: dict[str, Any], lease: dict[str, Any], result: Any) -> str:
        item = {
            "task_id": lease["task_id"],
            "fence": lease["fence"],
            "ok": True,
            "result": result,
        }
        body = {"incarnation": worker["incarnation"], "results": [item]}
        answer = self.post(f"/api/workers/{worker['id']}/results", body)
        return str(answer["outcomes"][0]["outcome"])


@contextmanager
def talking(folder: Path, **settings: Any) -> Iterator[tuple[Talk, Server]]:
    with Server(folder, **settings) as server:
        talk = Talk(server)
        try:
            yield talk, server
        finally:
            talk.client.close()


def worker_of(talk: Talk, worker_id: str, *tasks: str) -> dict[str, Any]:
    wish = {
        "node_id": "here",
        "worker_id": worker_id,
        "tasks": tasks,
        "max_concurrent_tasks": 10,
        "heartbeat_interval_ms": 60_000,
    }
    return dict(talk.post("/api/workers", wish))


@contextmanager
def session(server: Server, name: str) -> Iterator[ClientConnection]:
    with connect(f"{server.url.replace('http', 'ws', 1)}/ws?session={name}") as socket:
        wait_for(socket, type="SessionEstablished")
        yield socket


def wait_for(socket: ClientConnection, **wanted: Any) -> Any:
    """The first frame that has these fields."""
    while True:
        frame = json.loads(socket.recv(PATIENCE_S))
        if all(frame.get(name) == value for name, value in wanted.items()):
            return frame


def ask(socket: ClientConnection, kind: str, payload: Any, **more: Any) -> Any:
    envelope = {"to": "coordinator:main", "type": kind, "id": 1, "payload": payload, **more}
    socket.send(json.dumps(envelope))
    return wait_for(socket, replyTo=1)["payload"]


def owe_news(server: Server) -> None:
    """A session submits a task and goes; then the task is done."""
    with session(server, "client") as client:
        ask(client, "assign_task", "told")
    with session(server, "worker") as worker:
        ask(worker, "register_worker", None, **{"from": "socket-worker"})
        given = wait_for(worker, type="process_task")
        done = {"taskId": given["taskId"], "workerId": "socket-worker", "result": "T"}
        assert ask(worker, "task_complete", done)["status"] == "completed"


def beat(told: Any, seq: int) -> dict[str, Any]:
    return {
        "maxShardCount": SHARDS,
        "assignedShards": told.get("assignedShards", []),
        "incarnation": 1,
        "generation": told.get("generation"),
        "seq": seq,
    }


def fill(talk: Talk, server: Server) -> dict[str, Any]:
    """Something of everything; what has to be known to go on with it."""
    known: dict[str, Any] = {}
    owe_news(server)
    # Tasks in every state; a key is a text that PostgreSQL itself cannot hold.
    strange = {"name": "later", "key": "k\u0000\u0001", "labels": ["x"]}
    known["queued"] = talk.post("/api/tasks", strange)["id"]
    known["scheduled"] = talk.post("/api/tasks", {"name": "later", "delay_ms": 3_600_000})["id"]
    known["worker"] = worker = worker_of(talk, "w", "work", "step")
    talk.post("/api/tasks", {"name": "work", "payload": {"n": 1}})
    known["done"] = talk.lease(worker)
    assert talk.finish(worker, known["done"], 7) == "accepted"
    talk.post("/api/tasks", {"name": "work", "payload": {"n": 2}})
    known["lease"] = talk.lease(worker)
    # A run in its middle, with an artifact in a row and one in a file.
    talk.put("/api/workflows/two", TWO_STEPS)
    known["run"] = talk.post("/api/runs", {"workflow": "two", "input": {}})["id"]
    step = talk.lease(worker)
    for name, content in ARTIFACTS.items():
        place = f"/api/runs/{known['run']}/artifacts/{name}"
        query = {"task_id": step["task_id"], "fence": step["fence"]}
        assert talk.client.put(place, params=query, content=content).status_code == 201
    assert talk.finish(worker, step, 1) == "accepted"
    # A service whose member has all shards.
    told = talk.post(MEMBERS, {"workerId": "a", "maxShardCount": SHARDS, "incarnation": 1})
    seq = 0
    while len(told.get("assignedShards", ())) < SHARDS:
        seq += 1
        told = talk.post(f"{MEMBERS}/a/heartbeat?wait_ms=2000", beat(told, seq))
    known["told"], known["seq"] = told, seq
    # A schedule that waits for the end of what it fired.
    every = {"every_ms": 86_400_000, "overlap": "queue_one", "task": {"name": "cron"}}
    talk.put("/api/schedules/nightly", every)
    talk.post("/api/schedules/nightly/run")
    talk.post("/api/schedules/nightly/run")
    known["schedule"] = talk.get("/api/schedules/nightly")
    # Values, locks and tokens.
    known["memory"] = talk.put("/api/memory/a", {"value": {"n": 1}})
    known["lock"] = talk.post("/api/locks/l/acquire", {"owner": "me", "ttl_ms": 3_600_000})
    known["token"] = talk.post("/api/tokens", {"name": "t", "scopes": ["read"]})["id"]
    known["last_seq"] = talk.get("/api/events")["last_seq"]
    return known


def go_on(talk: Talk, server: Server, known: dict[str, Any]) -> None:
    """Everything that was under way elsewhere is gone on with, and everything else is known."""
    worker = known["worker"]
    assert talk.get(f"/api/tasks/{known['done']['task_id']}")["result"] == 7
    assert talk.get(f"/api/tasks/{known['queued']}")["key"] == "k\u0000\u0001"
    assert talk.get(f"/api/tasks/{known['scheduled']}")["state"] == "scheduled"
    assert [one["id"] for one in talk.get("/api/tasks?label=x")["items"]] == [known["queued"]]
    assert talk.finish(worker, known["lease"], 14) == "accepted"
    assert talk.finish(worker, known["lease"], 14) == "duplicate"
    assert talk.finish(worker, talk.lease(worker), 2) == "accepted"
    run_of = talk.get(f"/api/runs/{known['run']}?wait_ms=30000")
    assert run_of["state"] == "completed"
    for name, content in ARTIFACTS.items():
        place = f"/api/runs/{known['run']}/artifacts/{name}"
        assert talk.client.get(place).content == content
    told = talk.post(f"{MEMBERS}/a/heartbeat", beat(known["told"], known["seq"] + 1))
    assert told["assignedShards"] == known["told"]["assignedShards"]
    assert told["shardEpochs"] == known["told"]["shardEpochs"]
    assert talk.get("/api/schedules/nightly") == known["schedule"]
    fired = known["schedule"]["firings"][-1]["task_id"]
    talk.post(f"/api/tasks/{fired}/cancel")
    while talk.get("/api/schedules/nightly")["waiting"]:
        pass  # each look is a round trip
    assert talk.get("/api/memory/a")["version"] == known["memory"]["version"]
    again = talk.post("/api/locks/l/acquire", {"owner": "me", "ttl_ms": 3_600_000})
    assert again["fence"] == known["lock"]["fence"]
    assert known["token"] in [one["id"] for one in talk.get("/api/tokens")["items"]]
    assert talk.get("/api/events")["last_seq"] > known["last_seq"]
    with connect(f"{server.url.replace('http', 'ws', 1)}/ws?session=client") as socket:
        news = wait_for(socket, type="TaskCompleted")["payload"]
    assert news == {"taskId": "told", "result": "T"}
    newer = talk.post("/api/tasks", {"name": "later"})
    assert newer["id"] > known["queued"]


def test_a_coordinator_on_the_copy_goes_on_where_the_other_stopped(
    tmp_path: Path, postgres_url: str
) -> None:
    with talking(tmp_path, shard_lease_ms=600_000) as (talk, server):
        known = fill(talk, server)

    there = run("copy", "--from", sqlite_url(tmp_path), "--to", postgres_url, folder=tmp_path)
    assert there.returncode == 0, there.stdout + there.stderr
    with talking(tmp_path, store=postgres_url, shard_lease_ms=600_000) as (talk, server):
        go_on(talk, server, known)


def test_the_way_back_leads_to_where_it_began(tmp_path: Path, postgres_url: str) -> None:
    with talking(tmp_path, shard_lease_ms=600_000) as (talk, server):
        known = fill(talk, server)
    back = tmp_path / "back"
    back.mkdir()

    flags = ("--json", "--chunk-rows", "3")
    there = run("copy", "--from", sqlite_url(tmp_path), "--to", postgres_url, *flags, folder=back)
    again = run("copy", "--from", postgres_url, "--to", sqlite_url(back), *flags, folder=back)

    assert (there.returncode, again.returncode) == (0, 0), there.stderr + again.stderr
    one, other = json.loads(there.stdout), json.loads(again.stdout)
    assert one["tables"] == other["tables"]
    assert one["rows"] > 50
    with talking(back, shard_lease_ms=600_000) as (talk, server):
        go_on(talk, server, known)


# --- interrupted --------------------------------------------------------------------------------


def submit_many(folder: Path, number: int) -> None:
    with talking(folder) as (talk, _):
        tasks = [{"name": "work", "payload": {"n": one}, "key": f"k{one}"} for one in range(number)]
        talk.post("/api/tasks", tasks)


def noted_rows(postgres_url: str) -> int:
    schema = postgres_url.rpartition("schema=")[2]
    with psycopg.connect(url(), autocommit=True) as connection:
        there = connection.execute(
            "SELECT to_regclass(%s)", [f"{schema}.{PROGRESS_TABLE}"]
        ).fetchall()
        if there == [(None,)]:
            return 0
        notes = connection.execute(
            f"SELECT notes FROM {schema}.{PROGRESS_TABLE}".encode()
        ).fetchall()
    return sum(json.loads(one)["rows"] for (one,) in notes)


def test_a_copy_that_is_killed_is_of_no_use_until_it_is_gone_on_with(
    tmp_path: Path, postgres_url: str
) -> None:
    submit_many(tmp_path, 3_000)
    flags = ("--from", sqlite_url(tmp_path), "--to", postgres_url, "--json")
    killed = Running("copy", *flags, "--chunk-rows", "1", folder=tmp_path)
    try:
        ends_at = time.monotonic() + PATIENCE_S
        while noted_rows(postgres_url) < 50:
            assert time.monotonic() < ends_at
        killed.signal(signal.SIGKILL)
        killed.ends()
    finally:
        killed.stop()

    with pytest.raises(StoreError, match="unfinished copy"):
        Server(tmp_path, store=postgres_url).start()
    other = tmp_path / "other"
    other.mkdir()
    submit_many(other, 1)
    wrong = run("copy", "--from", sqlite_url(other), "--to", postgres_url, folder=tmp_path)
    resumed = run("copy", *flags, folder=tmp_path)

    assert wrong.returncode == 2
    assert "beginning of a copy" in wrong.stderr
    assert resumed.returncode == 0, resumed.stderr
    report = json.loads(resumed.stdout)
    assert (report["resumed"], {one["is_same"] for one in report["tables"]}) == (True, {True})
    with talking(tmp_path, store=postgres_url) as (talk, _):
        (queue,) = talk.get("/api/queues")["items"]
    assert queue["depth"] == 3_000


class Stopped(Exception):  # noqa: N818
    """The copy is interrupted."""


@pytest.mark.parametrize("after", [1, 4, 9, 30])
def test_a_copy_that_is_interrupted_anywhere_comes_out_the_same(
    tmp_path: Path, postgres_url: str, after: int
) -> None:
    submit_many(tmp_path, 40)
    steps = count(1)

    def interrupt(_what: str, _done: int, _total: int) -> None:
        if next(steps) == after:
            raise Stopped

    source, target = open_side(sqlite_url(tmp_path)), open_side(postgres_url)
    try:
        with pytest.raises(Stopped):
            copy(source, target, interrupt, chunk_rows=7)
        report = copy(source, target, lambda _what, _done, _total: None, chunk_rows=7)
    finally:
        source.close()
        target.close()

    assert report.resumed
    assert report.is_same


def test_owners_of_values_and_artifacts_are_copied(tmp_path: Path, postgres_url: str) -> None:
    usages: list[tuple[Usage, Usage]] = []

    def store(tx: Transaction) -> None:
        KvStore(tx).put(KvEntry(key="k", value=b"123", version=1, updated_at_ms=1, owner="t1"))
        KvStore(tx).put(KvEntry(key="old", value=b"1", version=2, updated_at_ms=1))
        artifact = Artifact(
            id=0, run=1, name="a", task=1, fence=1, media_type="x", size=2, created_at_ms=1
        )
        ArtifactStore(tx).stage(artifact, b"12", owner="t2")

    def count_all(tx: Transaction) -> None:
        usages.append((KvStore(tx).usage(1), ArtifactStore(tx).usage(1)))

    with closing(SqliteDatabase(str(tmp_path / "rota.db"))) as original:
        original.write(store)
        original.read(count_all)
    source, target = open_side(sqlite_url(tmp_path)), open_side(postgres_url)
    try:
        assert copy(source, target, lambda _what, _done, _total: None).is_same
    finally:
        source.close()
        target.close()
    with closing(PostgresDatabase(address_of(postgres_url), OPTIONS)) as copied:
        copied.read(count_all)

    assert usages[0] == usages[1]
    assert [one.owners.keys() for one in usages[1]] == [{"t1"}, {"t2"}]


# --- refused ------------------------------------------------------------------------------------


def test_a_source_that_a_coordinator_has_open_is_not_copied(
    tmp_path: Path, postgres_url: str
) -> None:
    with Server(tmp_path), pytest.raises(StoreLocked, match="another coordinator"):
        open_side(sqlite_url(tmp_path), must_exist=True)
    with Server(tmp_path, store=postgres_url):
        refused = run(
            "copy", "--from", postgres_url, "--to", sqlite_url(tmp_path / "x"), folder=tmp_path
        )

    assert refused.returncode == 2


def test_a_store_that_is_not_there_or_not_empty_is_refused(
    tmp_path: Path, postgres_url: str
) -> None:
    missing = run("copy", "--from", sqlite_url(tmp_path), "--to", postgres_url, folder=tmp_path)
    submit_many(tmp_path, 1)
    first = run("copy", "--from", sqlite_url(tmp_path), "--to", postgres_url, folder=tmp_path)
    second = run("copy", "--from", sqlite_url(tmp_path), "--to", postgres_url, folder=tmp_path)

    assert (missing.returncode, first.returncode, second.returncode) == (2, 0, 2)
    assert "there is no store" in missing.stderr
    assert "is not empty" in second.stderr


def test_a_copy_that_differs_is_said_to_and_stays_unusable(
    tmp_path: Path, postgres_url: str
) -> None:
    submit_many(tmp_path, 5)
    schema = postgres_url.rpartition("schema=")[2]
    source, target = open_side(sqlite_url(tmp_path)), open_side(postgres_url)

    def spoil(what: str, _done: int, _total: int) -> None:
        if what == "comparing access_token":
            with psycopg.connect(url(), autocommit=True) as connection:
                connection.execute(f"UPDATE {schema}.task SET priority = 9".encode())

    try:
        report = copy(source, target, spoil)
        assert target.notes() is not None
    finally:
        source.close()
        target.close()

    assert [one.table for one in report.tables if not one.is_same] == ["task"]
