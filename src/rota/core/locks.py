"""Locks: leases with a fence, and a queue of waiting callers.

Theory of operation. A lock is a lease: it has an owner until the owner releases it or its time runs
out. The fence rises with each change of the owner. An owner that writes to a resource under a lock
sends the fence along, and the resource refuses a lower fence than it has seen. The lock alone
cannot stop an owner that was paused and does not know that its time is over.

Waiting callers are served in the order of their arrival. A caller that asks again while it holds
the lock gets the same fence, because its reply may have been lost. A caller that asks again while
it waits keeps its place. A caller that is absent for a moment, between two calls or after a broken
connection, keeps its place for a while, but the lock goes to the first waiter that is present.

Each acquiring call has its own number. A call that is abandoned releases only the lock that it got
itself, not a lock that the same caller got by a later call.
"""

from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from rota.core import limits
from rota.core.context import Context
from rota.core.replies import CommandBase, Done
from rota.errors import LockLost, TooMany


class LockWaiter(Struct, frozen=True, kw_only=True):
    """A caller in the queue of a lock."""

    ticket: int  # its place: the lowest is first
    asked: int  # the number of the caller's newest call
    owner: str
    ttl_ms: int
    until_ms: int  # when its call ends; after that the caller is absent


class LockState(Struct, frozen=True, kw_only=True):
    name: str
    owner: str | None = None  # None: free
    fence: int = 0  # of the last owner
    asked: int = 0  # the number of the owner's newest call
    ttl_ms: int = 0
    expires_at_ms: int = 0  # the end of the lease; of a free lock: of the last place that is kept
    waiters: tuple[LockWaiter, ...] = ()  # in the order of arrival


class LockAnswer(Struct, frozen=True, kw_only=True):
    """The state of a lock for one caller."""

    name: str
    owner: str
    acquired: bool
    fence: int | None = None  # the caller's fence, if it holds the lock
    asked: int | None = None  # the number of the caller's newest call, if it holds or waits
    expires_at_ms: int | None = None  # the end of the current owner's lease
    holder: str | None = None
    position: int | None = None  # in the queue, from 1


class AcquireLock(CommandBase[LockAnswer], frozen=True, kw_only=True, tag="AcquireLock"):
    name: str
    owner: str
    ttl_ms: int
    wait_ms: int = 0
    waits_at: str | None = None  # the coordinator where the caller waits, among several


class RenewLock(CommandBase[LockAnswer], frozen=True, kw_only=True, tag="RenewLock"):
    name: str
    owner: str
    fence: int
    ttl_ms: int | None = None  # None: as long as before


class ReleaseLock(CommandBase[LockAnswer], frozen=True, kw_only=True, tag="ReleaseLock"):
    name: str
    owner: str
    fence: int


class LeaveLockQueue(CommandBase[LockAnswer], frozen=True, kw_only=True, tag="LeaveLine"):
    """A call stops waiting: its time is over, or its caller is gone."""

    name: str
    owner: str
    asked: int
    is_gone: bool = True  # the caller could not receive the lock any more


class SweepLocks(CommandBase[Done], frozen=True, tag="SweepLocks"):
    """Grant every lock whose time is over to its next waiter."""


LockCommand = AcquireLock | RenewLock | ReleaseLock | LeaveLockQueue | SweepLocks


class LockStatus(Struct, frozen=True, kw_only=True):
    """The public state of a lock, for callers that only read it."""

    name: str
    owner: str | None = None
    fence: int | None = None
    expires_at_ms: int | None = None
    waiting: int = 0  # waiters that are present


class Numbers:
    """The source of fences, tickets and call numbers: they rise, and none is used twice."""

    def __init__(self, last: int) -> None:
        self.last = last

    def next(self) -> int:
        self.last += 1
        return self.last


def settled(lock: LockState, numbers: Numbers, *, now_ms: int) -> LockState:
    """Apply the time to a lock: drop expired owners and waiters, grant it to the next waiter."""
    line = tuple(one for one in lock.waiters if _kept_until_ms(one) > now_ms)
    if lock.owner is not None and lock.expires_at_ms > now_ms:
        return lock if len(line) == len(lock.waiters) else replace(lock, waiters=line)
    first = next((one for one in line if one.until_ms > now_ms), None)
    if first is None:
        until_ms = max(map(_kept_until_ms, line), default=0)
        return replace(lock, owner=None, expires_at_ms=until_ms, waiters=line)
    lock = replace(lock, waiters=line)
    return _given(lock, first.owner, first.ttl_ms, numbers, asked=first.asked, now_ms=now_ms)


def acquire(
    lock: LockState, event: AcquireLock, numbers: Numbers, *, now_ms: int
) -> tuple[LockState, LockAnswer]:
    """Grant the lock, or queue the caller if it waits; the answer names the current owner."""
    lock = settled(lock, numbers, now_ms=now_ms)
    owner, ttl_ms = event.owner, event.ttl_ms
    if lock.owner is None:
        lock = _given(lock, owner, ttl_ms, numbers, asked=numbers.next(), now_ms=now_ms)
    elif lock.owner == owner:
        # The owner did not get its reply, or wants the lock for longer.
        expires_at_ms = max(lock.expires_at_ms, now_ms + ttl_ms)
        lock = replace(lock, asked=numbers.next(), ttl_ms=ttl_ms, expires_at_ms=expires_at_ms)
    elif event.wait_ms > 0:
        lock = _in_line(lock, event, numbers, now_ms=now_ms)
    return lock, answer(lock, owner)


