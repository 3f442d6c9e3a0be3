"""The reducer of a run: what follows from an event.

A work-list in memory, without I/O: everything that follows from an event is decided here and
returned, at once or in slices of a bounded number of steps. The same run and the same event always
give the same decisions; that is what makes a journal a proof. Tokens on the list start one by one;
their errors are taken up here.
"""

import sys
from typing import Any, assert_never

from rota.core.workflow.decisions import PauseChild, ResumeChild, RunDecision
from rota.core.workflow.definition.expressions import Spending
from rota.core.workflow.definition.model import Graph
from rota.core.workflow.events import (
    BranchesAdded,
    ChildEnded,
    FunctionStopped,
    OperationsReported,
    RunCancelRequested,
    RunEvent,
    RunPaused,
    RunResumed,
    RunRetried,
    RunStarted,
    ScopeEndRequested,
    Signalled,
    SignalSent,
    TaskEnded,
    TimerFired,
)
from rota.core.workflow.runtime import (
    completion,
    failures,
    nodes,
    retries,
    signals,
)
from rota.core.workflow.runtime.context import RunDocuments
from rota.core.workflow.runtime.errors import RunError
from rota.core.workflow.runtime.run import LEAST_EXPRESSION_STEPS, Run
from rota.core.workflow.runtime.scopes import branches, joins, requests
from rota.core.workflow.states import RunState, TokenState

MOST_STEPS = 1_000_000  # without an event from outside; more are a loop that does not end


def new_run(graph: Graph, run_input: Any) -> Run:
    return Run(graph=graph, context=RunDocuments(run_input, {}, {}, {}))


def reduce(run: Run, event: RunEvent) -> list[RunDecision]:
    """Apply one event to the run; the answer is its decisions.

    A run that takes many steps takes them in slices, each of which ends with a timer that is due at
    once. So the next slice is an event of its own, and other runs go on in between. While a run has
    steps to take, other events only add to them; so does an event that says `later`.
    """
    run.now_ms = event.at_ms
    run.decisions = []
    run.context.spending = Spending()
    if not run.is_busy and not _is_of_a_node(event):
        run.steps = 0
    run.steps_left = _steps_allowed(run, event) if _takes_steps(run, event) else 0
    if _must_wait(run, event):
        if isinstance(event, RunCancelRequested):
            failures.note_cancellation(run, event.reason)
        run.defer(event)
    else:
        try:
            _take_up(run, event)
        except RunError as error:
            failures.take_up(run, error)
    _take_steps(run)
    if not run.is_busy or run.is_ended:
        run.drop_timer("slice", 0)
    elif ("slice", 0) not in run.timers:
        run.set_timer("slice", 0, run.now_ms)
    return run.decisions


def _is_of_a_node(event: RunEvent) -> bool:
    """Whether a signal of a node led to an event: runs may signal each other in a circle."""
    return isinstance(event, SignalSent) or (
        isinstance(event, Signalled) and event.sender is not None
    )


def _must_wait(run: Run, event: RunEvent) -> bool:
    """Whether the run is in the middle of a procedure, or other events wait already."""
    is_slice = isinstance(event, TimerFired) and event.kind == "slice"
    return bool(run.procedures or run.deferred) and not is_slice


def _takes_steps(run: Run, event: RunEvent) -> bool:
    if run.is_busy:
        is_slice = isinstance(event, TimerFired) and event.kind == "slice"
        return is_slice or (isinstance(event, RunCancelRequested) and not _must_wait(run, event))
    return not (isinstance(event, Signalled | SignalSent | ChildEnded) and event.later)


def _steps_allowed(run: Run, event: RunEvent) -> int:
    started = event if isinstance(event, RunStarted) else run.started
    return (started and started.slice_steps) or sys.maxsize


def _take_steps(run: Run) -> None:
    """Take the steps of a slice; whether the run is complete is checked when none is left."""
    is_sliced = run.started is not None and run.started.slice_steps is not None
    is_more = True
    while is_more and (run.steps_left > 0 or not run.is_busy):
        is_counted = not run.procedures
        try:
            is_more = _step(run)
        except RunError as error:
            failures.take_up(run, error)
        run.steps += is_counted
        if is_counted and run.steps == MOST_STEPS and run.failure is None and not run.is_ended:
            message = f"more than {MOST_STEPS} steps without an outside event"
            failures.take_up(run, RunError("too_many_steps", message, "run"))
        if is_sliced and run.context.spending.left < LEAST_EXPRESSION_STEPS:
            run.steps_left = 0


def _step(run: Run) -> bool:
    """Start the next token, or end the run when there is none; whether there may be more to do."""
    if run.is_ended:
        return False
    if run.procedures:
        run.proceed()
        return True
    if run.deferred:
        run.steps_left -= 1
        _take_up(run, run.next_deferred())
        return True
    if run.todo:
        token = run.tokens.get(run.todo.popleft())
        if token is not None and token.state is TokenState.PENDING:
            steps = nodes.start(run, token)
            run.steps_left -= steps
        elif token is not None and token.state is TokenState.WAITING_FOR_EVENT:
            nodes.take_kept(run, token)
            run.steps_left -= 1
        return True
    if run.opening:
        branches.start_branches(run, run.scopes[next(iter(run.opening))])
        return True
    if completion.is_due(run):
        completion.complete(run)
    return False


