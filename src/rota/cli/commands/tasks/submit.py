"""`rota submit`: one task with its options, or a file of tasks.

Without `--wait` the command prints the task's id; with it, the result. Everything else goes to
stderr, so that `$(rota submit …)` is the answer alone. A file is submitted in batches, each
accepted whole or not at all, so that an error names exactly how far the file got.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import IO, Any, NamedTuple

import click
import msgspec
from click.core import ParameterSource
from msgspec import Struct

from rota.cli.connection import connected
from rota.cli.inputs import concurrency_fields, headers_of, json_value, labels_of, rate_fields
from rota.cli.options import duration_option, wait_timeout_option
from rota.cli.render.output import ExitCode, Refusal, is_terminal, note, show, visible
from rota.core.tasks.model import FINISHED
from rota.errors import Invalid, Overloaded, RotaError, Unavailable
from rota.messages import NewTask, TaskState, TaskView
from rota.messages.dashboard import WhyView
from rota.sdk.client import calls
from rota.sdk.client.client import Client
from rota.sdk.handles import traceback_of

FIRST_POLL_MS = 300  # then a task that no worker can run is explained
WATCHED_POLL_MS = 500  # on a terminal: the largest age of the shown progress
QUIET_POLL_MS = 30_000
PAUSE_S = 0.5  # before the next call to a coordinator that did not answer
LINES_PER_BATCH = 1_000
MAX_TRIES_WHEN_OVERLOADED = 60


@click.command()
@click.argument("name", required=False)
@click.option("--payload", help="The payload as JSON; @FILE reads a file, - stdin.")
@click.option("--queue", help="Queue to wait in.  [default: default]")
@click.option("--priority", type=int, help="Higher goes first.  [default: 0]")
@click.option("--requires", multiple=True, help="Capability a worker must have; repeat for more.")
@duration_option(
    "--delay", "--delay-ms", description="Do not start before this much time has passed, as 5m."
)
@click.option("--run-at-ms", type=int, help="Do not start before this moment (Unix time in ms).")
@duration_option(
    "--attempt-timeout",
    "--timeout-ms",
    description="Time limit of one attempt, as 30s; --wait-timeout limits the wait.",
)
@duration_option(
    "--start-within",
    "--start-within-ms",
    description="Fail when not started within this time, as 1h.",
)
@click.option(
    "--on-expiry",
    type=click.Choice(["fail", "discard"]),
    help="What happens to a task that did not start in time.  [default: fail]",
)
@click.option("--max-attempts", type=int, help="Largest number of attempts.  [default: 3]")
@click.option("--backoff", help='Wait between attempts, as JSON: {"kind": "linear", …}.')
@click.option(
    "--key",
    help="Idempotency key: the same key again, in the same queue, gives the task it named first.",
)
@click.option("--unique", help='One at a time, as JSON: {"key": "user:7", "while": "queued", …}.')
@click.option("--debounce", help='One for many, as JSON: {"key": "user:7", "wait_ms": 500, …}.')
@click.option(
    "--concurrency",
    multiple=True,
    metavar="KEY[=LIMIT]",
    help="Run at most LIMIT tasks of KEY at once, by default one; or as JSON; repeat for more.",
)
@click.option(
    "--rate",
    multiple=True,
    metavar="KEY=LIMIT/PERIOD",
    help="Start at most this many tasks of KEY in a period, as openai=10/1s; or as JSON; repeat "
    "for more.",
)
@click.option("--fair-key", help="Tenant: the tenants of a queue share its starts.")
@click.option(
    "--header",
    multiple=True,
    metavar="NAME=VALUE",
    help="Text beside the payload, for middleware; repeat for more.",
)
@click.option("--label", multiple=True, help="KEY=VALUE, or a word; repeat for more.")
@click.option(
    "--file",
    "file",
    type=click.File("rb"),
    help="Submit a file of JSON objects, one task per line; - reads stdin.",
)
@click.option("--wait", is_flag=True, help="Wait until the task has ended, and print its result.")
@wait_timeout_option
@connected
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

    Exit codes with --wait: 0 succeeded, 1 failed, 3 cancelled, 4 the wait timed out.
    """
    given = {key: value for key, value in fields.items() if value not in (None, ())}
    if file is not None:
        if wait or given:
            raise click.UsageError(
                "with --file, the options of the tasks are in the file, and --wait cannot be used"
            )
        show(submit_file(client, file, name=name), as_json=as_json, render=str)
        return
    if name is None:
        raise click.UsageError("name a task (rota submit NAME), or give --file FILE")

    if wait and "timeout_ms" in given and _is_default("wait_timeout_ms"):
        note("--timeout-ms limits each attempt; --wait-timeout limits the wait")
    (task,) = client.run(calls.submit([new_task(name, given)]))
    if task.duplicate:
        note(f"task {task.id} had this key already")
    if wait:
        ended = wait_until_finished(client, task, timeout_ms=wait_timeout_ms)
        why = None if ended.state in FINISHED else _reason(client, ended)
        _finish(ended, why, as_json=as_json)
    else:
        show(task, as_json=as_json, render=lambda task: task.id)


