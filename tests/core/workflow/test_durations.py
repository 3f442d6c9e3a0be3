"""Durations with a unit in the text of a workflow."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.schedules.durations import UNITS_MS
from rota.core.workflow.definition.parser import convert, read

TEXT = """\
name: panel
initial_node: ask
timeout: 2h
nodes:
  ask:
    task: ask
    timeout: 30s
    retry: {max_attempts: 3, backoff: {kind: linear, initial: 500ms, max: 1m30s}}
  paid: {wait_for: {event: payment, timeout: 1d}}
  approved: {approval: {title: "Ship?", timeout: 1w}}
  rest: {sleep: 1.5h}
  judge: {task: judge, input: {timeout: input.timeout}, rate: {key: api, limit: 5, per: 10s}}
  tally: {}
transitions:
  - {from: ask, to: paid}
  - {from: paid, to: approved}
  - {from: approved, to: rest}
  - {id: panel, from: rest, to: judge, spawn_count: 3}
  - from: judge
    to: tally
    synchronization: {joins_transition: panel, timeout: 5m}
"""
IN_MILLISECONDS = (
    TEXT.replace("timeout: 2h", "timeout_ms: 7200000")
    .replace("timeout: 30s", "timeout_ms: 30000")
    .replace("initial: 500ms, max: 1m30s", "initial_ms: 500, max_ms: 90000")
    .replace("timeout: 1d", "timeout_ms: 86400000")
    .replace("timeout: 1w", "timeout_ms: 604800000")
    .replace("sleep: 1.5h", "sleep_ms: 5400000")
    .replace("per: 10s", "per_ms: 10000")
    .replace("timeout: 5m", "timeout_ms: 300000")
)


def found_in(text: str) -> list[tuple[str, int | None, str]]:
    return [(one.path, one.line, one.message) for one in read(text)[1]]


def test_durations_may_have_units_wherever_a_definition_has_milliseconds() -> None:
    definition, problems = read(TEXT)

    assert problems == []
    assert definition == read(IN_MILLISECONDS)[0]


@pytest.mark.parametrize(
    ("written", "path", "says"),
    [
        ("timeout: soon", "nodes.ask.timeout", "'soon' is not a duration; write it as 30s"),
        ("timeout: 30", "nodes.ask.timeout", "a duration has a unit: 30s"),
        ("timeout: true", "nodes.ask.timeout", "True is not a duration"),
        ("timeout: null", "nodes.ask.timeout", "None is not a duration"),
        ("timeout: [30s]", "nodes.ask.timeout", "is not a duration"),
        ("{timeout: 30s, timeout_ms: 30000", "nodes.ask.timeout", "give `timeout` or `timeout_ms`"),
        ("timeout: 9999w", "nodes.ask.timeout_ms", "<="),
        ("timout: 30s", "nodes.ask.timout", "did you mean `timeout_ms`?"),
    ],
)
def test_a_duration_that_cannot_be_read_is_a_problem_with_its_line(
    written: str, path: str, says: str
) -> None:
    text = TEXT.replace("timeout: 30s", written.lstrip("{").replace(", ", "\n    "))

    (problem,) = found_in(text)

    assert (problem[0], problem[1]) == (path, 7)
    assert says in problem[2]


def test_all_problems_of_a_text_are_found_beside_those_of_durations() -> None:
    text = TEXT.replace("timeout: 30s", "timeout: soon").replace("to: tally", "to: taly")

    assert [path for path, _, _ in found_in(text)] == ["nodes.ask.timeout", "transitions[4].to"]


@given(st.integers(1, 10**6), st.sampled_from(sorted(UNITS_MS)))
def test_any_count_of_any_unit_is_its_milliseconds(count: int, unit: str) -> None:
    nodes = {"rest": {"sleep": f"{count}{unit}"}}
    definition, problems = convert({"name": "w", "initial_node": "rest", "nodes": nodes})

    if definition is None:
        assert [one.path for one in problems] == ["nodes.rest.sleep_ms"]
    else:
        assert definition.nodes["rest"].sleep_ms == count * UNITS_MS[unit]


def test_fields_of_users_keep_their_names() -> None:
    definition, _ = read(TEXT)

    assert definition is not None
    assert definition.nodes["judge"].input == {"timeout": "input.timeout"}
