"""The reducer of a run whose workflow is a function: what follows from an event.

The function itself runs on a worker, inside an ordinary task. The reducer decides when it is
resumed, and carries out what it asks for. The same run and the same event always give the same
decisions.
"""

from typing import Any, assert_never

from msgspec import UNSET, UnsetType

from rota.core import limits
from rota.core.workflow.decisions import (
    CancelTask,
    PauseChild,
    ResumeChild,
    ResumeFunction,
    RunDecision,
)
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
from rota.core.workflow.functions import operations, rewriting, signals
from rota.core.workflow.functions.model import FUNCTION_TOKEN, FunctionReport
from rota.core.workflow.functions.operations import InvalidReportError
from rota.core.workflow.functions.run import CodeRun, Function
from rota.core.workflow.states import RUN_ACTIONS, RunState

TIMED_OUT = "the run took longer than it may"


def new_run(function: Function, run_input: Any) -> CodeRun:
    return CodeRun(function=function, input=run_input)


def reduce(run: CodeRun, event: RunEvent) -> list[RunDecision]:
    """Apply one event to the run; the answer is its decisions."""
    run.now_ms = event.at_ms
    run.decisions = []
    try:
        _take_up(run, event)
    except InvalidReportError as error:
        fail(run, {"type": "report_invalid", "message": str(error)})
    if not run.is_ended:
        _check_limits(run)
    if run.is_due and not run.is_held and run.state is RunState.RUNNING:
        _resume(run)
    decisions, run.decisions = run.decisions, []  # a suspended run keeps none
    return decisions


def _take_up(run: CodeRun, event: RunEvent) -> None:  # noqa: C901, PLR0912 - a table
    match event:
        case RunStarted():
            _start(run, event)
        case OperationsReported():
            if run.is_held:
                operations.report(run, event.operations)
        case FunctionStopped():
            if run.is_held:
                run.last_span = event.traceparent
                _stopped(run, event.report)
        case TaskEnded():
            if event.token == FUNCTION_TOKEN:
                _crashed(run, event)
            else:
                operations.task_ended(run, event)
        case ChildEnded():
            operations.child_ended(run, event)
        case Signalled():
            _signalled(run, event)
        case TimerFired():
            _timer(run, event)
        case RunCancelRequested():
            _cancel(run, event)
        case RunPaused():
            _pause(run, event)
        case RunResumed():
            _go_on(run, event)
        case RunRetried():
            _retry(run, event)
        case SignalSent() | ScopeEndRequested() | BranchesAdded():
            raise AssertionError("functions have no tokens that signal, and no scopes that end")
        case _:
            assert_never(event)


def _check_limits(run: CodeRun) -> None:
    if run.count > limits.MAX_OPERATIONS:
        message = (
            f"a run has at most {limits.MAX_OPERATIONS} operations; "
            "restart the function before that, with ctx.restart"
        )
        fail(run, {"type": "too_many_operations", "message": message})
    elif run.stream_values > limits.MAX_STREAM_VALUES:
        message = f"a run appends at most {limits.MAX_STREAM_VALUES} values to its streams"
        fail(run, {"type": "too_many_stream_values", "message": message})


# --- the function -----------------------------------------------------------------------------


def _start(run: CodeRun, event: RunStarted) -> None:
    assert run.started is None, "a run starts once"
    run.started = event
    if isinstance(event.state, dict):
        run.published = event.state
    if not isinstance(event.log, UnsetType):
        rewriting.take_over(run, event.log)
    _arm_timeout(run)
    run.is_due = True


def _arm_timeout(run: CodeRun) -> None:
    assert run.started is not None
    timeout_ms = run.started.timeout_ms or run.function.definition.timeout_ms
    if timeout_ms is not None:
        run.set_timer("run", 0, run.now_ms + timeout_ms)


def _resume(run: CodeRun) -> None:
    run.is_due, run.is_held, run.waits = False, True, None
    run.is_told = run.cancelled is not None
    run.log_at_resume = run.length
    run.decisions.append(ResumeFunction(run.reported, run.take_spans()))


def _stopped(run: CodeRun, report: FunctionReport) -> None:
    """Take up the last operations of a function, and how it stopped."""
    entries = operations.unknown_part(run, report.after, report.operations)
    if entries is None:
        error = {"type": "report_gap", "message": "entries before the report are missing"}
        _crashed(run, TaskEnded(run.now_ms, FUNCTION_TOKEN, ok=False, error=error))
        return
    run.is_held = False
    operations.report(run, entries)
    if report.divergence is not None:
        run.divergence, run.is_due = report.divergence, True
        error = {"type": "diverged", **_fields(report.divergence)}
        if run.state is RunState.RUNNING:
            run.set_state(RunState.PAUSED, error=error)
    elif report.restart is not UNSET:
        rewriting.restart(run, report.restart)
    elif report.error is not None:
        _failed(run, report.error)
    elif report.waits is not None:
        operations.wait_for(run, report.waits)
        if run.is_due and run.length == run.log_at_resume:
            raise InvalidReportError("the function does not take up what it waits for")
        run.is_due |= run.cancelled is not None and not run.is_told
    else:
        end(run, RunState.COMPLETED, output=None if report.output is UNSET else report.output)


