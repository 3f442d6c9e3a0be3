"""The TypeScript client: its own tests against a real coordinator, and its generated types."""

import importlib.util
import json
import shutil
import signal
import tomllib
import urllib.request
from pathlib import Path
from types import ModuleType

import pytest

from rota import Rota
from tests.cli.processes import coordinator
from tests.clients import node
from tests.clients.node import PACKAGE, Node
from tests.docs.commands.finding import commands_for

pytestmark = pytest.mark.timeout(300)  # the first of them installs packages

ROOT = Path(__file__).parents[2]
HOW_TO = ROOT / "docs" / "how-to" / "use-from-typescript.md"
NODES = node.find_nodes()


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("typescript", ROOT / "scripts" / "typescript.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("using", NODES, ids=lambda one: one.name)
def test_the_tests_of_the_package_pass_against_a_coordinator(using: Node, tmp_path: Path) -> None:
    node.build(using)
    sources = sorted((PACKAGE / "test").glob("*.test.ts"))
    files = [str(PACKAGE / "build" / "test" / f"{one.stem}.js") for one in sources]

    with coordinator(tmp_path) as (_, url):
        done = node.run(using, "--test", *files, variables={"ROTA_TEST_URL": url})

    assert files
    assert done.returncode == 0, done.stdout


def test_the_tests_find_a_node() -> None:
    assert NODES


@pytest.mark.slow
def test_the_types_are_those_of_the_served_document(tmp_path: Path) -> None:
    with (
        coordinator(tmp_path) as (_, url),
        urllib.request.urlopen(f"{url}/openapi.json", timeout=30) as answer,
    ):
        document = json.load(answer)

    text = (PACKAGE / "src" / "api.ts").read_text(encoding="utf-8")
    assert generator().types_of(document) == text, "run make docs"


def test_the_lock_has_hashes_and_no_addresses() -> None:
    text = (PACKAGE / "package-lock.json").read_text(encoding="utf-8")

    assert "http" not in text
    packages = json.loads(text)["packages"]
    assert all("integrity" in one for name, one in packages.items() if name)


def test_the_package_has_the_version_of_the_project_and_depends_on_ws_alone() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert node.manifest()["version"] == project["version"]
    assert node.manifest()["license"] == project["license"]
    assert list(json.loads(json.dumps(node.manifest()["dependencies"]))) == ["ws"]


@pytest.mark.slow
def test_the_programs_of_the_pages_compile_and_run(tmp_path: Path) -> None:
    using = NODES[0]
    programs = node.build_pages(using, [HOW_TO, PACKAGE / "README.md"])

    with coordinator(tmp_path) as (_, url):
        variables = {"ROTA_URL": url}
        with node.started(using, str(programs / "worker.js"), variables=variables) as worker:
            submitted = node.run(using, str(programs / "submit.js"), variables=variables)
            worker.send_signal(signal.SIGTERM)
            left = worker.wait(node.RUN_S)
        alone = node.run(using, str(programs / "example.js"), variables=variables)
        paused = node.run(using, str(programs / "pause.js"), variables=variables)

    assert submitted.stdout == "resized: 2001 bytes\n"
    assert left == 0
    assert "hello world\n" in alone.stdout
    assert "default" in paused.stdout


ORDER = """
name: order
initial_node: paid
nodes:
  paid:
    wait_for: {event: paid}
    output: {output.total: result.amount}
output: {total: output.total}
"""


@pytest.mark.slow
def test_the_commands_of_the_page_install_the_package_into_a_new_project(tmp_path: Path) -> None:
    using = NODES[0]
    commands = commands_for("tests/clients/test_typescript.py")
    made = shutil.ignore_patterns("node_modules", "build", "dist")
    shutil.copytree(PACKAGE, tmp_path / "clients" / "typescript", ignore=made)
    (tmp_path / "package.json").write_text("{}", encoding="utf-8")
    for command in commands:
        node.run_npm(using, command, folder=tmp_path)
    installed = tmp_path / "node_modules" / "@rota" / "client"
    names = node.write_programs([HOW_TO], tmp_path)
    node.build(using)
    node.compile_alone(using, [tmp_path / name for name in names])

    with coordinator(tmp_path) as (_, url), Rota(url) as app:
        app.workflow(ORDER).deploy()
        ran = node.run(using, str(tmp_path / "run.js"), variables={"ROTA_URL": url})

    assert len(commands) == 4
    assert not installed.is_symlink()
    assert {path.name for path in installed.iterdir()} == {
        *("dist", "src", "package.json", "README.md")
    }
    assert ran.stdout == "120\n"
