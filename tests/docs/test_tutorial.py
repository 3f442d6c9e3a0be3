"""The tutorial, word for word: its files, its commands in three terminals, its deaths.

The commands run in the order of the page. `kill -9 "$(pgrep …)"` is done to the process that the
test has started, since another worker of the same name may run on this machine.
"""

import json
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.processes import Running
from tests.docs.pages import ROOT, blocks
from tests.docs.shell import Terminal, commands

FIRST, SECOND = ROOT / "docs" / "tutorial.md", ROOT / "docs" / "tutorial-functions.md"
HERE = "http://127.0.0.1:7070"  # as the pages have it

pytestmark = pytest.mark.slow


class Reader:
    """A reader who follows the tutorial: a folder, a coordinator, a worker, a terminal."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.url = f"http://127.0.0.1:{port}"
        self.terminal = Terminal(folder, ROTA_URL=self.url, ROTA_PORT=str(port))
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
        assert self.worker is not None
        self.seen.add(command)
        self.worker.signal(signal.SIGKILL)
        self.worker.ends()
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
        # A step that fails half of the time has lost all its attempts in one run of eight.
        luckier = text.replace("random.random() < 0.5", "random.random() < 0.02")
        (self.folder / name).write_text(luckier, encoding="utf-8")

    def put(self, name: str, *, top: str, end: str) -> None:
        """Put a line at the top of a file, and a block at its end."""
        before = (self.folder / name).read_text(encoding="utf-8")
        self.save(name, f"{top}\n{before}\n\n{end}")

    def task(self, task_id: str) -> dict[str, object]:
        found: dict[str, object] = json.loads(
            self.terminal.run(f"curl -s '{self.url}/api/tasks/{task_id}?wait_ms=60000'")
        )
        return found


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
        text = "import random\nimport rota\n" + "\n\n".join([text, *added])
    return text


def test_part_one_works_word_for_word(reader: Reader) -> None:
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
    reader.put("shop.py", top="import random", end=python(FIRST, "def charge("))
    reader.work("shop:app")
    reader.save("charge_orders.py", python(FIRST, "from shop import charge"))
    charged = reader.run(f"ROTA_URL={HERE} python charge_orders.py")
    assert charged.splitlines() == [f"order {order} charged" for order in range(5)]
    assert "ATTEMPT" in reader.run("rota tasks ls --name charge")
    wrong = """rota submit charge --payload '{"order": "seven"}' --wait"""
    assert "invalid_arguments" in reader.fails(wrong)
    assert "charge" in reader.run("rota tasks ls --state failed")
    dry = reader.run("rota tasks retry --state failed --name charge --dry-run")
    assert "1" in dry

    # 6. Report progress
    reader.put("shop.py", top="import rota", end=python(FIRST, "def export("))
    reader.work("shop:app")
    waited = reader.run("""rota submit export --payload '{"rows": 200}' --wait""")
    assert waited.strip() == "200"
    long_one = reader.run("""rota submit export --payload '{"rows": 2000}'""").strip()
    reader.run("rota tasks cancel TASK_ID", TASK_ID=long_one)
    assert reader.task(long_one)["state"] == "cancelled"

    # 7. Watch
    for command in ("rota queues ls", "rota workers ls", "rota workers ls --rank", "rota health"):
        assert reader.run(command)

    # 8. Kill the worker, and the coordinator
    task = reader.run("""rota submit export --payload '{"rows": 400}'""").strip()
    assert reader.worker is not None
    reader.worker.wait_for(task)
    reader.kill("""kill -9 "$(pgrep -f 'rota worker shop:app')\"""")
    assert reader.coordinator is not None
    reader.coordinator.signal(signal.SIGKILL)
    reader.coordinator.ends()
    reader.up()
    reader.work("shop:app")
    ended = reader.task(task)
    assert (ended["state"], ended["attempt"]) == ("succeeded", 2)

    setup = {"make setup", ". .venv/bin/activate", "rota --version"}  # tests/docs run in it
    assert {one.text for one in commands(FIRST)} - reader.seen == setup


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
    waiting = f"rota runs graph {run_id}"
    while "paid" not in reader.terminal.run(waiting):
        pass
    assert "deliver" in reader.run("rota runs show RUN_ID", RUN_ID=run_id)
    assert "paid" in reader.run("rota runs graph RUN_ID", RUN_ID=run_id)
    reader.worker.signal(signal.SIGINT)
    assert reader.worker.ends() == 0
    reader.worker = None
    reader.run("""rota runs signal RUN_ID paid --payload '{"by": "ada"}'""", RUN_ID=run_id)
    reader.work("orders:app")
    assert ended(reader, run_id)["output"] == "sent to ada"
    assert "sent to ada" in reader.run("rota runs show RUN_ID", RUN_ID=run_id)

    # 3. Ask a person
    reader.put("orders.py", top="from msgspec import Struct", end=python(SECOND, "async def ship("))
    reader.work("orders:app")
    run_id = reader.run("""rota run ship --input '{"order": 17}'""").strip()
    while "approval" not in reader.terminal.run(f"rota runs graph {run_id}"):
        pass
    answer = (
        """rota runs signal RUN_ID approval --payload '{"approved": true, "carrier": "post"}'"""
    )
    reader.run(answer, RUN_ID=run_id)
    assert ended(reader, run_id)["output"] == "order 17 goes with post"

    # 4. Kill the worker in the middle
    reader.put("orders.py", top="import time", end=python(SECOND, "async def pack_all("))
    worker = reader.work("orders:app")
    command = """rota run pack_all --input '{"items": ["tea", "cups", "pot", "honey"]}'"""
    run_id = reader.run(command).strip()
    worker.wait_for("pack pot")
    reader.kill("""kill -9 "$(pgrep -f 'rota worker orders:app')\"""")
    worker = reader.work("orders:app")
    packed = ended(reader, run_id)
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


def ended(reader: Reader, run_id: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(
        reader.terminal.run(f"curl -s '{reader.url}/api/runs/{run_id}?wait_ms=60000'")
    )
    assert found["state"] == "completed", found
    return found
