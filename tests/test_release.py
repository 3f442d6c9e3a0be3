"""The wheel and the source distribution: built, complete, installed alone, and run.

Each supported version of Python that this machine has runs the wheel in a clean environment, with
nothing but what the wheel asks for.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.docs.commands.finding import commands_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
VERSION = PROJECT["version"]
PYTHONS = ("3.11", "3.12", "3.13")
LIMIT_S = 300
APP = """\
from rota import Rota

app = Rota("sqlite:///shop.db")


@app.task
def add(a: int, b: int) -> int:
    return a + b


@app.workflow
async def twice(ctx, number: int) -> int:
    half = await ctx.step(add.function, number, 0)
    return await ctx.call(add, half, half)


if __name__ == "__main__":
    print(add.enqueue(2, 3).result(timeout=60), twice.start(4).result(timeout=60))
    app.close()
"""


class Release(NamedTuple):
    wheel: Path
    sdist: Path


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """Both files, built from a copy of what the repository has, the wheel from the other one."""
    folder = tmp_path_factory.mktemp("release")
    listed = run("git", "ls-files", "-z", folder=ROOT).split("\0")
    for name in filter(None, listed):
        if (ROOT / name).is_file():
            target = folder / "source" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)
    # The build backend is locked with everything else; nothing is fetched for the build.
    outside = ("--outdir", str(folder / "dist"))
    run(sys.executable, *BUILD, *outside, folder=folder / "source")
    (wheel,) = (folder / "dist").glob("*.whl")
    (sdist,) = (folder / "dist").glob("*.tar.gz")
    return Release(wheel, sdist)


def run(*command: str, folder: Path) -> str:
    # No path of this environment leads into the one under test.
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "ROTA_", "VIRTUAL_ENV", "COV"))
    }
    done = subprocess.run(
        command,
        cwd=folder,
        env=clean,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def test_the_files_have_the_name_and_version_of_the_project(release: Release) -> None:
    assert release.wheel.name == f"rota-{VERSION}-py3-none-any.whl"
    assert release.sdist.name == f"rota-{VERSION}.tar.gz"


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(release: Release) -> None:
    tracked = run("git", "ls-files", "-z", "src/rota", folder=ROOT).split("\0")
    expected = {name.removeprefix("src/") for name in tracked if name and (ROOT / name).is_file()}
    with zipfile.ZipFile(release.wheel) as wheel:
        files = {name for name in wheel.namelist() if not name.endswith("/")}

    assert {name for name in files if ".dist-info/" not in name} == expected


def test_the_source_distribution_has_what_a_packager_needs(release: Release) -> None:
    with tarfile.open(release.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    wanted = {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "src/rota/__init__.py"}
    assert wanted <= names
    assert any(name.startswith("tests/") for name in names)


def test_the_changelog_has_an_entry_for_the_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")

    assert re.search(rf"^## {re.escape(VERSION)} \(", text, re.MULTILINE)


def test_the_classifiers_name_the_tested_versions_of_python() -> None:
    prefix = "Programming Language :: Python :: 3."
    named = {f"3.{one.removeprefix(prefix)}" for one in PROJECT["classifiers"] if prefix in one}

    assert named == set(PYTHONS)


@pytest.mark.parametrize("version", PYTHONS)
def test_the_wheel_alone_installs_and_runs(release: Release, version: str, tmp_path: Path) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no interpreter of Python {version} on this machine")
    environment = tmp_path / "environment"
    # The pip of this environment installs into that one: to install pip there, and to compile what
    # is never imported, takes longer than everything else here.
    run(python, "-m", "venv", "--without-pip", str(environment), folder=tmp_path)
    command = str(environment / "bin" / "python")
    pip = (sys.executable, "-m", "pip", "--python", command, "--quiet")
    pinned = ("--no-compile", "--constraint", str(ROOT / "constraints.txt"))
    run(*pip, "install", *pinned, str(release.wheel), folder=tmp_path)
    (tmp_path / "shop.py").write_text(APP, encoding="utf-8")

    ended = run(command, "shop.py", folder=tmp_path)
    said = json.loads(
        run(str(environment / "bin" / "rota"), "--version", "--json", folder=tmp_path)
    )

    assert ended.split() == ["5", "8"]
    assert said["rota"] == VERSION
    assert said["python"].startswith(version)
    assert said["packages"]["psycopg"] is None
    run(*pip, "check", folder=tmp_path)


# --- the commands of the pages ------------------------------------------------------------------

COMMANDS = commands_for("tests/test_release.py")
BUILD = ("-m", "build", "--no-isolation")
UNLOCKED = {"opentelemetry-exporter-otlp"}  # requirements.lock does not have it


def test_the_release_is_built_as_the_page_says() -> None:
    installing = {one for one in COMMANDS if one.startswith("pip install ")}

    assert set(COMMANDS) - installing == {f".venv/bin/python {' '.join(BUILD)}"}


def test_every_extra_is_installed_as_the_pages_say(release: Release, tmp_path: Path) -> None:
    """No index is asked: what `rota` needs is in this environment, and is found from the new one.

    pip resolves the extra, so an extra that the wheel lacks or that needs what is not here fails.
    """
    environment = tmp_path / "environment"
    packages = tmp_path / "packages"
    packages.mkdir()
    for place in Path(sysconfig.get_path("purelib")).iterdir():
        if not place.name.startswith(("rota", "_rota", "__editable__", "__pycache__")):
            (packages / place.name).symlink_to(place)
    run(sys.executable, "-m", "venv", "--without-pip", str(environment), folder=tmp_path)
    (site,) = environment.glob("lib/*/site-packages")
    (site / "packages.pth").write_text(f"{packages}\n")
    command = str(environment / "bin" / "python")
    offline = ("--no-compile", "--no-index", "--find-links", str(release.wheel.parent))
    pip = (sys.executable, "-m", "pip", "--python", command, "--disable-pip-version-check")

    for text in COMMANDS:
        words = shlex.split(text)
        if words[:2] == ["pip", "install"]:
            wanted = [word for word in words[2:] if word not in UNLOCKED]
            source = ("--no-build-isolation",) if wanted == ["."] else ()
            printed = run(
                *(*pip, "install", *offline, *source, *wanted),
                folder=release.wheel.parents[1] / "source",
            )
            assert f"Successfully installed rota-{VERSION}" in printed, printed
            assert "does not provide the extra" not in printed
            said = run(command, "-c", "import rota; print(rota.__file__)", folder=tmp_path)
            assert said.strip() == str(site / "rota" / "__init__.py")
            for place in site.glob("rota*"):  # the next one finds none
                shutil.rmtree(place)


def interpreter(version: str) -> str | None:
    """A Python of that version that runs, if there is one."""
    for candidate in candidates(version):
        probe = [candidate, "-c", "import sys, venv; print('%d.%d' % sys.version_info[:2])"]
        done = subprocess.run(probe, capture_output=True, text=True, check=False, timeout=LIMIT_S)
        if done.returncode == 0 and done.stdout.strip() == version:
            return candidate
    return None


def candidates(version: str) -> Iterator[str]:
    """Where interpreters are: this one, the path, and the versions that pyenv has installed."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        yield sys.executable
    if on_path := shutil.which(f"python{version}"):
        yield on_path
    for path in sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python")):
        yield str(path)
