"""Holds locks in memory between batches, so that a batch about a known lock reads nothing.

A batch stages the locks that it writes. They are held from its commit on. After a failed batch
nothing is held, and the next batch reads what it needs.
"""

from collections import OrderedDict

from rota.core.locks import LockState
from rota.store.locks import LockStore
from rota.store.workers import WorkerStore

MOST_HELD = 10_000  # locks, about 1 KB each; the least recently used are let go
MOST_WAITERS = 100  # of a lock that is held; one with more is read when it is needed
NUMBERS = "lock"  # the counter of fences, tickets and calls


class LockCache:
    """The locks of one leader. Only the writer uses it."""

    def __init__(self) -> None:
        self._locks: OrderedDict[str, LockState] = OrderedDict()
        self._last_number: int | None = None  # None: not known
        self._staged: dict[str, LockState] = {}
        self._staged_number: int | None = None
        self._is_outdated = False  # the batch changes locks in the store alone

    def __len__(self) -> int:
        return len(self._locks)

    def get(self, store: LockStore, name: str) -> LockState:
        held = self._locks.get(name)
        return store.get(name) if held is None else held

    def last_number(self, counters: WorkerStore) -> int:
        if self._last_number is None:
            return counters.counter(NUMBERS)
        return self._last_number

    def stage(self, lock: LockState) -> None:
        self._staged[lock.name] = lock

    def stage_number(self, last: int) -> None:
        self._staged_number = last

    def outdate(self) -> None:
        """Note that the batch changes locks in the store alone, so none may be held after it."""
        self._is_outdated = True

    def commit(self) -> None:
        """Hold what the batch has staged; the store now has it, too."""
        if self._is_outdated:
            self.clear()
        elif self._staged or self._staged_number is not None:
            self._hold_staged()

    def _hold_staged(self) -> None:
        for name, lock in self._staged.items():
            if len(lock.waiters) > MOST_WAITERS:
                self._locks.pop(name, None)
                continue
            self._locks[name] = lock
            self._locks.move_to_end(name)
        self._staged.clear()
        while len(self._locks) > MOST_HELD:
            self._locks.popitem(last=False)
        if self._staged_number is not None:
            self._last_number, self._staged_number = self._staged_number, None

    def clear(self) -> None:
        """Hold nothing: a batch failed, or locks were changed in the store alone."""
        self._is_outdated = False
        self._locks.clear()
        self._staged.clear()
        self._last_number = self._staged_number = None
