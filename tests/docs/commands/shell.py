"""The shell commands of the pages, and a shell in which they are run."""

import contextlib
import json
import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner

from rota.cli.main import cli
from tests.cli.processes import Running, environment
from tests.docs.pages import blocks

SECONDS = 90
LOOK_S = 0.1  # between two looks at what is awaited
SHELLS = ("bash", "sh", "console")
BIN = Path(sys.executable).parent


class Command(NamedTuple):
    """One command of a page, as it stands there."""

    text: str
    line: int


def commands(page: Path) -> Iterator[Command]:
    """Every command of the shell blocks of a page, also those that take several lines."""
    for block in blocks(page, *SHELLS):
        text, line = "", block.line + 1
        for number, part in enumerate(block.text.splitlines(), start=block.line + 1):
            line = line if text else number
            text = f"{text}\n{part}" if text else part
            if _is_whole(text):
                if text.strip() and not text.lstrip().startswith("#"):
                    yield Command(text, line)
                text = ""
        assert not text, f"{page.name}, line {line}: a quote is not closed"


def _is_whole(text: str) -> bool:
    if text.endswith("\\"):
        return False
    try:
        shlex.split(text)
    except ValueError:
        return False
    return True


def run_script(
    text: str, folder: Path, variables: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run commands with the `rota` and `python` of this environment."""
    found = _environment(folder, variables or {})
    # The text is in a file: as an argument of the shell, `pgrep -f` would find it there.
    script = folder / ".bin" / "commands.sh"
    script.write_text(text, encoding="utf-8")
    return subprocess.run(
        ["bash", "-euo", "pipefail", script],
        cwd=folder,
        env=found,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def _environment(folder: Path, variables: Mapping[str, str]) -> dict[str, str]:
    found = environment(**variables)
    return {**found, "PATH": f"{_wrappers(folder)}:{BIN}:{found['PATH']}", "COLUMNS": "200"}


# Programs that are run with options of this test, by their names.
WRAPPED = {
    "curl": "--silent --fail-with-body",  # fails when the coordinator refuses the request
    "pgrep": f"--parent {os.getpid()}",  # other tests may run a worker of the same name
}


# The pages use `sudo` to become the user of the coordinator; the test stays its own user.
SUDO = """#!/bin/sh
test "$1" = --user=rota && shift && exec "$@"
"""


def _wrappers(folder: Path) -> Path:
    """A folder with the programs of `WRAPPED`."""
    place = folder / ".bin"
    if not place.is_dir():
        place.mkdir()
        for name, options in WRAPPED.items():
            if program := shutil.which(name):
                script = place / name
                script.write_text(f'#!/bin/sh\nexec {program} {options} "$@"\n')
                script.chmod(0o755)
        (place / "sudo").write_text(SUDO, encoding="utf-8")
        (place / "sudo").chmod(0o755)
    return place


def until(is_so: Callable[[], object]) -> None:
    """Look until something is so; fails when it is not so for a minute and a half."""
    deadline = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < deadline, "it never came to be"
        threading.Event().wait(LOOK_S)


# Commands of `rota` that speak with a coordinator and end: they run in this process, unless they
# use more of the shell than words and quotes.
QUICK = (
    "tasks|queues|limits|runs|workflows|schedules|workers|services|memory|locks|events|webhooks|"
    "token|submit|validate|health"
)
_IS_QUICK = re.compile(rf"rota ({QUICK}) [^|<>;&$`\n\\]+")


class Terminal:
    """A terminal in which commands of a page run one after the other."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self.folder = folder
        self.variables = variables

    def run(self, text: str) -> str:
        """Run a command to its end; it must succeed. Returns what it printed."""
        if _IS_QUICK.fullmatch(text):
            return self._run_here(text)
        ended = run_script(text, self.folder, self.variables)
        assert ended.returncode == 0, f"$ {text}\n{ended.stdout}{ended.stderr}"
        return ended.stdout

    def _run_here(self, text: str) -> str:
        """Run a command of `rota` without a process of its own, which takes most of its time."""
        found = _environment(self.folder, self.variables)
        without = {name: None for name in os.environ if name not in found}
        with contextlib.chdir(self.folder):
            words = shlex.split(text, comments=True)[1:]
            ended = CliRunner().invoke(cli, words, env={**without, **found}, prog_name="rota")
        assert ended.exit_code == 0, f"$ {text}\n{ended.output}"
        return ended.stdout

    def json(self, text: str) -> Any:
        return json.loads(self.run(text))

    def assign(self, text: str) -> bool:
        """Take over `NAME=value` and `export NAME=value …`; whether it was one of them."""
        words = shlex.split(text)
        words = words[1:] if words[0] == "export" else words
        if not all("=" in word and word.partition("=")[0].isidentifier() for word in words):
            return False
        self.variables |= dict(word.split("=", 1) for word in words)
        return True

    def start(self, text: str) -> Running:
        """Start a command that runs until it is ended."""
        variables = _environment(self.folder, self.variables)
        words = shlex.split(text, comments=True)
        while "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            variables[name] = value
        if (BIN / words[0]).exists():  # the program is looked up in the path of this process
            words[0] = str(BIN / words[0])
        return Running(folder=self.folder, program=words, **variables)

    def type(self, text: str, typed: str) -> str:
        """Run a command at a terminal, and type this into it; returns what it showed."""
        keyboard, screen = pty.openpty()
        os.write(keyboard, typed.encode())
        words = shlex.split(text, comments=True)
        found = _environment(self.folder, self.variables)
        with subprocess.Popen(
            [str(BIN / words[0]), *words[1:]],
            cwd=self.folder,
            env=found,
            stdin=screen,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            shown, _ = process.communicate(timeout=SECONDS)
        os.close(keyboard)
        os.close(screen)
        assert process.returncode == 0, f"$ {text}\n{shown}"
        return shown

    def show_life(self, text: str, sign: str) -> None:
        """Start a command, wait until it says something, and end it with Ctrl-C."""
        process = self.start(text)
        try:
            process.wait_for(sign)
            process.signal(signal.SIGINT)
            code = process.ends()
        finally:
            process.stop()
        assert code in {0, 130, -signal.SIGINT}, f"$ {text}\n{process.output}"
