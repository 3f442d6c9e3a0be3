"""How does a pool of workers live? Under a parent that asks what is wanted and starts processes.

Each child is this command with `--max 0`, in a process group of its own: Ctrl-C on a terminal
reaches the parent alone, which passes it on once. As in a fleet, each child holds one end of a
pipe whose other end only the parent has, and drains when the parent is gone, however it went.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec
import structlog
from msgspec import Struct

from rota.cli.fleet import PIPE_VARIABLE
from rota.cli.signals import STOPPING
from rota.cli.worker_pool import Need, Pool, need_of
from rota.errors import RotaError
from rota.sdk.client import Client
from rota.sdk.scale_calls import get_scale

log = structlog.get_logger("rota.pool")

MOST_NAMED = 100  # task names in one question; an app that has more is asked about as a whole
ANSWER_TIMEOUT_S = 5.0

Ask = Callable[[], Awaitable[Need | None]]


class ChildProcesses:
    """Worker processes as the operating system has them."""

    def __init__(self, *, worker_id: str | None) -> None:
        self._worker_id = worker_id
        self._by_number: dict[int, int] = {}  # process ids
        for_children, self._kept_open = os.pipe()
        os.set_inheritable(for_children, True)  # noqa: FBT003 - the system's own signature
        self._environment = {**os.environ, PIPE_VARIABLE: str(for_children)}

    def start(self, number: int) -> None:
        command = [sys.executable, *sys.orig_argv[1:], "--max", "0"]
        if self._worker_id is not None:
            command += ["--worker-id", f"{self._worker_id}-{number}"]
        self._by_number[number] = os.posix_spawn(
            sys.executable,
            command,
            self._environment,
            setpgroup=0,
            # Held back until the child can heed them: a stop must not kill one that starts.
            setsigmask=STOPPING,
        )

    def ask_to_stop(self, number: int) -> None:
        os.kill(self._by_number[number], signal.SIGTERM)

    def ended(self) -> list[tuple[int, int]]:
        gone = []
        for number, process_id in list(self._by_number.items()):
            waited, status = os.waitpid(process_id, os.WNOHANG)
            if waited:
                del self._by_number[number]
                gone.append((number, os.waitstatus_to_exitcode(status)))
        return gone


class Served(Struct, frozen=True, kw_only=True):
    """What the workers of a pool can do."""

    queues: Sequence[str] | None = None
    tasks: Sequence[str]
    capabilities: Sequence[str] = ()
    concurrency: int


class Enquirer:
    """Asks the coordinator how many workers are wanted; None when it does not answer."""

    def __init__(self, client: Client, served: Served, *, target_ms: int) -> None:
        self._client = client.without_repeats()
        self._served = served
        call = get_scale(
            queues=served.queues or (),
            tasks=served.tasks if len(served.tasks) <= MOST_NAMED else (),
            target_ms=target_ms,
            concurrency=served.concurrency,
        )
        self._call = msgspec.structs.replace(call, timeout_s=ANSWER_TIMEOUT_S)
        self._is_answered = True

    async def __call__(self) -> Need | None:
        try:
            page = await self._client.arun(self._call)
        except RotaError as error:
            if self._is_answered:
                log.warning("cannot ask what is wanted; the pool stays as it is", error=str(error))
            self._is_answered = False
            return None
        self._is_answered = True
        return need_of(
            page,
            capabilities=self._served.capabilities,
            concurrency=self._served.concurrency,
        )


async def supervise(pool: Pool, ask: Ask, *, interval_ms: int) -> int:
    """Run a pool until it is stopped by a signal and all have left; gives the exit code."""
    loop = asyncio.get_running_loop()
    woken = asyncio.Event()

    def stop() -> None:
        pool.stop()
        woken.set()

    for number in STOPPING:
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(signal.SIGCHLD, woken.set)
    asking = asyncio.create_task(_follow(pool, ask, interval_ms))
    asking.add_done_callback(lambda _: woken.set())
    pool.begin(now_ms=_now_ms())
    try:
        while not pool.is_over:
            wait_ms = pool.wait_ms(_now_ms())
            await _wait(woken, None if wait_ms is None else wait_ms / 1000)
            if asking.done() and not pool.is_stopping:
                await asking  # ends by a mistake of ours alone, which is raised here
            pool.tend(now_ms=_now_ms())
    finally:
        asking.cancel()
    return pool.exit_code


async def _follow(pool: Pool, ask: Ask, interval_ms: int) -> None:
    while not pool.is_stopping:
        need = await ask()
        if need is not None:
            pool.heed(need, now_ms=_now_ms())
        await asyncio.sleep(interval_ms / 1000)


async def _wait(woken: asyncio.Event, timeout_s: float | None) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await woken.wait()
    except TimeoutError:
        pass
    woken.clear()


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
