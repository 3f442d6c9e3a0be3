"""Merging of branch outputs."""

from typing import Any

import pytest

from tests.core.workflow.driving import Drive, Failed
from tests.core.workflow.fans import ECHO, fan, items


@pytest.mark.parametrize(
    ("strategy", "values", "merged"),
    [
        ("append", [[1], [2, 3], []], [1, 2, 3]),
        ("append", [[1], 2], [[1], 2]),
        ("append", [[[1]], [[2]]], [[1], [2]]),
        ("append", [], []),
        ("collect", [[1], [2, 3]], [[1], [2, 3]]),
        ("merge", [{"a": 1, "b": 1}, {"b": 2}], {"a": 1, "b": 2}),
        ("merge", [], {}),
        ("keyed", ["x", None], {"0": "x", "1": None}),
        ("last_wins", ["x", "y"], "y"),
    ],
)
def test_each_merge_strategy(strategy: str, values: list[Any], merged: Any) -> None:
    merge = f"{{target: output.got, strategy: {strategy}}}"

    drive = Drive(fan(merge=merge), items(*values), ECHO, seed=3).to_end()

    assert drive.output == {"got": merged}


def test_last_wins_of_nobody_writes_nothing() -> None:
    merge = "{target: output.got, strategy: last_wins}"

    assert Drive(fan(merge=merge), items(), ECHO).to_end().output == {}


def test_a_keyed_merge_takes_its_keys_from_an_expression() -> None:
    merge = "{target: output.got, strategy: keyed, key: branch.item.id, source: branch.output.v}"
    values = [{"id": "b", "v": 1}, {"id": 7, "v": 2}, {"id": "b", "v": 3}]

    drive = Drive(fan(merge=merge), items(*values), ECHO, seed=5).to_end()

    assert drive.output == {"got": {"b": 3, "7": 2}}


def test_several_merges_of_one_join() -> None:
    merge = "[{target: output.got}, {source: branch.index, target: state.order}]"

    drive = Drive(fan(merge=merge), items("a", "b"), ECHO).to_end()

    assert drive.output == {"got": ["a", "b"]}
    assert drive.document() == {"order": [0, 1]}


def test_a_merge_that_cannot_be_made_fails_the_run_with_its_place() -> None:
    merge = "{target: output.got, strategy: merge}"

    drive = Drive(fan(merge=merge), items(1), ECHO).to_end()

    assert drive.state == "failed"
    assert drive.error["type"] == "merge_failed"
    assert drive.error["place"] == "transitions[1]"
    assert "int is not an object" in drive.error["message"]


def test_a_join_can_go_on_without_failed_branches_and_see_their_errors() -> None:
    merge = (
        "[{target: output.got}, {source: branch.error.message, target: output.errors},"
        " {source: branch.index, target: output.all},"
        " {source: 'has(branch.error) ? [-1] : [branch.output]', target: output.both}]"
    )

    def work(payload: Any) -> Any:
        if payload["item"] == 1:
            raise Failed("no ones")
        return payload["item"]

    drive = Drive(
        fan(", on_branch_failure: continue", merge=merge), items(0, 1, 2), {**ECHO, "work": work}
    ).to_end()

    assert drive.output == {
        "got": [0, 2],
        "errors": ["no ones"],
        "all": [0, 2],
        "both": [0, -1, 2],
    }
