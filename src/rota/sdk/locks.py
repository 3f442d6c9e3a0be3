"""Locks: `with app.lock("name"):`.

A program holds a lock for a time, and renews it in the background for as long as the block lasts:
on a thread, or in async code in a task. When the lock cannot be renewed in time it is lost, and
another program may acquire it; the block can find out, but is not stopped. So protect effects by
the `fence`: a number that rises with each owner, and that the receiver of an effect compares.
"""

import asyncio
import os
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Self

import msgspec

from rota.core import limits
from rota.errors import Invalid, LockLost, RotaError, TooMany, Unavailable
from rota.messages.kv import LockAcquire, LockRelease, LockRenew, LockView
from rota.sdk.client import kv_calls
from rota.sdk.client.client import Client
from rota.sdk.client.requests import Exchange, Wait
from rota.sdk.options.durations import Seconds, optional_seconds, seconds
from rota.sdk.timing import now_s
from rota.sdk.transport.transport import drive
from rota.telemetry import library_logger

log = library_logger("rota.lock")

DEFAULT_TTL_S = 30.0
SHORTEST_TIMEOUT_S = 0.1  # of a renewal, however little time is left
RELEASE_AGAIN_AFTER_S = 0.1  # when the answer to a release is missing
CLOCK_DRIFT = 0.02  # the part of a lease that is not relied on: clocks run at different speeds
RENEWALS = 3  # in the time of a lease
TRIES = 10  # in the time of a lease, after a renewal without an answer
LONGEST_PAUSE_S = 1.0  # between two such tries

OnLost = Callable[[LockLost], object]


class LockNotAcquired(TimeoutError):  # noqa: N818 - read where it is caught
    """Another owner held the lock for as long as the caller would wait."""

    def __init__(self, text: str, *, lock: str, holder: str | None) -> None:
        super().__init__(text)
        self.lock = lock
        self.holder = holder


class Lock:
    """A lock that this program holds or wants; a context manager, sync and async.

    A lock can be used again, but not twice at the same time: `app.lock` makes another one.
    """

    def __init__(
        self,
        client: Callable[[], Client],
        name: str,
        *,
        ttl_s: Seconds = DEFAULT_TTL_S,
        wait_s: Seconds | None = None,
        on_lost: OnLost | None = None,
    ) -> None:
        ttl_s = seconds(ttl_s, "ttl_s")
        most_s = limits.MAX_LOCK_TTL_MS // 1000
        if not 0.001 <= ttl_s <= most_s:
            raise Invalid(f"ttl_s is {ttl_s:g}; a lock is held for at most {most_s} s at once")
        self.name = name
        self._get_client = client
        self._ttl_ms = round(ttl_s * 1000)
        self._wait_s = optional_seconds(wait_s, "wait_s")
        self._on_lost = on_lost
        self._held: HeldLock | None = None
        self._renewal: _RenewalThread | asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Lock {self.name!r}>"

    @property
    def fence(self) -> int:
        """The number that goes along with every effect of the holder."""
        return self._require_held().lease.fence

    @property
    def is_held(self) -> bool:
        """Whether this program surely holds the lock; False as soon as another one may."""
        return self._held is not None and self._held.lease.is_held(now_s())

    def check(self) -> None:
        """Raise `LockLost` when another program may hold the lock; for long work."""
        held = self._require_held()
        if not held.lease.is_held(now_s()):
            raise held.lost()

    # --- acquire and release --------------------------------------------------------------------

    def acquire(self) -> Self:
        """Acquire the lock, or raise `LockNotAcquired` after `wait_s` seconds."""
        client = self._get_client()
        self._held = client.run(self._acquire())
        self._renewal = _RenewalThread(client.without_repeats(), self._held.renew(self._on_lost))
        return self

    async def aacquire(self) -> Self:
        """As `acquire`, for async code."""
        client = self._get_client()
        self._held = await client.arun(self._acquire())
        renewal = client.without_repeats().arun(self._held.renew(self._on_lost))
        self._renewal = asyncio.create_task(renewal)
        return self

    def release(self) -> None:
        """Release the lock. Raises `LockLost` when it was lost before."""
        self._get_client().run(self._end().release())

    async def arelease(self) -> None:
        """As `release`, for async code."""
        await self._get_client().arun(self._end().release())

    def __enter__(self) -> Self:
        return self.acquire()

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._get_client().run(self._leave(error))

    async def __aenter__(self) -> Self:
        return await self.aacquire()

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        await self._get_client().arun(self._leave(error))

    # --- exchanges ------------------------------------------------------------------------------

    def _require_held(self) -> "HeldLock":
        if self._held is None:
            raise Invalid(
                f"lock {self.name!r} is not held; acquire it with `with app.lock({self.name!r})`"
            )
        return self._held

    def _end(self) -> "HeldLock":
        held, self._held = self._require_held(), None
        held.is_over = True
        renewal, self._renewal = self._renewal, None
        if renewal is not None:
            renewal.cancel()
        return held

    def _leave(self, error: BaseException | None) -> Exchange[None]:
        """Release the lock at the end of a block, unless the block has released it."""
        if self._held is None:
            return
        try:
            yield from self._end().release()
        except LockLost:
            if error is None:  # the error of the block comes first
                raise

    def _acquire(self) -> "Exchange[HeldLock]":
        """Ask for the lock until it is granted; the coordinator keeps the owner's place in line."""
        if self._held is not None:
            raise Invalid(f"lock {self.name!r} is held already; make another with `app.lock`")
        owner = _new_owner()
        wait = Wait(f"lock {self.name!r}", self._wait_s)
        while True:
            request = LockAcquire(owner=owner, ttl_ms=self._ttl_ms, wait_ms=wait.call_ms())
            sent_at = now_s()
            try:
                view: LockView = yield kv_calls.acquire_lock(self.name, request)
            except (Unavailable, TooMany) as error:
                yield wait.pause_s(error)
                continue
            if view.acquired:
                assert view.fence is not None
                ttl_s = self._ttl_ms / 1000
                lease = LockLease(fence=view.fence, ttl_s=ttl_s, sent_at=sent_at)
                return HeldLock(self.name, owner, lease)
            try:
                wait.check(f"held by {view.holder!r}")
            except TimeoutError as error:
                raise LockNotAcquired(str(error), lock=self.name, holder=view.holder) from None


