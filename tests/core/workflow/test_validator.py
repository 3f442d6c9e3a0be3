# ruff: noqa: E501 - a definition reads best with a line for each transition
"""All problems of a definition are found at once, each with its path and line."""

from typing import Any

import msgspec
import pytest

from rota.core import limits
from rota.core.workflow.definition.model import canonical, hash_of
from rota.core.workflow.definition.parser import convert, read

GOOD = """\
name: panel
input: {type: object}
initial_node: ask
nodes:
  ask: {task: ask, output: {state.draft: result.text}}
  judge: {task: judge, input: {by: branch.item}}
  tally: {}
transitions:
  - {id: panel, from: ask, to: judge, spawn_count: 3}
  - from: judge
    to: tally
    synchronization:
      wait_for: {m_of_n: 2}
      joins_transition: panel
      merge: {source: branch.output, target: state.verdicts}
output: {verdicts: state.verdicts}
"""


def problems(text: str) -> list[tuple[str, str, int | None]]:
    return [(one.code, one.path, one.line) for one in read(text)[1]]


def test_a_good_definition_has_no_problems() -> None:
    assert problems(GOOD) == []


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("initial_node: ask", "initial_node: no", ("unknown_node", "initial_node", 3)),
        ("to: judge,", "to: jugde,", ("unknown_node", "transitions[0].to", 9)),
        ("from: judge", "from: jugde", ("unknown_node", "transitions[1].from", 10)),
        (
            "tally: {}",
            "tally: {task: t, on_error: [{to: no}]}",
            ("unknown_node", "nodes.tally.on_error[0].to", 7),
        ),
        ("tally: {}", "tally: {task: a, sleep_ms: 0}", ("several_kinds", "nodes.tally", 7)),
        (
            "ask: {task: ask,",
            "ask: {end: completed,",
            ("leaves_the_end", "nodes.ask", 5),
        ),
        ("state.draft:", "sate.draft:", ("bad_target", "nodes.ask.output.sate.draft", 5)),
        ("state.draft:", "state:", ("bad_target", "nodes.ask.output.state", 5)),
        (
            "target: state.verdicts",
            "target: verdicts",
            ("bad_target", "transitions[1].synchronization.merge.target", 15),
        ),
        ("{type: object}", "{type: objekt}", ("bad_schema", "input", 2)),
        (
            "tally: {}",
            "tally: {output_schema: {type: 5}}",
            ("bad_schema", "nodes.tally.output_schema", 7),
        ),
        (
            "spawn_count: 3}",
            "spawn_count: 3}\n  - {id: panel, from: judge, to: judge, max_iterations: 1}",
            ("duplicate_id", "transitions[1].id", 10),
        ),
        (
            "spawn_count: 3}",
            "spawn_count: 3}\n  - {from: judge, to: tally, sibling_group: panel}",
            ("duplicate_id", "transitions[1].sibling_group", 10),
        ),
        (
            "transitions:",
            "transitions:\n  - {from: ask, to: tally, sibling_group: g}\n  - {from: tally, to: tally, sibling_group: g, max_iterations: 1}",
            ("split_group", "transitions[1].sibling_group", 10),
        ),
        ("spawn_count: 3", "spawn_count: 3, foreach: '[1]'", ("two_fan_outs", "transitions[0]", 9)),
        (
            "to: tally\n",
            "to: tally\n    spawn_count: 2\n",
            ("join_and_fan_out", "transitions[1]", 10),
        ),
        ("tally: {}", "tally: {}\n  lone: {}", ("unreachable_node", "nodes.lone", 8)),
        (
            "joins_transition: panel",
            "joins_transition: pannel",
            ("unknown_fan_out", "transitions[1].synchronization.joins_transition", 14),
        ),
        (
            "m_of_n: 2",
            "m_of_n: 4",
            ("quorum_too_high", "transitions[1].synchronization.wait_for", 13),
        ),
        (
            "output: {verdicts",
            "  - {from: tally, to: ask}\noutput: {verdicts",
            ("endless_cycle", "nodes.ask", 5),
        ),
        (
            "transitions:",
            "transitions:\n  - {from: judge, to: ask, priority: 2, max_iterations: 2}",
            ("fan_out_in_itself", "transitions[1]", 10),
        ),
        (
            "target: state.verdicts}",
            "target: state.verdicts, key: branch.index}",
            ("needless_key", "transitions[1].synchronization.merge.key", 15),
        ),
        (
            "output: {verdicts",
            "  - {from: tally, to: ask, max_iterations: 1, synchronization: {joins_transition: panel}}\noutput: {verdicts",
            ("join_out_of_reach", "transitions[2].synchronization.joins_transition", 16),
        ),
        (
            "transitions:",
            "transitions:\n  - {from: judge, to: tally, synchronization: {joins_transition: panel}}",
            ("different_joins", "transitions[2].synchronization", 13),
        ),
        (
            "by: branch.item",
            "by: brunch.item",
            ("unknown_name", "nodes.judge.input.by", 6),
        ),
        ("by: branch.item", "by: '1 +'", ("bad_expression", "nodes.judge.input.by", 6)),
        (
            "tally: {}",
            "tally: {input: {i: branch.index}}",
            ("name_out_of_scope", "nodes.tally.input.i", 7),
        ),
        (
            "tally: {}",
            "tally: {input: {i: result}}",
            ("name_out_of_scope", "nodes.tally.input.i", 7),
        ),
        (
            "spawn_count: 3}",
            "spawn_count: 3, condition: error.x}",
            ("name_out_of_scope", "transitions[0].condition", 9),
        ),
        ("{verdicts: state.verdicts}", "{v: branch.x}", ("name_out_of_scope", "output.v", 16)),
        ("{task: judge,", "{tsk: judge,", ("unknown_field", "nodes.judge.tsk", 6)),
        ("to: judge,", "too: x, to: judge,", ("unknown_field", "transitions[0].too", 9)),
        ("output: {verdicts", "outptu: {verdicts", ("unknown_field", "outptu", 16)),
        ("spawn_count: 3", "spawn_count: -3", ("bad_shape", "transitions[0].spawn_count", 9)),
        ("task: ask,", "task: 5,", ("bad_shape", "nodes.ask.task", 5)),
        ("tally: {}", "tally: {}\n  ask: {}", ("duplicate_id", "nodes.ask", 8)),
        ("nodes:", "nodes: [", ("unreadable", "", 6)),
    ],
)
def test_each_problem_has_its_code_path_and_line(
    old: str, new: str, found: tuple[str, str, int]
) -> None:
    assert old in GOOD

    assert found in problems(GOOD.replace(old, new, 1))


