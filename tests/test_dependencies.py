"""What is installed is what was tested: every version is bounded, pinned and has its hashes."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "scripts" / "lock.py"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = {name: one for name, one in PROJECT["optional-dependencies"].items() if name != "dev"}
AT_RUN_TIME = [*PROJECT["dependencies"], *(one for extra in EXTRAS.values() for one in extra)]


@pytest.mark.parametrize("requirement", AT_RUN_TIME)
def test_every_dependency_at_run_time_has_an_upper_bound(requirement: str) -> None:
    assert re.search(r",<\d", requirement.partition(";")[0])


def test_the_lock_has_hashes_for_every_version_of_the_constraints() -> None:
    done = subprocess.run(
        [sys.executable, LOCK, "--check"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
