"""The measurements of sockets: a thousand idle workers, and a peer that never reads.

Other measurements use sockets as well, because workers use streams by default.
"""

import asyncio
import os
import socket
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from benchmarks.coordinators import Coordinator, coordinator
from benchmarks.idle_streams import READY
from benchmarks.plan import Plan
from benchmarks.processes import Failed, Process, running

IDLE_WORKERS = 1_000
SETTLE_S = 3.0  # for the work that follows from opening the sockets
READERS = 100
PAIRS = 8
BLOCKS = 8  # on either side of a pair; many, because other work disturbs most of them
ROUNDS = 10
UNREAD_BYTES = 4_096
ASK = '{"to": "coordinator:main", "type": "get_status", "id": 1}'

Facts = dict[str, Any]


def idle(plan: Plan, folder: Path) -> Facts:
    """1,000 streaming workers without work: the coordinator's memory, and its share of a core."""
    with coordinator(folder / "streams-idle") as one:
        memory_before = _memory_mib(one)
        with _idle_workers(one):
            time.sleep(SETTLE_S)
            memory_after = _memory_mib(one)
            cpu_before, began = _cpu_s(one.process), time.monotonic()
            time.sleep(plan.idle_s)
            cpu_s, seconds = _cpu_s(one.process) - cpu_before, time.monotonic() - began
            listed = one.connection.ask("GET", "/api/workers?limit=1000")["items"]
    if len(listed) != IDLE_WORKERS:
        raise Failed(f"{len(listed)} of {IDLE_WORKERS} workers were there at the end")
    return {
        "workers": IDLE_WORKERS,
        "memory_mib": {"now": memory_after},
        "added_mb": (memory_after - memory_before) * 1.048576,
        "core_percent": 100 * cpu_s / seconds,
        "seconds": seconds,
    }


@contextmanager
def _idle_workers(one: Coordinator) -> Iterator[Process]:
    command = [sys.executable, "-m", "benchmarks.idle_streams", one.url, str(IDLE_WORKERS)]
    log = one.folder / "idle.log"
    with running(command, log=log) as process:
        while READY not in log.read_text():
            process.check()
            time.sleep(0.05)
        yield process
        process.check()


def _memory_mib(one: Coordinator) -> float:
    memory_mib = one.process.memory_mib()
    if memory_mib is None:
        raise Failed("there is no /proc to read a process's memory from")
    return memory_mib["now"]


def _cpu_s(process: Process) -> float:
    fields = Path(f"/proc/{process.id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- a peer that never reads ----------------------------------------------------------------------


def neighbours(_plan: Plan, folder: Path) -> Facts:
    """100 sockets ask, alone and beside one that never reads: the change of the median."""
    with coordinator(folder / "streams-neighbours") as one:
        alone, beside = asyncio.run(_compared(one))
    return {
        "alone_ms": min(alone),
        "beside_ms": min(beside),
        "ratio": min(beside) / min(alone),  # of the least disturbed block of each kind
        "all_alone_ms": alone,
        "all_beside_ms": beside,
    }


async def _compared(one: Coordinator) -> tuple[list[float], list[float]]:
    alone: list[float] = []
    beside: list[float] = []
    async with AsyncExitStack() as stack:
        address = f"ws://127.0.0.1:{one.port}/ws"
        readers = [await stack.enter_async_context(connect(address)) for _ in range(READERS)]
        for reader in readers:
            await reader.recv()
        await _block(readers)
        for _ in range(PAIRS):
            alone += [await _block(readers) for _ in range(BLOCKS)]
            with _deaf(one.port):
                beside += [await _block(readers) for _ in range(BLOCKS)]
    return alone, beside


async def _block(readers: list[ClientConnection]) -> float:
    taken: list[float] = []
    for _ in range(ROUNDS):
        taken += await asyncio.gather(*map(_asked_ms, readers))
    return statistics.median(taken)


async def _asked_ms(reader: ClientConnection) -> float:
    began = time.perf_counter()
    await reader.send(ASK)
    await reader.recv()
    return (time.perf_counter() - began) * 1000


@contextmanager
def _deaf(port: int) -> Iterator[None]:
    """Open a socket that asks for more data than its connection can hold, and reads nothing."""
    with socket.socket() as plug:
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, UNREAD_BYTES)
        plug.connect(("127.0.0.1", port))
        plug.sendall(
            b"GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        if b"101" not in plug.recv(64):
            raise Failed("a WebSocket was refused")
        ask = ASK.replace("1}", f'"{"y" * 50_000}"}}').encode()
        head = b"\x81\xff" + len(ask).to_bytes(8) + bytes(4)  # masked by zeros
        plug.settimeout(0.5)
        try:
            while True:
                plug.sendall(head + ask)
        except TimeoutError:  # the coordinator has stopped reading from this socket
            yield


MEASUREMENTS = {"streams-idle": idle, "streams-neighbours": neighbours}
