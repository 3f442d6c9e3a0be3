"""The transition tables: whole, and executed by every change of a state."""

import ast
from collections.abc import Iterator
from enum import StrEnum
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.core.commands import CancelTasks, ExpireAttempts, RetryTasks, SetWorkerState
from rota.core.ids import TaskId
from rota.core.replies import Changed
from rota.core.shards.member_client import HELD_TRANSITIONS
from rota.core.tasks.model import TASK_TRANSITIONS, TaskState
from rota.core.workers.circuit_breaker import BREAKER_TRANSITIONS
from rota.core.workers.model import WORKER_TRANSITIONS, WorkerState
from rota.core.workflow.runtime import tokens
from rota.core.workflow.states import (
    BRANCH_TRANSITIONS,
    RUN_ACTIONS,
    RUN_ENDED,
    RUN_TRANSITIONS,
    TOKEN_ENDED,
    TOKEN_TRANSITIONS,
    BranchState,
    RunState,
    TokenState,
)
from rota.errors import IllegalState
from tests.core.snapshots import add_task, add_worker, reduce, situation
from tests.core.workflow.driving import Drive

SOURCE = Path(rota.__file__).parent
TABLES: dict[type[StrEnum], dict[Any, frozenset[Any]]] = {
    TaskState: TASK_TRANSITIONS,
    WorkerState: WORKER_TRANSITIONS,
    RunState: RUN_TRANSITIONS,
    TokenState: TOKEN_TRANSITIONS,
    BranchState: BRANCH_TRANSITIONS,
}
PAIRS = [
    pytest.param(before, after, id=f"{kind.__name__}-{before}-{after}")
    for kind in TABLES
    for before, after in product(kind, kind)
]
ONE = TaskId(1)
WORKFLOW = """
name: w
initial_node: a
nodes:
  a: {task: work}
"""


@pytest.mark.parametrize("kind", TABLES, ids=lambda kind: kind.__name__)
def test_a_table_has_a_row_for_every_state(kind: type[StrEnum]) -> None:
    assert list(TABLES[kind]) == list(kind)


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_a_change_is_made_if_the_table_lists_it_and_raises_otherwise(
    before: Any, after: Any
) -> None:
    if after in TABLES[type(before)][before]:
        assert before.to(after) is after
    else:
        with pytest.raises(AssertionError, match=f"{before} cannot become {after}"):
            before.to(after)


@pytest.mark.parametrize("table", [BREAKER_TRANSITIONS, HELD_TRANSITIONS, *TABLES.values()])
def test_no_state_becomes_itself(table: dict[Any, frozenset[Any]]) -> None:
    assert [state for state, after in table.items() if state in after] == []


def test_ended_tokens_and_runs_only_come_back_by_a_retry() -> None:
    """A retry lets completed tokens wait at their join again, and reaches cancelled child runs."""
    for token in TOKEN_ENDED:
        waits = {TokenState.WAITING_FOR_SIBLINGS} if token is TokenState.COMPLETED else set()
        assert TOKEN_TRANSITIONS[token] == waits
    for state in RUN_ENDED:
        is_retried = state in RUN_ACTIONS["retry"] or state is RunState.CANCELLED
        assert RUN_TRANSITIONS[state] == ({RunState.RUNNING} if is_retried else set())


# --- the tables are what is executed ------------------------------------------------------------
#
# Each of these takes one change out of a table, and does what would make it.


def without(
    monkeypatch: pytest.MonkeyPatch,
    table: dict[Any, frozenset[Any]],
    before: StrEnum,
    after: StrEnum,
) -> None:
    monkeypatch.setitem(table, before, table[before] - {after})


def test_a_task_fails_by_its_table(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, TASK_TRANSITIONS, TaskState.QUEUED, TaskState.FAILED)
    snapshot = situation()
    add_task(snapshot, start_within_ms=1)
    snapshot.unstarted = [ONE]

    with pytest.raises(AssertionError, match="queued cannot become failed"):
        reduce(snapshot, ExpireAttempts())


def test_a_task_is_revived_by_its_table(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, TASK_TRANSITIONS, TaskState.FAILED, TaskState.QUEUED)
    snapshot = situation()
    add_task(snapshot, state=TaskState.FAILED, finished_at_ms=1)

    with pytest.raises(AssertionError, match="failed cannot become queued"):
        reduce(snapshot, RetryTasks((ONE,)))


def test_a_change_that_a_caller_asks_for_is_refused_by_the_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without(monkeypatch, TASK_TRANSITIONS, TaskState.QUEUED, TaskState.CANCELLED)
    snapshot = situation()
    add_task(snapshot)

    _, reply = reduce(snapshot, CancelTasks((ONE,)))

    assert isinstance(reply, Changed)
    assert isinstance(reply.refused[ONE], IllegalState)


def test_a_worker_drains_by_its_table(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, WORKER_TRANSITIONS, WorkerState.ACTIVE, WorkerState.DRAINING)
    snapshot = situation()
    add_worker(snapshot, "w1")

    with pytest.raises(AssertionError, match="active cannot become draining"):
        reduce(snapshot, SetWorkerState(worker_id="w1", state=WorkerState.DRAINING))


def test_a_run_pauses_by_its_table(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, RUN_TRANSITIONS, RunState.RUNNING, RunState.PAUSED)
    drive = Drive(WORKFLOW)

    with pytest.raises(AssertionError, match="running cannot become paused"):
        drive.pause()


def test_a_token_starts_by_its_table(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, TOKEN_TRANSITIONS, TokenState.PENDING, TokenState.DISPATCHED)

    with pytest.raises(AssertionError, match="pending cannot become dispatched"):
        Drive(WORKFLOW)


def test_a_branch_ends_by_its_table() -> None:
    branch = tokens.Branch(0, BranchState.ENDED)
    scope = tokens.BranchScope(
        number=1,
        key="k",
        node="a",
        parent=1,
        stack=(),
        targets=["b"],
        items=None,
        opened_at_ms=0,
        documents={},
        outside=None,
        branches=[branch],
    )

    with pytest.raises(AssertionError, match="ended cannot become live"):
        scope.set_state(branch, BranchState.LIVE)


STATES = {kind.__name__ for kind in TABLES}
# A new record begins in a state. These have no state before it.
BEGINNINGS = {"RunRecord", "_common"}


def assigned_states(path: Path) -> Iterator[str]:
    """The states that are written into a record or a decision without `to`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        for keyword in node.keywords:
            value = keyword.value
            is_bare = isinstance(value, ast.Attribute) and ast.unparse(value.value) in STATES
            if keyword.arg == "state" and is_bare and called not in BEGINNINGS:
                yield f"{path.name}: {called}(state={ast.unparse(value)})"


def test_no_record_changes_its_state_past_the_table() -> None:
    found = [
        one
        for folder in ("core", "engine", "store")
        for path in sorted((SOURCE / folder).rglob("*.py"))
        for one in assigned_states(path)
    ]

    assert found == []
