"""What does a handler's process do? It takes an attempt, runs it, says what came of it, and again.

Run by the worker as `python -m rota.sdk.process_child SOCKET`, with the number of an open socket.
When the worker is gone, so is this process, even in the middle of a handler.
"""

import asyncio
import itertools
import os
import runpy
import signal
import socket
import sys
import threading
from concurrent.futures import Future
from functools import cache
from importlib import import_module
from queue import SimpleQueue
from typing import Any

from msgspec import Raw

from rota.errors import Unavailable
from rota.messages import LeaseView, ResultItem
from rota.sdk.attempts import acarry_out, carry_out
from rota.sdk.client import Client
from rota.sdk.context import EXECUTION
from rota.sdk.frames import (
    LENGTH_BYTES,
    Answered,
    Asked,
    Assignment,
    Ended,
    Home,
    Progressed,
    framed,
    orders_decoder,
)
from rota.sdk.outcomes import PROCESS_DIED, failure
from rota.sdk.tasks import Task
from rota.sdk.transport import Request, Response

ORPHANED = 70  # exit code when the worker is gone
MAIN_NAME = "__rota_main__"  # so that a guarded `if __name__ == "__main__"` stays unrun


class Errand:
    """The attempt this process is at; stands for `Attempt`, without a worker around it."""

    stop_reason = None  # a process is not told to stop, it is stopped

    def __init__(self, lease: LeaseView, task: Task[..., Any], line: "Line") -> None:
        self.lease = lease
        self.task = task
        self._line = line

    def note_progress(self, progress: Raw | None, partial: Raw | None) -> None:
        self._line.say(framed(Progressed(progress=progress, partial=partial)))

    @property
    def client(self) -> Client:
        return Client(self._line)


class Line:
    """The way to the worker and back; for a client, also the way to the coordinator."""

    is_embedded = False

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()  # a handler may report progress from several threads
        self.assignments: SimpleQueue[Assignment] = SimpleQueue()
        self._numbers = itertools.count(1)
        self._asked: dict[int, Future[Answered]] = {}

    @property
    def address(self) -> str:
        return "the coordinator of this handler's worker"

    def say(self, frame: bytes) -> None:
        with self._lock:
            self._connection.sendall(frame)

    def send(self, request: Request) -> Response:
        """Have the worker carry a request; it alone knows the way, and the token."""
        number = next(self._numbers)
        answer = self._asked[number] = Future()
        self.say(
            framed(
                Asked(
                    number=number,
                    method=request.method,
                    path=request.path,
                    body=request.body,
                    timeout_s=request.timeout_s,
                    content_type=request.content_type,
                )
            )
        )
        answered = answer.result()  # ends at the latest with the worker, and so does this process
        if answered.problem is not None:
            raise Unavailable(answered.problem)
        return Response(answered.status, answered.body, answered.headers)

    async def asend(self, request: Request) -> Response:
        return await asyncio.to_thread(self.send, request)

    def close(self) -> None:
        """Closed with the process."""

    def listen(self) -> None:
        """Take in assignments; ends with the process, because the worker does."""
        with self._connection.makefile("rb") as stream:
            while length := stream.read(LENGTH_BYTES):
                content = stream.read(int.from_bytes(length))
                match orders_decoder.decode(content):
                    case Assignment() as assignment:
                        self.assignments.put(assignment)
                    case Answered() as answered:
                        self._asked.pop(answered.number).set_result(answered)
        os._exit(ORPHANED)


@cache
def find_task(home: Home) -> Task[..., Any]:
    if home.main_file is not None:
        found: Any = runpy.run_path(home.main_file, run_name=MAIN_NAME)
        first, *rest = home.name.split(".")
        found = found[first]
    else:
        found, rest = import_module(home.module), home.name.split(".")
    for name in rest:
        found = getattr(found, name)
    if not isinstance(found, Task):
        raise TypeError(f"{home.module}.{home.name} is not a task")
    return found


def carried_out(assignment: Assignment, line: Line) -> ResultItem:
    lease = assignment.lease
    try:
        sys.path[:] = assignment.path
        task = find_task(assignment.home)
    except BaseException as error:  # noqa: BLE001 - whatever the import did, the worker is told
        text = f"the handler cannot be imported in its process: {type(error).__name__}: {error}"
        return failure(lease, PROCESS_DIED, text)
    errand: Any = Errand(lease, task, line)
    if task.is_async:
        EXECUTION.set(errand)
        return asyncio.run(acarry_out(errand))
    return carry_out(errand)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the worker's to hear
    line = Line(socket.socket(fileno=int(sys.argv[1])))
    threading.Thread(target=line.listen, daemon=True).start()
    while True:
        item = carried_out(line.assignments.get(), line)
        line.say(framed(Ended(item=item)))


if __name__ == "__main__":
    main()
