"""Who wants to hear of new assignments? Told after the commit that brings them."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence

from rota.core.shards.members import Assignment

MOST_REMEMBERED = 10_000  # members whose newest push is at hand for a poll that comes just after it

Callback = Callable[[Sequence[Assignment]], None]
Key = tuple[str, str]  # service and worker


class Assignments:
    def __init__(self) -> None:
        self._callbacks: dict[object, tuple[Callback, Callable[[], bool]]] = {}
        self._waiting: dict[Key, set[asyncio.Future[Assignment | None]]] = {}
        self._newest: OrderedDict[Key, Assignment] = OrderedDict()

    @property
    def has_listeners(self) -> bool:
        """Whether any member could be told of a change, if there was one."""
        return bool(self._waiting) or any(is_wanted() for _, is_wanted in self._callbacks.values())

    def watch(
        self, callback: Callback, is_wanted: Callable[[], bool] = lambda: True
    ) -> Callable[[], None]:
        """Call back with all pushes of each commit, until what this gives back is called."""
        subscription = object()
        self._callbacks[subscription] = callback, is_wanted

        def unsubscribe() -> None:
            self._callbacks.pop(subscription, None)

        return unsubscribe

    async def wait(
        self, service: str, worker_id: str, *, after_generation: int, wait_ms: int
    ) -> Assignment | None:
        """The member's first assignment of a later generation; None: the time is over."""
        key = service, worker_id
        newest = self._newest.get(key)
        if newest is not None and newest.generation > after_generation:
            return newest
        future: asyncio.Future[Assignment | None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, set()).add(future)
        try:
            await asyncio.wait([future], timeout=wait_ms / 1000)
        finally:
            waiting = self._waiting.get(key, set())
            waiting.discard(future)
            if not waiting:
                self._waiting.pop(key, None)
        return future.result() if future.done() else None

    def push(self, pushes: Sequence[Assignment]) -> None:
        """On the loop, after the answers of the same commit were handed over."""
        if not pushes:
            return
        for one in pushes:
            key = one.service, one.worker_id
            self._newest[key] = one
            self._newest.move_to_end(key)
            for future in self._waiting.pop(key, ()):
                if not future.done():
                    future.set_result(one)
        while len(self._newest) > MOST_REMEMBERED:
            self._newest.popitem(last=False)
        loop = asyncio.get_running_loop()
        for callback, _ in list(self._callbacks.values()):
            # Not at once: whoever was answered by an earlier commit is still to send that answer.
            loop.call_soon(callback, pushes)

    def close(self) -> None:
        for futures in self._waiting.values():
            for future in futures:
                if not future.done():
                    future.set_result(None)
        self._waiting.clear()
