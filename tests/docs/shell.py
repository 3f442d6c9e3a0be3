"""The shell commands of the pages, and a shell in which they are run."""

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.cli.processes import Running, environment
from tests.docs.pages import blocks

SECONDS = 90
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
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=folder,
        env=_environment(folder, variables or {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def _environment(folder: Path, variables: Mapping[str, str]) -> dict[str, str]:
    found = environment(**variables)
    return {**found, "PATH": f"{_strict_curl(folder)}:{BIN}:{found['PATH']}", "COLUMNS": "200"}


def _strict_curl(folder: Path) -> Path:
    """A folder with a `curl` that fails when the coordinator refuses the request."""
    place = folder / ".bin"
    if not place.is_dir():
        place.mkdir()
        script = place / "curl"
        script.write_text('#!/bin/sh\nexec /usr/bin/curl --fail-with-body "$@"\n')
        script.chmod(0o755)
    return place


class Terminal:
    """A terminal in which commands of a page run one after the other."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self.folder = folder
        self.variables = variables

    def run(self, text: str) -> str:
        """Run a command to its end; it must succeed. Returns what it printed."""
        ended = run_script(text, self.folder, self.variables)
        assert ended.returncode == 0, f"$ {text}\n{ended.stdout}{ended.stderr}"
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
        if words[0] == "rota":
            return Running(*words[1:], folder=self.folder, **variables)
        if words[0] == "python":
            words[0] = sys.executable
        return Running(folder=self.folder, program=words, **variables)

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
