"""Both kinds of workflows behind one interface: graphs, which are data, and functions.

A program is one version of a workflow, ready to run. Everything above the rules uses this module,
and asks for the kind only where the kinds differ.
"""

from typing import Any, NamedTuple

from rota.core import limits
from rota.core.ids import to_text
from rota.core.workflow.commands import SignalRun
from rota.core.workflow.decisions import RunDecision, SetTokenState
from rota.core.workflow.definition.model import Definition, Graph
from rota.core.workflow.events import FunctionStopped, OperationsReported, RunEvent
from rota.core.workflow.functions import reducer as functions
from rota.core.workflow.functions import signals as function_signals
from rota.core.workflow.functions.model import ApprovalRequest, CodeDefinition, name_of
from rota.core.workflow.functions.run import CodeRun, Function
from rota.core.workflow.runtime import reducer as graphs
from rota.core.workflow.runtime import signals as graph_signals
from rota.core.workflow.runtime.run import Run
from rota.core.workflow.states import TokenState
from rota.errors import ScopeNotFound

AnyDefinition = Definition | CodeDefinition
Program = Graph | Function
AnyRun = Run | CodeRun

MAX_FUNCTION_DEPTH = 10  # of functions inside each other, as the default of graphs


class AskedApproval(NamedTuple):
    name: str
    title: str  # as its author has written it; often empty


def program_of(definition: AnyDefinition, version: int) -> Program:
    if isinstance(definition, CodeDefinition):
        return Function(definition, version)
    return Graph(definition)


def new_run(program: Program, run_input: Any) -> AnyRun:
    if isinstance(program, Function):
        return functions.new_run(program, run_input)
    return graphs.new_run(program, run_input)


def reduce(run: AnyRun, event: RunEvent) -> list[RunDecision]:
    """Apply one event to the run; the answer is its decisions."""
    if isinstance(run, CodeRun):
        return functions.reduce(run, event)
    return graphs.reduce(run, event)


def check_signal(run: AnyRun, command: SignalRun) -> None:
    """Refuse a signal that is too late, that nothing asks for, or that is one too many."""
    if isinstance(run, CodeRun):
        function_signals.check(run, command)
    else:
        graph_signals.check(run, command)


def asked_approvals(
    run: AnyRun, event: RunEvent, decisions: list[RunDecision]
) -> list[AskedApproval]:
    """The approvals that a run has begun to wait for by this event."""
    if isinstance(run, CodeRun):
        match event:
            case OperationsReported(operations=reported):
                pass
            case FunctionStopped(report=report):
                reported = report.operations
            case _:
                return []
        return [
            AskedApproval(name_of(one.path), one.request.title[: limits.MAX_EVENT_TEXT])
            for one in reported
            if isinstance(one.request, ApprovalRequest) and one.path in run.pending
        ]
    if not run.graph.approvals:
        return []
    waiting = [
        run.tokens[one.number].node
        for one in decisions
        if isinstance(one, SetTokenState)
        and one.state is TokenState.WAITING_FOR_EVENT
        and one.number in run.tokens
    ]
    nodes = run.graph.definition.nodes
    return [
        AskedApproval(name, getattr(nodes[name].approval, "title", "")[: limits.MAX_EVENT_TEXT])
        for name in waiting
        if name in run.graph.approvals
    ]


def run_with_scopes(run: AnyRun, run_id: int, scope: int) -> Run:
    """The run of a graph; a function has no scopes that a caller could end or extend."""
    if isinstance(run, CodeRun):
        raise ScopeNotFound(to_text(run_id), scope)
    return run


def input_schema(program: Program) -> dict[str, Any] | bool | None:
    """The JSON Schema of the input; a function checks its input itself."""
    return None if isinstance(program, Function) else program.definition.input


def max_depth(run: AnyRun) -> int:
    """How deep runs may be inside each other."""
    return MAX_FUNCTION_DEPTH if isinstance(run, CodeRun) else run.graph.definition.max_depth