def _is_default(option: str) -> bool:
    return click.get_current_context().get_parameter_source(option) is ParameterSource.DEFAULT


def new_task(name: str, fields: dict[str, Any]) -> NewTask:
    """Build a task from the options."""
    described = dict(fields, name=name)
    if "label" in described:
        described["labels"] = labels_of(described.pop("label"))
    if "header" in described:
        described["headers"] = headers_of("--header", described.pop("header"))
    for option in ("backoff", "unique", "debounce"):
        if option in described:
            described[option] = msgspec.json.decode(
                json_value(f"--{option}", described[option]) or b"null"
            )
    for name_of_option, fields_of in (("concurrency", concurrency_fields), ("rate", rate_fields)):
        if name_of_option in described:
            described[name_of_option] = [
                fields_of(f"--{name_of_option}", one) for one in described[name_of_option]
            ]
    payload = json_value("--payload", described.pop("payload", None))
    try:
        task = msgspec.convert(described, NewTask)
    except msgspec.ValidationError as error:
        raise click.UsageError(f"the task is not valid: {error}") from error
    return task if payload is None else msgspec.structs.replace(task, payload=payload)


def _finish(task: TaskView, why: WhyView | None, *, as_json: bool) -> None:
    """Print the result; every other end is also an error on stderr."""
    if as_json or task.state is TaskState.SUCCEEDED:
        show(task, as_json=as_json, render=lambda task: bytes(task.result or b"null").decode())
    match task.state:
        case TaskState.SUCCEEDED:
            return
        case TaskState.FAILED:
            error = task.error
            text = f"failed: {error.type}: {error.message}" if error else "failed"
            trace = traceback_of(error) if error else None
            if trace is not None:
                note(trace.rstrip())
            refusal = Refusal(
                f"task {task.id} {text}", code="task_failed", exit_code=ExitCode.FAILED
            )
        case TaskState.CANCELLED:
            text = f"task {task.id} was cancelled"
            refusal = Refusal(text, code="task_cancelled", exit_code=ExitCode.CANCELLED)
        case _:
            reason = "" if why is None else f": {why.text}"
            text = f"task {task.id} is still {task.state.value}{reason}"
            refusal = Refusal(text, code="wait_timed_out", exit_code=ExitCode.TIMED_OUT)
    raise refusal


# --- waiting for the end -------------------------------------------------------------------------


def wait_until_finished(client: Client, task: TaskView, *, timeout_ms: int) -> TaskView:
    """Wait until the task has finished, or the time is over; returns the task as it is then."""
    ends_at = time.monotonic() + timeout_ms / 1000
    watched = is_terminal(sys.stderr)
    with _display(watched=watched) as display:
        reasons = WaitReasons(client, task.id, display.note)
        while task.state not in FINISHED:
            display.update(describe(task))
            left_ms = max(0, int((ends_at - time.monotonic()) * 1000))
            if left_ms == 0:
                break
            poll_ms = WATCHED_POLL_MS if watched else QUIET_POLL_MS
            wait_ms = min(left_ms, FIRST_POLL_MS if reasons.looks == 0 else poll_ms)
            try:
                task = client.run(calls.get_task(task.id, wait_ms=wait_ms))
                reasons.look(task)
            except Unavailable:
                # The coordinator may be restarting; the task is in its store.
                time.sleep(min(PAUSE_S, left_ms / 1000))
    return task


class WaitReasons:
    """Says on stderr what keeps a task from running, if that does not end by itself."""

    def __init__(self, client: Client, task_id: str, say: Callable[[str], None]) -> None:
        self.looks = 0
        self._client = client
        self._task_id = task_id
        self._say = say
        self._said: str | None = None

    def look(self, task: TaskView) -> None:
        self.looks += 1
        if task.state is not TaskState.QUEUED:
            return
        why = _reason(self._client, task)
        if why is not None and why.is_stuck and why.text != self._said:
            self._said = why.text
            self._say(f"task {self._task_id} waits: {why.text}")


