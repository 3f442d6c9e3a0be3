"""How does work get in from a shell? One task with its options, or a file of them.

Without `--wait` the task's id is printed; with it, the result, once there is one. What is said
beside the answer goes to stderr, so that `$(rota submit …)` holds the answer alone.
"""

import sys
from typing import IO, Any

import click
import msgspec
from msgspec import Raw

from rota.cli.bulk import submit_file
from rota.cli.connection import connected
from rota.cli.options import json_flag, labels_of
from rota.cli.output import ExitCode, Refusal, note, show
from rota.cli.waiting import DEFAULT_WAIT_TIMEOUT_MS, wait_until_finished
from rota.messages import NewTask, TaskState, TaskView
from rota.sdk import calls
from rota.sdk.client import Client


@click.command()
@click.argument("name", required=False)
@click.option("--payload", help="The payload as JSON; - reads it from stdin.")
@click.option("--queue", help="Queue to wait in.  [default: default]")
@click.option("--priority", type=int, help="Higher goes first.  [default: 0]")
@click.option("--requires", multiple=True, help="Capability a worker must have; repeat for more.")
@click.option("--delay-ms", type=int, help="Do not start before this much time has passed.")
@click.option("--run-at-ms", type=int, help="Do not start before this moment (Unix time in ms).")
@click.option("--timeout-ms", type=int, help="Most time one attempt may take.")
@click.option("--start-within-ms", type=int, help="Fail when not started within this time.")
@click.option("--max-attempts", type=int, help="Most attempts.  [default: 3]")
@click.option("--backoff", help='Wait between attempts, as JSON: {"kind": "linear", …}.')
@click.option("--key", help="Idempotency key: the same key again gives the task it named first.")
@click.option("--label", multiple=True, help="KEY=VALUE, or a word; repeat for more.")
@click.option(
    "--file",
    "file",
    type=click.File("rb"),
    help="Submit one task a line from a file of JSON objects; - reads stdin.",
)
@click.option("--wait", is_flag=True, help="Wait for the task's end, and print its result.")
@click.option(
    "--wait-timeout-ms",
    type=click.IntRange(min=0),
    default=DEFAULT_WAIT_TIMEOUT_MS,
    show_default=True,
    help="Longest wait of --wait; the exit code is 4 beyond.",
)
@connected
@json_flag
def submit(
    client: Client,
    *,
    name: str | None,
    file: IO[bytes] | None,
    wait: bool,
    wait_timeout_ms: int,
    as_json: bool,
    **fields: Any,
) -> None:
    """Submit a task, or a file of tasks.

    Exit codes with --wait: 0 succeeded, 1 failed, 3 cancelled, 4 the wait ran out.
    """
    given = {key: value for key, value in fields.items() if value not in (None, ())}
    if file is not None:
        if wait or given:
            raise click.UsageError("--file takes tasks as they stand in the file, and no --wait")
        show(submit_file(client, file, name=name), as_json=as_json, render=str)
        return
    if name is None:
        raise click.UsageError("say which task: rota submit NAME, or --file FILE")

    (task,) = client.run(calls.submit([new_task(name, given)]))
    if task.duplicate:
        note(f"task {task.id} had this key already")
    if wait:
        _finish(wait_until_finished(client, task, timeout_ms=wait_timeout_ms), as_json=as_json)
    else:
        show(task, as_json=as_json, render=lambda task: task.id)


def new_task(name: str, fields: dict[str, Any]) -> NewTask:
    """The task that the options describe; what does not fit is named as the option it is."""
    described = dict(fields, name=name)
    if "label" in described:
        described["labels"] = labels_of(described.pop("label"))
    if "backoff" in described:
        described["backoff"] = msgspec.json.decode(_json("--backoff", described["backoff"]))
    payload = described.pop("payload", None)
    try:
        task = msgspec.convert(described, NewTask)
    except msgspec.ValidationError as error:
        raise click.UsageError(f"the task is not valid: {error}") from error
    if payload is None:
        return task
    text = sys.stdin.read() if payload == "-" else payload
    return msgspec.structs.replace(task, payload=Raw(_json("--payload", text)))


def _json(option: str, text: str) -> bytes:
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise click.UsageError(f"{option} is not JSON: {error}") from error
    return text.encode()


def _finish(task: TaskView, *, as_json: bool) -> None:
    """Print what came of the task; anything but success is said on stderr as well."""
    if as_json or task.state is TaskState.SUCCEEDED:
        show(task, as_json=as_json, render=lambda task: bytes(task.result or b"null").decode())
    match task.state:
        case TaskState.SUCCEEDED:
            return
        case TaskState.FAILED:
            error = task.error
            text = f"failed: {error.type}: {error.message}" if error else "failed"
            refusal = Refusal(
                f"task {task.id} {text}", code="task_failed", ends_with=ExitCode.FAILED
            )
        case TaskState.CANCELLED:
            text = f"task {task.id} was cancelled"
            refusal = Refusal(text, code="task_cancelled", ends_with=ExitCode.CANCELLED)
        case _:
            text = f"task {task.id} is still {task.state.value}"
            refusal = Refusal(text, code="wait_timed_out", ends_with=ExitCode.TIMED_OUT)
    raise refusal
