from pathlib import Path

import pytest

from rota.cli.render.output import ExitCode
from rota.core.workflow.definition.parser import read
from tests.cli.conftest import Command, document

FLOW = """name: {name}
description: Two steps.
initial_node: first
nodes:
  first: {{task: begin, input: {{count: {count}}}}}
  second: {{task: finish}}
transitions:
  - {{from: first, to: second}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "flow.yaml"


def put(rota: Command, file: Path, name: str, count: int = 1) -> int:
    file.write_text(FLOW.format(name=name, count=count))
    version: int = document(rota("workflows", "put", str(file), "--json"))["version"]
    return version


def test_the_same_content_is_the_same_version(rota: Command, file: Path) -> None:
    versions = [put(rota, file, "versioned", count) for count in (1, 1, 2, 1)]

    known = document(rota("workflows", "versions", "versioned", "--json"))["items"]
    assert versions == [1, 1, 2, 1]
    assert [one["version"] for one in known] == [2, 1]
    assert rota("workflows", "put", str(file)).stdout == "versioned version 1 is current\n"


def test_workflows_are_listed_with_their_current_version(rota: Command, file: Path) -> None:
    put(rota, file, "listed", 1)
    put(rota, file, "listed", 2)

    lines = rota("workflows", "ls").stdout.splitlines()

    assert lines[0].split() == ["WORKFLOW", "VERSION", "CURRENT", "HASH", "CREATED"]
    assert [line.split()[:2] for line in lines if line.startswith("listed ")] == [["listed", "2"]]


def test_a_workflow_is_shown_and_given_back_as_yaml(rota: Command, file: Path) -> None:
    put(rota, file, "shown", 1)
    put(rota, file, "shown", 2)

    text = rota("workflows", "show", "shown").stdout
    newest = rota("workflows", "show", "shown", "--yaml").stdout
    first = rota("workflows", "show", "shown", "--version", "1", "--yaml").stdout

    assert "task begin → second" in text
    assert "Two steps." in text
    assert read(newest) == read(FLOW.format(name="shown", count=2))
    assert read(first) == read(FLOW.format(name="shown", count=1))
    assert document(rota("workflows", "show", "shown", "--json"))["definition"]["name"] == "shown"


def test_a_difference_is_shown_between_versions_and_files(rota: Command, file: Path) -> None:
    put(rota, file, "changed", 1)
    put(rota, file, "changed", 2)

    versions = rota("workflows", "diff", "changed")
    same = rota("workflows", "diff", "changed", str(file))
    file.write_text(FLOW.format(name="changed", count=3))
    proposed = rota("workflows", "diff", "changed", str(file))

    assert versions.exit_code == ExitCode.FAILED
    assert [line.strip() for line in versions.stdout.splitlines() if line[:2] in {"+ ", "- "}] == [
        "-    input: {count: 1}",
        "+    input: {count: 2}",
    ]
    assert (same.exit_code, same.stdout) == (ExitCode.OK, "no difference\n")
    assert "+    input: {count: 3}" in proposed.stdout


def test_a_definition_with_problems_is_not_put(rota: Command, file: Path) -> None:
    file.write_text(FLOW.format(name="broken", count=1).replace("to: second", "to: third"))

    ended = rota("workflows", "put", str(file))

    assert ended.exit_code == ExitCode.FAILED
    assert f"{file}:8: transitions[0].to: no node 'third'" in ended.stderr
    assert ended.stderr.endswith("has 1 problem (invalid_workflow)\n")


def test_an_unknown_workflow_is_exit_code_1(rota: Command) -> None:
    ended = rota("workflows", "show", "nothing")

    assert ended.exit_code == ExitCode.FAILED
    assert ended.stderr == (
        "error: workflow 'nothing' not found; deploy it with `rota workflows put FILE` "
        "(workflow_not_found)\n"
    )


def test_putting_an_older_text_makes_it_current_again(rota: Command, file: Path) -> None:
    for count in (1, 2, 1):
        put(rota, file, "back", count)

    run = document(rota("run", "back", "--json"))
    known = document(rota("workflows", "versions", "back", "--json"))["items"]

    assert run["version"] == 1
    assert [(one["version"], one["is_current"]) for one in known] == [(2, False), (1, True)]
    assert "1 (current)" in rota("workflows", "show", "back").stdout


def test_a_version_can_be_made_current(rota: Command, file: Path) -> None:
    put(rota, file, "chosen", 1)
    put(rota, file, "chosen", 2)

    assert rota("workflows", "use", "chosen", "1").stdout == "chosen version 1 is current\n"
    assert document(rota("run", "chosen", "--json"))["version"] == 1
    assert rota("workflows", "use", "chosen", "9").exit_code == ExitCode.FAILED


def test_a_file_that_is_run_is_not_published(rota: Command, file: Path) -> None:
    put(rota, file, "tried", 1)
    file.write_text(FLOW.format(name="tried", count=2))

    ended = rota("run", str(file), "--json")
    by_name = document(rota("run", "tried", "--json"))
    again = rota("run", str(file), "--publish", "--json")

    assert document(ended)["version"] == 2
    assert "tried version 2 is a try-out" in ended.stderr
    assert by_name["version"] == 1
    assert again.stderr == ""
    assert document(rota("run", "tried", "--json"))["version"] == 2


def test_a_workflow_that_was_only_tried_out_cannot_be_started_by_name(
    rota: Command, file: Path
) -> None:
    file.write_text(FLOW.format(name="unpublished", count=1))
    rota("run", str(file))

    ended = rota("run", "unpublished")

    assert ended.exit_code == ExitCode.FAILED
    assert "no version of workflow 'unpublished' is current" in ended.stderr
    assert "rota workflows use NAME VERSION" in ended.stderr
    assert document(rota("workflows", "show", "unpublished", "--json"))["is_current"] is False
