"""Memory and locks inside the batch's transaction.

Events are carried out one after the other. A value is written as it changes; a lock is read when
it is first met and written once, at the end, so that a crowd before one lock costs no more than it
must. Numbers that only rise are read and written once for a batch, too.
"""

from collections.abc import Callable, Sequence
from typing import get_args

from msgspec import Struct

from rota.core import locks, memory
from rota.core.locks import (
    AcquireLock,
    LeaveLine,
    Lock,
    LockAnswer,
    LockEvent,
    Numbers,
    ReleaseLock,
    RenewLock,
    SweepLocks,
)
from rota.core.memory import DeleteMemory, MemoryEntry, MemoryEvent, PutMemory, SweepMemory
from rota.core.notices import Notice
from rota.core.replies import Done
from rota.errors import KeyNotFound, RotaError
from rota.store.database import Transaction
from rota.store.locks import Locks
from rota.store.memory import Memories
from rota.store.workers import Workers

KeepingEvent = MemoryEvent | LockEvent
KEEPING_EVENTS = frozenset(get_args(KeepingEvent))

SWEPT_PER_STEP = 1_000  # values or locks that a sweep forgets in one transaction


class Kept(Struct, frozen=True):
    entry: MemoryEntry


KeepingReply = Kept | LockAnswer | Done
Turned = tuple[Lock, LockAnswer]


class KeepingWork(Struct):
    """What a batch did, for those who wait for it."""

    granted: list[LockAnswer] = []  # to those that stood in line
    notices: list[Notice] = []
    next_moment_ms: int | None = None  # of the locks


class Keeper:
    """Carries out the events of one batch that are about memory and locks."""

    def __init__(
        self, tx: Transaction, *, now_ms: int, steady_ms: int, replica: str | None = None
    ) -> None:
        """Locks go by a clock that is not set: they must not end before their owners think so.

        Whoever stands in line does so with this replica, where there are several.
        """
        self._memories = Memories(tx)
        self._locks = Locks(tx)
        self._counters = Counters(Workers(tx))
        self._now_ms = now_ms
        self._steady_ms = steady_ms
        self._replica = replica
        self._has_swept = False  # the locks
        self._stored: dict[str, Lock] = {}  # as they were before this batch
        self._turned: dict[str, Lock] = {}  # as they are now
        self.work = KeepingWork()

    def carry_out(self, events: Sequence[object]) -> dict[int, KeepingReply | RotaError]:
        """Decide and write all of them, one after the other; the answers go by their places."""
        answers: dict[int, KeepingReply | RotaError] = {}
        for index, event in enumerate(events):
            if type(event) in KEEPING_EVENTS:
                assert isinstance(event, KeepingEvent)
                try:
                    answers[index] = self._carry_out(event)
                except RotaError as error:
                    answers[index] = error
        self._write()
        return answers

    def _carry_out(self, event: KeepingEvent) -> KeepingReply:
        match event:
            case PutMemory():
                return self._put(event)
            case DeleteMemory():
                return self._delete(event)
            case SweepMemory():
                return self._sweep_memory()
            case SweepLocks():
                return self._sweep_locks()
            case _:
                return self._turn(event.name, lambda lock: self._changed(lock, event))

    # --- memory ---------------------------------------------------------------------------------

    def _put(self, event: PutMemory) -> Kept:
        before = self._memories.one(event.key)
        version = self._counters.of("memory").next()
        entry = memory.put(before, event, version=version, now_ms=self._now_ms)
        self._memories.put(entry)
        self._note("memory-set", entry.key, version=version)
        return Kept(entry)

    def _delete(self, event: DeleteMemory) -> Kept:
        before = memory.standing(self._memories.one(event.key), self._now_ms)
        memory.check_version(before, event.key, event.if_version)
        if before is None:
            raise KeyNotFound(event.key)
        self._memories.drop(event.key)
        self._note("memory-deleted", event.key, version=before.version)
        return Kept(before)

    def _sweep_memory(self) -> Done:
        over = self._memories.over(self._now_ms, SWEPT_PER_STEP)
        self._memories.drop(*(key for key, _ in over))
        for key, version in over:
            self._note("memory-deleted", key, version=version, reason="expired")
        return Done(len(over))

    # --- locks ----------------------------------------------------------------------------------

    def _turn(self, name: str, change: Callable[[Lock], Turned]) -> LockAnswer:
        """Change one lock, and tell whoever got it by that."""
        before = self._turned.get(name)
        if before is None:
            before = self._stored[name] = self._locks.one(name)
        after, answer = change(before)
        self._turned[name] = after
        if after is not before:
            self._tell(before, after)
        return answer

    def _changed(
        self, lock: Lock, event: AcquireLock | RenewLock | ReleaseLock | LeaveLine
    ) -> Turned:
        numbers, now_ms = self._counters.of("lock"), self._steady_ms
        match event:
            case AcquireLock():
                return locks.acquire(lock, event, numbers, now_ms=now_ms)
            case RenewLock():
                return locks.renew(lock, event, numbers, now_ms=now_ms)
            case ReleaseLock():
                return locks.release(lock, event, numbers, now_ms=now_ms)
            case LeaveLine():
                return locks.leave_line(lock, event, numbers, now_ms=now_ms)

    def _settled(self, lock: Lock) -> Turned:
        after = locks.settled(lock, self._counters.of("lock"), now_ms=self._steady_ms)
        return after, locks.answer(after, after.owner or "")

    def _sweep_locks(self) -> Done:
        # What this batch has changed so far is not in the rows, but settled already.
        over = self._locks.over(self._steady_ms, SWEPT_PER_STEP)
        self._has_swept = True
        for name in over:
            self._turn(name, self._settled)
        return Done(len(over))

    def _tell(self, before: Lock, after: Lock) -> None:
        is_over = before.owner is not None and (after.owner is None or after.fence != before.fence)
        if is_over:
            self._note("lock-released", before.name, owner=before.owner, fence=before.fence)
        if after.owner is not None and before.fence != after.fence:
            self._note("lock-acquired", after.name, owner=after.owner, fence=after.fence)
            if any(one.owner == after.owner for one in before.waiters):
                self.work.granted.append(locks.answer(after, after.owner))

    # --- at the end -----------------------------------------------------------------------------

    def _write(self) -> None:
        for name, after in self._turned.items():
            before = self._stored[name]
            if after != before:
                self._locks.put(after, before=before, replica=self._replica)
            self._look_ahead(locks.next_moment_ms(after))
        if self._has_swept:
            self._look_ahead(self._locks.next_moment_ms())
        self._counters.write()

    def _look_ahead(self, moment_ms: int | None) -> None:
        known = self.work.next_moment_ms
        if moment_ms is not None and (known is None or moment_ms < known):
            self.work.next_moment_ms = moment_ms

    def _note(self, kind: str, subject: str, **data: object) -> None:
        self.work.notices.append(Notice(type=kind, subject=subject, data=data))


class Counters:
    """Numbers that only rise, as far as this batch gives some out."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._numbers: dict[str, Numbers] = {}

    def of(self, name: str) -> Numbers:
        numbers = self._numbers.get(name)
        if numbers is None:
            numbers = self._numbers[name] = Numbers(self._workers.counter(name))
        return numbers

    def write(self) -> None:
        for name, numbers in self._numbers.items():
            self._workers.raise_counter(name, numbers.last)
