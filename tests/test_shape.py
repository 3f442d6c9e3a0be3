"""Does the tree still have the shape that ARCHITECTURE.md promises?"""

import ast
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, get_args, get_origin, get_type_hints

import pytest
from msgspec import Meta

from rota.core import decide
from rota.core.decisions import Decision
from rota.core.events import Event
from rota.engine.apply import ORDER
from rota.settings import Settings
from rota.store.database import load_queries

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "rota"
MODULES = sorted(SOURCE.rglob("*.py"))
# A simulation sleeps in virtual time, which takes none.
TESTS = sorted(path for path in (ROOT / "tests").rglob("*.py") if path.parent.name != "simulation")
MOST_LINES = 400
FORBIDDEN_IN_CORE = {
    "apsw",
    "asyncio",
    "datetime",
    "logging",
    "os",
    "random",
    "secrets",
    "socket",
    "sqlite3",
    "structlog",
    "threading",
    "time",
    "uuid",
}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


# --- closed unions ------------------------------------------------------------------------------


def test_every_decision_has_its_writer_in_the_order_of_the_union() -> None:
    assert [kind for kind, _ in ORDER] == list(get_args(Decision))


def test_every_event_is_decided() -> None:
    tree = tree_of(Path(decide.__file__))
    decided = {
        node.cls.id
        for node in ast.walk(tree)
        if isinstance(node, ast.MatchClass) and isinstance(node.cls, ast.Name)
    }

    assert decided == {kind.__name__ for kind in get_args(Event)}


@pytest.mark.parametrize("kind", [*get_args(Decision), *get_args(Event)], ids=lambda k: k.__name__)
def test_events_and_decisions_are_values(kind: type) -> None:
    config = kind.__struct_config__  # type: ignore[attr-defined]  # every msgspec struct has it

    assert config.frozen
    assert config.tag == kind.__name__


# --- settings -----------------------------------------------------------------------------------


@pytest.mark.parametrize("field", Settings.__struct_fields__)
def test_every_setting_is_described(field: str) -> None:
    hint = get_type_hints(Settings, include_extras=True)[field]

    assert get_origin(hint) is Annotated
    descriptions = [one.description for one in get_args(hint) if isinstance(one, Meta)]
    assert any(text and text.endswith(".") for text in descriptions)


# --- files --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_no_module_is_too_long_to_read(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MOST_LINES


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_every_module_says_what_it_is_about(path: Path) -> None:
    tree = tree_of(path)

    assert not tree.body or ast.get_docstring(tree)


def imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


@pytest.mark.parametrize("path", sorted((SOURCE / "core").rglob("*.py")), ids=name_of)
def test_the_core_knows_nothing_of_the_world(path: Path) -> None:
    imported = set(imports_of(path))

    assert {name.split(".")[0] for name in imported} & FORBIDDEN_IN_CORE == set()
    ours = {name for name in imported if name.startswith("rota")}
    assert all(name.startswith(("rota.core", "rota.errors")) for name in ours)


def tracked_files() -> list[Path]:
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    listed = subprocess.run(
        [git, "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout
    paths = [ROOT / name for name in listed.decode().split("\0") if name]
    return [path for path in paths if path.is_file()]


def test_no_file_names_the_place_packages_come_from() -> None:
    # In pieces, so that this file does not name one itself.
    places = [
        "py" + r"pi\.(org|python)",
        "python" + "hosted",
        "npm" + r"js\.",
        "(extra-)?index" + "[-_]url",
        r"https?://\S+/sim" + r"ple\b",
        "trusted" + "-host",
    ]
    pattern = re.compile("|".join(places), re.IGNORECASE)
    found = []
    for path in tracked_files():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        found += [f"{name_of(path)}: {match.group()}" for match in pattern.finditer(text)]

    assert found == []


# --- queries ------------------------------------------------------------------------------------

QUERIES = load_queries() | load_queries("postgres")
FILES = "|".join(sorted({name.split(".")[0] for name in QUERIES}))


def asked_for() -> tuple[set[str], list[re.Pattern[str]]]:
    """Names of queries in the store: those written out, and those put together."""
    names: set[str] = set()
    patterns: list[re.Pattern[str]] = []
    for path in sorted((SOURCE / "store").glob("*.py")):
        nodes = list(ast.walk(tree_of(path)))
        joined = [node for node in nodes if isinstance(node, ast.JoinedStr)]
        pieces = {piece for node in joined for piece in node.values}
        patterns += [
            re.compile("".join(map(pattern_of, node.values)))
            for node in joined
            if re.match(rf"({FILES})\\\.", pattern_of(node.values[0]))
        ]
        texts = [
            node.value
            for node in nodes
            if isinstance(node, ast.Constant) and node not in pieces and isinstance(node.value, str)
        ]
        names |= {text for text in texts if re.fullmatch(rf"({FILES})\.\w+", text)}
    return names, patterns


def pattern_of(piece: ast.expr) -> str:
    """What a piece of a formatted text may stand for."""
    return re.escape(str(piece.value)) if isinstance(piece, ast.Constant) else r"\w+"


def test_every_query_asked_for_exists() -> None:
    names, patterns = asked_for()

    assert names - QUERIES.keys() == set()
    for pattern in patterns:
        assert any(pattern.fullmatch(name) for name in QUERIES), pattern


def test_every_query_is_asked_for() -> None:
    names, patterns = asked_for()

    unused = {
        name
        for name in QUERIES.keys() - names
        if not any(pattern.fullmatch(name) for pattern in patterns)
    }
    assert unused == set()


# --- tests --------------------------------------------------------------------------------------


def sleeps_in(path: Path) -> Iterator[int]:
    """The lines of a test that wait for so long instead of for something."""
    for node in ast.walk(tree_of(path)):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", None)
        length = node.args[0]
        if name == "sleep" and isinstance(length, ast.Constant) and length.value != 0:
            yield node.lineno


@pytest.mark.parametrize("path", TESTS, ids=name_of)
def test_no_test_sleeps_to_wait(path: Path) -> None:
    assert list(sleeps_in(path)) == []
