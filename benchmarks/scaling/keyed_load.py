"""Clients that go on submitting while coordinators come and go.

Each task has an idempotency key. A client that gets no answer, or a refusal, sends the same key to
the next coordinator after a short pause. It goes on with the next key only after an
acknowledgement. So in the end every key is acknowledged, and exactly one task exists for each.
"""

import asyncio
import itertools
import json
import time
import uuid
from collections.abc import Sequence
from threading import Event, Thread
from typing import NamedTuple, Self

from benchmarks.processes import Failed
from benchmarks.scaling import clients
from benchmarks.scaling.clients import ClientConnection
from benchmarks.wire import request

CLIENTS = 12
RETRY_PAUSE_S = 0.02  # shorter than `Retry-After`, so that the pause does not hide the recovery
END_LIMIT_S = 60.0
UNKNOWN = b"outcome_unknown"  # the code of an error after which the same key is sent again


class Acknowledged(NamedTuple):
    """One acknowledged write, by the clock of `time.perf_counter`."""

    sent_s: float  # the request that was acknowledged, not an earlier one of the same key
    at_s: float
    port: int


class KeyedLoad:
    """Runs the clients in a thread of its own."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = ports
        self._stopped = Event()
        self._prefix = uuid.uuid4().hex
        self._round = 0  # raised to send every client back to its own coordinator
        self._problem: BaseException | None = None
        self._thread = Thread(target=self._run, daemon=True)
        self.acknowledged: list[Acknowledged] = []  # in the order of the answers

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(END_LIMIT_S)

    def finish(self) -> int:
        """Stop when every key that was sent is acknowledged; return the number of keys."""
        self._stopped.set()
        self._thread.join(END_LIMIT_S)
        self.check()
        if self._thread.is_alive():
            raise Failed(f"a write was not acknowledged within {END_LIMIT_S:.0f} s")
        return len(self.acknowledged)

    def check(self) -> None:
        if self._problem is not None:
            raise Failed(f"the load broke off: {self._problem!r}")

    def spread(self) -> None:
        """Send every client back to its own coordinator, after one has come back."""
        self._round += 1

    def since(self, start_s: float, *, besides: int) -> list[Acknowledged]:
        """The writes acknowledged since this time by other coordinators than the one named."""
        found = []
        for one in reversed(self.acknowledged):
            if one.at_s < start_s:
                break
            if one.port != besides:
                found.append(one)
        return found[::-1]

    def _run(self) -> None:
        try:
            clients.run(self._submit_all())
        except BaseException as error:  # noqa: BLE001 - `check` raises it in the other thread
            self._problem = error

    async def _submit_all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(CLIENTS):
                group.create_task(self._submit(number))

    async def _submit(self, number: int) -> None:
        client = _Client(self._ports, number)
        for turn in itertools.count():
            if self._stopped.is_set():
                break
            written = _submission(f"{self._prefix}-{number}-{turn}")
            acknowledged = await client.send(written, self._round)
            while acknowledged is None:
                await asyncio.sleep(RETRY_PAUSE_S)
                acknowledged = await client.send(written, self._round)
            self.acknowledged.append(acknowledged)
        client.close()


class _Client:
    """Keeps one connection, to its own coordinator or, after a failure, to another."""

    def __init__(self, ports: Sequence[int], home: int) -> None:
        self._ports = ports
        self._home = self._place = home
        self._round = 0
        self._connection: ClientConnection | None = None

    async def send(self, written: bytes, in_round: int) -> Acknowledged | None:
        """Send once; None: it was not acknowledged, and the next try is at another coordinator."""
        if in_round != self._round:
            self._round, self._place = in_round, self._home
            self.close()
        port = self._ports[self._place % len(self._ports)]
        sent_s = time.perf_counter()
        try:
            self._connection = self._connection or await ClientConnection.open(port)
            answer = await self._connection.send(written)
        except (OSError, TimeoutError):
            answer = None
        if answer is not None and answer.is_success:
            return Acknowledged(sent_s, time.perf_counter(), port)
        if answer is not None and answer.status < 500 and UNKNOWN not in answer.body:
            raise Failed(f"the coordinator answered {answer.status}: {answer.text}")
        self.close()
        self._place += 1
        return None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _submission(key: str) -> bytes:
    return request("POST", "/api/tasks", json.dumps([{"name": "noop", "key": key}]).encode())
