"""Which commands the pages have, in blocks and in sentences, and which test runs each of them.

Pages that are generated from the program (`docs/reference`) are not searched: `test_docs` compares
their commands with the options of the command line. Nor is CHANGELOG.md, whose commands are those
of their time.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click

from rota.cli.main import cli
from tests.docs.commands.shell import commands
from tests.docs.pages import PAGES, ROOT, spans

PROGRAMS = {
    *("rota", "curl", "make", "python", "pip", "npm", "uvicorn", "docker", "git", "kubectl"),
    *(".venv/bin/python", ".ci/run", "pg_dump", "systemctl"),
}
# Tests that run commands with a beginning: each gets them by `commands_for`.
RUN_BY = {
    r"make\b|\.ci/run": "tests/docs/test_make.py",
    r"(\w+=\d+ )?\.venv/bin/python (-m pytest|scripts/)|python scripts/": "tests/docs/test_make.py",
    r"(\.venv/bin/)?python -m benchmarks|git worktree": "tests/benchmarks/test_commands.py",
    r"pip install |\.venv/bin/python -m build": "tests/test_release.py",
    r"npm ": "tests/clients/test_typescript.py",
    r"docker |systemctl |kubectl ": "tests/test_deploy.py",
}
# Pages whose blocks are run by another test, which checks that it has run every command of them.
STORIES = {
    "docs/tutorial.md": "tests/docs/test_tutorial.py",
    "docs/tutorial-functions.md": "tests/docs/test_tutorial.py",
    "examples/django_shop/README.md": "tests/contrib/test_django_project.py",
}


def searched_pages() -> list[Path]:
    """The pages of the project, and those of its examples."""
    return [
        page
        for page in (*PAGES, *sorted((ROOT / "examples").rglob("*.md")))
        if page.name != "CHANGELOG.md" and not page.is_relative_to(ROOT / "docs" / "reference")
    ]


def sentence_commands(page: Path) -> Iterator[str]:
    """The whole commands inside the sentences of a page."""
    for span in spans(page):
        words = span.split()
        if words[0] in PROGRAMS and not is_fragment(span):
            yield span


def is_fragment(span: str) -> bool:
    """Whether a command lacks something that it needs: by the rules of `rota`, or by an ellipsis.

    `rota tasks show` lacks its task, `rota worker --max` the value of an option.
    """
    words = shlex.split(span)
    if re.search(r"(?<!postgresql://)…", span) or len(words) == 1:
        return words[0] not in {"make", ".ci/run"}
    if words[0] != "rota":
        return words[0] == "uvicorn" and ":" not in span
    command: click.Command = cli
    left = words[1:]
    while isinstance(command, click.Group) and left and not left[0].startswith("-"):
        found = command.get_command(click.Context(command), left.pop(0))
        if found is None:  # `rota = …` is no command; `test_docs` looks at the others
            return True
        command = found
    try:
        command.make_context("rota", left)
    except (click.MissingParameter, click.exceptions.NoArgsIsHelpError, click.BadOptionUsage):
        return True
    except (click.UsageError, click.exceptions.Exit):
        pass
    return False


def runner_of(text: str) -> str | None:
    """The file of the test that runs a command; None: the tests of this folder."""
    found = [test for pattern, test in RUN_BY.items() if re.match(pattern, text)]
    return found[0] if found else None


def commands_for(test: str) -> list[str]:
    """The commands of all pages that a test has to run, without comments, each once."""
    found: dict[str, None] = {}
    for page in searched_pages():
        for text in [*(one.text for one in commands(page)), *sentence_commands(page)]:
            if runner_of(text) == test:
                found[re.sub(r"\s+#.*", "", text)] = None
    return list(found)
