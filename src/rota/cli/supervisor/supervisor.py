"""Runs a pool: asks for the demand, waits for ended processes, and stops at a signal."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec
import structlog
from msgspec import Struct

from rota.cli.process import STOPPING
from rota.cli.supervisor.pool import Pool, PoolDemand, demand_of
from rota.errors import RotaError
from rota.sdk.client.calls import get_scale
from rota.sdk.client.client import Client

log = structlog.get_logger("rota.pool")

MAX_TASK_NAMES = 100  # in one request; an app that has more asks for all tasks
ANSWER_TIMEOUT_S = 5.0

Ask = Callable[[], Awaitable[PoolDemand | None]]


class Served(Struct, frozen=True, kw_only=True):
    """What the workers of a pool can run."""

    queues: Sequence[str] | None = None
    tasks: Sequence[str]
    capabilities: Sequence[str] = ()
    concurrency: int


class DemandProbe:
    """Asks the coordinator how many workers are wanted; None when it does not answer."""

    def __init__(self, client: Client, served: Served, *, target_ms: int) -> None:
        self._client = client.without_repeats()
        self._served = served
        call = get_scale(
            queues=served.queues or (),
            tasks=served.tasks if len(served.tasks) <= MAX_TASK_NAMES else (),
            target_ms=target_ms,
            concurrency=served.concurrency,
        )
        self._call = msgspec.structs.replace(call, timeout_s=ANSWER_TIMEOUT_S)
        self._is_answered = True

    async def __call__(self) -> PoolDemand | None:
        try:
            page = await self._client.arun(self._call)
        except RotaError as error:
            if self._is_answered:
                log.warning("pool_demand_unknown", error=str(error))
            self._is_answered = False
            return None
        self._is_answered = True
        return demand_of(
            page,
            capabilities=self._served.capabilities,
            concurrency=self._served.concurrency,
        )


async def supervise(pool: Pool, ask: Ask, *, interval_ms: int) -> int:
    """Run a pool until a signal has stopped it and all processes have ended."""
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
    pool.start(now_ms=_now_ms())
    try:
        while not pool.is_over:
            wait_ms = pool.wait_ms(_now_ms())
            await _wait(woken, None if wait_ms is None else wait_ms / 1000)
            if asking.done() and not pool.is_stopping:
                await asking  # it only ends by a bug, which is raised here
            pool.update(now_ms=_now_ms())
    finally:
        asking.cancel()
    return pool.exit_code


async def _follow(pool: Pool, ask: Ask, interval_ms: int) -> None:
    while not pool.is_stopping:
        demand = await ask()
        if demand is not None:
            pool.set_demand(demand, now_ms=_now_ms())
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
