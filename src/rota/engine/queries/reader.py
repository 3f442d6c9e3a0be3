"""Runs reads of committed state on threads beside the writer."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from rota.store.database import Database, Transaction
from rota.store.tasks.lanes import Lanes

T = TypeVar("T")

READER_THREADS = 2
CACHED_COSTS = 20  # a result is cached for this many times the duration of its read


class StoreReader:
    """Runs each read in a transaction of its own, on a thread of the reader.

    `lanes` are the lanes that the rows of a read may name. On a shared store a peer may add lanes
    at any time, so every read refreshes them first.
    """

    def __init__(self, database: Database, lanes: Lanes, *, inline: bool) -> None:
        """Inline: reads run on the thread of the caller, for tests."""
        self.lanes = lanes
        self._database = database
        self._is_shared = database.is_shared
        self._threads = None if inline else ThreadPoolExecutor(READER_THREADS, "rota-reader")

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown()

    async def read(self, body: Callable[[Transaction], T]) -> T:
        """Run `body` in a transaction, and return its result."""
        if self._is_shared:
            body = self._with_fresh_lanes(body)
        return await self._run(lambda: self._database.read(body))

    async def _run(self, function: Callable[[], T]) -> T:
        if self._threads is None:
            return function()
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)

    def _with_fresh_lanes(self, body: Callable[[Transaction], T]) -> Callable[[Transaction], T]:
        def refreshed(tx: Transaction) -> T:
            self.lanes.refresh(tx)
            return body(tx)

        return refreshed


class CachedRead(Generic[T]):
    """Caches the result of one read, for all callers, in proportion to the cost of the read."""

    def __init__(self, reader: StoreReader, body: Callable[[Transaction], T]) -> None:
        self._reader = reader
        self._body = body
        self._value: T | None = None
        self._stale_at_s = 0.0

    async def get(self) -> T:
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        if self._value is None or started_s >= self._stale_at_s:
            self._value = await self._reader.read(self._body)
            now_s = loop.time()
            self._stale_at_s = now_s + (now_s - started_s) * CACHED_COSTS
        return self._value
