"""Rota's commands as real processes, whose output can be waited for."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from rota import settings

TIMEOUT_S = 60.0
MODULE = "rota.cli.main"
COMMAND = (sys.executable, "-m", MODULE)


def environment(**variables: str) -> dict[str, str]:
    """The environment, without settings of ours that the developer has set, and no fixed port."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ROTA_")}
    for name in settings.OTHER_NAMES.values():
        kept.pop(name, None)
    return {**kept, "ROTA_ZMQ_PORT": "0", **variables}


def run(
    *arguments: str, folder: Path, stdin: str | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=folder,
        env=environment(**variables),
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )


class Running:
    """A command under way; what it says is kept, and can be waited for."""

    def __init__(
        self,
        *arguments: str,
        folder: Path,
        module: str = MODULE,
        before: str = "",
        program: Sequence[str] | None = None,
        **variables: str,
    ) -> None:
        """Before: the words of a command that starts this one. `program`: another program."""
        own = (sys.executable, "-m", module, *arguments)
        self._process = subprocess.Popen(
            [*before.split(), *(own if program is None else program)],
            cwd=folder,
            env=environment(**variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid
        self.said: list[str] = []
        self._changed = threading.Condition()
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        streams = (self._process.stdout, self._process.stderr)
        self._readers = [threading.Thread(target=self._read, args=(one,)) for one in streams]
        self._reading = len(self._readers)
        for reader in self._readers:
            reader.start()

    def _read(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                with self._changed:
                    self.said.append(line)
                    self._changed.notify_all()
        with self._changed:
            self._reading -= 1
            self._changed.notify_all()

    def wait_for(self, text: str, *, times: int = 1) -> str:
        """Give the first line (or n-th) that contains `text`, waiting until it is said."""
        with self._changed:
            self._changed.wait_for(
                lambda: len(self.find(text)) >= times or not self._reading, TIMEOUT_S
            )
            assert len(self.find(text)) >= times, f"{text!r} was not said: {self.said}"
            return self.find(text)[times - 1]

    def find(self, text: str) -> list[str]:
        return [line for line in self.said if text in line]

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def ends(self) -> int:
        """Wait for the end; gives the exit code."""
        code = self._process.wait(timeout=TIMEOUT_S)
        for reader in self._readers:
            reader.join(TIMEOUT_S)
        return code

    def stop(self) -> None:
        """Whatever happened, leave nothing behind."""
        if self._process.poll() is None:
            self._process.kill()
        self.ends()

    @property
    def output(self) -> str:
        return "".join(self.said)


@contextmanager
def running(*arguments: str, folder: Path, before: str = "", **variables: str) -> Iterator[Running]:
    process = Running(*arguments, folder=folder, before=before, **variables)
    try:
        yield process
    finally:
        process.stop()


@contextmanager
def coordinator(folder: Path, *arguments: str) -> Iterator[tuple[Running, str]]:
    """A coordinator on a free port, once it serves, and its URL."""
    flags = ("--port", "0", "--store", f"sqlite:///{folder}/rota.db", "--json")
    with running("up", *flags, *arguments, folder=folder) as process:
        announced: dict[str, Any] = json.loads(process.wait_for('"url"'))
        yield process, announced["url"]
