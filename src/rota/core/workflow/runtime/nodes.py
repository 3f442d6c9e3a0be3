"""The work of a node: how a token starts it, and what follows from its outcome."""

from typing import Any, assert_never

import msgspec

from rota.core.workflow.decisions import DispatchTask, SendSignal, StartChild
from rota.core.workflow.definition import schemas
from rota.core.workflow.definition.model import NodeDefinition, NodeKind, RetryPolicy
from rota.core.workflow.runtime import completion, failures, routing
from rota.core.workflow.runtime.context import evaluate, evaluated, path_of
from rota.core.workflow.runtime.errors import RunError, failing_as
from rota.core.workflow.runtime.recovery import Undo
from rota.core.workflow.runtime.run import Run, Steps
from rota.core.workflow.runtime.scopes import branches
from rota.core.workflow.runtime.tokens import Token
from rota.core.workflow.states import RunState, TokenState

# The steps that a node counts for, if more than one: what follows in another run is in the same
# transaction.
STEPS: dict[NodeKind, int] = {"workflow": 10, "signal": 10}


def start(run: Run, token: Token) -> int:
    """Start the work of a token's node, or complete it at once; the steps that it counts for."""
    if run.state is RunState.PAUSED:
        return 1  # it stays pending until the run resumes
    node = run.graph.definition.nodes[token.node]
    if token.compensates is not None:
        _dispatch_undoing(run, token, node)
    else:
        _start(run, token, node)
    return STEPS.get(node.kind, 1)


def _start(run: Run, token: Token, node: NodeDefinition) -> None:
    place = f"nodes.{token.node}.input"
    with failing_as("mapping_failed", place, token=token.number):
        payload = evaluated(node.input, run.values(token.stack), place)
    match node.kind:
        case "task":
            assert node.task is not None
            _dispatch(run, token, node, node.task, payload)
        case "workflow":
            assert node.workflow is not None
            run.set_token(token.number, TokenState.WAITING_FOR_SUBWORKFLOW)
            resumes = run.resumes.pop(token.number, None)
            child = StartChild(token.number, node.workflow, payload, node.timeout_ms, resumes)
            run.decisions.append(child)
        case "wait_for" | "approval":
            _wait(run, token, node)
        case "signal":
            _send(run, token, node)
        case "sleep_ms":
            assert node.sleep_ms is not None
            run.set_token(token.number, TokenState.EXECUTING)
            run.set_timer("sleep", token.number, run.now_ms + node.sleep_ms)
        case "end" if run.late_depth(token.stack) is None:
            _end(run, token, node, payload)
        case "end" | "pass":  # a late branch does not end the run
            complete(run, token.number, payload)
        case _:
            assert_never(node.kind)


def _dispatch(run: Run, token: Token, node: NodeDefinition, task: str, payload: Any) -> None:
    retry = node.retry or RetryPolicy()
    run.set_token(token.number, TokenState.DISPATCHED)
    dispatch = DispatchTask(
        token.number,
        task,
        payload,
        node.queue,
        node.priority,
        node.requires,
        node.timeout_ms,
        retry.max_attempts,
        retry.backoff,
        links=run.spans.links(token.number),
    )
    if task == node.task:  # what undoes the node is not held up by its limits
        dispatch = msgspec.structs.replace(
            dispatch, concurrency=node.concurrency, rate=node.rate, fair_key=node.fair_key
        )
    run.decisions.append(dispatch)


def _dispatch_undoing(run: Run, token: Token, node: NodeDefinition) -> None:
    assert run.failure is not None
    assert run.failure.undoing is not None
    undo, error = run.failure.undoing, run.failure.error
    payload = {"node": undo.path.rpartition(".")[2], "result": undo.result, "error": error}
    if undo.inner is None:
        assert node.compensate is not None
        _dispatch(run, token, node, node.compensate, payload)
        return
    inner = undo.inner
    run.set_token(token.number, TokenState.DISPATCHED)
    run.decisions.append(
        DispatchTask(
            token.number,
            inner.task,
            payload,
            inner.queue,
            inner.priority,
            inner.requires,
            inner.timeout_ms,
            inner.max_attempts,
            inner.backoff,
        )
    )


def _send(run: Run, token: Token, node: NodeDefinition) -> None:
    """Send a signal. The node is through, or fails, when the run that gets it has answered."""
    signal, place = node.signal, f"nodes.{token.node}.signal"
    assert signal is not None
    with failing_as("mapping_failed", place, token=token.number):
        values = run.values(token.stack)
        target = None if signal.run is None else evaluate(signal.run, values, f"{place}.run")
        inner = f"{place}.payload"
        is_object = isinstance(signal.payload, dict)
        payload = (evaluated if is_object else evaluate)(signal.payload, values, inner)
    if signal.run is not None and not isinstance(target, str):
        message = f"{signal.run!r} gave {target!r}, not the id of a run"
        raise RunError("mapping_failed", message, f"{place}.run", token=token.number)
    run.set_token(token.number, TokenState.EXECUTING)
    run.decisions.append(SendSignal(token.number, signal.name, target, payload))