def test_all_problems_are_found_at_once_wherever_they_are() -> None:
    text = (
        GOOD.replace("task: judge", "tsk: judge")
        .replace("m_of_n: 2", "m_of_n: 9")
        .replace("state.draft:", "draft:")
        .replace("{verdicts: state", "{verdicts: '1 +', v: state")
        .replace("tally: {}", "tally: {}\n  lone: {}")
    )

    assert {code for code, _, _ in problems(text)} == {
        "unknown_field",
        "quorum_too_high",
        "bad_target",
        "bad_expression",
        "unreachable_node",
    }


def test_an_unknown_fan_out_is_told_beside_an_unknown_node() -> None:
    text = GOOD.replace("joins_transition: panel", "joins_transition: pannel").replace(
        "output: {verdicts", "  - {from: tally, to: nowhere}\noutput: {verdicts"
    )

    assert {code for code, _, _ in problems(text)} == {"unknown_fan_out", "unknown_node"}


def test_every_separate_cycle_is_told() -> None:
    text = """
name: c
initial_node: a
nodes: {a: {}, b: {}, c: {}, d: {}}
transitions: [{from: a, to: b}, {from: b, to: a}, {from: b, to: c}, {from: c, to: d}, {from: d, to: c}]
"""
    assert [code for code, _, _ in problems(text)] == ["endless_cycle", "endless_cycle"]


