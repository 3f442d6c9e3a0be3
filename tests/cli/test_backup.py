"""A backup is a whole store, made while the coordinator works."""

import json
import stat
from pathlib import Path

import pytest

from rota.cli.render.output import ExitCode
from rota.core.tasks.model import NewTask
from rota.sdk.client import calls
from rota.sdk.client.client import Client
from rota.store.workflow.blobs import Blobs
from tests.cli.processes import coordinator, run

pytestmark = pytest.mark.slow


def test_a_backup_of_a_running_store_goes_on_where_it_was(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    artifacts = Blobs.beside(str(first / "rota.db")).folder
    artifacts.mkdir()
    with coordinator(first) as (_process, url), Client.connect(url) as client:
        (artifacts / "large").write_bytes(b"large")
        (task,) = client.run(calls.submit([NewTask(name="add", key="k")]))

        store = f"sqlite:///{first}/rota.db"
        ended = run("backup", str(second / "rota.db"), "--store", store, "--json", folder=tmp_path)
        client.run(calls.submit([NewTask(name="later")]))

    report = json.loads(ended.stdout)
    assert report["artifacts"] == 1
    assert Blobs.beside(str(second / "rota.db")).folder.joinpath("large").read_bytes() == b"large"
    assert stat.S_IMODE((second / "rota.db").stat().st_mode) == 0o600
    with coordinator(second) as (_process, url), Client.connect(url) as client:
        assert [one.id for one in client.run(calls.list_tasks()).items] == [task.id]


@pytest.mark.parametrize(
    ("store", "text"),
    [
        ("sqlite:///missing.db", "there is no store at missing.db"),
        ("postgresql://nowhere/rota", "pg_dump"),
        ("sqlite:///broken.db", "the backup of broken.db to"),
    ],
)
def test_what_cannot_be_backed_up_leaves_no_file(tmp_path: Path, store: str, text: str) -> None:
    (tmp_path / "broken.db").write_bytes(b"not a database" * 1_000)

    ended = run("backup", "copy.db", "--store", store, folder=tmp_path)

    assert ended.returncode == ExitCode.UNUSABLE
    assert text in ended.stderr
    assert not list(tmp_path.glob("copy.db*"))


def test_a_backup_does_not_replace_a_file(tmp_path: Path) -> None:
    (tmp_path / "rota.db").touch()
    (tmp_path / "copy.db").write_text("precious")

    ended = run("backup", "copy.db", "--store", "sqlite:///rota.db", folder=tmp_path)

    assert "copy.db exists already" in ended.stderr
    assert (tmp_path / "copy.db").read_text() == "precious"
