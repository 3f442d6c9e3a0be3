"""Waiters and callbacks for new shard assignments, notified after the commit that makes them."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rota.core.shards.members import Assignment
from rota.engine.waiters import Waiter, Waiters

MOST_REMEMBERED = 10_000  # members whose newest push is cached for a poll that arrives just after

Callback = Callable[[Sequence[Assignment]], None]
MemberKey = tuple[str, str]  # service and worker


class AssignmentWaiters:
    def __init__(self) -> None:
        self._callbacks: dict[object, Callback] = {}
        self._waiting: Waiters[MemberKey, Assignment] = Waiters()
        self._newest: OrderedDict[MemberKey, Assignment] = OrderedDict()

    def watch(self, callback: Callback) -> Callable[[], None]:
        """Call `callback` with all pushes of each commit; return a function that unsubscribes."""
        subscription = object()
        self._callbacks[subscription] = callback

        def unsubscribe() -> None:
            self._callbacks.pop(subscription, None)

        return unsubscribe

    @contextmanager
    def waiting_for(
        self, service: str, worker_id: str, *, after_generation: int
    ) -> Iterator[Waiter[Assignment]]:
        """Wait for the member's first assignment newer than `after_generation`."""
        newest = self._newest.get((service, worker_id))
        if newest is not None and newest.generation > after_generation:
            yield Waiter(newest)
            return
        with self._waiting.waiting_for((service, worker_id)) as waiter:
            yield waiter

    def push(self, pushes: Sequence[Assignment]) -> None:
        """Push new assignments. Runs on the loop, after the replies of the same commit."""
        if not pushes:
            return
        for one in pushes:
            key = one.service, one.worker_id
            self._newest[key] = one
            self._newest.move_to_end(key)
            self._waiting.resolve(key, one)
        while len(self._newest) > MOST_REMEMBERED:
            self._newest.popitem(last=False)
        loop = asyncio.get_running_loop()
        for callback in list(self._callbacks.values()):
            # Deferred, because the replies of earlier commits are not sent yet.
            loop.call_soon(callback, pushes)

    def close(self) -> None:
        self._waiting.close()
