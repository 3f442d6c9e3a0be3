"""`rota replay --code`: runs the log of runs against the functions of an app, without effects."""

import asyncio
import pdb  # noqa: T100 - what `--step` is
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click
import msgspec
from msgspec import Raw

from rota.cli.apps import load_app
from rota.cli.render.output import ExitCode, Refusal, Table, note, show
from rota.messages import RunView
from rota.sdk.app.app import Rota
from rota.sdk.client import function_calls, run_calls
from rota.sdk.client.client import Client
from rota.sdk.client.requests import every_item
from rota.sdk.encoding import encode
from rota.sdk.functions.execution.log import FunctionResumption, LoggedOperation
from rota.sdk.functions.execution.replay import ReplayedRun, replay_log, with_answers
from rota.sdk.functions.workflow import CodeWorkflow

OPEN = ("running", "paused")  # states of runs that go on


class RunReplay(msgspec.Struct, frozen=True, kw_only=True):
    """What the code does with the log of one run."""

    run_id: str
    workflow: str
    operations: int
    outcome: Any
    would_call: list[str] = []
    changed_arguments: list[str] = []
    divergence: dict[str, Any] | None = None


class CodeReplay(msgspec.Struct, frozen=True, kw_only=True):
    runs: list[RunReplay]

    @property
    def diverged(self) -> list[RunReplay]:
        return [one for one in self.runs if one.divergence is not None]


def replay_run(
    client: Client,
    reference: str,
    run_id: str,
    *,
    answers: Sequence[str],
    is_stepped: bool,
    as_json: bool,
) -> None:
    """Replay one run, with other answers or under the debugger if asked."""
    app = load_app(reference)
    view = client.run(run_calls.get_run(run_id))
    replayed = _replayed(client, app, view, answers=_answers(answers), is_stepped=is_stepped)
    _show(CodeReplay(runs=[replayed]), as_json=as_json, render=_lines_of_one)


def replay_open(client: Client, reference: str, *, sample: int | None, as_json: bool) -> None:
    """Replay the open runs of the functions of an app, all of them or some."""
    app = load_app(reference)
    found = [
        view for name in app.functions for state in OPEN for view in _runs(client, name, state)
    ]
    if sample is not None and len(found) > sample:
        found = random.Random(len(found)).sample(found, sample)  # noqa: S311 - a choice of runs
    views = [client.run(run_calls.get_run(one.id)) for one in found]
    answer = CodeReplay(runs=[_replayed(client, app, one) for one in views])
    _show(answer, as_json=as_json, render=_rendered)


def _runs(client: Client, workflow: str, state: str) -> Iterable[RunView]:
    found: Iterable[RunView] = client.run(
        every_item(lambda at: run_calls.list_runs(workflow=workflow, state=state, cursor=at))
    )
    return found


def _replayed(
    client: Client,
    app: Rota,
    view: RunView,
    *,
    answers: dict[str, Any] | None = None,
    is_stepped: bool = False,
) -> RunReplay:
    function = app.functions.get(view.workflow)
    if function is None:
        known = ", ".join(sorted(app.functions)) or "none"
        raise Refusal(
            f"the app has no function {view.workflow!r}; it has: {known}", code="function_not_found"
        )
    log, page = client.run(function_calls.whole_log(view.id))
    if answers:
        log = with_answers(log, answers)
    resumption = FunctionResumption(
        run_id=view.id,
        workflow=view.workflow,
        version=view.version,
        input=Raw(encode(None if view.context is None else view.context.input)),
        started_at_ms=view.started_at_ms,
        restarts=page.restarts,
        reported=page.reported,
    )
    replayed = _run(client, function, resumption, log, is_stepped=is_stepped)
    divergence = replayed.report.divergence
    return RunReplay(
        run_id=view.id,
        workflow=view.workflow,
        operations=len({one.path for one in log}),
        outcome=replayed.outcome,
        would_call=replayed.would_call,
        changed_arguments=replayed.changed_arguments,
        divergence=None if divergence is None else msgspec.to_builtins(divergence),
    )


def _run(
    client: Client,
    function: CodeWorkflow[..., Any],
    resumption: FunctionResumption,
    log: Sequence[LoggedOperation],
    *,
    is_stepped: bool,
) -> ReplayedRun:
    replaying = replay_log(function, resumption, log, client=client)
    if not is_stepped:
        return asyncio.run(replaying)
    debugger = pdb.Pdb(nosigint=True)
    code = function.function.__code__
    lines = sorted({line for _, _, line in code.co_lines() if line is not None})
    begin = lines[1] if len(lines) > 1 else code.co_firstlineno  # after the line of its `def`
    debugger.rcLines += [f"tbreak {code.co_filename}:{begin}", "continue"]
    found = debugger.runcall(asyncio.run, replaying)
    if found is None:
        raise Refusal("the debugger was quit before the replay ended", code="replay_left")
    return found


def _answers(given: Sequence[str]) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    for one in given:
        path, is_given, text = one.partition("=")
        try:
            answers[path] = msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            raise click.UsageError(f"--set {one}: not JSON: {error}") from None
        if not is_given or not path:
            raise click.UsageError("--set takes PATH=JSON, for example 'charge#1=\"declined\"'")
    return answers


def _show(
    answer: CodeReplay, *, as_json: bool, render: Callable[[CodeReplay], Table | str]
) -> None:
    show(answer, as_json=as_json, render=render)
    if answer.diverged:
        if not as_json:
            note(f"{len(answer.diverged)} of {len(answer.runs)} runs do something else")
        click.get_current_context().exit(ExitCode.FAILED)


def _rendered(answer: CodeReplay) -> Table | str:
    if not answer.diverged:
        return f"{len(answer.runs)} runs, all go on as they were recorded"
    return Table(
        ("run", "workflow", "path", "difference"),
        [
            (one.run_id, one.workflow, one.divergence.get("path", ""), one.divergence["message"])
            for one in answer.diverged
            if one.divergence is not None
        ],
    )


def _lines_of_one(answer: CodeReplay) -> str:
    return "\n".join(_lines(answer.runs[0]))


def _lines(one: RunReplay) -> Iterable[str]:
    yield f"run {one.run_id} of {one.workflow}: {one.operations} recorded operations"
    yield from (f"other arguments: {path}" for path in one.changed_arguments)
    if one.divergence is not None:
        yield f"diverged: {one.divergence['message']}"
        for name in ("recorded_line", "attempted_line"):
            if one.divergence.get(name) is not None:
                yield f"  {name.replace('_', ' ')}: {one.divergence[name]}"
        return
    yield from (f"would call {call}" for call in one.would_call)
    if not one.would_call:
        ((how, what),) = list(one.outcome.items())[:1]
        yield f"{how}: {msgspec.json.encode(what).decode()}"
