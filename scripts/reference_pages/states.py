"""The page on states: of tasks, attempts, runs, their tokens, workers, members and breakers."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from reference_pages.markdown import code, codes, document, sentence, table
from reference_pages.sources import comments
from rota.core.dispatch.autoscaling import Term
from rota.core.shards.members import Departure
from rota.core.tasks.model import FINISHED, TASK_TRANSITIONS, Ending, TaskState
from rota.core.workers.circuit_breaker import BREAKER_TRANSITIONS, BreakerState
from rota.core.workers.model import WORKER_TRANSITIONS, Health, WorkerState
from rota.core.workflow.states import (
    RUN_ACTIONS,
    RUN_ENDED,
    RUN_TRANSITIONS,
    TOKEN_TRANSITIONS,
    RunState,
    TokenState,
)

State = TypeVar("State", bound=StrEnum)
Transitions = Mapping[State, frozenset[State]]


def page() -> str:
    return document(
        "# States",
        "Each table and diagram is made from the transition table that the code itself obeys.",
        "## Tasks",
        _machine(TaskState, TASK_TRANSITIONS),
        f"A task has finished when it is {codes(sorted(FINISHED))}. A finished task comes back "
        "only by an operator's retry.",
        _diagram(TASK_TRANSITIONS, first=(TaskState.QUEUED, TaskState.SCHEDULED), last=FINISHED),
        "## Endings of attempts",
        "How an attempt that did not finish its task came to its end. The ending of each attempt "
        "stands in the task's history (`GET /api/jobs/{job_id}`).",
        table(("ending", "meaning"), _meanings(Ending)),
        "## Runs",
        "A run of a [workflow](../explanation/workflows.md). It ends once; only a retry opens a "
        "failed one again.",
        _machine(RunState, RUN_TRANSITIONS),
        table(("a caller may", "while the run is"), _run_actions()),
        _diagram(RUN_TRANSITIONS, first=(RunState.RUNNING,), last=RUN_ENDED),
        "## Tokens of runs",
        "Where a run is. `executing` is shown for a token whose task a worker holds; the journal "
        "has it as `dispatched`.",
        _machine(TokenState, TOKEN_TRANSITIONS),
        "## Health of workers",
        "Computed from the age of the last heartbeat when asked, never stored. See "
        "[Workers and their health](../explanation/workers-and-health.md).",
        table(("health", "meaning"), _meanings(Health)),
        "## States of workers",
        "Set by operators. Registering starts in `active`.",
        _machine(WorkerState, WORKER_TRANSITIONS),
        _diagram(WORKER_TRANSITIONS, first=(WorkerState.ACTIVE,)),
        "## Departures of members",
        "How a member of a [service](../explanation/shards.md) came to be one no more. The reason "
        "stands in the log and in `rota_service_members_gone_total`.",
        table(("reason", "meaning"), _meanings(Departure)),
        "## Breakers",
        "One between each worker and each task name.",
        _machine(BreakerState, BREAKER_TRANSITIONS),
        _diagram(BREAKER_TRANSITIONS, first=(BreakerState.CLOSED,)),
        "## What decides how many workers are wanted",
        "`decided_by` in the answer of `GET /api/scale`. See "
        "[Scale workers by the backlog](../how-to/scale-workers.md).",
        table(("term", "meaning"), _meanings(Term)),
    )


def _run_actions() -> list[tuple[str, str]]:
    return [(code(action), codes(_in_order(states))) for action, states in RUN_ACTIONS.items()]


def _meanings(states: type[StrEnum]) -> list[tuple[str, str]]:
    said = comments(states)
    return [(code(state.value), sentence(said[state.name])) for state in states]


def _machine(states: type[State], transitions: Transitions[State]) -> str:
    said = comments(states)
    rows = [
        (
            code(state.value),
            sentence(said[state.name]),
            codes(_in_order(transitions[state])) or "nothing",
        )
        for state in states
    ]
    return table(("state", "meaning", "may become"), rows)


def _diagram(
    transitions: Transitions[State],
    *,
    first: tuple[State, ...],
    last: frozenset[State] = frozenset(),
) -> str:
    lines = [f"    [*] --> {_node(state)}" for state in first]
    lines += [
        f"    {_node(state)} --> {_node(after)}"
        for state, nexts in transitions.items()
        for after in _in_order(nexts)
    ]
    lines += [f"    {_node(state)} --> [*]" for state in _in_order(last)]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```"])


def _node(state: StrEnum) -> str:
    return state.value.replace("-", "_")  # a hyphen would end the name


def _in_order(states: frozenset[State]) -> list[State]:
    """Sets have no order; that of their definition is the one to show."""
    return [state for kind in {type(one) for one in states} for state in kind if state in states]
