"""Who may do what only one may do at a time?

Theory of operation. A lock is a lease: it has an owner until it is released or its time runs out,
and each time it changes hands the fence rises. Whoever writes somewhere under a lock hands the
fence along, and whoever is written to refuses a lower one than it has seen: a lock alone can not
stop an owner that was paused and does not know that its time is over.

Those who wait stand in line in the order they came. A caller that asks again while it holds the
lock is given the same fence (its answer was lost), and one that asks again while it waits keeps its
place. So does one that is away for a moment, between two calls or because its connection broke: its
place is kept for a while, but the lock goes to whoever is there.

Each call that asks has a number of its own. One that ends in vain lets go of what it got, and of
nothing that the same caller got by asking again.
"""

from msgspec import Struct
from msgspec.structs import replace

from rota.core import limits
from rota.errors import LockLost, TooMany


class Waiter(Struct, frozen=True, kw_only=True):
    """Somebody in line."""

    ticket: int  # its place: the lowest is first
    asked: int  # the number of its newest call
    owner: str
    ttl_ms: int
    until_ms: int  # it is there no longer than this


class Lock(Struct, frozen=True, kw_only=True):
    name: str
    owner: str | None = None  # None: free
    fence: int = 0  # of the last owner
    asked: int = 0  # the number of the owner's newest call
    ttl_ms: int = 0
    expires_at_ms: int = 0  # the owner's time; of a free lock, the last place that is kept
    waiters: tuple[Waiter, ...] = ()  # in the order they came


class AcquireLock(Struct, frozen=True, kw_only=True, tag=True):
    name: str
    owner: str
    ttl_ms: int
    wait_ms: int = 0


class RenewLock(Struct, frozen=True, kw_only=True, tag=True):
    name: str
    owner: str
    fence: int
    ttl_ms: int | None = None  # None: as long as before


class ReleaseLock(Struct, frozen=True, kw_only=True, tag=True):
    name: str
    owner: str
    fence: int


class LeaveLine(Struct, frozen=True, kw_only=True, tag=True):
    """A call waits no longer: its time is over, or whoever made it is gone."""

    name: str
    owner: str
    asked: int
    is_gone: bool = True  # nobody would hear of the lock


class SweepLocks(Struct, frozen=True, tag=True):
    """Locks whose time is over go to the next in line."""


LockEvent = AcquireLock | RenewLock | ReleaseLock | LeaveLine | SweepLocks


class LockAnswer(Struct, frozen=True, kw_only=True):
    """How a caller stands with a lock."""

    name: str
    owner: str
    acquired: bool
    fence: int | None = None  # of the caller, if it has the lock
    asked: int | None = None  # the number of its newest call, if it has the lock or is in line
    expires_at_ms: int | None = None  # of whoever has it
    holder: str | None = None
    position: int | None = None  # in line, from 1


class LockFigures(Struct, frozen=True, kw_only=True):
    """A lock as those see it who only look."""

    name: str
    owner: str | None = None
    fence: int | None = None
    expires_at_ms: int | None = None
    waiting: int = 0  # callers that are there


class Numbers:
    """Where fences, tickets and numbers of calls come from: they rise; none is given twice."""

    def __init__(self, last: int) -> None:
        self.last = last

    def next(self) -> int:
        self.last += 1
        return self.last


def settled(lock: Lock, numbers: Numbers, *, now_ms: int) -> Lock:
    """The lock as it stands now: who has let go of it is out, who is next in line has it."""
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
    lock: Lock, event: AcquireLock, numbers: Numbers, *, now_ms: int
) -> tuple[Lock, LockAnswer]:
    """Take the lock, or stand in line, or hear who has it."""
    lock = settled(lock, numbers, now_ms=now_ms)
    owner, ttl_ms = event.owner, event.ttl_ms
    if lock.owner is None:
        lock = _given(lock, owner, ttl_ms, numbers, asked=numbers.next(), now_ms=now_ms)
    elif lock.owner == owner:
        # It has it and does not know, or wants it for longer.
        expires_at_ms = max(lock.expires_at_ms, now_ms + ttl_ms)
        lock = replace(lock, asked=numbers.next(), ttl_ms=ttl_ms, expires_at_ms=expires_at_ms)
    elif event.wait_ms > 0:
        lock = _in_line(lock, event, numbers, now_ms=now_ms)
    return lock, answer(lock, owner)


