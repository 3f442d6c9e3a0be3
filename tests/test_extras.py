"""Each extra alone: what it installs is enough for its integration, and the others are not needed.

The environment of the tests has every extra. Here a program sees the packages of one of them only:
those that its requirements name, and what these require in turn.
"""

import os
import subprocess
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.docs.pages import ROOT, blocks
from tests.test_dependencies import EXTRAS, PROJECT

pytestmark = pytest.mark.slow

HOW_TO = ROOT / "docs" / "how-to"
EXAMPLES = ROOT / "examples"
SECONDS = 100
AWAY = "postgresql://rota@127.0.0.1:1/work"
COMMAND = """
import sys
from rota.cli.main import main
sys.argv[1:] = {words!r}
main()
"""


def page(name: str) -> str:
    return blocks(HOW_TO / name, "python")[0].text


def command(*words: str) -> str:
    return COMMAND.format(words=list(words))


# What each extra is for: a program that needs all of it, and what it prints.
PROGRAMS = {
    "postgres": (command("migrate", "--sql", "--store", AWAY), "CREATE TABLE task"),
    "mcp": (
        """
import rota.contrib.mcp.server as server
from rota import Client
with Client.connect("http://127.0.0.1:1") as client:
    print(type(server.build_server(client, may_act=False)).__name__)
""",
        "MCPServer",
    ),
    "otel": (
        """
from rota import Rota
from rota.contrib.otel import RotaInstrumentor
app = Rota()
RotaInstrumentor().instrument(app)
print(app.middleware is not None)
""",
        "True",
    ),
    "sentry": (page("report-errors-to-sentry.md"), ""),
    "pydantic-ai": ((EXAMPLES / "agent.py").read_text("utf-8"), "one teapot"),
    "django": (
        """
import os, sys
sys.path.insert(0, os.environ["SHOP"])
os.environ["DJANGO_SETTINGS_MODULE"] = "shop.settings"
import django
django.setup()
from django.core.management import call_command
call_command("check", fail_level="WARNING")
call_command("makemigrations", check_changes=True, dry_run=True)
call_command("rota_worker", "--help")
""",
        "--concurrency",
    ),
    "fastapi": ((EXAMPLES / "fastapi_app.py").read_text("utf-8") + "print(app.routes)", "greet"),
}
# What the error says if the extra is not installed. The others name the library that is missing.
WITHOUT = {
    "postgres": [
        command("up", "--store", AWAY),
        command("migrate", "--sql", "--store", AWAY),
        command("token", "ls", "--store", AWAY),
        command("copy", "--from", AWAY, "--to", "sqlite:///copy.db"),
    ],
    "mcp": [command("mcp")],
}


def closure(requirements: list[str]) -> dict[str, Distribution]:
    """What pip would install for the requirements, as far as it is in this environment."""
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    left = [(Requirement(one), "") for one in requirements]
    while left:
        wanted, extra = left.pop()
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(wanted.name)
        found[name] = distribution(name)
        for one in {"", *wanted.extras}:
            if (name, one) not in seen:
                seen.add((name, one))
                left += [(Requirement(text), one) for text in found[name].requires or ()]
    return found


def packages_of(extra: str | None, folder: Path) -> Path:
    """Make a folder with what Rota and one extra install, and with nothing else."""
    requirements = [*PROJECT["dependencies"], *EXTRAS.get(extra or "", ())]
    packages = folder / "packages"
    try:
        found = closure(requirements)
    except PackageNotFoundError as error:
        pytest.skip(f"the extra `{extra}` is not installed here: {error}")
    for one in found.values():
        link(one, packages)
    (packages / "rota").symlink_to(ROOT / "src" / "rota")
    return packages


def link(package: Distribution, folder: Path) -> None:
    """Link each file for itself: packages may share a folder, as those of OpenTelemetry do."""
    for file in package.files or ():
        target = folder / file
        if ".." not in file.parts and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(str(package.locate_file(file)))


def run(program: str, packages: Path, folder: Path) -> "subprocess.CompletedProcess[str]":
    (folder / "program.py").write_text(program, encoding="utf-8")
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "ROTA_", "COV", "DJANGO", "SENTRY", "OTEL"))
    }
    own = {
        "PYTHONPATH": str(packages),
        "SHOP": str(EXAMPLES / "django_shop"),
        "SHOP_DATABASE": str(folder / "shop.sqlite3"),
    }
    return subprocess.run(
        [sys.executable, "-S", "program.py"],
        cwd=folder,
        env={**clean, **own},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def test_every_extra_has_a_program_here() -> None:
    assert set(PROGRAMS) == set(EXTRAS)


@pytest.mark.parametrize("extra", PROGRAMS)
def test_an_extra_needs_no_other(extra: str, tmp_path: Path) -> None:
    program, printed = PROGRAMS[extra]

    ended = run(program, packages_of(extra, tmp_path), tmp_path)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert printed in ended.stdout


def test_what_needs_an_extra_names_it(tmp_path: Path) -> None:
    packages = packages_of(None, tmp_path)

    for extra, programs in WITHOUT.items():
        for program in programs:
            ended = run(program, packages, tmp_path)

            assert ended.returncode != 0
            assert f"rota[{extra}]" in ended.stderr
            assert "Traceback" not in ended.stderr