def test_yaml_and_json_give_the_same_definition() -> None:
    definition, _ = read(GOOD)
    assert definition is not None
    document = msgspec.to_builtins(definition)
    tidy = msgspec.json.format(msgspec.json.encode(document)).decode()

    for text in (tidy, tidy.replace("  ", "\t"), canonical(definition).decode()):
        again, found = read(text)
        assert not found
        assert again == definition
        assert hash_of(again) == hash_of(definition)
    assert convert(document) == (definition, [])


def test_json_is_read_as_json() -> None:
    text = '{"name": "j", "initial_node": "a", "nodes": {"a": {"input": {"f": 1e3, "t": "\\ud83d\\ude00", "n": 12345678901234567890123}}}}'

    definition, found = read(text.replace('"\\ud83d\\ude00"', "\"'\\ud83d\\ude00'\""))

    assert not found
    assert definition is not None
    assert definition.nodes["a"].input == {
        "f": 1000.0,
        "t": "'😀'",
        "n": 12345678901234567890123,
    }


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "bad_shape"),
        ("- 1", "bad_shape"),
        ("a: [1", "unreadable"),
        ("a: &x [1]\nb: *x", "unreadable"),
        ("a: !!python/object:os.system {}", "unreadable"),
        ("[" * 5_000, "unreadable"),
        ("- " * 5_000, "unreadable"),
        ("{a: " * 5_000, "unreadable"),
        ("x" * (limits.MAX_DEFINITION_BYTES + 1), "too_long"),
        ('{"name": "a", "name": "b"}', "duplicate_id"),
    ],
)
def test_what_cannot_be_read_is_told_and_never_crashes(text: str, code: str) -> None:
    definition, found = read(text)

    assert definition is None
    assert code in {one.code for one in found}


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("2024-01-01", "2024-01-01"),
        ("12:30", "12:30"),
        ("no", "no"),
        ("on", "on"),
        ("007", "007"),
        ("0x10", "0x10"),
        (".inf", ".inf"),
        ("1e3", 1000.0),
        ("-1.5", -1.5),
        ("12345678901234567890123", 12345678901234567890123),
        ("true", True),
        ("~", None),
        ("", None),
    ],
)
def test_yaml_is_read_without_surprises(written: str, value: Any) -> None:
    text = f"{{name: y, initial_node: a, nodes: {{a: {{output_schema: {{const: {written}}}}}}}}}"

    definition, _ = read(text)

    assert definition is not None
    assert definition.nodes["a"].output_schema == {"const": value}


@pytest.mark.parametrize("field", ["nodes", "transitions"])
def test_too_many_parts_are_one_problem_and_nothing_else_is_worked_out(field: str) -> None:
    document: dict[str, Any] = {"name": "x", "initial_node": "a", "nodes": {"a": {}}}
    if field == "nodes":
        document["nodes"] = {f"n{number}": {"task": ""} for number in range(limits.MAX_NODES + 1)}
    else:
        document["transitions"] = [{"condition": "1 +"}] * (limits.MAX_TRANSITIONS + 1)

    definition, found = read(msgspec.json.encode(document).decode())

    assert definition is None
    assert [(one.path, one.code) for one in found] == [(field, f"too_many_{field}")]


def test_an_expression_that_is_nested_too_deeply_is_found_when_checked() -> None:
    condition = "input.a.all(a, input.a.all(b, input.a.all(c, input.a.all(d, input.a.all(e, e)))))"
    text = f"name: x\ninitial_node: a\nnodes: {{a: {{}}}}\ntransitions: [{{from: a, to: a, max_iterations: 1, condition: '{condition}'}}]"

    _, found = read(text)

    assert [(one.path, one.code) for one in found] == [
        ("transitions[0].condition", "expression_budget")
    ]
