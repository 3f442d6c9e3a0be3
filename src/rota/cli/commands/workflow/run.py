"""`rota run`: deploys a workflow file, starts a run, and watches or awaits it.

Without `--wait` or `--watch` the command prints the run's id; with them, its output. Everything
else goes to stderr, so that `$(rota run …)` is the answer alone.
"""

import sys

import click
import msgspec

from rota.cli.commands.workflow.validate import valid_definition
from rota.cli.commands.workflow.watch import wait_until_ended, watch_until_ended
from rota.cli.connection import connected
from rota.cli.inputs import json_value
from rota.cli.options import duration_option, wait_timeout_option
from rota.cli.render.output import ExitCode, Refusal, is_terminal, json_text, note, show, visible
from rota.cli.render.run_model import describe_error
from rota.core.workflow.commands import Publishing
from rota.messages import RunRequest, RunView
from rota.sdk.client import run_calls
from rota.sdk.client.client import Client
from rota.sdk.definitions import is_name


@click.command()
@click.argument("workflow", metavar="FILE")
@click.option(
    "--input", "input_text", help="The input as JSON; @FILE reads a file, - stdin.  [default: {}]"
)
@click.option("--key", help="Idempotency key: the same key again gives the run it named first.")
@duration_option(
    "--timeout",
    "--timeout-ms",
    description="Time limit of the run, as 10m; --wait-timeout limits the wait.",
)
@click.option(
    "--publish", is_flag=True, help="Make FILE the current version of the workflow, for everyone."
)
@click.option("--watch", is_flag=True, help="Show the progress of the run until its end.")
@click.option("--wait", is_flag=True, help="Wait until the run has ended, and print its output.")
@wait_timeout_option
@connected
def run(
    client: Client,
    workflow: str,
    *,
    input_text: str | None,
    key: str | None,
    timeout_ms: int | None,
    publish: bool,
    watch: bool,
    wait: bool,
    wait_timeout_ms: int,
    as_json: bool,
) -> None:
    """Run a workflow.

    FILE (YAML or JSON) is stored as its own version, and a run of it is started. Runs that others
    start by the workflow's name keep the current version, unless --publish is given. FILE may also
    be the name of a workflow that the coordinator already has.

    Exit codes with --wait and --watch: 0 completed, 1 failed or timed out, 3 cancelled,
    4 the wait timed out.
    """
    name, version = _deployed(client, workflow, publish="always" if publish else "never")
    request = RunRequest(
        workflow=name,
        version=version,
        input=json_value("--input", input_text),
        key=key,
        timeout_ms=timeout_ms,
    )
    started = client.run(run_calls.start_run(request))
    if started.duplicate:
        note(f"run {started.id} had this key already")
    if not (wait or watch):
        show(started, as_json=as_json, render=lambda view: view.id)
        return
    follow = watch_until_ended if watch else wait_until_ended
    try:
        ended = follow(client, started, timeout_ms=wait_timeout_ms)
    except KeyboardInterrupt:
        note(f"run {started.id} continues; end it with: rota runs cancel {started.id}")
        raise
    finish(ended, as_json=as_json)


def _deployed(client: Client, workflow: str, *, publish: Publishing) -> tuple[str, int | None]:
    if is_name(workflow):
        return workflow, None
    definition = valid_definition(workflow)
    view = client.run(run_calls.put_workflow(definition, publish=publish))
    if not view.is_current:
        note(f"{view.name} version {view.version} is a try-out; --publish makes it current")
    return view.name, view.version


def finish(view: RunView, *, as_json: bool) -> None:
    """Print the output; every other end is also an error on stderr."""
    if as_json or view.state == "completed":
        show(view, as_json=as_json, render=_output)
    error = view.error or {}
    match view.state:
        case "completed":
            return
        case "failed" | "timed_out":
            text = f"run {view.id} {view.state.replace('_', ' ')}: {describe_error(error)}"
            raise Refusal(text, code=f"run_{view.state}", exit_code=ExitCode.FAILED)
        case "cancelled":
            text = f"run {view.id} was cancelled: {error.get('message', 'cancelled')}"
            raise Refusal(text, code="run_cancelled", exit_code=ExitCode.CANCELLED)
        case _:
            text = f"run {view.id} is still {view.state}"
            raise Refusal(text, code="wait_timed_out", exit_code=ExitCode.TIMED_OUT)


def _output(view: RunView) -> str:
    """The output on one line for programs, and indented for people if it is long."""
    if is_terminal(sys.stdout):
        return visible(json_text(view.output))
    return msgspec.json.encode(view.output).decode()
