"""The values of expressions, the same in every process."""

import subprocess
import sys
from typing import Any

import pytest

from rota.core.workflow.definition.expressions import Expression, ExpressionError
from rota.core.workflow.definition.map_order import FUNCTION, ordered

VALUES: dict[str, Any] = {
    "input": {
        "rows": [{"id": "a", "n": 1}, {"id": "b", "n": 2}],
        "map": {"z": 1, "a": {"q": [1, None]}, "k": 3},
        "big": 2**70,
        "text": "état",
        "key": "a",
        "nothing": None,
    },
    "branch": {"index": 1},
}


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("input.big", 2**70),
        ("input.nothing", None),
        ("input.rows[1].id", "b"),
        ("input.rows[branch.index].n", 2),
        ("input.map[input.key].q[1]", None),
        ("input['map'][\"z\"]", 1),
        ("input.rows.map(r, r.n * 10)", [10, 20]),
        ("input.map.map(k, k)", ["a", "k", "z"]),
        ("input.map.filter(k, k != 'k')", ["a", "z"]),
        ("{'b': 1, 'a': input.text}", {"a": "état", "b": 1}),
        ("input.rows.exists(r, r.id == 'b') && !has(input.no)", True),
        ("size(input.rows) == 2 ? 'two' : 'other'", "two"),
        ("1.5 + 0.5", 2.0),
        ("'input.no.such'", "input.no.such"),
    ],
)
def test_values(source: str, value: Any) -> None:
    found = Expression(source).evaluate(VALUES)

    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "source",
    [
        "input.no",
        "input.rows[2]",
        "input.rows['id']",
        "input.text.x",
        "1 / 0",
        "b'x'",
        "{1: 2}",
        "1e400",
        "duration('1s')",
        "input.big + 1",
        "input.rows[0].n + 'x'",
        "branch.missing",
    ],
)
def test_what_fails_says_so_and_gives_no_value(source: str) -> None:
    with pytest.raises(ExpressionError):
        Expression(source).evaluate(VALUES)


def test_going_through_too_much_fails_instead_of_crashing() -> None:
    values = {"input": {"l": list(range(300))}}

    with pytest.raises(ExpressionError):
        Expression("input.l.map(a, input.l.map(b, a * b))").evaluate(values)


@pytest.mark.parametrize(
    "source",
    ["1 +", "nope.x", "x" * 5_000, ".map(x, x)" * 9, f"{FUNCTION}([1])", "input.rows.map(x)"],
)
def test_what_cannot_be_read_is_refused(source: str) -> None:
    with pytest.raises(ExpressionError):
        Expression(source)


def test_the_names_and_places_an_expression_uses() -> None:
    expression = Expression("branch.error.type + string(input.a.b.size()) + 'state.x'")

    assert expression.names == {"branch", "input"}
    assert expression.places == {("branch", "error"), ("input", "a")}


@pytest.mark.parametrize(
    ("source", "rewritten"),
    [
        ("a.b", "a.b"),
        ("m.map(k, k)", "F(m).map(k, k)"),
        ("a.m.map(k, k != 1)", "F(a.m).map(k, k != 1)"),
        ("a[0].m['map('].map(k, k)", "F(a[0].m['map(']).map(k, k)"),
        ("x in [1].map(k, k)", "x in F([1]).map(k, k)"),
        ("f(x).map(k, k)", "F(f(x)).map(k, k)"),
        ("a.f(x).map(k, k)", "F(a.f(x)).map(k, k)"),
        ("(a + b).filter(k, k)", "F((a + b)).filter(k, k)"),
        ("{'a': 1}.map(k, k)", "F({'a': 1}).map(k, k)"),
        ("!m.map(k, k)[0]", "!F(m).map(k, k)[0]"),
        ("m.filter(k, k).map(k, n.map(j, j))", "F(F(m).filter(k, k)).map(k, F(n).map(j, j))"),
        ("a - m.map(k, k)[0]", "a - F(m).map(k, k)[0]"),
        ("'x'.map // m.map(", "'x'.map // m.map("),
    ],
)
def test_what_makes_lists_goes_through_maps_in_order(source: str, rewritten: str) -> None:
    assert ordered(source) == rewritten.replace("F(", f"{FUNCTION}(")


@pytest.mark.slow
def test_two_processes_agree() -> None:
    script = """
from rota.core.workflow.definition.expressions import Expression
values = {"input": {str(n * 7919 % 1000): n for n in range(50)}}
for source in ("input.map(k, k)", "[input]", "{'q': 1, 'a': input}", "input.map(k, {k: input[k]})"):
    print(Expression(source).evaluate(values))
"""
    runs = {
        subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            check=True,
            text=True,
            env={"PYTHONHASHSEED": str(seed), "PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for seed in (1, 2)
    }

    assert len(runs) == 1
