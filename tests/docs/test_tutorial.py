"""The tutorial, word for word: its files, its commands in three terminals, its deaths.

The commands run in the order of the page, and the files are as the page has them. Only the
coordinator's port is another one, and a heartbeat is sent more often, so that a worker that was
killed is replaced sooner than after the fifteen seconds of the page.
"""

import re
import shutil
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import rota
from tests.cli.processes import Running
from tests.docs.commands.making import run_in_checkout
from tests.docs.commands.shell import Terminal, commands, until
from tests.docs.pages import ROOT, blocks

FIRST, SECOND = ROOT / "docs" / "tutorial.md", ROOT / "docs" / "tutorial-functions.md"
HERE = "http://127.0.0.1:7070"  # as the pages have it
HEARTBEAT_MS = 2_000
WAIT_MS = 60_000

pytestmark = pytest.mark.slow


class Reader:
    """A reader who follows the tutorial: a folder, a coordinator, a worker, a terminal."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.url = f"http://127.0.0.1:{port}"
        self.terminal = Terminal(
            folder,
            ROTA_URL=self.url,
            ROTA_PORT=str(port),
            ROTA_HEARTBEAT_INTERVAL_MS=str(HEARTBEAT_MS),
        )
        self.coordinator: Running | None = None
        self.worker: Running | None = None
        self.seen: set[str] = set()  # commands that were run

    def close(self) -> None:
        for process in (self.worker, self.coordinator):
            if process is not None:
                process.stop()

    def up(self) -> Running:
        self.seen.add("rota up")
        self.coordinator = self.terminal.start("rota up")
        self.coordinator.wait_for("stop        Ctrl-C")
        return self.coordinator

    def work(self, app: str) -> Running:
        """Start the worker; one that runs is stopped with Ctrl-C before."""
        command = f"rota worker {app}"
        self.seen.add(command)
        if self.worker is not None:
            self.worker.signal(signal.SIGINT)
            self.worker.ends()
        self.worker = self.terminal.start(command)
        self.worker.wait_for("runs:")
        return self.worker

    def kill(self, command: str) -> None:
        """Kill the worker, with the command of the page where the machine has `pgrep`."""
        assert self.worker is not None
        if shutil.which("pgrep"):
            self.run(command)
        else:
            self.seen.add(command)
            self.worker.signal(signal.SIGKILL)
        assert self.worker.ends() == -signal.SIGKILL
        self.worker = None

    def run(self, command: str, **placeholders: str) -> str:
        self.seen.add(command)
        text = command.replace(HERE, self.url)
        for name, value in placeholders.items():
            text = text.replace(name, value)
        return self.terminal.run(text)

    def fails(self, command: str) -> str:
        """A command of the page that ends with an error, as the page says; what it printed."""
        self.seen.add(command)
        return self.terminal.run(f"{command} 2>&1 && exit 99 || test $? -ne 99")

    def save(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8")

    def put(self, name: str, *, top: str, end: str) -> None:
        """Put a line at the top of a file, and a block at its end."""
        before = (self.folder / name).read_text(encoding="utf-8")
        self.save(name, f"{top}\n{before}\n\n{end}")

    def get(self, path: str) -> dict[str, object]:
        found: dict[str, object] = httpx.get(self.url + path, timeout=WAIT_MS / 1_000 + 10).json()
        return found

    def ended_task(self, task_id: str) -> dict[str, object]:
        return self.get(f"/api/tasks/{task_id}?wait_ms={WAIT_MS}")

    def ended_run(self, run_id: str) -> dict[str, object]:
        found = self.get(f"/api/runs/{run_id}?wait_ms={WAIT_MS}")
        assert found["state"] == "completed", found
        return found

    def awaits(self, run_id: str, signal_name: str) -> None:
        """Return when a run waits for a signal."""
        until(lambda: signal_name in str(self.get(f"/api/runs/{run_id}/operations")))


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    one = Reader(tmp_path, free_port())
    yield one
    one.close()


def python(page: Path, first_line: str) -> str:
    """The block of a page that has this line."""
    (found,) = [one.text for one in blocks(page, "python") if first_line in one.text]
    return found


def shop(*, is_whole: bool = True) -> str:
    """`shop.py` as it is at the end of part one."""
    text = python(FIRST, "def resize(")
    if is_whole:
        added = [python(FIRST, "def charge("), python(FIRST, "def export(")]
        text = "import rota\n" + "\n\n".join([text, *added])
    return text


def test_part_one_begins_with_the_environment_of_the_checkout() -> None:
    printed = run_in_checkout(blocks(FIRST, "bash")[0].text)

    assert printed.splitlines()[-1] == f"rota {rota.__version__}"


def test_part_one_works_word_for_word(reader: Reader) -> None:
    # 1. Install: the test above
    reader.seen.update(blocks(FIRST, "bash")[0].text.splitlines())

    # 2. and 3. Write a task, start a coordinator and a worker
    reader.save("shop.py", shop(is_whole=False))
    said = reader.up().said
    shown = next(one.text for one in blocks(FIRST, "text"))
    words = [line.split()[0] for line in shown.splitlines()]
    assert [line.split()[0] for line in said if line.split()][: len(words)] == words
    assert "runs: resize" in reader.work("shop:app").wait_for("runs:")

    # 4. Submit a task
    submit = """rota submit resize --payload '{"path": "a.png", "width": 200}' --wait"""
    assert reader.run(submit).strip() == '"a.png at 200 px"'
    reader.save("order.py", python(FIRST, "from shop import resize"))
    assert "b.png at 300 px" in reader.run(f"ROTA_URL={HERE} python order.py")

    # 5. Let it fail
    reader.put("shop.py", top="import rota", end=python(FIRST, "def charge("))
    reader.work("shop:app")
    reader.save("charge_orders.py", python(FIRST, "from shop import charge"))
    charged = reader.run(f"ROTA_URL={HERE} python charge_orders.py")
    assert charged.splitlines() == [f"order {order} charged" for order in range(5)]
    heading, *rows = reader.run("rota tasks ls --name charge").splitlines()
    column = heading.lower().split().index("attempt")  # on a terminal in small letters
    assert [row.split()[column] for row in rows] == ["3/5"] * 5
    wrong = """rota submit charge --payload '{"order": "seven"}' --wait"""
    assert "invalid_arguments" in reader.fails(wrong)
    assert "charge" in reader.run("rota tasks ls --state failed")
    dry = reader.run("rota tasks retry --state failed --name charge --dry-run")
    assert "1" in dry

    # 6. Report progress
    reader.put("shop.py", top="", end=python(FIRST, "def export("))
    reader.work("shop:app")
    waited = reader.run("""rota submit export --payload '{"rows": 100}' --wait""")
    assert waited.strip() == "100"
    long_one = reader.run("""rota submit export --payload '{"rows": 2000}'""").strip()
    reader.run("rota tasks cancel TASK_ID", TASK_ID=long_one)
    assert reader.ended_task(long_one)["state"] == "cancelled"

    # 7. Watch
    for command in ("rota queues ls", "rota workers ls", "rota workers ls --rank", "rota health"):
        assert reader.run(command)

    # 8. Kill the worker, and the coordinator
    task = reader.run("""rota submit export --payload '{"rows": 200}'""").strip()
    assert reader.worker is not None
    reader.worker.wait_for(task)
    reader.kill("""kill -9 "$(pgrep -f 'rota worker shop:app')\"""")
    assert reader.coordinator is not None
    reader.coordinator.signal(signal.SIGKILL)
    reader.coordinator.ends()
    reader.up()
    reader.work("shop:app")
    ended = reader.ended_task(task)
    assert (ended["state"], ended["attempt"]) == ("succeeded", 2)

    assert {one.text for one in commands(FIRST)} - reader.seen == set()


