"""The handler process: runs attempts one after the other, and reports each.

The worker starts it as `python -m rota.sdk.worker.runners.process_child SOCKET`, with the number of
an open socket. It ends with the worker, even in the middle of a handler.
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

from rota.core.tasks.logs import LogLine, has_room, size_of
from rota.errors import Unavailable
from rota.sdk.client.client import Client
from rota.sdk.context import EXECUTION
from rota.sdk.logs.task_logger import capturing
from rota.sdk.outcomes import PROCESS_DIED, failure
from rota.sdk.task import Task
from rota.sdk.transport.transport import Response, TransportRequest
from rota.sdk.worker.runners.frames import (
    LENGTH_BYTES,
    Asked,
    AttemptAnswered,
    AttemptAssignment,
    Ended,
    HandlerLocation,
    Logged,
    Progressed,
    framed,
    worker_message_decoder,
)
from rota.sdk.worker.runners.in_process import arun_handler, run_handler

ORPHANED = 70  # exit code when the worker is gone
MAIN_NAME = "__rota_main__"  # does not run what `if __name__ == "__main__"` guards


class ChildAttempt:
    """The current attempt of this process, in the place of the worker's `Attempt`."""

    stop_reason = None  # the worker stops the process instead
    is_settled = False

    def __init__(
        self, assignment: AttemptAssignment, task: Task[..., Any], pipe: "WorkerPipe"
    ) -> None:
        self.lease = assignment.lease
        self.task = task
        self.log_level = assignment.log_level
        self.left_out = 0  # log lines that did not fit
        self.traceparent: str | None = None  # the span of its handler, to be reported
        self._pipe = pipe
        self._lock = threading.RLock()  # a handler may log from several threads
        self._lines = self._size = 0

    def note_progress(self, progress: Raw | None, partial: Raw | None) -> None:
        self._pipe.send_frame(framed(Progressed(progress=progress, partial=partial)))

    def keep_line(self, line: LogLine) -> None:
        """Hand a line over at once: a process that dies has said what it was doing.

        The bounds of an attempt hold here already, so a flood of lines stays in the process.
        """
        with self._lock:
            if not has_room(line, lines=self._lines, size=self._size):
                self.left_out += 1
                return
            self._lines += 1
            self._size += size_of(line)
        self._pipe.send_frame(framed(Logged(line=line)))

    @property
    def client(self) -> Client:
        return Client(self._pipe)

    def note_trace(self, traceparent: str) -> None:
        if self.lease.run_id is not None:
            self.traceparent = traceparent


class WorkerPipe:
    """The connection to the worker; also the client's transport to the coordinator."""

    is_embedded = False

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()  # a handler may report progress from several threads
        self.assignments: SimpleQueue[AttemptAssignment] = SimpleQueue()
        self._numbers = itertools.count(1)
        self._requests: dict[int, Future[AttemptAnswered]] = {}

    @property
    def address(self) -> str:
        return "the coordinator of this handler's worker"

    def send_frame(self, frame: bytes) -> None:
        with self._lock:
            self._connection.sendall(frame)

    def send(self, request: TransportRequest) -> Response:
        """Have the worker send a request; only the worker has the address and the token."""
        number = next(self._numbers)
        answer = self._requests[number] = Future()
        fields = {name: getattr(request, name) for name in TransportRequest.__struct_fields__}
        self.send_frame(framed(Asked(number=number, **fields)))
        answered = answer.result()  # this process ends with the worker, so the wait is bounded
        if answered.problem is not None:
            raise Unavailable(answered.problem)
        return Response(answered.status, answered.body, answered.headers)

    async def asend(self, request: TransportRequest) -> Response:
        return await asyncio.to_thread(self.send, request)

    def close(self) -> None:
        """Do nothing: it closes with the process."""

    def listen(self) -> None:
        """Receive messages until the worker is gone; then end the process."""
        with self._connection.makefile("rb") as stream:
            while length := stream.read(LENGTH_BYTES):
                content = stream.read(int.from_bytes(length))
                match worker_message_decoder.decode(content):
                    case AttemptAssignment() as assignment:
                        self.assignments.put(assignment)
                    case AttemptAnswered() as answered:
                        self._requests.pop(answered.number).set_result(answered)
        os._exit(ORPHANED)


@cache
def find_task(location: HandlerLocation) -> Task[..., Any]:
    if location.main_file is not None:
        found: Any = runpy.run_path(location.main_file, run_name=MAIN_NAME)
        first, *rest = location.name.split(".")
        found = found[first]
    else:
        found, rest = import_module(location.module), location.name.split(".")
    for name in rest:
        found = getattr(found, name)
    if not isinstance(found, Task):
        raise TypeError(f"{location.module}.{location.name} is not a task")
    return found


def run_assignment(assignment: AttemptAssignment, pipe: WorkerPipe) -> Ended:
    lease = assignment.lease
    try:
        sys.path[:] = assignment.path
        task = find_task(assignment.location)
    except BaseException as error:  # noqa: BLE001 - whatever the import raised, the worker reports it
        text = f"the handler cannot be imported in its process: {type(error).__name__}: {error}"
        return Ended(item=failure(lease, PROCESS_DIED, text))
    attempt: Any = ChildAttempt(assignment, task, pipe)
    with capturing(assignment.captured, lambda: EXECUTION.get(None)):
        item = asyncio.run(arun_handler(attempt)) if task.is_async else run_handler(attempt)
    return Ended(item=item, left_out=attempt.left_out)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the worker handles Ctrl-C
    pipe = WorkerPipe(socket.socket(fileno=int(sys.argv[1])))
    threading.Thread(target=pipe.listen, daemon=True).start()
    while True:
        pipe.send_frame(framed(run_assignment(pipe.assignments.get(), pipe)))


if __name__ == "__main__":
    main()
