# ruff: noqa: E501 - a case reads best in one line
"""Warnings about expressions that read what nothing provides, and hints at what was meant."""

from pathlib import Path

import pytest

from rota.core.workflow.definition.parser import check_text, read

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"

FLOW = """\
name: flow
input: {type: object, properties: {limit: {type: integer}, rows: {type: array}}}
initial_node: extract
nodes:
  extract: {task: extract, output: {state.rows: result.rows, state.page.size: result.size}}
  load: {task: load, input: {of: state.rows}}
transitions:
  - {from: extract, to: load}
"""


def warnings(text: str) -> list[tuple[str, str, int | None]]:
    checked = check_text(text)
    assert checked.definition is not None
    assert checked.problems == []
    return [(one.code, one.message, one.line) for one in checked.warnings]


def with_reading(expression: str, *, state: str = "") -> str:
    text = FLOW.replace("of: state.rows", f"of: '{expression}'")
    return text.replace("initial_node:", f"state: {state}\ninitial_node:") if state else text


def test_a_state_that_is_not_written_is_a_warning_with_the_nearest_name() -> None:
    assert warnings(with_reading("state.rowz")) == [
        (
            "unwritten_state",
            "`state.rowz` is read, but no node's output and no merge writes it; did you mean 'state.rows'?",
            6,
        )
    ]


def test_a_field_beside_the_one_that_is_written_is_a_warning() -> None:
    ((code, message, _),) = warnings(with_reading("state.page.sise"))

    assert code == "unwritten_state"
    assert message.endswith("did you mean 'state.page.size'?")


@pytest.mark.parametrize(
    "expression",
    [
        "state.rows",
        "state.rows.size",  # inside of what is written
        "state.page",  # around it
        "state.page.size",
        "state",
        "has(state.rowz)",
        "has(state.rowz) ? state.rowz.first : 0",
        'state["rowz"]',
        "state[input.limit]",
        "input.rows.map(r, r.rowz)",
        "nodes.extract.result.rowz",
        "input.limit + 1",
        "input.anything",
    ],
)
def test_what_may_be_there_is_no_warning(expression: str) -> None:
    assert warnings(with_reading(expression)) == []


@pytest.mark.parametrize(
    "schema",
    [
        "{properties: {rowz: {}}}",
        "{required: [rowz]}",
        "{additionalProperties: true}",
        "{additionalProperties: {title: anything}}",
        "{patternProperties: {r: {}}}",
        '{$ref: "#/$defs/s", $defs: {s: {}}}',
        "{anyOf: [{properties: {rowz: {}}}]}",
        "true",
    ],
)
def test_a_schema_of_the_state_that_allows_the_field_is_believed(schema: str) -> None:
    assert warnings(with_reading("state.rowz", state=schema)) == []


def test_the_target_of_a_merge_is_written() -> None:
    text = """
name: fan
initial_node: a
nodes: {a: {}, b: {task: b}, c: {task: c, input: {all: state.found, none: state.fond}}}
transitions:
  - {id: fan, from: a, to: b, spawn_count: 2}
  - {from: b, to: c, synchronization: {joins_transition: fan, merge: {target: state.found}}}
"""

    assert [(code, line) for code, _, line in warnings(text)] == [("unwritten_state", 4)]


def test_an_input_field_and_a_node_that_are_not_there_are_warnings() -> None:
    (limit,) = warnings(with_reading("input.limt"))
    (node,) = warnings(with_reading("nodes.extrct.result"))

    assert limit[0] == "unknown_input"
    assert limit[1].endswith("the schema of the input has no 'limt'; did you mean 'limit'?")
    assert node[0] == "unknown_result"
    assert node[1].endswith("there is no node 'extrct'; did you mean 'extract'?")


def test_a_closed_input_has_no_other_fields_at_all() -> None:
    closed = FLOW.replace("{type: object, ", "{additionalProperties: false, ")

    (found,) = warnings(closed.replace("state.rows}}", "input.unheard}}"))

    assert found[0] == "unknown_input"