def renew(
    lock: Lock, event: RenewLock, numbers: Numbers, *, now_ms: int
) -> tuple[Lock, LockAnswer]:
    """Keep the lock for longer; one that was lost is not had back this way."""
    lock = settled(lock, numbers, now_ms=now_ms)
    _check(lock, event)
    ttl_ms = lock.ttl_ms if event.ttl_ms is None else event.ttl_ms
    lock = replace(lock, ttl_ms=ttl_ms, expires_at_ms=now_ms + ttl_ms)
    return lock, answer(lock, event.owner)


def release(
    lock: Lock, event: ReleaseLock, numbers: Numbers, *, now_ms: int
) -> tuple[Lock, LockAnswer]:
    """Let go of the lock; whoever is next in line has it at once."""
    lock = settled(lock, numbers, now_ms=now_ms)
    _check(lock, event)
    lock = settled(replace(lock, owner=None), numbers, now_ms=now_ms)
    return lock, answer(lock, event.owner)


def leave_line(
    lock: Lock, event: LeaveLine, numbers: Numbers, *, now_ms: int
) -> tuple[Lock, LockAnswer]:
    """Wait no longer. Whoever is gone and got the lock in this very moment lets go of it."""
    waiters = tuple(
        replace(one, until_ms=min(one.until_ms, now_ms)) if one.asked == event.asked else one
        for one in lock.waiters
    )
    is_unheard = event.is_gone and lock.owner == event.owner and lock.asked == event.asked
    owner = None if is_unheard else lock.owner
    lock = settled(replace(lock, owner=owner, waiters=waiters), numbers, now_ms=now_ms)
    return lock, answer(lock, event.owner)


def answer(lock: Lock, owner: str) -> LockAnswer:
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


def next_moment_ms(lock: Lock) -> int | None:
    """When time changes something about the lock; None: nothing is known of it."""
    return lock.expires_at_ms if lock.owner is not None or lock.waiters else None


def _kept_until_ms(waiter: Waiter) -> int:
    return waiter.until_ms + limits.LOCK_PLACE_KEPT_MS


def _given(
    lock: Lock, owner: str, ttl_ms: int, numbers: Numbers, *, asked: int, now_ms: int
) -> Lock:
    return replace(
        lock,
        owner=owner,
        fence=numbers.next(),
        asked=asked,
        ttl_ms=ttl_ms,
        expires_at_ms=now_ms + ttl_ms,
        waiters=tuple(one for one in lock.waiters if one.owner != owner),
    )


def _in_line(lock: Lock, event: AcquireLock, numbers: Numbers, *, now_ms: int) -> Lock:
    changed = {"asked": numbers.next(), "ttl_ms": event.ttl_ms, "until_ms": now_ms + event.wait_ms}
    if any(one.owner == event.owner for one in lock.waiters):
        waiters = tuple(
            replace(one, **changed) if one.owner == event.owner else one for one in lock.waiters
        )
        return replace(lock, waiters=waiters)
    if len(lock.waiters) >= limits.MAX_LOCK_WAITERS:
        raise TooMany(
            f"{limits.MAX_LOCK_WAITERS} wait for lock {lock.name!r} already",
            limit="max_lock_waiters",
        )
    waiter = Waiter(ticket=numbers.next(), owner=event.owner, **changed)
    return replace(lock, waiters=(*lock.waiters, waiter))


def _check(lock: Lock, event: RenewLock | ReleaseLock) -> None:
    if lock.owner != event.owner or lock.fence != event.fence:
        raise LockLost(lock.name, event.owner, fence=event.fence)
