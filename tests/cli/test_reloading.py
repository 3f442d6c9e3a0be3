"""`rota dev --reload`: starts again when a file changes, and not for one that does not compile."""

from pathlib import Path

from rota.cli.reloading import FileWatcher
from tests.cli.processes import running

APP = """
from rota import Rota

app = Rota()

@app.task
def greet() -> str:
    return "hello"
"""


def test_a_changed_file_starts_the_worker_again(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP)
    flags = ("--port", "0", "--store", f"sqlite:///{tmp_path}/rota.db", "--json")

    with running("dev", "shop:app", "--reload", *flags, folder=tmp_path) as process:
        process.wait_for('"worker_id"')
        (tmp_path / "shop.py").write_text(f"{APP}\n# changed\n")

        assert "worker_id" in process.wait_for('"worker_id"', times=2)


def test_written_and_added_files_have_changed_once(tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text("")
    (tmp_path / ".venv").mkdir()
    watcher = FileWatcher(tmp_path)

    (tmp_path / "new.py").write_text("")
    (tmp_path / ".venv" / "library.py").write_text("")

    assert watcher.changed() == [tmp_path / "new.py"]
    assert watcher.changed() == []