def test_part_two_works_word_for_word(reader: Reader) -> None:
    reader.save("shop.py", shop())
    reader.up()

    # 1. Write a function with two steps
    reader.save("orders.py", python(SECOND, "async def sell("))
    ready = reader.work("orders:app").wait_for("runs:")
    assert "charge, export, resize, workflow:sell" in ready
    sold = reader.run("""rota run sell --input '{"items": ["tea", "cups"]}' --wait""")
    assert sold.strip() == '"payment of 20"'
    (run_id,) = re.findall(r"^[0-9a-f]{16}", reader.run("rota runs ls"), re.MULTILINE)
    assert "pay" in reader.run("rota runs journal RUN_ID", RUN_ID=run_id)

    # 2. Wait without a worker
    reader.put("orders.py", top="", end=python(SECOND, "async def deliver("))
    reader.work("orders:app")
    start = """rota run deliver --key order-17 --input '{"items": ["tea", "cups"]}'"""
    run_id = reader.run(start).strip()
    assert reader.run(start).strip() == run_id
    assert reader.worker is not None
    reader.awaits(run_id, "paid")
    assert "deliver" in reader.run("rota runs show RUN_ID", RUN_ID=run_id)
    assert "paid" in reader.run("rota runs graph RUN_ID", RUN_ID=run_id)
    reader.worker.signal(signal.SIGINT)
    assert reader.worker.ends() == 0
    reader.worker = None
    reader.run("""rota runs signal RUN_ID paid --payload '{"by": "ada"}'""", RUN_ID=run_id)
    reader.work("orders:app")
    assert reader.ended_run(run_id)["output"] == "sent to ada"
    assert "sent to ada" in reader.run("rota runs show RUN_ID", RUN_ID=run_id)

    # 3. Ask a person
    reader.put("orders.py", top="from msgspec import Struct", end=python(SECOND, "async def ship("))
    reader.work("orders:app")
    run_id = reader.run("""rota run ship --input '{"order": 17}'""").strip()
    reader.awaits(run_id, "approval")
    answer = (
        """rota runs signal RUN_ID approval --payload '{"approved": true, "carrier": "post"}'"""
    )
    reader.run(answer, RUN_ID=run_id)
    assert reader.ended_run(run_id)["output"] == "order 17 goes with post"

    # 4. Kill the worker in the middle
    reader.put("orders.py", top="import time", end=python(SECOND, "async def pack_all("))
    worker = reader.work("orders:app")
    command = """rota run pack_all --input '{"items": ["tea", "cups", "pot", "honey"]}'"""
    run_id = reader.run(command).strip()
    worker.wait_for("pack pot")
    reader.kill("""kill -9 "$(pgrep -f 'rota worker orders:app')\"""")
    worker = reader.work("orders:app")
    packed = reader.ended_run(run_id)
    assert packed["output"] == [f"{one} packed" for one in ("tea", "cups", "pot", "honey")]
    assert [bool(worker.find(f"pack {one}")) for one in ("tea", "cups", "pot", "honey")] == [
        False,
        False,
        True,
        True,
    ]

    # 5. Test it
    reader.save("test_orders.py", python(SECOND, "def test_an_order_that_is_not_paid"))
    assert "1 passed" in reader.run("python -m pytest -q test_orders.py")

    assert {one.text for one in commands(SECOND)} - reader.seen == set()
