"""The shape of the tree: folders, imports, unions, docstrings, log events, queries, pages.

A limit has a dict of exceptions, each with its reason. A listed exception that no longer applies
fails its test: delete its line.
"""

import ast
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, get_args, get_origin, get_type_hints

import pytest
from msgspec import Meta

from rota.core import reducer
from rota.core.commands import TaskCommand
from rota.core.decisions import Decision
from rota.engine.commit.applier import ORDER
from rota.settings import Settings
from rota.store.database import load_queries

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "rota"
MODULES = sorted(SOURCE.rglob("*.py"))
# A simulation sleeps in virtual time, which takes none.
TESTS = sorted(path for path in (ROOT / "tests").rglob("*.py") if path.parent.name != "simulation")

# --- limits, and their exceptions with reasons --------------------------------------------------

MOST_MODULES = 15  # in one folder, beside its `__init__.py`
CROWDED_FOLDERS: dict[str, str] = {}
MOST_IMPORTS = 20  # of our own modules, by one module
WIDE_MODULES = {
    "rota": "the names that programs import",
    "rota.core.commands": "the union of the commands of every noun",
    "rota.engine.coordinator": "puts the parts of the engine together",
    "rota.engine.queries.queries": "lists the reads of every noun",
    "rota.gateways.http.endpoints": "lists every resource",
    "rota.node": "puts store, engine and gateways together",
    "rota.sdk.app.app": "the face of the SDK: tasks, groups, schedules, workflows, locks, values",
}
CYCLIC_MODULES: dict[str, str] = {}
FEWEST_LINES = 40  # of a module with a single importer
FRAGMENTS = {
    "rota.engine.policies": "the one place where settings become rules",
    "rota.messages.events": "the wire has a file for each noun",
}
# Modules that no other imports: entry points of a process, and commands that are loaded by name.
ENTRY_POINTS = {
    "rota.contrib.pydantic_ai": "what users of that library import",
    "rota.contrib.sentry": "what users of that library import",
    "rota.contrib.django.apps": "the app that Django loads",
    "rota.contrib.django.management.commands.rota_worker": "the command that Django loads",
    "rota.cli.main": "the command `rota`",
    "rota.sdk.worker.runners.process_child": "the child process that runs a handler",
    "rota.testing.plugin": "the pytest plugin",
    "rota.webhooks": "what receivers of signed requests import",
}
COMMANDS = "rota.cli.commands."  # loaded by name when they are called, so that `rota` starts fast
WIDEST_LINE = 100  # of a page, tables, pictures and code excepted
LONGEST_ARCHITECTURE = 250  # lines
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
# The times of schedules are dates in a calendar. The module asks no clock: `now` is an argument.
ALLOWED_IN_CORE = {"src/rota/core/schedules/times.py": {"datetime"}}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


# --- closed unions ------------------------------------------------------------------------------


def test_every_decision_has_its_writer_in_the_order_of_the_union() -> None:
    assert [kind for kind, _ in ORDER] == list(get_args(Decision))


def test_every_event_is_decided() -> None:
    tree = tree_of(Path(reducer.__file__))
    decided = {
        node.cls.id
        for node in ast.walk(tree)
        if isinstance(node, ast.MatchClass) and isinstance(node.cls, ast.Name)
    }

    assert decided == {kind.__name__ for kind in get_args(TaskCommand)}


@pytest.mark.parametrize(
    "kind", [*get_args(Decision), *get_args(TaskCommand)], ids=lambda k: k.__name__
)
def test_events_and_decisions_are_values(kind: type) -> None:
    config = kind.__struct_config__  # type: ignore[attr-defined]  # every msgspec struct has it

    assert config.frozen
    assert isinstance(config.tag, str)


def test_every_tag_is_written_out() -> None:
    """A tag that is taken from the class changes with it, and stored journals have the old one."""
    taken = [name_of(path) for path in MODULES if re.search(r"\btag=True\b", path.read_text())]

    assert taken == []


# --- settings -----------------------------------------------------------------------------------


@pytest.mark.parametrize("field", Settings.__struct_fields__)
def test_every_setting_is_described(field: str) -> None:
    hint = get_type_hints(Settings, include_extras=True)[field]

    assert get_origin(hint) is Annotated
    descriptions = [one.description for one in get_args(hint) if isinstance(one, Meta)]
    assert any(text and text.endswith(".") for text in descriptions)


# --- files --------------------------------------------------------------------------------------


def test_a_folder_has_at_most_fifteen_modules() -> None:
    counts = Counter(path.parent for path in MODULES if path.name != "__init__.py")
    crowded = {name_of(folder) for folder, count in counts.items() if count > MOST_MODULES}

    assert crowded == CROWDED_FOLDERS.keys()


def docstrings_of(path: Path) -> Iterator[str]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def test_a_docstring_states_and_does_not_ask() -> None:
    asking = [
        f"{name_of(path)}: {text}"
        for path in MODULES
        for text in docstrings_of(path)
        if re.search(r"\?(\s|$)", text.partition("\n")[0])
    ]

    assert asking == []


def test_a_module_of_the_dashboard_states_what_it_is() -> None:
    pages = SOURCE / "dashboard" / "static"
    firsts = {
        path: path.read_text().partition("\n")[0]
        for path in sorted([*pages.glob("*.js"), *pages.glob("pages/*.js")])
    }

    assert firsts
    assert [name_of(path) for path, first in firsts.items() if not first.startswith("// ")] == []
    assert [name_of(path) for path, first in firsts.items() if "?" in first] == []


