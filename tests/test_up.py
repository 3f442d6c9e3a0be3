"""`make up` opens on something that lives: orders, failures, what is stuck, shards with owners."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "scripts" / "up.py"
LOG = ROOT / ".rota" / "shop.log"
PATIENCE_S = 150.0
ORDERS = "/api/runs?workflow=order&state=completed"
RETURNS = "/api/runs?workflow=take_back&state=completed"  # runs of a durable function


def ask(url: str, path: str) -> Any:
    with urllib.request.urlopen(url + path, timeout=30) as answer:
        return json.load(answer)


def wait_for(what: str, url: str, found: Callable[[], Any]) -> None:
    """Look again after each thing that happens."""
    until = time.monotonic() + PATIENCE_S
    last = ask(url, "/api/events?last=1")["last_seq"]
    while not found():
        assert time.monotonic() < until, f"{what}: not within {PATIENCE_S:.0f} s"
        last = ask(url, f"/api/events?after={last}&wait_ms=5000")["next_after"]


class Output:
    """Reads what the process prints, as it prints it: a full pipe would stop its workers."""

    def __init__(self, pipe: IO[str]) -> None:
        self.lines: list[str] = []
        self._found = threading.Event()  # an address, or the end
        self._address: str | None = None
        self._reading = threading.Thread(target=self._read, args=(pipe,), daemon=True)
        self._reading.start()

    def address(self) -> str:
        assert self._found.wait(PATIENCE_S)
        assert self._address is not None, f"it ended without having been up: {self.all()}"
        return self._address

    def all(self) -> str:
        """Everything that it has printed, after its end."""
        self._reading.join(PATIENCE_S)
        return "".join(self.lines)

    def _read(self, pipe: IO[str]) -> None:
        with pipe:
            for line in pipe:
                self.lines.append(line)
                if self._address is None and (match := re.search(r"http://[\d.]+:\d+", line)):
                    self._address = match[0]
                    self._found.set()
        self._found.set()


def test_make_up_shows_something_alive_and_ends_when_told(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--port", "0", "--zmq-port", "0"]
    process = subprocess.Popen(
        [*command, "--store", f"sqlite:///{tmp_path}/rota.db"],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    output = Output(process.stdout)
    try:
        url = output.address()

        wait_for("an order", url, lambda: ask(url, ORDERS)["items"])
        wait_for("a parcel that came back", url, lambda: ask(url, RETURNS)["items"])
        wait_for("a failure", url, lambda: ask(url, "/api/failures")["items"])
        wait_for("what is stuck", url, lambda: ask(url, "/api/overview")["stuck"])
        wait_for("shards", url, lambda: ask(url, "/api/overview")["shards"]["owned"] == 8)
        assert ask(url, "/api/overview")["workers"]["healthy"] >= 2
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=PATIENCE_S)
    assert process.returncode == 0, output.all()
    assert "stopped" in output.all()
    assert "task_failed" in LOG.read_text(encoding="utf-8")
    assert "task_" not in output.all()  # or it would scroll the address away
