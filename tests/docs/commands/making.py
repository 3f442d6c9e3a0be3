"""The commands of the pages that are run in a checkout: `make …`, and what it is made of."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.processes import environment
from tests.docs.pages import ROOT

SECONDS = 200
STAMP = ".venv/.ready"
BIN = ".venv/bin/"


_OURS = re.compile("MAKE|PYTEST|COV")


def run_in_checkout(text: str, code: int = 0, **variables: str) -> str:
    """Run commands in this checkout, whose environment exists; returns what they printed.

    `make` installs nothing then. Where the tests run in another environment, or `make setup` would
    have to install something first, the test is skipped: `make test` is never in that state.
    """
    if Path(sys.prefix) != ROOT / ".venv":
        pytest.skip("the tests do not run in the environment that `make setup` makes")
    if _bash("make --question setup", ROOT).returncode:
        pytest.skip("`make setup` would install something")
    done = _bash(text, ROOT, **variables)
    assert done.returncode == code, f"$ {text}\n{done.stdout}"
    return done.stdout


def _bash(text: str, folder: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    # The options of a `make test` that runs this test are not for the `make` that it runs.
    # Nor is what pytest-xdist says to its workers for a pytest that it runs.
    kept = {name: value for name, value in environment().items() if not _OURS.search(name)}
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=folder,
        env={**kept, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def recipe(command: str) -> list[list[str]]:
    """The commands that a `make …` of a page runs, by `make --dry-run`, without `make setup`.

    Each is a list of words, and begins with the name of a program of the environment.
    """
    words = shlex.split(command, comments=True)
    assert words[0] == "make"
    asked = ["make", "--dry-run", "--no-print-directory", f"--assume-old={STAMP}", *words[1:]]
    done = _bash(shlex.join(asked), ROOT)
    assert done.returncode == 0, f"$ {command}\n{done.stdout}"
    lines = [shlex.split(line) for line in done.stdout.splitlines() if line.startswith(BIN)]
    return [[line[0].removeprefix(BIN), *line[1:]] for line in lines]


def run_make_in(copy: Path, command: str, **variables: str) -> str:
    """Run a `make …` in a copy of the checkout, with the environment of this one."""
    words = shlex.split(command, comments=True)
    asked = [words[0], f"--assume-old={sys.prefix}/.ready", f"VENV={sys.prefix}", *words[1:]]
    done = _bash(shlex.join(asked), copy, **variables)
    assert done.returncode == 0, f"$ {command}\n{done.stdout}"
    return done.stdout
