"""How do many tasks get in at once? As JSON lines, sent in batches, with a bar on a terminal.

Batches are accepted whole or not at all, so an error can say exactly how far the file got.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import IO, Any

import msgspec
from msgspec import Struct

from rota.cli.output import is_terminal
from rota.errors import Invalid, Overloaded, RotaError
from rota.messages import NewTask, TaskView
from rota.sdk import calls
from rota.sdk.client import Client

LINES_PER_BATCH = 1_000
MAX_TRIES_WHEN_OVERLOADED = 60


class Tally(Struct):
    submitted: int = 0
    duplicates: int = 0  # among the submitted: tasks whose key was there already

    def __str__(self) -> str:
        known = f", {self.duplicates} of them known by their key" if self.duplicates else ""
        return f"submitted {self.submitted} tasks{known}"


def submit_file(client: Client, file: IO[bytes], *, name: str | None) -> Tally:
    """Submit one task a line; `name` is for lines that have none."""
    tally = Tally()
    with _bar(file) as advance:
        for lines in _batches(file):
            try:
                tasks = _submit(client, [_task(number, line, name) for number, line in lines])
            except RotaError as error:
                raise _placed(error, tally) from error
            tally.submitted += len(tasks)
            tally.duplicates += sum(task.duplicate for task in tasks)
            advance(sum(len(line) for _, line in lines))
    return tally


def _batches(file: IO[bytes]) -> Iterator[list[tuple[int, bytes]]]:
    numbered = ((number, line) for number, line in enumerate(file, start=1) if line.strip())
    while batch := list(islice(numbered, LINES_PER_BATCH)):
        yield batch


def _task(number: int, line: bytes, name: str | None) -> NewTask:
    try:
        # Fields stay raw: a payload is checked by the coordinator, and not rewritten on the way.
        fields: dict[str, Any] = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
        if name is not None and "name" not in fields:
            fields["name"] = name
        return msgspec.json.decode(msgspec.json.encode(fields), type=NewTask)
    except msgspec.DecodeError as error:
        raise Invalid(f"line {number} is not a task: {error}") from error


def _submit(client: Client, tasks: list[NewTask]) -> list[TaskView]:
    """Submit one batch, waiting while the coordinator has more than it takes on."""
    for _ in range(MAX_TRIES_WHEN_OVERLOADED):
        try:
            return client.run(calls.submit(tasks))
        except Overloaded as error:
            time.sleep(error.retry_after_s)
    return client.run(calls.submit(tasks))


def _placed(error: RotaError, tally: Tally) -> RotaError:
    """The same error, also saying how far the file got."""
    detail = f"{error.detail} ({tally.submitted} tasks were submitted before)"
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
