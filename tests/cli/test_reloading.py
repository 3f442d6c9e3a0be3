"""`rota dev --reload`: starts again when a file changes, and not for one that does not compile."""

import signal
from pathlib import Path

from rota.cli.reloading import FileWatcher
from rota.cli.render.output import ExitCode
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


def test_an_app_that_cannot_be_loaded_is_tried_again_after_the_next_change(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(f"{APP}\nimport no_such_module\n")
    flags = ("--port", "0", "--store", f"sqlite:///{tmp_path}/rota.db", "--json")

    with running("dev", "shop:app", "--reload", *flags, folder=tmp_path) as process:
        process.wait_for("importing 'shop' failed: ModuleNotFoundError")
        process.wait_for("waiting for a change")
        (tmp_path / "shop.py").write_text("from rota import Rota\n\napp = Rota()\n")
        process.wait_for("the app has no tasks")
        process.wait_for("waiting for a change", times=2)
        (tmp_path / "shop.py").write_text(APP)

        process.wait_for('"worker_id"')


def test_a_wait_for_a_change_ends_when_it_is_asked_to(tmp_path: Path) -> None:
    with running("dev", "shop:app", "--reload", "--port", "0", folder=tmp_path) as process:
        process.wait_for("waiting for a change")

        process.signal(signal.SIGINT)

        assert process.ends() == ExitCode.OK
        assert "Traceback" not in process.output


def test_written_and_added_files_have_changed_once(tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text("")
    (tmp_path / ".venv").mkdir()
    watcher = FileWatcher(tmp_path)

    (tmp_path / "new.py").write_text("")
    (tmp_path / ".venv" / "library.py").write_text("")

    assert watcher.changed() == [tmp_path / "new.py"]
    assert watcher.changed() == []
