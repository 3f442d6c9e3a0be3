"""Streaming workers that answer at once: `python -m benchmarks.scaling.streaming_workers …`.

Arguments: the number of tasks, the time limit in seconds, and the URL for each worker. All workers
share one process, and each has a socket and a registration of its own. They report every lease as
succeeded as soon as it arrives. At the end, the process prints the number of tasks whose results
were acknowledged, and so committed, and the seconds from the first lease to the last such answer.
"""

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Sequence
from itertools import count
from typing import Any

import msgspec
import uvloop

from rota.messages import streams
from rota.sdk.transport.http import endpoint_of
from rota.sdk.worker.streaming.socket import StreamSocket, open_socket

ROOM = 500  # tasks that each worker has room for
BEAT_INTERVAL_MS = 5_000
OPEN_LIMIT_S = 30.0
OPENING = 1  # the number of the message that opens a stream


class Progress:
    """Counts what all workers have done together."""

    def __init__(self, tasks: int) -> None:
        self._tasks = tasks
        self.done = 0
        self.first_s = self.last_s = 0.0
        self.finished = asyncio.Event()
        self.problem: str | None = None

    def begin(self) -> None:
        self.first_s = self.first_s or time.perf_counter()

    def count(self, committed: int) -> None:
        self.done += committed
        self.last_s = time.perf_counter()
        if self.done >= self._tasks:
            self.finished.set()

    def fail(self, problem: str) -> None:
        self.problem = self.problem or problem
        self.finished.set()


class PromptWorker:
    def __init__(self, socket: StreamSocket, number: int, progress: Progress) -> None:
        self._socket = socket
        self._number = number
        self._progress = progress
        self._numbers = count(OPENING + 1)
        self._reported: dict[int, int] = {}  # results by the number of their message
        self._taken = 0
        self._opened: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        socket.on_message = self._receive

    async def open(self) -> None:
        registration = {
            "worker_id": f"prompt-{self._number}",
            "node_id": "benchmark",
            "max_concurrent_tasks": ROOM,
            "heartbeat_interval_ms": BEAT_INTERVAL_MS,
        }
        self._send(streams.OPEN, registration, OPENING)
        answer = await self._opened
        if "incarnation" not in answer:
            raise RuntimeError(answer)

    def start(self) -> None:
        self._send(streams.CREDIT, {"free": ROOM, "taken": 0}, None)

    def beat(self) -> None:
        self._send(streams.BEAT, {"load": {}}, next(self._numbers))

    def _send(self, kind: str, payload: Any, number: int | None) -> None:
        message = {"to": streams.MAIN, "type": kind, "id": number, "payload": payload}
        self._socket.send(msgspec.msgpack.encode(message))

    def _receive(self, data: bytes) -> None:
        heard = msgspec.msgpack.decode(data)
        kind, number, payload = heard.get("type"), heard.get("replyTo"), heard.get("payload")
        if number == OPENING and not self._opened.done():
            self._opened.set_result(payload)
        elif number in self._reported:
            self._note(self._reported.pop(number), payload)
        elif kind == streams.LEASES:
            self._report(payload["leases"])
        elif kind == streams.ENDED:
            self._progress.fail(f"a stream was ended: {payload}")

    def _report(self, leases: list[list[Any]]) -> None:
        self._progress.begin()
        self._taken += len(leases)
        number = next(self._numbers)
        self._reported[number] = len(leases)
        results = [(task_id, fence) for task_id, fence, *_ in leases]
        credit = {"free": ROOM, "taken": self._taken}
        self._send(streams.RESULTS, {"results": results, **credit}, number)

    def _note(self, reported: int, payload: Any) -> None:
        if "count" not in payload:
            self._progress.fail(f"results were refused: {payload}")
            return
        self._progress.count(reported - len(payload.get("refused", ())))


async def main(tasks: int, limit_s: float, urls: Sequence[str]) -> dict[str, Any]:
    progress = Progress(tasks)
    workers = []
    for number, url in enumerate(urls):
        socket = await open_socket(endpoint_of(url, None), timeout_s=OPEN_LIMIT_S)
        worker = PromptWorker(socket, number, progress)
        async with asyncio.timeout(OPEN_LIMIT_S):
            await worker.open()
        socket.lost.add_done_callback(lambda lost: progress.fail(f"a socket: {lost.result()}"))
        workers.append(worker)
    for worker in workers:
        worker.start()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            while not progress.finished.is_set():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(progress.finished.wait(), BEAT_INTERVAL_MS / 1000)
                for worker in workers:
                    worker.beat()
    if progress.problem is not None:
        raise RuntimeError(progress.problem)
    return {"tasks": progress.done, "seconds": progress.last_s - progress.first_s}


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))))