def _take_up(run: Run, event: RunEvent) -> None:  # noqa: C901, PLR0912 - a table
    match event:
        case RunStarted():
            assert run.started is None, "a run starts once"
            run.started, run.rules = event, event.rules
            run.context.run = {"id": event.run_id, "parent_id": event.parent_id}
            retries.start(run)
        case TaskEnded():
            _task_ended(run, event)
        case ChildEnded():
            _child_ended(run, event)
        case Signalled():
            signals.take_up(run, event)
        case SignalSent():
            _signal_sent(run, event)
        case TimerFired():
            _timer(run, event)
        case RunCancelRequested():
            _cancel(run, event)
        case RunPaused():
            _pause(run, event)
        case RunResumed():
            _resume(run, event)
        case RunRetried():
            retries.retry(run, event)
        case ScopeEndRequested():
            requests.take_up(run, event)
        case BranchesAdded():
            requests.add_branches(run, event)
        case OperationsReported() | FunctionStopped():
            raise AssertionError("no function runs for a graph")
        case _:
            assert_never(event)


def _cancel(run: Run, event: RunCancelRequested) -> None:
    if run.is_ended:
        return
    if event.mode is None:
        completion.cancel_at_once(run, event.reason)
    else:
        failures.cancel(run, event.reason, event.mode)


def _task_ended(run: Run, event: TaskEnded) -> None:
    token = run.tokens.get(event.token)
    if token is None or token.state is not TokenState.DISPATCHED:
        return  # cancelled before its result came
    error = None if event.ok else event.error or {"type": "error", "message": "failed"}
    if error is None:
        run.spans.note_end(event.token, event.traceparent)
    if token.compensates is not None:
        failures.undone(run, token, error)
    elif error is None:
        nodes.complete(run, event.token, event.result)
    else:
        failures.fail_token(run, event.token, error, _ended_state(event, error))


def _ended_state(event: TaskEnded, error: dict[str, Any]) -> TokenState:
    if event.cancelled:
        return TokenState.CANCELLED
    return TokenState.TIMED_OUT if error.get("type") == "timeout" else TokenState.FAILED


def _child_ended(run: Run, event: ChildEnded) -> None:
    token = run.tokens.get(event.token)
    if token is None or token.state is not TokenState.WAITING_FOR_SUBWORKFLOW:
        node = run.left.pop(event.token, None)
        if node is not None:
            failures.left_child_ended(run, node, event)
    elif run.failure is not None:
        failures.child_stopped(run, token, event)
    elif event.ok:
        run.spans.note_end(event.token, event.traceparent)
        if run.rules > 1 and run.graph.definition.nodes[token.node].compensate is None:
            failures.keep_child_work(run, token.node, event)
        nodes.complete(run, event.token, event.result)
    else:
        error = event.error or {"type": "error", "message": "failed"}
        failures.fail_token(run, event.token, error)


def _signal_sent(run: Run, event: SignalSent) -> None:
    token = run.tokens.get(event.token)
    if token is None or token.state is not TokenState.EXECUTING:
        return  # cancelled meanwhile
    if event.error is None:
        nodes.complete(run, event.token, None)
    else:
        failures.fail_token(run, event.token, event.error)


def _timer(run: Run, event: TimerFired) -> None:
    if run.timers.pop((event.kind, event.number), None) is None:
        return  # dropped meanwhile
    match event.kind:
        case "sleep":
            nodes.complete(run, event.number, None)
        case "wait":
            node = run.tokens[event.number].node
            error = {"type": "timeout", "message": f"nothing came for {node!r} in time"}
            failures.fail_token(run, event.number, error, TokenState.TIMED_OUT)
        case "join":
            scope = run.scopes[event.number]
            outside = run.counted(scope.stack)
            joins.time_out(run, scope)
            joins.close_branches(run, outside)
        case "slice":
            pass  # its steps follow
        case "run":
            error = {"type": "timeout", "message": "the run took longer than it may"}
            failures.fail_run(run, error, RunState.TIMED_OUT)
        case _:
            assert_never(event.kind)


def _pause(run: Run, event: RunPaused) -> None:
    if run.state is not RunState.RUNNING:
        return
    run.set_state(RunState.PAUSED)
    if event.children:
        run.decisions += [PauseChild(number) for number in _with_children(run)]


def _resume(run: Run, event: RunResumed) -> None:
    if run.state is not RunState.PAUSED:
        return
    run.resume()
    if event.children:
        run.decisions += [ResumeChild(number) for number in _with_children(run)]


def _with_children(run: Run) -> list[int]:
    """The tokens that wait for a sub-workflow which has not ended."""
    return [
        token.number
        for token in run.tokens.values()
        if token.state is TokenState.WAITING_FOR_SUBWORKFLOW
        and token.number not in run.ended_meanwhile
    ]
