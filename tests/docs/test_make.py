"""The commands of the pages for a checkout: `make …`, the scripts, and the tests in small sizes.

A command that is too long for a test, or that would write into this checkout, is compared by its
text, or by the recipe that `make --dry-run` prints, with what another test runs. Two commands are
not run by any test: `make check`, which `.ci/run` runs beside the tests, and a `make audit` that
reaches its service.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks.__main__ import _selected
from benchmarks.__main__ import main as benchmarks
from tests import test_dependencies, test_up, test_walk
from tests.dashboard import test_pictures
from tests.docs import test_docs, test_site
from tests.docs.commands.finding import commands_for
from tests.docs.commands.making import recipe, run_in_checkout, run_make_in
from tests.docs.pages import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

COMMANDS = commands_for("tests/docs/test_make.py")
BENCHMARKS = [one for one in COMMANDS if one.startswith("make bench")]
PYTESTS = [one for one in COMMANDS if "-m pytest" in one]


# --- run as they stand, or smaller --------------------------------------------------------------


@pytest.mark.parametrize("command", ["make setup", "make setup LOCKED="])
def test_the_environment_is_ready(command: str) -> None:
    assert command in COMMANDS
    assert "Nothing to be done" in run_in_checkout(command)


def test_the_fuzzers_run() -> None:
    assert "make fuzz SEED=7" in COMMANDS
    printed = run_in_checkout('make fuzz SEED=7 FUZZ="--shots 4"')

    assert printed.startswith("seed 7\n")
    assert "0 findings" in printed
    assert recipe("make fuzz") == [["python", "-m", "tests.fuzz"]]


def test_the_audit_says_that_it_audited_nothing_when_it_cannot_be_installed(
    tmp_path: Path,
) -> None:
    assert "make audit" in COMMANDS
    printed = run_in_checkout(f"make audit AUDIT={tmp_path}/audit PYTHON=false", code=2)

    assert "nothing was audited" in printed


# Where a command of the page names many tests, one file of them stands for all.
SMALLER = (
    ("tests/core", "tests/core/test_ids.py"),
    ("tests/engine", "tests/engine/test_limits.py"),
    ("-n auto -m 'not slow'", "-n 0 -m 'not slow' tests/core/test_ids.py"),
)


@pytest.mark.parametrize("command", [one for one in PYTESTS if "simulation" not in one])
def test_the_tests_are_run_as_the_page_says(command: str) -> None:
    """The tests are found; they run in the same run as this test."""
    for written, smaller in SMALLER:
        command = command.replace(written, smaller)

    found = run_in_checkout(command, PYTEST_ADDOPTS="--collect-only -p no:schemathesis")

    assert re.search(r"\d+ tests? collected|\d+/\d+ tests collected|: \d+$", found, re.MULTILINE)


@pytest.mark.parametrize("command", [one for one in PYTESTS if "simulation" in one])
def test_the_simulations_read_the_variables_of_the_page(command: str) -> None:
    """`tests/simulation` runs these files in the same run as this test."""
    variable, file = re.findall(r"^(\w+)=\d+ .*?(tests/\S+\.py)", command)[0]

    assert f'"{variable}"' in (ROOT / file).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the files of the repository, for commands that write into a checkout."""
    folder = tmp_path_factory.mktemp("checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def test_make_docs_writes_the_generated_pages(copy: Path) -> None:
    assert "make docs" in COMMANDS
    written = ["docs/reference/cli.md", "clients/typescript/src/api.ts"]
    for name in written:
        (copy / name).unlink()

    run_make_in(copy, "make docs")

    for name in written:
        assert (copy / name).read_text() == (ROOT / name).read_text(), name


def test_make_format_and_wrap_put_files_into_shape(copy: Path) -> None:
    assert {"make format", "python scripts/wrap.py PAGE"} <= set(COMMANDS)
    (copy / "src" / "rota" / "crooked.py").write_text('"""Crooked."""\n\nx = [ 1,2 ]\n')
    (copy / "docs" / "long.md").write_text("word " * 40 + "\n")

    run_make_in(copy, "make format")
    run_in_checkout(f". .venv/bin/activate; cd {copy}; python scripts/wrap.py docs/long.md")

    assert "x = [1, 2]\n" in (copy / "src" / "rota" / "crooked.py").read_text()
    assert max(map(len, (copy / "docs" / "long.md").read_text().splitlines())) <= 100


# --- run by another test, and compared by their text --------------------------------------------


def _script(path: Path) -> list[list[str]]:
    return [["python", str(path.relative_to(ROOT))]]


def test_recipes_run_what_other_tests_run() -> None:
    browser = ["python", "scripts/browser.py"]

    assert recipe("make up") == _script(test_up.SCRIPT)
    assert recipe("make site") == _script(test_site.SCRIPT)
    assert recipe("make pictures") == [browser, *_script(test_pictures.SCRIPT)]


def test_scripts_are_those_that_other_tests_run() -> None:
    assert " ".join(_script(test_walk.SCRIPT)[0]) == "python scripts/walk.py"
    assert (
        f".venv/bin/{' '.join(_script(test_dependencies.LOCK)[0])}"
        == ".venv/bin/python scripts/lock.py"
    )


def test_what_must_pass_before_a_merge_is_make_check_and_make_test() -> None:
    """`make test` runs this test, and `make check` comes before it."""
    steps = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()

    assert [line for line in steps if line.startswith("make ")] == ["make check", "make test"]
    assert ["python", *test_docs.REFERENCE_CHECK] in recipe("make check")
    assert recipe("make test")[-1][:4] == ["python", "-m", "pytest", "-n"]


@pytest.mark.parametrize("command", BENCHMARKS)
def test_a_benchmark_of_the_page_selects_measurements(command: str) -> None:
    """`tests/benchmarks/test_commands.py` runs one of them."""
    ((program, *words),) = recipe(command)
    context = benchmarks.make_context("benchmarks", words[2:])
    options = {name: context.params[name] for name in ("only", "no_peers", "large")}

    assert [program, *words[:2]] == ["python", "-m", "benchmarks"]
    assert _selected(options.pop("only"), **options)


def test_every_command_is_named_in_a_test_above() -> None:
    named = {
        *("make setup", "make setup LOCKED=", "make fuzz", "make fuzz SEED=7", "make test"),
        *("make audit", "make docs", "make format", "make up", "make site", "make pictures"),
        *("make check", ".ci/run", "python scripts/walk.py", "python scripts/wrap.py PAGE"),
        ".venv/bin/python scripts/lock.py",
    }

    assert set(COMMANDS) == {*named, *BENCHMARKS, *PYTESTS}
