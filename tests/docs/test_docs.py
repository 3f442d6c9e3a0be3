"""The pages: links, commands, code blocks, files they name, and the generated reference."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from rota import errors, settings
from rota.cli.main import cli
from rota.errors import RotaError
from tests.docs.pages import (
    PAGES,
    ROOT,
    anchors,
    blocks,
    command_lines,
    name_of,
    prose,
    relative_links,
)

REFERENCE = ROOT / "docs" / "reference"
SECONDS = 60
REFERENCE_CHECK = ["scripts/reference.py", "--check"]

every_page = pytest.mark.parametrize("page", PAGES, ids=name_of)


@pytest.mark.slow
def test_the_reference_says_what_the_code_does() -> None:
    checked = _run(REFERENCE_CHECK, folder=ROOT)

    assert checked.returncode == 0, checked.stdout + checked.stderr


@every_page
def test_every_relative_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    broken = [link for link in relative_links(page) if not _leads_somewhere(page, link)]

    assert not broken


def _leads_somewhere(page: Path, link: str) -> bool:
    file, _, anchor = link.partition("#")
    target = (page.parent / file).resolve() if file else page
    return target.exists() and (not anchor or anchor in anchors(target))


def test_the_indexes_lead_to_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    design = ROOT / "docs" / "design" / "README.md"
    linked = {
        (page.parent / link.partition("#")[0]).resolve()
        for page in (index, design)
        for link in relative_links(page)
    }

    missing = {page for page in PAGES if page.is_relative_to(index.parent)} - linked - {index}

    assert not missing


SOURCE = ROOT / "src" / "rota"
LAYERS = "core|store|engine|gateways|messages|sdk|cli|dashboard|testing"


@every_page
def test_every_module_named_exists(page: Path) -> None:
    named = set(re.findall(rf"`((?:{LAYERS})/[\w/]*?(?:\.py|/))`", prose(page)))

    assert {path for path in named if not (SOURCE / path).exists()} == set()


@every_page
def test_every_python_block_compiles(page: Path) -> None:
    for block in blocks(page, "python"):
        place = f"{name_of(page)}, line {block.line}"
        compile(block.text, place, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_the_readme_shows_the_quickstart_as_it_is() -> None:
    shown = blocks(ROOT / "README.md", "python")[0]

    assert shown.text == (ROOT / "examples" / "quickstart.py").read_text(encoding="utf-8")


@every_page
def test_every_command_line_names_a_command_and_options_that_exist(page: Path) -> None:
    wrong = [problem for words in command_lines(page) if (problem := _problem_with(words))]

    assert not wrong


def _problem_with(words: list[str]) -> str | None:
    """What is wrong with a command line; None when every word of it is known."""
    command: click.Command = cli
    left = list(words)
    while isinstance(command, click.Group) and left and left[0].islower():
        name = left.pop(0)
        if name.startswith("-"):
            left.insert(0, name)
            break
        below = command.get_command(click.Context(command), name)
        if below is None:
            return f"there is no command {' '.join(words)!r}"
        command = below
    known = {"--help", "-h"}.union(*([*one.opts, *one.secondary_opts] for one in command.params))
    options = [word.partition("=")[0] for word in left if word.startswith("-") and word != "-"]
    unknown = [option for option in options if option not in known]
    return f"{' '.join(words)!r} has unknown {unknown}" if unknown else None


def test_every_error_code_is_in_the_reference() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    text = (REFERENCE / "errors.md").read_text(encoding="utf-8")

    missing = [
        kind.code for kind in kinds if issubclass(kind, RotaError) and f"`{kind.code}`" not in text
    ]

    assert not missing


def test_every_setting_is_in_the_reference() -> None:
    text = (REFERENCE / "settings.md").read_text(encoding="utf-8")

    missing = [
        name
        for name in settings.field_names()
        if f"`{settings.environment_name(name)}`" not in text
    ]

    assert not missing


@pytest.mark.slow
def test_the_programs_of_the_page_on_embedding_run(tmp_path: Path) -> None:
    for number, block in enumerate(blocks(ROOT / "docs" / "how-to" / "embed.md", "python")):
        program = tmp_path / f"program_{number}.py"
        program.write_text(block.text, encoding="utf-8")

        ran = _run([str(program)], folder=tmp_path)

        assert ran.returncode == 0, ran.stderr


@pytest.mark.slow
def test_the_tests_of_the_page_on_testing_pass(tmp_path: Path) -> None:
    app, *tests = blocks(ROOT / "docs" / "how-to" / "test-your-tasks.md", "python")
    (tmp_path / "shop.py").write_text(app.text, encoding="utf-8")
    for number, block in enumerate(tests):
        (tmp_path / f"test_{number}.py").write_text(block.text, encoding="utf-8")

    ran = _run(["-m", "pytest", "-q", "-p", "no:cacheprovider"], folder=tmp_path)

    assert ran.returncode == 0, ran.stdout


def _run(command: list[str], *, folder: Path) -> "subprocess.CompletedProcess[str]":
    environment = {name: os.environ[name] for name in os.environ if not name.startswith("ROTA_")}
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


# --- the glossary -------------------------------------------------------------------------------


def _names_in_the_code() -> set[str]:
    """Modules, classes, functions, parameters and fields."""
    names: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        names |= {path.stem, path.parent.name}
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                    names.add(node.name)
                case ast.arg():
                    names.add(node.arg)
                case ast.AnnAssign(target=ast.Name(id=name)):
                    names.add(name)
                case ast.Assign(targets=[ast.Name(id=name)]):
                    names.add(name)
                case _:
                    pass
    return names


def test_every_term_of_the_glossary_has_its_name_in_the_code() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    told = set(re.findall(r"^\*\*[^*]+\*\*\s+\(`(\w+)`\)", text, re.MULTILINE))

    assert len(told) > 60
    assert told - _names_in_the_code() == set()
