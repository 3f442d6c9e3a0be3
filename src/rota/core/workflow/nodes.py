"""What does a token do at its node? Start it, and take up what it led to."""

from typing import Any

from rota.core.workflow import branches, completion, failing, routing, schemas
from rota.core.workflow.context import evaluate, evaluated, path_of
from rota.core.workflow.decisions import DispatchTask, StartChild
from rota.core.workflow.definition import Node, Retry
from rota.core.workflow.run import Run, Undo
from rota.core.workflow.tokens import Token, TokenState
from rota.core.workflow.troubles import Trouble, troubling


def start(run: Run, token: Token) -> None:
    """Begin a node's work, or be through with it at once."""
    if run.state == "paused":
        return  # stays pending; resuming starts it
    node = run.graph.definition.nodes[token.node]
    if token.compensates is not None:
        _dispatch_undoing(run, token, node)
        return
    place = f"nodes.{token.node}.input"
    with troubling("mapping_failed", place, token=token.number):
        payload = evaluated(node.input, run.values(token.stack), place)
    match node.kind:
        case "task":
            assert node.task is not None
            _dispatch(run, token, node, node.task, payload)
        case "workflow":
            assert node.workflow is not None
            run.set_token(token.number, TokenState.WAITING_FOR_SUBWORKFLOW)
            child = StartChild(token.number, node.workflow, payload, node.timeout_ms)
            run.decisions.append(child)
        case "wait_for" | "approval":
            _wait(run, token, node)
        case "sleep_ms":
            assert node.sleep_ms is not None
            run.set_token(token.number, TokenState.EXECUTING)
            run.set_timer("sleep", token.number, run.now_ms + node.sleep_ms)
        case "end" if run.late_depth(token.stack) is None:
            _end(run, token, node, payload)
        case _:  # passes through; so does a late branch that comes to an end of the run
            complete(run, token.number, payload)


def _dispatch(run: Run, token: Token, node: Node, task: str, payload: Any) -> None:
    retry = node.retry or Retry()
    run.set_token(token.number, TokenState.DISPATCHED)
    run.decisions.append(
        DispatchTask(
            token.number,
            task,
            payload,
            node.queue,
            node.priority,
            node.requires,
            node.timeout_ms,
            retry.max_attempts,
            retry.backoff,
        )
    )


def _dispatch_undoing(run: Run, token: Token, node: Node) -> None:
    assert run.failure is not None
    assert run.failure.undoing is not None
    assert node.compensate is not None
    result, error = run.failure.undoing.result, run.failure.error
    payload = {"node": token.node, "result": result, "error": error}
    _dispatch(run, token, node, node.compensate, payload)


def _wait(run: Run, token: Token, node: Node) -> None:
    name = node.awaited(token.node)
    run.start_waiting(token.number, name)
    if name in run.signals:
        signalled(run, token.number, run.take_signal(name))
    elif node.patience_ms is not None:
        run.set_timer("wait", token.number, run.now_ms + node.patience_ms)


def signalled(run: Run, number: int, payload: Any) -> None:
    """What a waiting token waited for has come."""
    node = run.graph.definition.nodes[run.tokens[number].node]
    if node.kind == "approval" and not _is_approved(payload):
        error = {"type": "rejected", "message": "the approval was refused", "details": payload}
        failing.fail_token(run, number, error)
    else:
        complete(run, number, payload)


def _is_approved(payload: Any) -> bool:
    return payload.get("approved") is True if isinstance(payload, dict) else payload is True


def _end(run: Run, token: Token, node: Node, payload: Any) -> None:
    """End the run at once, whatever else is under way."""
    _keep(run, token, node, payload)
    if node.end == "failed":
        message = f"the run ended at {token.node!r}"
        error = {"type": "ended_failed", "message": message, "node": token.node}
        if payload is not None:
            error["details"] = payload
        failing.fail_run(run, error, culprit=token.number)
    else:
        run.end_token(token.number, TokenState.COMPLETED)
        branches.cancel_everything(run)
        run.scopes.clear()
        completion.complete(run)


def complete(run: Run, number: int, result: Any) -> None:
    """A node is through: keep what it wrote, then see what follows."""
    token = run.tokens[number]
    node = run.graph.definition.nodes[token.node]
    problems = schemas.value_problems(node.output_schema, result)
    if problems:
        place = f"nodes.{token.node}.output_schema"
        raise Trouble("output_invalid", "; ".join(problems), place, token=number)
    _keep(run, token, node, result)
    if node.compensate is not None:
        run.undo.append(Undo(number, token.node, result))
    routing.go_on(run, token, result)


def _keep(run: Run, token: Token, node: Node, result: Any) -> None:
    """Write a node's result, and what its output mapping makes of it."""
    place = f"nodes.{token.node}.output"
    with troubling("mapping_failed", place, token=token.number):
        values = run.values(token.stack, result=result)
        writes = [
            (path_of(target), evaluate(source, values, f"{place}.{target}"))
            for target, source in (node.output or {}).items()
        ]
    run.write(("nodes", token.node), {"result": result}, token.stack)
    for path, value in writes:
        run.write(path, value, token.stack)
