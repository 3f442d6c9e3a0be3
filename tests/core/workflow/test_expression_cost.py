"""What an expression may cost: decided before it is evaluated, by steps and never by time."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core import limits
from rota.core.workflow.definition import map_order, pattern_size
from rota.core.workflow.definition.expression_cost import (
    Estimate,
    LinearBound,
    TooExpensiveError,
)
from rota.core.workflow.definition.expressions import BUDGET, Expression, ExpressionError, Spending
from tests.core.workflow.driving import Drive

MANY = list(range(100_000))
SOME = list(range(1_000))
LONG = "x" * 1_000_000


def refusal(source: str, **values: Any) -> ExpressionError:
    with pytest.raises(ExpressionError) as raised:
        Expression(source).evaluate({"input": values})
    return raised.value


def steps(source: str, **values: Any) -> int:
    expression = Expression(source)
    return expression._estimate({"input": values}).steps


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("source", "values"),
    [
        # A list that is built is copied for every item.
        ("size(input.l.map(a, a))", {"l": list(range(9_000))}),
        ("input.l.filter(a, true) == input.l", {"l": list(range(9_000))}),
        ("input.l.map(a, input.l.map(b, input.l.map(c, input.l.map(d, d))))", {"l": MANY}),
        ("input.m.map(a, input.m.map(b, b))", {"m": {str(key): key for key in MANY}}),
        # Beside a map, a list is put in order as well, each time.
        (
            "input.l.all(v, size(input.m.map(k, k)) + size(input.d.filter(x, false)) > 0)",
            {"l": SOME[:50], "m": {"a": 1}, "d": [list(range(2_000))]},
        ),
        # Texts and lists that are joined again and again.
        ("[input.s].map(x, x + x + x + x + x).map(x, x + x + x + x + x)[0]", {"s": LONG}),
        ("input.l.map(a, input.s + 'x')", {"l": SOME, "s": LONG}),
        ("input.l.all(a, size(input.s + input.s) > 0)", {"l": SOME, "s": LONG}),
        ("input.l.all(a, size(input.m + input.m) > 0)", {"l": SOME, "m": MANY}),
        (" + ".join(["input.s"] * 30), {"s": LONG}),
        # Results that share their parts, and are large when they are taken out.
        ("[input.l].map(x, [x, x, x, x]).map(x, [x, x, x, x]).map(x, [x, x, x, x])", {"l": MANY}),
        ("input.l.map(a, input.m)", {"l": SOME, "m": SOME}),
        ("input.l.map(a, {'all': input.m})", {"l": SOME, "m": SOME}),
        # Long comparisons, many times.
        ("input.l.all(a, input.m == input.m)", {"l": SOME, "m": MANY}),
        ("input.l.all(a, !(-1 in input.m))", {"l": SOME, "m": MANY}),
        ("input.l.all(a, size(input.s) > 0)", {"l": SOME, "s": LONG}),
        # Patterns that take long to compile, or that have many states.
        (r"input.l.all(a, !'x'.matches('(\\pL{100}){9}'))", {"l": SOME}),
        ("input.l.all(a, !'x'.matches(input.p))", {"l": SOME, "p": r"(\pL{100}){9}"}),
        ("input.s.matches('[ab]*a[ab]{900}c')", {"s": LONG}),
        ("'x'.matches(input.p + 'a') || 'y'.matches(input.p + 'b')", {"p": r"(\pL{100}){9}"}),
        # Values that take long to hand over.
        ("size(input.l) > 0", {"l": [[]] * 1_000_000}),
    ],
)
def test_an_expression_that_could_take_too_long_is_not_begun(
    source: str, values: dict[str, Any]
) -> None:
    found = refusal(source, **values)

    assert found.code == BUDGET
    assert "steps" in str(found)


@pytest.mark.parametrize(
    ("source", "values", "result"),
    [
        ("size(input.l.map(a, a * 2))", {"l": list(range(1_500))}, 1_500),
        ("input.l.all(a, a >= 0)", {"l": list(range(9_000))}, True),
        ("size(input.l + input.l)", {"l": MANY}, 200_000),
        ("99999 in input.l", {"l": MANY}, True),
        ("size(input.s + input.s)", {"s": LONG}, 2_000_000),
        ("input.s.matches('(x+x+)+y')", {"s": LONG[:10_000]}, False),
        (
            "input.l.filter(a, a.matches('^[a-z0-9-]{1,63}$')) == input.l",
            {"l": ["name"] * 500},
            True,
        ),
        # One large item among small ones does not count for all of them.
        (
            "size(input.l.map(a, a.t)) + size(input.l.map(a, {'t': a.t}))",
            {"l": [{"t": LONG}, *[{"t": "x"}] * 500]},
            1_002,
        ),
        (
            "size(input.l.map(a, a.k.filter(b, b > 0)))",
            {"l": [{"k": SOME}, *[{"k": [1]}] * 800]},
            801,
        ),
        (
            "size(input.l.map(a, input.prices[a]))",
            {"l": ["a", "b"] * 400, "prices": {"a": 1, "b": 2, **{str(key): key for key in SOME}}},
            800,
        ),
        ("size(input.m.map(k, input.m[k]))", {"m": {str(key): key for key in SOME}}, 1_000),
    ],
)
def test_what_is_usual_is_evaluated(source: str, values: dict[str, Any], result: Any) -> None:
    assert Expression(source).evaluate({"input": values}) == result


def test_comprehensions_inside_each_other_are_limited_whatever_the_values() -> None:
    source = "input.l"
    for number in range(limits.MAX_COMPREHENSION_DEPTH + 1):
        source = f"input.l.map(x{number}, {source})"

    with pytest.raises(ExpressionError, match="inside each other") as raised:
        Expression(source)

    assert raised.value.code == BUDGET


def test_comprehensions_after_each_other_are_not_nested() -> None:
    source = "input.l" + ".filter(x, x > 0)" * limits.MAX_COMPREHENSIONS

    assert Expression(source).evaluate({"input": {"l": [0, 1]}}) == [1]


def test_the_librarys_own_limit_on_iterations_has_the_same_code() -> None:
    found = refusal("input.l.all(a, a >= 0)", l=list(range(20_000)))

    assert found.code == BUDGET


def test_a_list_is_gone_through_as_it_is_and_a_map_in_the_order_of_its_keys() -> None:
    expression = Expression("input.x.map(k, k)")

    assert expression.evaluate({"input": {"x": ["b", "a"]}}) == ["b", "a"]
    assert expression.evaluate({"input": {"x": {"b": 1, "a": 2}}}) == ["a", "b"]


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "source",
    [
        "input.l.map(a, a.n)",
        "input.l.filter(a, a.n > 10)",
        "input.l.filter(a, a.n % 2 == 0).map(b, {'n': b.n, 'of': size(input.l)})",
        "input.l.map(a, a.n > 10, a.k.map(k, k + a.n))",
        "input.m.map(k, [k, input.m[k]])",
        "(input.l + input.l).filter(a, a.n < 10)",
        "input.l.map(a, string(a.n)).filter(t, t.endsWith('7'))",
    ],
)
def test_a_long_list_is_made_piece_by_piece_with_the_same_result(source: str) -> None:
    values = {
        "l": [{"n": number, "k": [number, 1]} for number in range(700)],
        "m": {f"key{number}": number for number in range(700)},
    }
    expression = Expression(source)
    whole = expression._evaluated({"input": values}, is_ordered=True)
    if "input.m" in source:
        whole.sort()

    assert expression._split is not None
    assert expression.evaluate({"input": values}) == whole


def test_a_list_of_ten_thousand_items_can_be_mapped() -> None:
    found = Expression("input.l.map(a, a + 1)").evaluate({"input": {"l": list(range(10_000))}})

    assert found == list(range(1, 10_001))


def test_a_list_of_very_many_items_is_refused_after_as_many_steps_as_it_may_take() -> None:
    assert refusal("input.l.map(a, a)", l=MANY).code == BUDGET


def test_what_has_no_json_on_its_way_is_evaluated_as_a_whole() -> None:
    expression = Expression("input.l.map(a, timestamp(a)).map(t, t.getFullYear())")
    values = {"input": {"l": ["2020-01-01T00:00:00Z"] * 200}}

    assert expression.evaluate(values) == [2020] * 200


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        ("a.b.map(x, x)", ("a.b", ".map(x, x)")),
        ("a.filter(x, x).map(y, (y))", ("a.filter(x, x)", ".map(y, (y))")),
        ("(a + b).map(x, x)", ("(a + b)", ".map(x, x)")),
        ("a + b.map(x, x)", None),
        ("size(a.map(x, x))", None),
        ("a.map(x, x)[0]", None),
        ("!a.map(x, x)", None),
        ("a.exists(x, x)", None),
        ("map(x)", None),
        ("", None),
    ],
)
def test_a_source_is_split_only_where_all_of_it_makes_a_list(
    source: str, parts: tuple[str, str] | None
) -> None:
    assert map_order.split(source) == parts


def test_an_estimate_is_the_same_every_time() -> None:
    values = {"l": [{"a": "text" * number} for number in range(50)]}
    source = "input.l.filter(x, x.a != '').map(x, x.a + x.a)"

    assert len({steps(source, **values) for _ in range(5)}) == 1


LEAVES = st.sampled_from(["state.a", "state.b.c", "input", "'text'", "7", "true", "state.missing"])
LOOPLESS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "==", "<", "&&", "in"]), inner).map(
            lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"
        ),
        inner.map(lambda part: f"size({part})"),
        st.tuples(inner, inner, inner).map(lambda p: f"({p[0]} ? {p[1]} : {p[2]})"),
    ),
    max_leaves=6,
)
JSON_VALUES = st.recursive(
    st.one_of(st.integers(-100, 100), st.text(max_size=80), st.none()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(max_size=3), inner)),
    max_leaves=12,
)


@given(source=LOOPLESS, first=JSON_VALUES, second=JSON_VALUES)
def test_a_linear_bound_is_never_below_the_estimate(source: str, first: Any, second: Any) -> None:
    values = {"state": {"a": first, "b": {"c": second}}, "input": second}
    try:
        tree = Expression(source).tree
    except ExpressionError:
        return  # the types of constants do not fit
    bound = LinearBound.of(tree)
    estimate = Estimate(values)
    estimate.run(tree)

    assert bound is not None
    assert estimate.steps <= bound.most_steps(values)


@pytest.mark.parametrize("source", ["input.n + 1", "state.total > 100 && state.kind == 'a'"])
def test_the_usual_small_expression_is_covered(source: str) -> None:
    bound = LinearBound.of(Expression(source).tree)

    assert bound is not None
    assert bound.covers({"input": {"n": 4}, "state": {"total": 4, "kind": "b"}})


@pytest.mark.parametrize("source", ["input.map(x, x)", "'a'.matches(input)", "[input, input]"])
def test_what_can_multiply_has_no_linear_bound(source: str) -> None:
    assert LinearBound.of(Expression(source).tree) is None


def test_steps_grow_with_what_is_copied() -> None:
    short = steps("input.l.map(a, a)", l=list(range(100)))
    long = steps("input.l.map(a, a)", l=list(range(1_000)))

    assert 100 * 100 / 2 < short < 20_000
    assert 1_000 * 1_000 / 2 < long < 600_000


def test_an_estimate_is_bounded_itself() -> None:
    source = " == ".join(f"input.l.exists(x, x == {number})" for number in range(8))

    with pytest.raises(TooExpensiveError):
        Estimate({"input": {"l": [[]] * 1_000_000}}).run(Expression(source).tree)


@pytest.mark.parametrize(
    ("pattern", "least", "most"),
    [
        ("abc", 3, 3),
        ("a{100}", 100, 101),
        ("(a{100}){10}", 1_000, 1_200),
        ("[a-z0-9-]{63}", 126, 320),
        ("(?i)a{100}", 200, 320),
        (r"\pL{3}", 15_000, 20_000),
        (r"[a-z\pN]{3,}", 15_000, 20_100),
        (r"(\pL{100}){9}", pattern_size.MOST_STATES, pattern_size.MOST_STATES),
        ("(((", 0, 10),
        (")a{2", 1, 10),
        ("a{99999999}", 1_000, 1_000),
        ("[[:" * 100_000, pattern_size.MOST_STATES, pattern_size.MOST_STATES),
    ],
)
def test_the_states_of_a_pattern_are_counted_from_above(
    pattern: str, least: int, most: int
) -> None:
    assert least <= pattern_size.states(pattern).compiled <= most


# --- all expressions of one decision ----------------------------------------------------------


def test_the_expressions_of_one_decision_share_their_steps() -> None:
    expression, spending = Expression("size(input.l.map(a, a))"), Spending()
    values = {"input": {"l": list(range(1_500))}}

    for _ in range(8):
        expression.evaluate(values, spending)
    with pytest.raises(ExpressionError, match="one decision") as raised:
        expression.evaluate(values, spending)

    assert raised.value.code == BUDGET


def test_small_expressions_of_one_decision_are_not_counted() -> None:
    expression, spending = Expression("input.n + 1"), Spending()

    for number in range(1_000):
        expression.evaluate({"input": {"n": number}}, spending)

    assert spending.left == limits.MAX_DECISION_STEPS


GROWING = """
name: growing
initial_node: double
nodes:
  double: {input: {a: state, b: state}, output: {state.both: result}}
transitions:
  - {from: double, to: double, max_iterations: 1000}
"""
COSTLY = """
name: costly
initial_node: count
nodes:
  count: {task: count, input: {n: "size(input.rows.map(r, r))"}}
"""


@pytest.mark.timeout(60)
def test_a_document_that_is_written_into_itself_ends_the_run_and_not_the_memory() -> None:
    drive = Drive(GROWING)

    assert drive.run.state == "failed"
    assert drive.run.error is not None
    assert drive.run.error["type"] == BUDGET


def test_a_run_whose_expression_is_too_expensive_fails_with_the_place() -> None:
    drive = Drive(COSTLY, {"rows": list(range(9_000))})

    assert drive.run.state == "failed"
    assert drive.run.error is not None
    assert drive.run.error["type"] == BUDGET
    assert drive.run.error["place"] == "nodes.count.input.n"
    assert not drive.tasks