def _wait(run: Run, token: Token, node: NodeDefinition) -> None:
    name, wait = node.awaited(token.node), node.wait_for
    run.start_waiting(token.number, *node.awaits(token.node))
    takes_kept = wait is not None and not wait.transient
    if wait is not None and wait.most > 1:
        if takes_kept and not run.signals.keys().isdisjoint(wait.events):
            run.todo.append(token.number)
    elif name in run.signals and (run.rules == 1 or takes_kept):
        signalled(run, token.number, run.take_signal(name))
        return
    if node.patience_ms is not None:
        run.set_timer("wait", token.number, run.now_ms + node.patience_ms)


def take_kept(run: Run, token: Token) -> None:
    """Give a token that waits again after each signal the next one that was kept."""
    wait = run.graph.definition.nodes[token.node].wait_for
    assert wait is not None
    name = next((one for one in wait.events if one in run.signals), None)
    if name is None:
        return
    signalled(run, token.number, run.take_signal(name), name)
    if token.number in run.tokens:
        run.todo.append(token.number)  # after what this signal has led to


def is_behind(run: Run, number: int, name: str) -> bool:
    """Whether a token has kept signals of this name to take first."""
    wait = run.graph.definition.nodes[run.tokens[number].node].wait_for
    return wait is not None and wait.most > 1 and not wait.transient and name in run.signals


def signalled(run: Run, number: int, payload: Any, name: str | None = None) -> None:
    """Take up the signal that a token waited for: it is through, or goes on waiting."""
    token = run.tokens[number]
    node = run.graph.definition.nodes[token.node]
    wait = node.wait_for
    if node.kind == "approval" and not _is_approved(payload):
        error = {"type": "rejected", "message": "the approval was refused", "details": payload}
        failures.fail_token(run, number, error)
    elif wait is not None and wait.until is not None and name == wait.until.event:
        routing.end_here(run, token)
    elif wait is not None and run.triggers.get(number, 0) + 1 < wait.most:
        run.wait_again(number, wait.event)
        sent_on = run.create_token(
            token.node, parent=number, stack=token.stack, via="trigger", is_trigger=True
        )
        complete(run, sent_on.number, payload)
    else:
        complete(run, number, payload)


def _is_approved(payload: Any) -> bool:
    return payload.get("approved") is True if isinstance(payload, dict) else payload is True


def _end(run: Run, token: Token, node: NodeDefinition, payload: Any) -> None:
    """End the run at once, whatever is under way."""
    _keep(run, token, node, payload)
    message, place = f"the run ended at {token.node!r}", {"node": token.node}
    more = place if payload is None else {**place, "details": payload}
    match node.end:
        case "failed":
            error = {"type": "ended_failed", "message": message, **more}
            failures.fail_run(run, error, culprit=token.number)
        case "cancelled":
            run.end_token(token.number, TokenState.COMPLETED)
            failures.cancel(run, message, "undo", more)
        case "completed":
            run.end_token(token.number, TokenState.COMPLETED)
            run.perform("end", _ending(run))
        case None:
            raise AssertionError("a node that is no end does not end the run")
        case _:
            assert_never(node.end)


def _ending(run: Run) -> Steps:
    """Cancel what is under way, and complete the run."""
    yield from branches.cancel_everything(run)
    run.scopes.clear()
    completion.complete(run)


def complete(run: Run, number: int, result: Any) -> None:
    """Complete a node: keep its result, then follow its transitions."""
    token = run.tokens[number]
    node = run.graph.definition.nodes[token.node]
    problems = schemas.value_problems(node.output_schema, result)
    if problems:
        place = f"nodes.{token.node}.output_schema"
        raise RunError("output_invalid", "; ".join(problems), place, token=number)
    _keep(run, token, node, result)
    if node.compensate is not None:
        run.undo.append(Undo(number, token.node, result))
    routing.follow_transitions(run, token, result)


def _keep(run: Run, token: Token, node: NodeDefinition, result: Any) -> None:
    """Write a node's result, and the values of its output mapping."""
    place = f"nodes.{token.node}.output"
    with failing_as("mapping_failed", place, token=token.number):
        values = run.values(token.stack, result=result)
        writes = [
            (path_of(target), evaluate(source, values, f"{place}.{target}"))
            for target, source in (node.output or {}).items()
        ]
    run.write(("nodes", token.node), {"result": result}, token.stack)
    for path, value in writes:
        run.write(path, value, token.stack)
