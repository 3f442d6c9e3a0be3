"""The workflows on the pages can be run."""

from typing import Any

from rota.core.workflow.definition.parser import read
from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "how-to" / "write-a-workflow.md"


def test_the_workflow_of_the_page_has_no_problems() -> None:
    definition, problems = read(blocks(PAGE, "yaml")[0].text)

    assert problems == []
    assert definition is not None
    assert definition.name == "panel"


def test_the_workflow_built_in_python_has_no_problems_and_the_same_nodes() -> None:
    definition, _ = read(blocks(PAGE, "yaml")[0].text)
    names: dict[str, Any] = {}

    exec(blocks(PAGE, "python")[1].text, names)

    assert names["flow"].problems() == []
    assert definition is not None
    assert names["flow"].definition.nodes.keys() == definition.nodes.keys()


def test_the_tasks_of_the_page_are_those_of_its_workflow() -> None:
    definition, _ = read(blocks(PAGE, "yaml")[0].text)
    names: dict[str, Any] = {}

    exec(blocks(PAGE, "python")[0].text, names)

    assert definition is not None
    assert {node.task for node in definition.nodes.values()} == set(names["app"].tasks)
