"""Projects of Django as users have them: made by `django-admin`, started as processes."""

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("django", reason="the extra `django` is not installed")

from tests.cli.processes import Running, environment
from tests.docs.commands.preparing import without_backport
from tests.docs.commands.shell import commands
from tests.docs.pages import ROOT, blocks
from tests.sdk.serving import Server

PAGE = ROOT / "docs" / "how-to" / "use-with-django.md"
SHOP = ROOT / "examples" / "django_shop"
MOST_LINES = 10
PATIENCE_S = 60
WAIT = """
import time
deadline = time.monotonic() + 30
while not result.is_finished and time.monotonic() < deadline:
    result.refresh()
print("value", result.return_value)
"""

pytestmark = pytest.mark.slow


class Manage(Running):
    """A command of `manage.py` under way."""

    def __init__(self, *arguments: str, folder: Path, **variables: str) -> None:
        super().__init__(*arguments, folder=folder, module="manage", **variables)

    def says_within(self, text: str, *, times: int, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: len(self.find(text)) >= times, seconds)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("coordinator")) as running:
        yield running


@pytest.fixture(scope="module")
def project(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new project, with the lines that the page shows."""
    folder = tmp_path_factory.mktemp("project")
    run(folder, "-m", "django", "startproject", "mysite", ".")
    settings, tasks = blocks(PAGE, "python")[:2]
    shown = settings.text.replace("http://127.0.0.1:7070", server.url)
    with (folder / "mysite" / "settings.py").open("a", encoding="utf-8") as file:
        file.write(without_backport(shown))
    (folder / "mysite" / "tasks.py").write_text(without_backport(tasks.text), encoding="utf-8")
    return folder


def run(folder: Path, *arguments: str, stdin: str | None = None, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment(**variables),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wiring_takes_fewer_than_ten_lines() -> None:
    settings = blocks(PAGE, "python")[0]

    assert len(settings.text.strip().splitlines()) < MOST_LINES


def test_a_new_project_with_the_lines_of_the_page_runs_a_task(project: Path) -> None:
    options = ("--worker-id", "w", "--queues", "default", "--concurrency", "2")
    worker = Manage("rota_worker", "--no-reload", *options, folder=project)
    try:
        assert "runs: mysite.tasks.add" in worker.wait_for("worker w at")
        call = blocks(PAGE, "python")[2].text.rpartition("result.refresh()")[0]
        said = run(project, "manage.py", "shell", "-c", call + WAIT)
        worker.signal(signal.SIGTERM)
        assert worker.ends() == 0
    finally:
        worker.stop()

    assert "value 3" in said


def test_a_forked_process_has_connections_of_its_own(project: Path) -> None:
    code = """
import os
from mysite.tasks import add
backend = add.get_backend()
first, before = add.enqueue(1, 2), backend.rota
child = os.fork()
if child == 0:
    is_shared = backend.rota is before
    backend.get_result(first.id)
    os._exit(1 if is_shared else 0)
print("child", os.waitpid(child, 0)[1], backend.rota is before)
"""

    assert "child 0 True" in run(project, "manage.py", "shell", "-c", code)


def test_a_changed_file_restarts_the_worker(project: Path) -> None:
    file = project / "mysite" / "tasks.py"
    added = "\n\n@task\ndef multiply(a: int, b: int) -> int:\n    return a * b\n"
    text = file.read_text(encoding="utf-8") + added
    worker = Manage("rota_worker", "--worker-id", "reloaded", folder=project)
    try:
        assert "multiply" not in worker.wait_for("worker reloaded at")
        for change in range(PATIENCE_S):  # the reloader misses a change before its first look
            file.write_text(f"{text}# {change}\n", encoding="utf-8")
            if worker.says_within("worker reloaded at", times=2, seconds=2):
                break
        assert "mysite.tasks.multiply" in worker.wait_for("worker reloaded at", times=2)
    finally:
        worker.signal(signal.SIGINT)  # ends the process that works, too
        worker.ends()


def test_a_signal_lets_a_running_task_finish(project: Path, server: Server) -> None:
    slow = project / "mysite" / "slow.py"
    slow.write_text(
        "import pathlib, time\n"
        "def work(folder):\n"
        "    pathlib.Path(folder, 'begun').touch()\n"
        "    while not pathlib.Path(folder, 'stopping').exists():\n"
        "        time.sleep(0.01)\n"
        "    return 'done'\n",
        encoding="utf-8",
    )
    with (project / "mysite" / "tasks.py").open("a", encoding="utf-8") as file:
        file.write("\n\n@task\ndef slow(folder: str) -> str:\n")
        file.write("    from mysite.slow import work\n    print('begun', flush=True)\n")
        file.write("    return work(folder)\n")
    worker = Manage("rota_worker", "--no-reload", "--worker-id", "drained", folder=project)
    try:
        worker.wait_for("worker drained at")
        call = f"from mysite.tasks import slow\nresult = slow.enqueue({str(project)!r})\n"
        made = run(project, "manage.py", "shell", "-c", call + "print('id', result.id)\n")
        worker.wait_for("begun")
        worker.signal(signal.SIGTERM)
        (project / "stopping").touch()
        assert worker.ends() == 0
    finally:
        worker.stop()

    result_id = made.rpartition("id ")[2].strip()
    call = f"from mysite.tasks import slow\nresult = slow.get_result({result_id!r})\n"
    assert "value done" in run(project, "manage.py", "shell", "-c", call + WAIT)


def test_the_example_shop_confirms_an_order(server: Server, tmp_path: Path) -> None:
    found = [shlex.split(one.text, comments=True) for one in commands(SHOP / "README.md")]
    install, up, migrate, work, serve, order, mail = found
    database = {"SHOP_DATABASE": str(tmp_path / "shop.sqlite3"), "ROTA_URL": server.url}
    assert (install, up) == (["pip", "install", "rota[django]"], ["rota", "up"])  # run elsewhere
    run(SHOP, *migrate[1:], **database)
    worker = Manage(*work[2:], "--no-reload", folder=SHOP, **database)
    site = Manage(*serve[2:], "--noreload", "127.0.0.1:0", folder=SHOP, **database)
    try:
        worker.wait_for("runs: shop.tasks.confirm")
        url = site.wait_for("development server at http").split()[-1].rstrip("/")
        ordered = ask(url, order)
        worker.wait_for("to ada@example.com: thank you for order 1")
        while (sent := ask(url, mail, ID=ordered["mail"]))["status"] != "SUCCESSFUL":
            assert sent["status"] in {"READY", "RUNNING"}
    finally:
        site.stop()
        worker.stop()


def ask(url: str, command: list[str], **placeholders: str) -> dict[str, str]:
    """What a command of the page, `curl …`, gets from the site at this address."""
    for name, value in {"http://127.0.0.1:8000": url, **placeholders}.items():
        command = [word.replace(name, value) for word in command]
    answer = subprocess.run(
        [*command, "--silent", "--fail"], capture_output=True, check=True, timeout=PATIENCE_S
    )
    found: dict[str, str] = json.loads(answer.stdout)
    return found
