"""Mappings are checked against the schema of the state, where their type is known."""

import pytest

from rota.core.workflow.definition.parser import read

HEAD = """
name: typed
input: {type: object, properties: {title: {type: string}, rows: {type: array}}}
state:
  type: object
  additionalProperties: false
  properties:
    count: {type: integer}
    text: {type: string}
    maybe: {type: [string, "null"]}
    list: {type: array}
    kind: {enum: [a, b]}
    inner: {type: object, properties: {deep: {type: boolean}}, additionalProperties: {type: number}}
    free: {}
    part: {$ref: "#/$defs/part"}
    by_pattern:
      {type: object, patternProperties: {"^x": {type: string}}, additionalProperties: false}
  $defs: {part: {type: string}}
initial_node: n
"""


def problems(rest: str) -> list[tuple[str, str]]:
    _, found = read(HEAD + rest)
    return [(one.path, one.code) for one in found]


def written(target: str, source: str) -> list[tuple[str, str]]:
    node = "output_schema: {properties: {name: {type: string}}}"
    return problems(f"nodes: {{n: {{task: t, {node}, output: {{{target}: {source}}}}}}}")


@pytest.mark.parametrize(
    ("target", "source"),
    [
        ("state.count", "'\"three\"'"),
        ("state.count", '"true"'),
        ("state.count", "1 == 1"),
        ("state.count", "'[1]'"),
        ("state.count", "has(result.name)"),
        ("state.count", "result.name"),
        ("state.count", "input.title + result.more"),
        ("state.count", "string(result.n)"),
        ("state.count", '\'result.ok ? "a" : "b"\''),
        ("state.count", "1.5"),
        ("state.count", "null"),
        ("state.text", "1"),
        ("state.text", "size(input.rows)"),
        ("state.text", "state.count"),
        ("state.text", "result.n * 2"),
        ("state.text", "input.rows"),
        ("state.maybe", "1"),
        ("state.list", "'{\"a\": 1}'"),
        ("state.kind", "7"),
        ("state.inner.deep", "1"),
        ("state.inner.other", "'\"x\"'"),
        ("state.text.deeper", "result"),
    ],
)
def test_a_value_of_another_type_than_the_schema_has_is_refused(target: str, source: str) -> None:
    assert written(target, source) == [(f"nodes.n.output.{target}", "state_type")]


@pytest.mark.parametrize(
    ("target", "source"),
    [
        ("state.count", "result.n"),
        ("state.count", "size(input.rows) + 1"),
        ("state.count", "result.n + 1"),
        ("state.count", "3"),
        ("state.count", "'result.ok ? 1 : result.n'"),
        ("state.maybe", "null"),
        ("state.maybe", "input.title"),
        ("state.free", "1"),
        ("state.free.deeper", "1"),
        ("state.part", "1"),
        ("state.by_pattern.xyz", "1"),
        ("state.inner", "result"),
        ("state.inner.deep", "result.n > 1"),
        ("state.inner.other", "2"),
        ("state.list", "'input.rows.map(state, state.name)'"),
        ("output.any", "'\"x\"'"),
    ],
)
def test_a_value_that_may_fit_the_schema_is_accepted(target: str, source: str) -> None:
    assert written(target, source) == []


def test_a_path_that_the_schema_excludes_is_neither_written_nor_read() -> None:
    found = problems("""
nodes:
  n: {task: t, input: {a: state.coutn, b: "has(state.txt)"}, output: {state.conut: result}}
  m: {signal: {name: s, payload: {c: "[state.nope]"}}}
transitions:
  - {from: n, to: m, condition: state.count > 1 && state.cuont > 1}
output: {d: "state.list.filter(one, one == state.oen)"}
""")

    assert found == [
        ("nodes.n.output.state.conut", "unknown_state_path"),
        ("nodes.n.input.a", "unknown_state_path"),
        ("nodes.n.input.b", "unknown_state_path"),
        ("nodes.m.signal.payload.c", "unknown_state_path"),
        ("transitions[0].condition", "unknown_state_path"),
        ("output.d", "unknown_state_path"),
    ]


def test_problems_of_the_state_have_their_line_and_say_what_there_is() -> None:
    text = "{name: t, state: {additionalProperties: false, properties: {a: {}}},\n"
    _, (one,) = read(text + "initial_node: n, nodes: {n: {\noutput: {state.b: 1}}}}")

    assert one.line == 3
    assert one.message == "state has no 'b' by its schema; there is a"


def test_a_merge_has_the_type_of_its_strategy() -> None:
    found = problems("""
nodes: {n: {}, b: {task: b}, m: {}}
transitions:
  - {id: f, from: n, to: b, spawn_count: 2}
  - from: b
    to: m
    synchronization:
      joins_transition: f
      merge:
        - {target: state.text}
        - {target: state.list}
        - {target: state.list, strategy: keyed}
        - {target: state.text, strategy: last_wins}
        - {target: state.other, source: state.another}
""")

    place = "transitions[1].synchronization.merge"
    assert found == [
        (f"{place}[0].target", "state_type"),
        (f"{place}[2].target", "state_type"),
        (f"{place}[4].target", "unknown_state_path"),
        (f"{place}[4].source", "unknown_state_path"),
    ]


@pytest.mark.parametrize("schema", ["true", "{}", "{type: 7}", "{type: array}"])
def test_a_schema_that_says_nothing_about_fields_is_left_to_the_end_of_the_run(schema: str) -> None:
    text = (
        f"{{name: t, state: {schema}, initial_node: n, nodes: {{n: {{output: {{state.b: 1}}}}}}}}"
    )
    _, found = read(text)

    codes = {"{type: 7}": ["bad_schema"], "{type: array}": ["state_type"]}
    assert [one.code for one in found] == codes.get(schema, [])
