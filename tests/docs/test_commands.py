"""Every command in a block of the pages is run; those that another test runs, it gets by text.

The commands of a page run in their order, in one folder, beside a real coordinator. What a page
leaves open is filled in: ids, the address of the coordinator, folders and hosts. A command that
runs until it is ended has to show a sign of life.
"""

import re
from pathlib import Path

import pytest

from rota.cli.main import COMMANDS
from tests.docs.commands.finding import (
    RUN_BY,
    STORIES,
    runner_of,
    searched_pages,
    sentence_commands,
)
from tests.docs.commands.performing import perform, serve_with_tokens
from tests.docs.commands.preparing import PREPARED, prepare_sentence
from tests.docs.commands.shell import Command, commands, run_script
from tests.docs.commands.stage import Home, Stage, opened_home, opened_stage
from tests.docs.pages import PAGES, ROOT, blocks, name_of

pytestmark = pytest.mark.slow

# Pages whose endless commands go on while the next ones run.
KEPT = {"docs/how-to/serve-over-tls.md"}
# Pages that go on beside the coordinator for whose store they have made a token.
SERVED = {"docs/how-to/tokens.md"}
# Names of commands that a sentence is about: `rota` accepts them, and says then what they lack.
NAMES = {
    "rota worker": "MODULE:APP",
    "rota dev": "MODULE:APP",
    "rota submit": "name a task",
    "rota tasks retry": "name the tasks",
    "rota replay": "name a run",
}
# Pages whose sentences have commands that need what their blocks have made.
WITH_SENTENCES = {
    "docs/how-to/serve-over-tls.md",
    "docs/how-to/use-with-django.md",
    "docs/how-to/use-with-fastapi.md",
    "examples/workflows/README.md",
}
# Pages about one service: what they set, the others would find there.
ALONE = {
    "docs/how-to/move-a-shard-coordinator.md",
    "docs/how-to/services-in-production.md",
    "docs/how-to/share-shards.md",
}


def commands_here(page: Path) -> list[Command]:
    """The commands of a page that are run by the test below."""
    if name_of(page) in STORIES:
        return []
    within = sentence_commands(page) if name_of(page) in WITH_SENTENCES else ()
    found = [*commands(page), *(Command(text, 0) for text in within)]
    return [one for one in found if runner_of(one.text) is None]


def pages(*, alone: bool) -> list[Path]:
    found = [page for page in searched_pages() if commands_here(page)]
    return [page for page in found if (name_of(page) in ALONE) == alone]


@pytest.mark.parametrize("page", pages(alone=False), ids=name_of)
def test_every_command_of_a_page_works(page: Path, home: Home, tmp_path: Path) -> None:
    with opened_stage(tmp_path, home) as stage:
        run_page(stage, page)


@pytest.mark.parametrize("page", pages(alone=True), ids=name_of)
def test_every_command_of_a_page_about_a_service_works(
    page: Path, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    place = tmp_path_factory.mktemp("home")
    with opened_home(place) as home, opened_stage(tmp_path, home) as stage:
        run_page(stage, page)


def run_page(stage: Stage, page: Path) -> None:
    name = name_of(page)
    if name in PREPARED:
        PREPARED[name](stage)
    for command in commands_here(page):
        try:
            perform(stage, command.text, is_kept=name in KEPT)
        except AssertionError as error:
            place = f"line {command.line}" if command.line else "in a sentence"
            raise AssertionError(f"{name}, {place}: {error}") from error
        if name in SERVED and " --store " in command.text:
            serve_with_tokens(stage, f"sqlite:///{stage.folder}/rota.db")


# --- commands inside sentences ------------------------------------------------------------------


def sentences() -> list[str]:
    """The whole commands in sentences that no block has, each once."""
    in_blocks = {re.sub(r"\s+#.*", "", one.text) for page in PAGES for one in commands(page)}
    found = {
        text: None
        for page in searched_pages()
        if name_of(page) not in WITH_SENTENCES
        for text in sentence_commands(page)
        if runner_of(text) is None and text not in in_blocks
    }
    return list(found)


@pytest.mark.parametrize("text", sentences())
def test_every_whole_command_inside_a_sentence_works(text: str, home: Home, tmp_path: Path) -> None:
    with opened_stage(tmp_path, home) as stage:
        prepare_sentence(stage, text)
        if text in NAMES:
            ended = run_script(text, stage.folder, stage.terminal.variables)
            assert (ended.returncode, NAMES[text] in ended.stderr) == (2, True), ended.stderr
        else:
            perform(stage, text)


@pytest.mark.parametrize("test", sorted({*RUN_BY.values(), *STORIES.values()}))
def test_a_test_that_runs_commands_asks_the_pages_for_them(test: str) -> None:
    text = (ROOT / test).read_text(encoding="utf-8")

    assert f'commands_for("{test}")' in text or " in commands(" in text


@pytest.mark.parametrize("page", searched_pages(), ids=name_of)
def test_no_command_is_hidden_in_a_block_of_another_language(page: Path) -> None:
    beginning = re.compile(rf"(\$ )?(rota ({'|'.join(COMMANDS)})|make|curl|pip|npm)\b")
    shown = [line for block in blocks(page, "", "text") for line in block.text.splitlines()]

    assert [line for line in shown if beginning.match(line)] == []
