"""How is a workflow run from a shell? Its file is deployed, a run started, and watched or awaited.

Without `--wait` or `--watch` the run's id is printed; with them its output, once there is one. What
is said on the way goes to stderr, so that `$(rota run …)` holds the answer alone.
"""

import sys

import click
import msgspec

from rota.cli.connection import connected
from rota.cli.inputs import json_value
from rota.cli.options import json_flag
from rota.cli.output import ExitCode, Refusal, is_terminal, note, show, visible
from rota.cli.validate import valid_definition
from rota.cli.waiting import DEFAULT_WAIT_TIMEOUT_MS
from rota.cli.watching import wait_until_ended, watch_until_ended
from rota.messages import RunRequest, RunView
from rota.sdk import run_calls
from rota.sdk.client import Client
from rota.sdk.definitions import is_name

LONG_OUTPUT = 80  # characters beyond which a terminal shows it indented


@click.command()
@click.argument("workflow", metavar="FILE")
@click.option(
    "--input", "input_text", help="The input as JSON; @FILE reads a file, - stdin.  [default: {}]"
)
@click.option("--key", help="Idempotency key: the same key again gives the run it named first.")
@click.option("--timeout-ms", type=click.IntRange(min=1), help="Most time the run may take.")
@click.option("--watch", is_flag=True, help="Show how the run goes on, until its end.")
@click.option("--wait", is_flag=True, help="Wait for the run's end, and print its output.")
@click.option(
    "--wait-timeout-ms",
    type=click.IntRange(min=0),
    default=DEFAULT_WAIT_TIMEOUT_MS,
    show_default=True,
    help="Longest wait of --wait and --watch; the exit code is 4 beyond.",
)
@connected
@json_flag
def run(
    client: Client,
    workflow: str,
    *,
    input_text: str | None,
    key: str | None,
    timeout_ms: int | None,
    watch: bool,
    wait: bool,
    wait_timeout_ms: int,
    as_json: bool,
) -> None:
    """Run a workflow.

    Its FILE (YAML or JSON) is deployed, and a run of it started. In place of a file the name of a
    workflow that the coordinator has will do.

    Exit codes with --wait and --watch: 0 completed, 1 failed or timed out, 3 cancelled,
    4 the wait ran out.
    """
    name, version = _deployed(client, workflow)
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
        note(f"run {started.id} goes on; rota runs cancel {started.id} ends it")
        raise
    finish(ended, as_json=as_json)


def _deployed(client: Client, workflow: str) -> tuple[str, int | None]:
    if is_name(workflow):
        return workflow, None
    view = client.run(run_calls.put_workflow(valid_definition(workflow)))
    return view.name, view.version


def finish(view: RunView, *, as_json: bool) -> None:
    """Print what came of a run; anything but completion is said on stderr as well."""
    if as_json or view.state == "completed":
        show(view, as_json=as_json, render=_output)
    error = view.error or {}
    match view.state:
        case "completed":
            return
        case "failed" | "timed_out":
            text = f"run {view.id} {view.state.replace('_', ' ')}: {told_error(error)}"
            raise Refusal(text, code=f"run_{view.state}", ends_with=ExitCode.FAILED)
        case "cancelled":
            text = f"run {view.id} was cancelled: {error.get('message', 'cancelled')}"
            raise Refusal(text, code="run_cancelled", ends_with=ExitCode.CANCELLED)
        case _:
            text = f"run {view.id} is still {view.state}"
            raise Refusal(text, code="wait_timed_out", ends_with=ExitCode.TIMED_OUT)


def _output(view: RunView) -> str:
    """The output as one line for programs, and as it is read best for people."""
    text = msgspec.json.encode(view.output).decode()
    is_long = is_terminal(sys.stdout) and len(text) > LONG_OUTPUT
    return visible(msgspec.json.format(text, indent=2)) if is_long else text


def told_error(error: dict[str, object]) -> str:
    where = f"{error['node']}: " if error.get("node") else ""
    return f"{where}{error.get('type', 'error')}: {error.get('message', '')}"