LOG_METHODS = {"debug", "info", "warning", "error", "exception"}


def log_events_of(path: Path) -> Iterator[str]:
    for node in ast.walk(tree_of(path)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in LOG_METHODS
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "log"
        ):
            event = node.args[0]
            # A name of a parameter stands for an event that was written out by the caller.
            yield str(event.value) if isinstance(event, ast.Constant) else ast.unparse(event)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            # The event that a poller logs when a look fails.
            given = [one.value for one in node.keywords if one.arg == "failure"]
            if node.func.id == "Poller":
                yield from (str(one.value) for one in given if isinstance(one, ast.Constant))


def test_a_log_event_is_a_stable_name() -> None:
    odd = [
        f"{name_of(path)}: {event}"
        for path in MODULES
        for event in log_events_of(path)
        if not re.fullmatch(r"[a-z][a-z0-9_]*", event)
    ]

    assert odd == []


def test_every_module_says_what_it_is_about() -> None:
    trees = {name_of(path): tree_of(path) for path in MODULES}

    assert [name for name, tree in trees.items() if tree.body and not ast.get_docstring(tree)] == []


def test_a_class_name_exists_once() -> None:
    """Search and stack traces show a name without its module."""
    names = Counter(
        node.name
        for path in MODULES
        for node in tree_of(path).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )

    assert [name for name, count in names.items() if count > 1] == []


def imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


@cache
def import_graph() -> dict[str, set[str]]:
    """Every module with those of our own that it imports, also in functions and for types."""
    modules = {module_name(path): path for path in MODULES}
    graph: dict[str, set[str]] = {}
    for name, path in modules.items():
        imported: set[str] = set()
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
                imported |= {one if one in modules else node.module or "" for one in names}
        graph[name] = imported & modules.keys() - {name}
    return graph


@cache
def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def reachable_from(start: str) -> set[str]:
    """What a module imports, and what that imports, and so on; itself only over others."""
    graph, found, ahead = import_graph(), set[str](), [start]
    while ahead:
        for name in graph[ahead.pop()] - found:
            found.add(name)
            ahead.append(name)
    return found


def importers() -> dict[str, list[str]]:
    graph = import_graph()
    return {
        module_name(path): [name for name in graph if module_name(path) in graph[name]]
        for path in MODULES
        if path.name != "__init__.py"
    }


def test_a_module_imports_at_most_twenty_of_our_own() -> None:
    wide = {name for name, imported in import_graph().items() if len(imported) > MOST_IMPORTS}

    assert wide == WIDE_MODULES.keys()


def test_no_module_imports_itself_over_others() -> None:
    cyclic = {name for name in import_graph() if name in reachable_from(name)}

    assert cyclic == CYCLIC_MODULES.keys()


def test_a_small_module_has_several_importers() -> None:
    lines = {module_name(path): path.read_text().count("\n") for path in MODULES}
    fragments = {
        name
        for name, found in importers().items()
        if len(found) == 1 and lines[name] < FEWEST_LINES
    }

    assert fragments == FRAGMENTS.keys()


def test_a_module_without_importers_is_an_entry_point() -> None:
    unused = {name for name, found in importers().items() if not found}

    assert {name for name in unused if not name.startswith(COMMANDS)} == ENTRY_POINTS.keys()


@pytest.mark.parametrize("path", sorted((SOURCE / "core").rglob("*.py")), ids=name_of)
def test_the_core_knows_nothing_of_the_world(path: Path) -> None:
    imported = set(imports_of(path))

    forbidden = {name.split(".")[0] for name in imported} & FORBIDDEN_IN_CORE
    assert forbidden == ALLOWED_IN_CORE.get(name_of(path), set())
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


# --- pages --------------------------------------------------------------------------------------


def pages() -> list[Path]:
    return [
        path
        for path in tracked_files()
        if path.suffix == ".md" and not {"vendor", "old_stores"} & set(path.parts)
    ]


def lines_of_text(page: Path) -> Iterator[str]:
    """The lines of a page without its code blocks, tables and pictures."""
    is_code = False
    for line in page.read_text().splitlines():
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code and not line.lstrip().startswith(("|", "![")):
            yield line


def test_the_text_of_a_page_is_wrapped() -> None:
    """`python scripts/wrap.py PAGE` wraps it."""
    wide = [
        f"{name_of(page)}: {line}"
        for page in pages()
        for line in lines_of_text(page)
        if len(line) > WIDEST_LINE and " " in line.strip()
    ]

    assert wide == []


def test_the_architecture_fits_its_limit() -> None:
    assert (ROOT / "ARCHITECTURE.md").read_text().count("\n") <= LONGEST_ARCHITECTURE


# --- queries ------------------------------------------------------------------------------------

QUERIES = load_queries() | load_queries("postgres")
FILES = "|".join(sorted({name.split(".")[0] for name in QUERIES}))


def asked_for() -> tuple[set[str], list[re.Pattern[str]]]:
    """Names of queries in the store: those written out, and those put together."""
    names: set[str] = set()
    patterns: list[re.Pattern[str]] = []
    for path in sorted((SOURCE / "store").rglob("*.py")):
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
    if "sleep" not in path.read_text():
        return  # most files: to parse them takes long
    for node in ast.walk(tree_of(path)):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", None)
        length = node.args[0]
        if name == "sleep" and isinstance(length, ast.Constant) and length.value != 0:
            yield node.lineno


def test_no_test_sleeps_to_wait() -> None:
    assert [f"{name_of(path)}:{line}" for path in TESTS for line in sleeps_in(path)] == []