def _fields(divergence: Any) -> dict[str, Any]:
    return {name: getattr(divergence, name) for name in divergence.__struct_fields__}


def _failed(run: CodeRun, error: dict[str, Any]) -> None:
    """End a run with the error of its function."""
    if run.cancelled is None or error.get("type") != "cancelled":
        end(run, RunState.FAILED, error=error)
        return
    state = RunState.TIMED_OUT if run.is_timed_out else RunState.CANCELLED
    kind = "timeout" if run.is_timed_out else "cancelled"
    end(run, state, error={**error, "type": kind, "message": run.cancelled})


def _crashed(run: CodeRun, event: TaskEnded) -> None:
    """Resume a function whose task has failed, if it had got on; otherwise its run fails."""
    if not run.is_held:
        return
    run.is_held = False
    if run.length > run.log_at_resume and not event.cancelled:
        run.is_due = True
    else:
        fail(run, event.error or operations.NO_ERROR)


# --- ending -----------------------------------------------------------------------------------


def fail(run: CodeRun, error: dict[str, Any], state: RunState = RunState.FAILED) -> None:
    """End a run without its function, which can undo nothing any more."""
    left = rewriting.not_undone(run)
    end(run, state, error={**error, "not_undone": left} if left else error)


def end(
    run: CodeRun,
    state: RunState,
    *,
    output: Any = None,
    error: dict[str, Any] | None = None,
) -> None:
    if run.is_held:
        run.is_held = False
        run.decisions.append(CancelTask(FUNCTION_TOKEN))
    operations.cancel_all(run)
    run.waits, run.is_due = None, False
    run.drop_timer("run", 0)
    run.has_news = True
    run.set_state(state, output=output, error=error)


def _cancel(run: CodeRun, event: RunCancelRequested) -> None:
    if run.is_ended:
        return
    reason = event.reason or "cancelled"
    if event.mode in {"force", None}:
        fail(run, {"type": "cancelled", "message": reason}, RunState.CANCELLED)
    else:
        _tell_cancelled(run, reason)


def _tell_cancelled(run: CodeRun, reason: str) -> None:
    """Let the function stop and undo what it has done; a second reason changes nothing."""
    if run.cancelled is None:
        run.cancelled = reason
        run.is_due = True
        if run.state is RunState.PAUSED:  # it could not stop otherwise
            run.divergence = None
            run.set_state(RunState.RUNNING)


# --- signals, timers, steering ------------------------------------------------------------------


def _signalled(run: CodeRun, event: Signalled) -> None:
    if run.is_ended:
        return
    signal = signals.count(run, event.payload, event.key)
    reached = signals.addressee(run, event.name, event.token)
    if reached is not None:
        pending = run.pending[run.tokens[reached]]
        error = signals.rejection_of(pending, event.payload)
        result = None if error else signals.value_of(run, pending, signal)
        operations.end(run, pending, result=result, error=error)
    elif event.token is None:
        signals.put_aside(run, event.name, signal)


def _timer(run: CodeRun, event: TimerFired) -> None:
    if run.timers.pop((event.kind, event.number), None) is None:
        return  # dropped meanwhile
    if event.kind == "run":
        if run.cancelled is None:
            run.is_timed_out = True
            _tell_cancelled(run, TIMED_OUT)
    else:
        operations.timer_fired(run, event)


def _pause(run: CodeRun, event: RunPaused) -> None:
    if run.state is not RunState.RUNNING:
        return
    run.set_state(RunState.PAUSED)
    if event.children:
        run.decisions += [PauseChild(number) for number in _with_children(run)]


def _go_on(run: CodeRun, event: RunResumed) -> None:
    if run.state is not RunState.PAUSED:
        return
    if event.accept and run.divergence is not None:
        rewriting.accept(run, run.divergence)
    run.divergence = None
    run.set_state(RunState.RUNNING)
    if event.children:
        run.decisions += [ResumeChild(number) for number in _with_children(run)]


def _with_children(run: CodeRun) -> list[int]:
    return [pending.token for pending in run.pending.values() if pending.kind == "run"]


def _retry(run: CodeRun, event: RunRetried) -> None:
    is_cancelled = run.state is RunState.CANCELLED
    if run.state not in RUN_ACTIONS["retry"] and not (is_cancelled and event.with_parent):
        return
    run.cancelled, run.is_timed_out, run.is_told = None, False, False
    run.set_state(RunState.RUNNING)
    rewriting.forget_failures(run)
    _arm_timeout(run)
    run.is_due = True