def renew(
    lock: LockState, event: RenewLock, numbers: Numbers, *, now_ms: int
) -> tuple[LockState, LockAnswer]:
    """Extend the lease of the lock; this does not bring back a lock that was lost."""
    lock = settled(lock, numbers, now_ms=now_ms)
    _check(lock, event)
    ttl_ms = lock.ttl_ms if event.ttl_ms is None else event.ttl_ms
    lock = replace(lock, ttl_ms=ttl_ms, expires_at_ms=now_ms + ttl_ms)
    return lock, answer(lock, event.owner)


def release(
    lock: LockState, event: ReleaseLock, numbers: Numbers, *, now_ms: int
) -> tuple[LockState, LockAnswer]:
    """Release the lock, and grant it to the next waiter at once."""
    lock = settled(lock, numbers, now_ms=now_ms)
    _check(lock, event)
    lock = settled(replace(lock, owner=None), numbers, now_ms=now_ms)
    return lock, answer(lock, event.owner)


def leave_queue(
    lock: LockState, event: LeaveLockQueue, numbers: Numbers, *, now_ms: int
) -> tuple[LockState, LockAnswer]:
    """End a call's wait. If its caller is gone and the call has just got the lock, release it."""
    waiters = tuple(
        replace(one, until_ms=min(one.until_ms, now_ms)) if one.asked == event.asked else one
        for one in lock.waiters
    )
    is_unheard = event.is_gone and lock.owner == event.owner and lock.asked == event.asked
    owner = None if is_unheard else lock.owner
    lock = settled(replace(lock, owner=owner, waiters=waiters), numbers, now_ms=now_ms)
    return lock, answer(lock, event.owner)


def answer(lock: LockState, owner: str) -> LockAnswer:
    is_held = lock.owner == owner
    asked: int | None = lock.asked if is_held else None
    position: int | None = None
    for place, one in enumerate(lock.waiters, start=1):
        if one.owner == owner:
            asked, position = one.asked, place
    return LockAnswer(
        name=lock.name,
        owner=owner,
        acquired=is_held,
        fence=lock.fence if is_held else None,
        asked=asked,
        expires_at_ms=None if lock.owner is None else lock.expires_at_ms,
        holder=lock.owner,
        position=position,
    )


def next_moment_ms(lock: LockState) -> int | None:
    """Return when time changes the lock; None: it has no owner and no waiters."""
    return lock.expires_at_ms if lock.owner is not None or lock.waiters else None


def _kept_until_ms(waiter: LockWaiter) -> int:
    return waiter.until_ms + limits.LOCK_PLACE_KEPT_MS


def _given(
    lock: LockState, owner: str, ttl_ms: int, numbers: Numbers, *, asked: int, now_ms: int
) -> LockState:
    return replace(
        lock,
        owner=owner,
        fence=numbers.next(),
        asked=asked,
        ttl_ms=ttl_ms,
        expires_at_ms=now_ms + ttl_ms,
        waiters=tuple(one for one in lock.waiters if one.owner != owner),
    )


def _in_line(lock: LockState, event: AcquireLock, numbers: Numbers, *, now_ms: int) -> LockState:
    changed = {"asked": numbers.next(), "ttl_ms": event.ttl_ms, "until_ms": now_ms + event.wait_ms}
    if any(one.owner == event.owner for one in lock.waiters):
        waiters = tuple(
            replace(one, **changed) if one.owner == event.owner else one for one in lock.waiters
        )
        return replace(lock, waiters=waiters)
    if len(lock.waiters) >= limits.MAX_LOCK_WAITERS:
        raise TooMany(
            f"{limits.MAX_LOCK_WAITERS} callers already wait for lock {lock.name!r}",
            limit="max_lock_waiters",
        )
    waiter = LockWaiter(ticket=numbers.next(), owner=event.owner, **changed)
    return replace(lock, waiters=(*lock.waiters, waiter))


def _check(lock: LockState, event: RenewLock | ReleaseLock) -> None:
    if lock.owner != event.owner or lock.fence != event.fence:
        raise LockLost(lock.name, event.owner, fence=event.fence)


# --- the reducer --------------------------------------------------------------------------------


class ChangeLock(Struct, frozen=True):
    """Store the state of a lock after one command."""

    before: LockState
    after: LockState


class LockTable(Struct):
    """The locks that the commands of a batch touch, after the commands decided so far."""

    locks: dict[str, LockState]
    expired: list[str]  # names, for a sweep
    numbers: Numbers


def needs(command: LockCommand) -> str | None:
    """Return the name of the lock to load; None: a sweep, which needs the expired locks."""
    return None if isinstance(command, SweepLocks) else command.name


def reduce(
    state: LockTable, command: LockCommand, context: Context
) -> tuple[list[ChangeLock], LockAnswer | Done]:
    """Decide one command, and update the state for the next command of the batch."""
    now_ms, numbers = context.steady_ms, state.numbers
    if isinstance(command, SweepLocks):
        changes = []
        for name in state.expired:
            lock = state.locks[name]
            changes += _changed(state, lock, settled(lock, numbers, now_ms=now_ms))
        return changes, Done(len(state.expired))
    lock = state.locks[command.name]
    match command:
        case AcquireLock():
            after, reply = acquire(lock, command, numbers, now_ms=now_ms)
        case RenewLock():
            after, reply = renew(lock, command, numbers, now_ms=now_ms)
        case ReleaseLock():
            after, reply = release(lock, command, numbers, now_ms=now_ms)
        case LeaveLockQueue():
            after, reply = leave_queue(lock, command, numbers, now_ms=now_ms)
        case _:
            assert_never(command)
    return _changed(state, lock, after), reply


def _changed(state: LockTable, before: LockState, after: LockState) -> list[ChangeLock]:
    state.locks[before.name] = after
    return [ChangeLock(before, after)] if after is not before else []
