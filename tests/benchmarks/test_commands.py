"""The benchmark commands of the pages run, in small sizes."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.turns import ROWS
from tests.docs.commands.finding import commands_for
from tests.docs.commands.making import recipe, run_in_checkout
from tests.docs.pages import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

COMMANDS = commands_for("tests/benchmarks/test_commands.py")
TURNS = [one for one in COMMANDS if "benchmarks.turns" in one]
COSTS = ".venv/bin/python -m benchmarks.path_costs --before ../before"
FORWARDING = ".venv/bin/python -m benchmarks.scaling.forward_costs --before ../before"
WORKTREE = "git worktree add ../before <commit> && make -C ../before setup"
# The other checkout gets the environment of this one: a new one would be installed.
MAKE = 'make() { ln -s "$VENV" "$2/.venv"; command make --assume-old=.venv/.ready "$@"; }'

InCheckouts = Callable[[str], str]


@pytest.fixture(scope="module")
def in_checkouts(tmp_path_factory: pytest.TempPathFactory) -> InCheckouts:
    """Runs a command in a clone of this checkout, beside which is the one of the page."""
    folder = tmp_path_factory.mktemp("checkouts") / "now"
    run_in_checkout(f"git clone --quiet --shared . {folder}; ln -s {sys.prefix} {folder}/.venv")

    def run(command: str) -> str:
        return run_in_checkout(f"cd {folder}; {MAKE}; {command}", VENV=sys.prefix)

    run(WORKTREE.replace("<commit>", "HEAD"))
    return run


def test_every_command_is_named_below() -> None:
    names = ("benchmarks", "benchmarks.path_costs", "benchmarks.scaling.forward_costs")
    bare = {f"python -m {name}" for name in names}  # in sentences

    assert set(COMMANDS) == {WORKTREE, COSTS, FORWARDING, *TURNS, *bare}
    assert recipe("make bench") == [["python", "-m", "benchmarks"]]


@pytest.mark.parametrize("command", TURNS)
def test_two_checkouts_are_measured_in_turns(command: str, in_checkouts: InCheckouts) -> None:
    """One row stands for those that the command names: each starts its own coordinators."""
    asked = re.search(r"--rows (\S+)", command)
    assert set(asked[1].split(",") if asked else ROWS) <= set(ROWS)

    printed = in_checkouts(f"{command} --rows submit-one --turns 2 --size 10")

    assert printed.startswith("submit-one: 2 turns of 10\n")


def test_the_costs_of_two_checkouts_are_compared(in_checkouts: InCheckouts) -> None:
    printed = in_checkouts(f"{COSTS} --turns 2")

    assert {"submit", "pickup", "poll", "report"} <= set(re.findall(r"^\w+", printed, re.MULTILINE))


def test_the_costs_of_forwarding_in_two_checkouts_are_compared(in_checkouts: InCheckouts) -> None:
    printed = in_checkouts(f"{FORWARDING} --turns 2 --sizes 1,2")

    assert re.findall(r"^\w+", printed, re.MULTILINE) == ["submit", "drain"]


def test_make_bench_measures_and_writes_its_figures(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    page = (ROOT / "docs" / "explanation" / "performance.md").read_text(encoding="utf-8")
    assert '`make bench BENCH="--no-peers --only submit-one"`' in page

    run_in_checkout(f'make bench BENCH="--no-peers --only submit-one --quick --json {file}"')

    assert json.loads(file.read_text())["rota"]["submit-one"]["per_s"] > 0
