"""Runs handlers in persistent processes, and replaces the processes that end.

A process is a fresh interpreter that imports the handler's module and runs one attempt after the
other. The worker can stop it whatever its handler does, so processes suit code that computes for
long, leaks, or crashes: a crash costs the attempt, never the worker.
"""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable

from rota.errors import Unavailable
from rota.messages import ResultItem
from rota.sdk.outcomes import PROCESS_DIED, failure, item_of_value
from rota.sdk.transport.transport import Transport
from rota.sdk.worker.runners.frames import (
    LENGTH_BYTES,
    Asked,
    AttemptAnswered,
    AttemptAssignment,
    Ended,
    Logged,
    Progressed,
    child_message_decoder,
    framed,
    location_of,
)
from rota.sdk.worker.runners.in_process import Attempt

KILL_AFTER_S = 5.0  # for a process that ignores SIGTERM


class ProcessRunner:
    """Runs handlers in processes, from the loop it is made on."""

    def __init__(self, on_end: Callable[[Attempt, ResultItem], None]) -> None:
        self._on_end = on_end
        self._idle: list[_HandlerProcess] = []
        self._busy: set[_HandlerProcess] = set()
        self._runs: set[asyncio.Task[None]] = set()

    def begin(self, attempts: Iterable[Attempt]) -> None:
        for attempt in attempts:
            run = asyncio.create_task(self._run(attempt))
            self._runs.add(run)
            run.add_done_callback(self._runs.discard)

    def stop(self, attempt: Attempt) -> None:
        if attempt.carrier is not None:
            attempt.carrier.terminate()

    async def close(self, *, is_hurried: bool = False) -> None:
        """End the idle processes and wait for those that are stopping."""
        idle, self._idle = self._idle, []
        for process in idle:
            process.terminate()
        if is_hurried:
            for process in self._busy:
                process.kill()
        await asyncio.gather(*(process.wait() for process in idle), *self._runs)

    async def _run(self, attempt: Attempt) -> None:
        try:
            item = await self._run_in_process(attempt)
        except Exception as error:  # noqa: BLE001 - whatever it was, it ended the attempt
            text = f"the handler's process could not be used: {type(error).__name__}: {error}"
            item = failure(attempt.lease, PROCESS_DIED, text)
        self._on_end(attempt, item)

    async def _run_in_process(self, attempt: Attempt) -> ResultItem:
        process = self._idle.pop() if self._idle else await _HandlerProcess.start()
        attempt.carrier = process
        self._busy.add(process)
        is_reusable = False
        try:
            if attempt.is_settled:  # stopped before it began; this is not reported
                return item_of_value(attempt.lease, None)
            item = await process.run(attempt)
            is_reusable = process.is_alive and not attempt.is_settled
        finally:
            attempt.carrier = None
            if is_reusable:
                self._idle.append(process)
            else:
                process.terminate()
                await process.wait()
            self._busy.discard(process)
        return item


class _HandlerProcess:
    """One interpreter and the socket to it."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self.is_alive = True

    @classmethod
    async def start(cls) -> "_HandlerProcess":
        ours, theirs = socket.socketpair()
        with theirs:
            command = [
                sys.executable,
                "-m",
                "rota.sdk.worker.runners.process_child",
                str(theirs.fileno()),
            ]
            try:
                process = await asyncio.to_thread(
                    subprocess.Popen,
                    command,
                    pass_fds=[theirs.fileno()],
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                )
            except BaseException:
                ours.close()
                raise
        reader, writer = await asyncio.open_connection(sock=ours)
        return cls(process, reader, writer)

    async def run(self, attempt: Attempt) -> ResultItem:
        sink = attempt.log_sink
        assignment = AttemptAssignment(
            location=location_of(attempt.task.function),
            lease=attempt.lease,
            path=sys.path,
            log_level=sink.level,
            captured=[*sink.captured],
        )
        try:
            self._writer.write(framed(assignment))
            while True:
                length = int.from_bytes(await self._reader.readexactly(LENGTH_BYTES))
                message = child_message_decoder.decode(await self._reader.readexactly(length))
                match message:
                    case Ended(item=item, left_out=left_out):
                        if left_out:
                            sink.note_left_out(attempt, left_out)
                        return item
                    case Logged(line=line):
                        attempt.keep_line(line)
                    case Progressed(progress=progress, partial=partial):
                        attempt.note_progress(progress, partial)
                    case Asked() as asked:
                        await self._answer(asked, attempt.client.transport)
        except (asyncio.IncompleteReadError, OSError):
            self.is_alive = False
            code = await self.wait()
            text = f"the handler's process ended {_ending(code)} before its handler did"
            return failure(attempt.lease, PROCESS_DIED, text)

    async def _answer(self, asked: Asked, transport: Transport) -> None:
        """Send a handler's request to the coordinator, and its answer back."""
        try:
            response = await transport.asend(asked)
        except Unavailable as error:
            answered = AttemptAnswered(number=asked.number, problem=error.detail)
        else:
            answered = AttemptAnswered(
                number=asked.number,
                status=response.status,
                body=response.body,
                headers=dict(response.headers),
            )
        self._writer.write(framed(answered))

    def terminate(self) -> None:
        if self.is_alive:
            self.is_alive = False
            self._process.terminate()

    def kill(self) -> None:
        self.is_alive = False
        self._process.kill()

    async def wait(self) -> int:
        """Wait for the end of a process; kill it when that takes too long."""
        self._writer.close()
        try:
            return await asyncio.to_thread(self._process.wait, KILL_AFTER_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return await asyncio.to_thread(self._process.wait)
        finally:
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()


def _ending(code: int) -> str:
    return f"by signal {-code}" if code < 0 else f"with exit code {code}"