def _reason(client: Client, task: TaskView) -> WhyView | None:
    try:
        return client.run(calls.get_timeline(task.id)).why
    except RotaError:
        return None  # it only explains


def describe(task: TaskView) -> str:
    """One line on the state of a task."""
    line = f"task {task.id} {task.name}: {task.state.value}"
    if task.attempt > 1:
        line += f", attempt {task.attempt} of {task.max_attempts}"
    if task.position is not None:
        line += f", {task.position} in line"
    progress = bytes(task.progress or b"null")
    if progress != b"null":
        line += f", {_progress(progress)}"
    return line


def _progress(text: bytes) -> str:
    value = msgspec.json.decode(text)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return f"{value:.0%}"
    return text.decode()


class Display(NamedTuple):
    """Where a wait is shown: a line that changes, and notes that stay above it."""

    update: Callable[[str], None]
    note: Callable[[str], None]


@contextmanager
def _display(*, watched: bool) -> Iterator[Display]:
    if not watched:
        yield Display(update=lambda _line: None, note=note)
        return
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
    from rich.text import Text  # noqa: PLC0415

    console = Console(stderr=True)
    with console.status("") as status:
        yield Display(
            update=lambda line: status.update(Text(visible(line))),
            note=lambda text: console.print(Text(visible(text)), soft_wrap=True),
        )


# --- files of tasks ------------------------------------------------------------------------------


class SubmitCounts(Struct):
    submitted: int = 0
    duplicates: int = 0  # of the submitted: tasks whose key was known already

    def __str__(self) -> str:
        known = f", {self.duplicates} of them known by their key" if self.duplicates else ""
        return f"submitted {self.submitted} tasks{known}"


def submit_file(client: Client, file: IO[bytes], *, name: str | None) -> SubmitCounts:
    """Submit one task per line; `name` is for lines that have none."""
    counts = SubmitCounts()
    with _bar(file) as advance:
        for lines in _batches(file):
            try:
                tasks = _submit(client, [_task(number, line, name) for number, line in lines])
            except RotaError as error:
                raise _placed(error, counts) from error
            counts.submitted += len(tasks)
            counts.duplicates += sum(task.duplicate for task in tasks)
            advance(sum(len(line) for _, line in lines))
    return counts


def _batches(file: IO[bytes]) -> Iterator[list[tuple[int, bytes]]]:
    numbered = ((number, line) for number, line in enumerate(file, start=1) if line.strip())
    while batch := list(islice(numbered, LINES_PER_BATCH)):
        yield batch


def _task(number: int, line: bytes, name: str | None) -> NewTask:
    try:
        # Fields stay raw: the coordinator checks the payload, and must get it unchanged.
        fields: dict[str, Any] = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
        if name is not None and "name" not in fields:
            fields["name"] = name
        return msgspec.json.decode(msgspec.json.encode(fields), type=NewTask)
    except msgspec.DecodeError as error:
        raise Invalid(f"line {number} is not a task: {error}") from error


def _submit(client: Client, tasks: list[NewTask]) -> list[TaskView]:
    """Submit one batch, waiting while the coordinator is overloaded."""
    for _ in range(MAX_TRIES_WHEN_OVERLOADED):
        try:
            return client.run(calls.submit(tasks))
        except Overloaded as error:
            time.sleep(error.retry_after_s)
    return client.run(calls.submit(tasks))


def _placed(error: RotaError, counts: SubmitCounts) -> RotaError:
    """The same error, which also says how far the file got."""
    detail = f"{error.detail} ({counts.submitted} tasks were submitted before)"
    placed = type(error).__new__(type(error))
    RotaError.__init__(placed, detail, **error.facts)
    return placed


@contextmanager
def _bar(file: IO[bytes]) -> Iterator[Callable[[int], None]]:
    if not is_terminal(sys.stderr):
        yield lambda _bytes: None
        return
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(console=Console(stderr=True), transient=True) as progress:
        # A pipe has no size; the bar then only shows that something moves.
        bar = progress.add_task("submitting", total=os.fstat(file.fileno()).st_size or None)
        yield lambda count: progress.advance(bar, count)
