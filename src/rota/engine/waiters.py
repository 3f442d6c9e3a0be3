"""Callers that wait for one value under a key, until a commit resolves it."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Waiter(Generic[Value]):
    """One waiting caller. A value of None means that the waiter ends without one."""

    def __init__(self, value: Value | None = None) -> None:
        self._future: asyncio.Future[Value | None] = asyncio.get_running_loop().create_future()
        if value is not None:
            self.resolve(value)

    def resolve(self, value: Value | None) -> None:
        if not self._future.done():
            self._future.set_result(value)

    def within(self, wait_ms: int) -> "asyncio.Future[Value | None]":
        """The value as a future, which is None after the time limit."""
        timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self.resolve, None)
        self._future.add_done_callback(lambda _: timer.cancel())
        return self._future

    async def wait(self, wait_ms: int) -> Value | None:
        """Return the value as soon as it is resolved; None after the time limit."""
        await asyncio.wait([self._future], timeout=wait_ms / 1000)
        return self._future.result() if self._future.done() else None


class Waiters(Generic[Key, Value]):
    """All waiters of one kind, by key."""

    def __init__(self) -> None:
        self._by_key: dict[Key, set[Waiter[Value]]] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    @property
    def keys(self) -> list[Key]:
        return list(self._by_key)

    @contextmanager
    def waiting_for(self, key: Key) -> Iterator[Waiter[Value]]:
        """Register a waiter. The caller reads the value only after that, and then waits."""
        waiter: Waiter[Value] = Waiter()
        self._by_key.setdefault(key, set()).add(waiter)
        try:
            yield waiter
        finally:
            waiting = self._by_key.get(key, set())
            waiting.discard(waiter)
            if not waiting:
                self._by_key.pop(key, None)

    def resolve(self, key: Key, value: Value) -> None:
        for waiter in self._by_key.pop(key, ()):
            waiter.resolve(value)

    def close(self) -> None:
        """Resume all waiters without a value."""
        for waiters in self._by_key.values():
            for waiter in waiters:
                waiter.resolve(None)
        self._by_key.clear()
