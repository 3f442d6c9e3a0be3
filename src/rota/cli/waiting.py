"""How does a command wait for a task? By long polls, showing on a terminal how far it is."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from rota.cli.output import is_terminal, visible
from rota.core.tasks import FINISHED
from rota.errors import Unavailable
from rota.messages import TaskView
from rota.sdk import calls
from rota.sdk.client import Client

DEFAULT_WAIT_TIMEOUT_MS = 3_600_000
WATCHED_POLL_MS = 500  # with somebody looking: how old the shown progress may be
QUIET_POLL_MS = 30_000
PAUSE_S = 0.5  # before asking a coordinator again that did not answer


def wait_until_finished(client: Client, task: TaskView, *, timeout_ms: int) -> TaskView:
    """Give the task as it is once it has finished, or when the time is over."""
    ends_at = time.monotonic() + timeout_ms / 1000
    watched = is_terminal(sys.stderr)
    with _display(watched=watched) as display:
        while task.state not in FINISHED:
            display(describe(task))
            left_ms = max(0, int((ends_at - time.monotonic()) * 1000))
            if left_ms == 0:
                break
            wait_ms = min(left_ms, WATCHED_POLL_MS if watched else QUIET_POLL_MS)
            try:
                task = client.run(calls.get_task(task.id, wait_ms=wait_ms))
            except Unavailable:
                # A coordinator that restarts has not forgotten the task.
                time.sleep(min(PAUSE_S, left_ms / 1000))
    return task


def describe(task: TaskView) -> str:
    """One line on where a task stands."""
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


@contextmanager
def _display(*, watched: bool) -> Iterator[Callable[[str], None]]:
    if not watched:
        yield lambda _line: None
        return
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
    from rich.text import Text  # noqa: PLC0415

    with Console(stderr=True).status("") as status:
        yield lambda line: status.update(Text(visible(line)))
