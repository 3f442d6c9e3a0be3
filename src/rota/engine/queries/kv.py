"""Reads of the key-value store and of locks."""

from rota.core import limits
from rota.core.kv import KvEntry, live_entry
from rota.core.locks import LockStatus
from rota.engine.clock import Clock
from rota.engine.queries.reader import StoreReader
from rota.store.kv import KvPage, KvStore, keys_matching, keys_with_prefix
from rota.store.locks import LockStore


class KvQueries:
    def __init__(self, reader: StoreReader, *, clock: Clock) -> None:
        self._read = reader.read
        self._clock = clock

    async def has_expired(self) -> bool:
        """Return whether entries are past their expiry, and still there."""
        now_ms = self._clock.now_ms()
        return bool(await self._read(lambda tx: KvStore(tx).expired(now_ms, 1)))

    async def get(self, key: str) -> KvEntry | None:
        """Return the entry of a key; None: there is none, or it has expired."""
        entry = await self._read(lambda tx: KvStore(tx).get(key))
        return live_entry(entry, self._clock.now_ms())

    async def page(
        self, *, prefix: str | None, pattern: str | None, after: str, limit: int
    ) -> KvPage:
        """Return the next entries that match the pattern, or the prefix if there is no pattern."""
        wanted = keys_with_prefix(prefix or "") if pattern is None else keys_matching(pattern)
        now_ms = self._clock.now_ms()
        return await self._read(
            lambda tx: KvStore(tx).page(
                wanted,
                after=after,
                now_ms=now_ms,
                limit=limit,
                most_bytes=limits.MAX_MEMORY_PAGE_BYTES,
            )
        )


class LockQueries:
    def __init__(self, reader: StoreReader, *, steady_clock: Clock) -> None:
        self._read = reader.read
        self._steady_clock = steady_clock
        self.next_expiry_ms: int | None = None  # of a lock or a waiter, at the last look

    async def is_sweep_due(self) -> bool:
        """Return whether a lock, or a caller's wait for one, is past its expiry."""
        now_ms = self._steady_clock.now_ms()
        next_ms = self.next_expiry_ms = await self._read(lambda tx: LockStore(tx).next_expiry_ms())
        return next_ms is not None and next_ms <= now_ms

    async def status(self, name: str) -> LockStatus:
        now_ms = self._steady_clock.now_ms()
        return await self._read(lambda tx: LockStore(tx).status(name, now_ms=now_ms))

    async def page(self, *, after: str, limit: int) -> list[LockStatus]:
        """Return a page of the locks that are held, by name."""
        now_ms = self._steady_clock.now_ms()
        return await self._read(
            lambda tx: LockStore(tx).page(after=after, now_ms=now_ms, limit=limit)
        )
