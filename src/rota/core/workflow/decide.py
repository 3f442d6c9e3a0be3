"""The one door to a run: what follows from an event?

A work-list in memory, no recursion through a store: everything that follows is decided here and
returned at once. The same run and the same event give the same decisions, always; that is what
makes a journal a proof. Tokens on the list begin one by one; what cannot go on is taken up here.
"""

from typing import Any, assert_never

from rota.core.workflow import completion, failing, nodes, retrying, synchronization
from rota.core.workflow.context import Context
from rota.core.workflow.decisions import RunDecision
from rota.core.workflow.definition import Graph
from rota.core.workflow.events import (
    ChildEnded,
    RunCancelled,
    RunEvent,
    RunPaused,
    RunResumed,
    RunRetried,
    RunStarted,
    Signalled,
    TaskEnded,
    TimerFired,
)
from rota.core.workflow.run import Run
from rota.core.workflow.tokens import TokenState
from rota.core.workflow.troubles import Trouble

MOST_STEPS = 1_000_000  # of one event; beyond it something goes round that should not


def new_run(graph: Graph, run_input: Any) -> Run:
    return Run(graph=graph, context=Context(run_input, {}, {}, {}))


def decide(run: Run, event: RunEvent) -> list[RunDecision]:
    """Take up one event; what it changes is in the run, and in the answer."""
    run.now_ms = event.at_ms
    run.decisions = []
    try:
        _take_up(run, event)
    except Trouble as trouble:
        failing.take_up(run, trouble)
    steps, is_more = 0, True
    while is_more:
        try:
            is_more = _step(run)
        except Trouble as trouble:
            failing.take_up(run, trouble)
        steps += 1
        if steps == MOST_STEPS and run.failure is None and not run.is_ended:
            message = f"more than {MOST_STEPS} steps without an outside event"
            failing.take_up(run, Trouble("too_many_steps", message, "run"))
    return run.decisions


def _step(run: Run) -> bool:
    """Begin the next token, or end the run when there is none; whether there may be more to do."""
    if run.is_ended:
        return False
    if run.todo:
        token = run.tokens.get(run.todo.popleft())
        if token is not None and token.state is TokenState.PENDING:
            nodes.start(run, token)
        return True
    if completion.is_due(run):
        completion.complete(run)
    return False


def _take_up(run: Run, event: RunEvent) -> None:  # noqa: C901 - a table
    match event:
        case RunStarted():
            assert run.started is None, "a run starts once"
            run.started = event
            retrying.start(run)
        case TaskEnded():
            _task_ended(run, event)
        case ChildEnded():
            _child_ended(run, event)
        case Signalled():
            _signal(run, event)
        case TimerFired():
            _timer(run, event)
        case RunCancelled():
            if not run.is_ended:
                completion.cancel(run, event.reason)
        case RunPaused():
            if run.state == "running":
                run.set_state("paused")
        case RunResumed():
            _resume(run)
        case RunRetried():
            retrying.retry(run)
        case _:
            assert_never(event)


def _task_ended(run: Run, event: TaskEnded) -> None:
    token = run.tokens.get(event.token)
    if token is None or token.state is not TokenState.DISPATCHED:
        return  # no longer wanted: cancelled before its result came
    error = None if event.ok else event.error or {"type": "error", "message": "failed"}
    if token.compensates is not None:
        failing.undone(run, token, error)
    elif error is None:
        nodes.complete(run, event.token, event.result)
    else:
        failing.fail_token(run, event.token, error, _ended_state(event, error))


def _ended_state(event: TaskEnded, error: dict[str, Any]) -> TokenState:
    if event.cancelled:
        return TokenState.CANCELLED
    return TokenState.TIMED_OUT if error.get("type") == "timeout" else TokenState.FAILED


def _child_ended(run: Run, event: ChildEnded) -> None:
    token = run.tokens.get(event.token)
    if token is None or token.state is not TokenState.WAITING_FOR_SUBWORKFLOW:
        return
    if event.ok:
        nodes.complete(run, event.token, event.result)
    else:
        error = event.error or {"type": "error", "message": "failed"}
        failing.fail_token(run, event.token, error)


def _signal(run: Run, event: Signalled) -> None:
    """A signal is for the token that has waited longest; kept when there is none."""
    if run.is_ended:
        return
    waiting = run.waiting.get(event.name)
    if waiting:
        nodes.signalled(run, next(iter(waiting)), event.payload)
    else:
        run.keep_signal(event.name, event.payload)


def _timer(run: Run, event: TimerFired) -> None:
    if run.timers.pop((event.kind, event.number), None) is None:
        return  # dropped meanwhile
    match event.kind:
        case "sleep":
            nodes.complete(run, event.number, None)
        case "wait":
            node = run.tokens[event.number].node
            error = {"type": "timeout", "message": f"nothing came for {node!r} in time"}
            failing.fail_token(run, event.number, error, TokenState.TIMED_OUT)
        case "join":
            scope = run.scopes[event.number]
            outside = run.counted(scope.stack)
            synchronization.time_out(run, scope)
            synchronization.settle(run, outside)
        case "run":
            error = {"type": "timeout", "message": "the run took longer than it may"}
            failing.fail_run(run, error, "timed_out")


def _resume(run: Run) -> None:
    if run.state != "paused":
        return
    run.set_state("running")
    for token in run.tokens.values():
        if token.state is TokenState.PENDING:
            run.todo.append(token.number)