class HeldLock:
    """A lock from the answer that granted it to its release."""

    def __init__(self, name: str, owner: str, lease: "LockLease") -> None:
        self.name = name
        self.owner = owner
        self.lease = lease
        self.is_over = False  # the holder has released it

    def lost(self) -> LockLost:
        return LockLost(self.name, self.owner, fence=self.lease.fence)

    def renew(self, on_lost: OnLost | None) -> Exchange[None]:
        """Renew the lock until it is lost."""
        lease = self.lease
        renewal = LockRenew(owner=self.owner, fence=lease.fence)
        while lease.is_held(now_s()):
            yield max(0.0, lease.next_at - now_s())
            sent_at = now_s()
            if not lease.is_held(sent_at):
                break
            # Half of the remaining time, so that another try on another connection is possible.
            timeout_s = max(SHORTEST_TIMEOUT_S, (lease.ends_at - sent_at) / 2)
            call = kv_calls.renew_lock(self.name, renewal)
            try:
                yield msgspec.structs.replace(call, timeout_s=timeout_s)
                lease.renew(sent_at=sent_at)
            except LockLost:
                lease.is_lost = True
            except RotaError as error:
                log.warning("lock_renewal_failed", lock=self.name, reason=error.detail)
                lease.fail(now=now_s())
            if self.is_over:
                return  # the answer to a late renewal does not matter any more
        log.warning("lock_lost", lock=self.name, fence=lease.fence)
        if on_lost is not None:
            on_lost(self.lost())

    def release(self) -> Exchange[None]:
        """Release the lock; if the release does not arrive, the lock expires."""
        if not self.lease.is_held(now_s()):
            raise self.lost()
        request = LockRelease(owner=self.owner, fence=self.lease.fence)
        call = kv_calls.release_lock(self.name, request)
        try:
            yield call
        except Unavailable:
            yield RELEASE_AGAIN_AFTER_S
        else:
            return
        try:
            yield call
        except LockLost:
            return  # the first release arrived
        except Unavailable as error:
            log.warning("lock_release_failed", lock=self.name, reason=error.detail)


class LockLease:
    """The time for which a lock is held, counted from the sending of the last answered request.

    The coordinator counts from when it received that request, so the holder knows that its lease
    is over before another program can acquire the lock. Times are in seconds of `now_s`.
    """

    def __init__(self, *, fence: int, ttl_s: float, sent_at: float) -> None:
        self.fence = fence
        self.ttl_s = ttl_s
        self.renewed_at = sent_at
        self.is_lost = False  # as the coordinator has answered
        self._tried_at = sent_at

    @property
    def ends_at(self) -> float:
        return self.renewed_at + self.ttl_s * (1 - CLOCK_DRIFT)

    def is_held(self, now: float) -> bool:
        return not self.is_lost and now < self.ends_at

    def renew(self, *, sent_at: float) -> None:
        """Record that the coordinator has answered the renewal sent at this time."""
        self.renewed_at = max(self.renewed_at, sent_at)
        self._tried_at = self.renewed_at

    def fail(self, *, now: float) -> None:
        """Record that a renewal got no answer."""
        self._tried_at = now

    @property
    def next_at(self) -> float:
        """When the next renewal is due; never later than the end of the lease."""
        pause_s = self.ttl_s / RENEWALS
        if self._tried_at > self.renewed_at:
            pause_s = min(self.ttl_s / TRIES, LONGEST_PAUSE_S)
        return min(self._tried_at + pause_s, self.ends_at)


class _RenewalThread:
    """Renews a lock on a thread of its own."""

    def __init__(self, client: Client, renewal: Exchange[None]) -> None:
        self._is_cancelled = threading.Event()
        self._client = client
        self._renewal = renewal
        threading.Thread(target=self._run, name="rota-lock", daemon=True).start()

    def cancel(self) -> None:
        """Stop renewing; a renewal under way ends by itself."""
        self._is_cancelled.set()

    def _run(self) -> None:
        with suppress(_RenewalCancelled):
            drive(self._renewal, self._client.run, pause=self._pause)

    def _pause(self, seconds: float) -> None:
        if self._is_cancelled.wait(seconds):
            raise _RenewalCancelled


class _RenewalCancelled(Exception):  # noqa: N818 - not an error
    """The lock was released."""


def _new_owner() -> str:
    """The name by which the coordinator knows this acquisition."""
    host = socket.gethostname()[:100]
    return f"{host}-{os.getpid()}-{secrets.token_hex(4)}"