@pytest.mark.parametrize("file", sorted(EXAMPLES.rglob("*.yaml")), ids=lambda file: file.name)
def test_the_examples_have_no_warnings(file: Path) -> None:
    assert check_text(file.read_text(encoding="utf-8")).warnings == []


def messages(old: str, new: str) -> list[str]:
    assert old in FLOW
    return [one.message for one in read(FLOW.replace(old, new, 1))[1]]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("hello world", "\"'hello world'\""),
        ("Is it done?", "\"'Is it done?'\""),
        ("https://example.org/a", "\"'https://example.org/a'\""),
        ("it's late", r'"\"it\'s late\""'.replace(r"\'", "'")),
        ("fast", "\"'fast'\""),
        ("a-b", "\"'a-b'\""),
    ],
)
def test_a_plain_text_is_told_how_to_be_quoted(text: str, written: str) -> None:
    (message,) = messages("of: state.rows", f'of: "{text}"')

    assert message.startswith(f"`{text}`")
    assert message.endswith(f"for the text write `{written}`")
    assert read(FLOW.replace("of: state.rows", f"of: {written}"))[1] == []


@pytest.mark.parametrize("text", ["Dear {name}", "Hello ${input.x}!", "Total: {{ state.x }}"])
def test_a_template_of_another_language_is_told_how_texts_are_put_together(text: str) -> None:
    (message,) = messages("of: state.rows", f'of: "{text}"')

    assert message.startswith(f"`{text}` is not an expression; texts and names are put together")


def test_a_broken_expression_is_told_without_all_that_could_have_come() -> None:
    (message,) = messages("of: state.rows", "of: 'input.rows +'")

    assert message == "'input.rows +': column 13: Syntax error: it ends too early"


@pytest.mark.parametrize(
    "expression", ["1 +", "input.(", "size(state.rows", "inptu.item", "stte.x"]
)
def test_a_broken_expression_is_not_taken_for_a_text(expression: str) -> None:
    (message,) = messages("of: state.rows", f"of: '{expression}'")

    assert "for the text write" not in message


def test_a_name_that_is_not_there_suggests_the_nearest() -> None:
    (message,) = messages("of: state.rows", "of: 'stte.rows + 1'")

    assert message == "`stte.rows + 1`: there is no name 'stte' here; did you mean 'state'?"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("to: load}", "to: laod}", "no node 'laod'; did you mean 'load'?"),
        ("initial_node: extract", "initial_node: extrct", "no node 'extrct'; did you mean 'extract'?"),
        ("{task: load,", "{taks: load,", "there is no field `taks`; did you mean `task`?"),
        ("to: load}", "to: load, conditon: 'true'}", "there is no field `conditon`; did you mean `condition`?"),
        (
            "to: load}",
            "to: load, synchronization: {joins_transition: a, wait_fr: all}}",
            "there is no field `wait_fr`; did you mean `wait_for`?",
        ),
        ("name: flow", "name: flow\ntransition: []", "there is no field `transition`; did you mean `transitions`?"),
        (
            "{task: load,",
            "{task: load, workflow: other,",
            "node 'load' has both `task` and `workflow`; keep one",
        ),
        (
            "{task: load,",
            "{task: load, workflow: other, sleep_ms: 5,",
            "node 'load' has `task`, `workflow` and `sleep_ms`; keep one",
        ),
        (
            "state.page.size:",
            "stat.page.size:",
            "'stat.page.size' is neither in state nor in output; did you mean 'state.page.size'?",
        ),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_what_was_probably_meant(old: str, new: str, message: str) -> None:
    assert message in messages(old, new)


def test_a_field_that_is_near_none_lists_those_that_there_are() -> None:
    (message,) = messages("{from: extract,", "{qqq: 1, from: extract,")

    assert message.startswith("there is no field `qqq`; there is from, to, id, ")


def test_a_mistyped_fan_out_suggests_the_nearest() -> None:
    text = FLOW.replace(
        "to: load}",
        "to: load, id: fan, spawn_count: 2}\n"
        "  - {from: load, to: extract, max_iterations: 1, synchronization: {joins_transition: fam}}",
    )

    (message,) = [one.message for one in read(text)[1] if one.code == "unknown_fan_out"]

    assert message.endswith("did you mean 'fan'?")
