"""The commands for backup and restore on the page do what the page says."""

from pathlib import Path

import pytest

from rota.core.tasks.model import NewTask
from rota.sdk.client import calls
from rota.sdk.client.client import Client
from rota.store.workflow.blobs import Blobs
from tests.cli.processes import coordinator
from tests.docs.commands.shell import run_script
from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "how-to" / "run-in-production.md"

pytestmark = pytest.mark.slow


def script(first_word: str, folder: Path) -> str:
    """A block of the page, with its folders inside this one."""
    (found,) = [one.text for one in blocks(PAGE, "bash") if one.text.startswith(first_word)]
    inside = found.replace("/var/lib/rota", str(folder / "lib"))
    return inside.replace("/var/backups", str(folder / "backups"))


def shell(text: str, folder: Path) -> None:
    ran = run_script(text, folder)
    assert ran.returncode == 0, ran.stderr


def test_a_backup_is_restored_as_the_page_says(tmp_path: Path) -> None:
    (tmp_path / "backups").mkdir()
    home = tmp_path / "lib"
    home.mkdir()
    artifacts = Blobs.beside(str(home / "rota.db")).folder
    artifacts.mkdir()
    with coordinator(home) as (_, url), Client.connect(url) as client:
        (artifacts / "large").write_bytes(b"large")
        (kept,) = client.run(calls.submit([NewTask(name="kept")]))
        shell(script("rota backup", tmp_path), tmp_path)
        client.run(calls.submit([NewTask(name="later")]))

    shell(script("cd /var/lib/rota", tmp_path), tmp_path)

    assert (artifacts / "large").read_bytes() == b"large"
    with coordinator(home) as (_, url), Client.connect(url) as client:
        assert [one.id for one in client.run(calls.list_tasks()).items] == [kept.id]
