"""The context that a token sees, and the isolation of branches."""

from typing import Any

import pytest

from rota.core.workflow.definition.expressions import ExpressionError
from rota.core.workflow.runtime.context import (
    RunDocuments,
    branch_names,
    evaluate,
    evaluated,
    written,
)
from rota.core.workflow.runtime.tokens import Branch, BranchScope


def scope_of(context: RunDocuments, *, items: list[Any] | None = None, **more: Any) -> BranchScope:
    return BranchScope(
        number=1,
        key="fan",
        node="start",
        parent=1,
        stack=(),
        targets=["a", "a"],
        items=items,
        opened_at_ms=0,
        documents=context.documents,
        outside=more.get("outside"),
        branches=[Branch(0), Branch(1)],
    )


def test_writing_changes_no_document_that_somebody_holds() -> None:
    before = {"a": {"b": 1}, "c": [1]}

    after = written(before, ("a", "d", "e"), 2)

    assert before == {"a": {"b": 1}, "c": [1]}
    assert after == {"a": {"b": 1, "d": {"e": 2}}, "c": [1]}
    assert after["c"] is before["c"]


@pytest.mark.parametrize("there", [None, 5, "text", [1]])
def test_what_is_in_the_way_of_a_path_gives_way_to_an_object(there: Any) -> None:
    assert written({"a": there}, ("a", "b"), 1) == {"a": {"b": 1}}


def test_a_branch_sees_its_own_writes_and_nobody_elses() -> None:
    context = RunDocuments({"i": 1}, {"x": 0}, {}, {})
    scopes = {1: scope_of(context)}

    context.write(("state", "x"), 1, ((1, 0),), scopes)
    context.write(("state", "y"), 2, (), scopes)

    assert context.values(((1, 0),), scopes)["state"] == {"x": 1}
    assert context.values(((1, 1),), scopes)["state"] == {"x": 0}
    assert context.values((), scopes)["state"] == {"x": 0, "y": 2}
    assert "branch" not in context.values((), scopes)


def test_a_branch_knows_its_index_its_item_and_the_branch_outside() -> None:
    context = RunDocuments(None, {}, {}, {})

    assert branch_names(scope_of(context), 1) == {"index": 1, "total": 2}
    scope = scope_of(context, items=["x", None], outside={"index": 4})
    assert branch_names(scope, 1) == {
        "index": 1,
        "total": 2,
        "item": None,
        "parent": {"index": 4},
    }


def test_a_mapping_holds_expressions_and_plain_values() -> None:
    values = {"input": {"a": 2**90}}

    mapping = {"a": "input.a", "b": 5, "c": ["input.a"], "d": None, "e": {"x": "input.a"}}
    assert evaluated(mapping, values, "here") == {
        "a": 2**90,
        "b": 5,
        "c": ["input.a"],
        "d": None,
        "e": {"x": "input.a"},
    }
    assert evaluated(None, values, "here") is None


def test_an_expression_that_fails_says_where_it_stands() -> None:
    with pytest.raises(ExpressionError, match="there is no 'b'") as caught:
        evaluate("input.b", {"input": {}}, "nodes.x.input.b")

    assert caught.value.place == "nodes.x.input.b"
