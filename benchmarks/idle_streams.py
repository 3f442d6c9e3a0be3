"""Many idle workers in one process: `python -m benchmarks.idle_streams URL N`.

Each worker has a socket and a registration of its own and capacity for ten tasks, and sends
heartbeats as the SDK's workers do. They share a process, so that the benchmark measures the
coordinator and not a thousand worker processes.
"""

import asyncio
import contextlib
import sys
from typing import Any

import msgspec

from rota.messages import streams
from rota.sdk.transport.http import endpoint_of
from rota.sdk.worker.streaming.socket import StreamSocket, open_socket

INTERVAL_MS = 5_000
ROOM = 10
OPENING_AT_ONCE = 20
OPEN_S = 30.0
READY = "ready"


class IdleWorker:
    def __init__(self, socket: StreamSocket, number: int) -> None:
        self._socket = socket
        self._number = number
        self._answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        socket.on_message = self._hear

    async def open(self) -> None:
        registration = {
            "worker_id": f"idle-{self._number}",
            "node_id": "benchmark",
            "max_concurrent_tasks": ROOM,
            "heartbeat_interval_ms": INTERVAL_MS,
        }
        self._say(streams.OPEN, registration)
        answer = await self._answer
        if "incarnation" not in answer["payload"]:
            raise RuntimeError(answer["payload"])
        self._say(streams.CREDIT, {"free": ROOM, "taken": 0})

    def beat(self) -> None:
        self._say(streams.BEAT, {"running": [], "load": {"running": 0.0}})

    def _say(self, kind: str, payload: Any) -> None:
        message = {"to": streams.MAIN, "type": kind, "id": 1, "payload": payload}
        self._socket.send(msgspec.msgpack.encode(message))

    def _hear(self, data: bytes) -> None:
        heard = msgspec.msgpack.decode(data)
        if heard.get("replyTo") == 1 and not self._answer.done():
            self._answer.set_result(heard)


async def main(url: str, count: int) -> None:
    endpoint = endpoint_of(url, None)
    limit = asyncio.Semaphore(OPENING_AT_ONCE)

    async def opened(number: int) -> IdleWorker:
        async with limit:
            worker = IdleWorker(await open_socket(endpoint, timeout_s=OPEN_S), number)
            await worker.open()
            return worker

    workers = await asyncio.gather(*(opened(number) for number in range(count)))
    print(READY, flush=True)
    loop = asyncio.get_running_loop()
    began, turn = loop.time(), 0
    while True:  # heartbeats are spread evenly over the interval
        workers[turn % count].beat()
        turn += 1
        due = began + turn * INTERVAL_MS / 1000 / count
        await asyncio.sleep(max(0.0, due - loop.time()))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(sys.argv[1], int(sys.argv[2])))
