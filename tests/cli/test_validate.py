import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rota.cli.main import cli
from rota.cli.render.output import ExitCode

RIGHT = "name: one\ninitial_node: a\nnodes:\n  a: {task: t}\n"
WRONG = """name: one
initial_node: b
nodes:
  a: {task: t, input: {x: "input.("}}
transitions:
  - {from: a, to: nowhere}
  - {from: a, to: a, colour: red}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "flow.yaml"
    path.write_text(WRONG)
    return path


def validate(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["validate", *arguments], input=stdin)


def test_a_right_definition_is_said_to_be_right(file: Path) -> None:
    file.write_text(RIGHT)

    ended = validate(str(file))

    assert ended.exit_code == ExitCode.OK
    assert ended.stdout == f"{file}: one is valid: 1 node, 0 transitions\n"


def test_all_problems_are_told_each_with_its_line(file: Path) -> None:
    ended = validate(str(file))

    places = [line.split(" ")[0] for line in ended.stdout.splitlines()]
    assert ended.exit_code == ExitCode.FAILED
    assert {f"{file}:2:", f"{file}:4:", f"{file}:6:", f"{file}:7:"} <= set(places)
    assert "transitions[0].to: no node 'nowhere' (unknown_node)" in ended.stdout


def test_problems_are_given_as_json_too(file: Path) -> None:
    ended = validate(str(file), "--json")

    verdict = json.loads(ended.stdout)
    assert ended.exit_code == ExitCode.FAILED
    assert verdict["ok"] is False
    assert {"path", "code", "message", "line", "column"} == set(verdict["problems"][0])
    right = json.loads(validate("-", "--json", stdin=RIGHT).stdout)
    assert right == {"ok": True, "problems": [], "warnings": []}


def test_what_is_no_yaml_is_a_problem_as_well() -> None:
    ended = validate("-", stdin="a: [1\nb: {")

    assert ended.exit_code == ExitCode.FAILED
    assert ended.stdout.startswith("-:2: ")


def test_a_file_that_is_not_there_is_wrong_usage() -> None:
    ended = validate("missing.yaml")

    assert ended.exit_code == ExitCode.UNUSABLE
    assert "missing.yaml cannot be read" in ended.stderr


def test_a_problem_is_shown_in_its_line_with_a_caret(file: Path) -> None:
    ended = validate(str(file))

    lines = ended.stdout.splitlines()
    place = lines.index("  6 |   - {from: a, to: nowhere}")
    assert lines[place - 1].startswith(f"{file}:6: transitions[0].to:")
    assert lines[place + 1] == "    |" + " " * 19 + "^"
    assert lines[place + 1].index("^") == lines[place].index("nowhere")


def test_an_unknown_field_is_marked_at_its_name(file: Path) -> None:
    lines = validate(str(file)).stdout.splitlines()

    place = lines.index("  7 |   - {from: a, to: a, colour: red}")
    assert lines[place + 1].index("^") == lines[place].index("colour")


def test_a_long_line_is_cut_around_the_problem(file: Path) -> None:
    text = RIGHT.replace("{task: t}", "{task: t, requires: [" + "a, " * 500 + "b], colour: 1}")

    lines = validate("-", stdin=text).stdout.splitlines()

    assert lines[1][lines[2].index("^") :].startswith("colour")
    assert max(map(len, lines[1:])) < 140


def test_a_warning_leaves_the_definition_valid(file: Path) -> None:
    file.write_text(RIGHT.replace("{task: t}", "{task: t, input: {x: state.rowz}}"))

    ended = validate(str(file))

    assert ended.exit_code == ExitCode.OK
    first, line, caret, verdict = ended.stdout.splitlines()
    assert first.startswith(f"{file}:4: warning: nodes.a.input.x: `state.rowz` is read")
    assert caret.index("^") == line.index("state.rowz")
    assert verdict == f"{file}: one is valid: 1 node, 0 transitions"
    assert [
        one["code"] for one in json.loads(validate(str(file), "--json").stdout)["warnings"]
    ] == ["unwritten_state"]
