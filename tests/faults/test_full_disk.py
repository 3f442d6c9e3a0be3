"""A coordinator on a real disk that is full: callers are told, and it recovers by itself."""

import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from rota.cli.render.output import ExitCode
from rota.engine.runs.artifact_io import ArtifactIo
from rota.errors import StoreFull
from rota.settings import Settings
from rota.store.sqlite.database import ROOM_TO_OPEN_BYTES
from rota.store.workflow.blobs import Blobs
from tests.cli.processes import coordinator, run
from tests.gateways.serving import Json

pytestmark = pytest.mark.slow

DISK = "24m"  # room for the log, the file and the ballast
BALLAST_BYTES = 6 * 2**20
PAYLOAD = "x" * 100_000
MOST_TASKS = 1_000
SECONDS = 30.0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip("a file system can only be mounted as root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def submitted(client: httpx.Client, payload: str = "") -> httpx.Response:
    return client.post("/api/tasks", json={"name": "resize", "payload": payload})


def fill(client: httpx.Client, accepted: list[str]) -> httpx.Response:
    """Submit tasks until one is refused; the answer that refuses it."""
    for _ in range(MOST_TASKS):
        answer = submitted(client, PAYLOAD)
        if answer.status_code != 201:
            return answer
        accepted.append(answer.json()["id"])
    raise AssertionError("the disk was never full")


def is_known(client: httpx.Client, task_id: str) -> bool:
    return client.get(f"/api/tasks/{task_id}").status_code == 200


async def test_an_artifact_that_the_disk_has_no_room_for_is_refused_as_such(disk: Path) -> None:
    (disk / "ballast").write_bytes(bytes(BALLAST_BYTES))
    artifacts = ArtifactIo(Blobs(disk / "artifacts"), Settings(), is_shared=False)

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(30):
            yield bytes(2**20)

    with pytest.raises(StoreFull):
        await artifacts.take(pieces())

    assert not list((disk / "artifacts").iterdir())


@pytest.mark.parametrize("name", ["new.db", "old.db", "used.db"])
def test_a_coordinator_that_cannot_start_on_a_full_disk_says_what_is_true_and_what_to_do(
    disk: Path, name: str
) -> None:
    for existing in ("old.db", "used.db"):
        migrated = run("migrate", "--store", f"sqlite:///{disk}/{existing}", folder=disk)
        assert migrated.returncode == ExitCode.OK
    (disk / "old.db.lock").unlink()
    (disk / "ballast").write_bytes(bytes(shutil.disk_usage(disk).free))

    ended = run("up", "--port", "0", "--store", f"sqlite:///{disk}/{name}", folder=disk)

    assert ended.returncode == ExitCode.UNUSABLE
    assert ended.stderr == (
        f"error: the disk of the store {disk}/{name} is full: the store cannot be opened, and no "
        "coordinator starts on it; what it holds is kept; free 10 MiB on that disk, then start "
        "again (store_disk_full)\n"
    )


def test_the_space_that_the_error_names_is_enough_to_start(disk: Path) -> None:
    store = f"sqlite:///{disk}/old.db"
    run("migrate", "--store", store, folder=disk)
    free = shutil.disk_usage(disk).free
    (disk / "ballast").write_bytes(bytes(free - ROOM_TO_OPEN_BYTES))

    with coordinator(disk, "--store", store) as (_, url):
        assert httpx.get(f"{url}/health/ready").status_code == 200


def test_a_full_disk_is_answered_as_such_and_nothing_accepted_is_lost(disk: Path) -> None:
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(BALLAST_BYTES))
    accepted: list[str] = []
    with (
        coordinator(disk, "--log-format", "json", "--store-disk-low-bytes", "100000000") as (
            process,
            url,
        ),
        httpx.Client(base_url=url, timeout=SECONDS) as client,
    ):
        process.wait_for("store_disk_low")

        refused = fill(client, accepted)

        problem: Json = refused.json()
        assert (refused.status_code, problem["code"]) == (503, "store_full")
        assert "free space on that disk" in problem["detail"]
        assert int(refused.headers["retry-after"]) >= 1
        health = client.get("/health")
        (store,) = [one for one in health.json()["checks"] if one["component"] == "store"]
        assert health.status_code == 503
        assert store["detail"].startswith("its disk is full")
        assert client.get("/health/ready").json()["code"] == "store_full"
        assert client.get("/api/system").json()["store"]["is_full"] is True
        assert "rota_store_disk_free_bytes" in client.get("/metrics").text
        assert all(is_known(client, one) for one in accepted)  # reading goes on
        process.wait_for('"store_full"')

        ballast.unlink()

        answer = submitted(client, PAYLOAD)
        assert answer.status_code == 201
        accepted.append(answer.json()["id"])
        assert client.get("/health").status_code == 200

    os.sync()
    with (
        coordinator(disk) as (_, url),
        httpx.Client(base_url=url, timeout=SECONDS) as client,
    ):
        assert all(is_known(client, one) for one in accepted)
        total = client.get("/api/tasks", params={"limit": 1000}).json()["items"]
        assert len(total) == len(accepted)
