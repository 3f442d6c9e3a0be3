"""How does a program do what only one may do at a time? Inside `with app.lock("name"):`.

A lock is had for a time, and renewed in the background for as long as the block lasts: by a thread,
or in async code by a task. When it cannot be renewed in time it is lost, and others may have it;
the block is told, but cannot be stopped. So whatever must never be done by two is done under the
`fence`: a number that rises with each owner, and that whoever is written to compares.
"""

import asyncio
import os
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

import msgspec
import structlog

from rota.core import limits
from rota.errors import Invalid, LockLost, RotaError, TooMany, Unavailable
from rota.messages.keeping import LockAcquire, LockRelease, LockRenew, LockView
from rota.sdk import keeping_calls
from rota.sdk.client import Client
from rota.sdk.conversations import Conversation, aconverse, converse
from rota.sdk.sessions import now_s
from rota.sdk.tenures import Tenure
from rota.sdk.waiting import Wait

log = structlog.get_logger("rota.lock")

DEFAULT_TTL_S = 30.0
SHORTEST_TIMEOUT_S = 0.1  # of a renewal, however little time is left
RELEASED_AGAIN_AFTER_S = 0.1  # when it is not known whether it was heard

OnLost = Callable[[LockLost], object]


class LockNotAcquired(TimeoutError):  # noqa: N818 - read where it is caught
    """The lock was somebody else's for as long as the caller would wait."""

    def __init__(self, text: str, *, lock: str, holder: str | None) -> None:
        super().__init__(text)
        self.lock = lock
        self.holder = holder


class Lock:
    """A lock that this program has, or wants; a context manager, sync and async.

    Each `with` has it once, so a lock can be used again, but not by two at the same time: whoever
    wants it beside makes another, by `app.lock`.
    """

    def __init__(
        self,
        client: Callable[[], Client],
        name: str,
        *,
        ttl_s: float = DEFAULT_TTL_S,
        wait_s: float | None = None,
        on_lost: OnLost | None = None,
    ) -> None:
        most_s = limits.MAX_LOCK_TTL_MS // 1000
        if not 0.001 <= ttl_s <= most_s:
            raise Invalid(f"a lock is had for at most {most_s} s at once, not for {ttl_s:g}")
        self.name = name
        self._get_client = client
        self._ttl_ms = round(ttl_s * 1000)
        self._wait_s = wait_s
        self._on_lost = on_lost
        self._had: Having | None = None
        self._renewing: _Thread | asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Lock {self.name!r}>"

    # --- how it stands --------------------------------------------------------------------------

    @property
    def fence(self) -> int:
        """The number to hand along with all that is done under the lock."""
        return self._having().tenure.fence

    @property
    def is_held(self) -> bool:
        """Whether the lock is ours for sure; False as soon as others may have it."""
        return self._had is not None and self._had.tenure.is_held(now_s())

    def check(self) -> None:
        """Raise `LockLost` when others may have the lock. Long work calls this now and then."""
        having = self._having()
        if not having.tenure.is_held(now_s()):
            raise having.lost()

    # --- having it ------------------------------------------------------------------------------

    def acquire(self) -> Self:
        """Have the lock, or raise `LockNotAcquired` when `wait_s` is over."""
        client = self._begin()
        self._had = converse(self._asking(), client)
        keeping = self._had.keeping(self._on_lost)
        self._renewing = _Thread(client.without_repeats(), keeping)
        return self

    async def aacquire(self) -> Self:
        """As `acquire`, for async code."""
        client = self._begin()
        self._had = await aconverse(self._asking(), client)
        keeping = aconverse(self._had.keeping(self._on_lost), client.without_repeats())
        self._renewing = asyncio.create_task(keeping)
        return self

    def release(self) -> None:
        """Let go of the lock. Raises `LockLost` when it was lost before."""
        converse(self._end().releasing(), self._get_client())

    async def arelease(self) -> None:
        """As `release`, for async code."""
        await aconverse(self._end().releasing(), self._get_client())

    def __enter__(self) -> Self:
        return self.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._had is not None:
                self.release()
        except LockLost:
            if error is None:  # otherwise what the block itself raised counts for more
                raise

    async def __aenter__(self) -> Self:
        return await self.aacquire()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._had is not None:
                await self.arelease()
        except LockLost:
            if error is None:
                raise

    # --- the inside -----------------------------------------------------------------------------

    def _having(self) -> "Having":
        if self._had is None:
            raise Invalid(f"lock {self.name!r} is not had: take it by `with`")
        return self._had

    def _begin(self) -> Client:
        if self._had is not None:
            raise Invalid(f"lock {self.name!r} is had already; make another by `app.lock`")
        return self._get_client()

    def _end(self) -> "Having":
        having, self._had = self._having(), None
        having.is_over = True
        renewing, self._renewing = self._renewing, None
        if renewing is not None:
            renewing.cancel()
        return having

    def _asking(self) -> "Conversation[Having]":
        """Ask for the lock, again and again if need be; the place in line is kept meanwhile."""
        owner = _new_owner()
        wait = Wait(f"lock {self.name!r}", self._wait_s)
        while True:
            wish = LockAcquire(owner=owner, ttl_ms=self._ttl_ms, wait_ms=wait.question_ms())
            sent_at = now_s()
            try:
                view: LockView = yield keeping_calls.acquire_lock(self.name, wish)
            except (Unavailable, TooMany) as error:
                yield wait.pause_s(error)
                continue
            if view.acquired:
                assert view.fence is not None
                ttl_s = self._ttl_ms / 1000
                tenure = Tenure(fence=view.fence, ttl_s=ttl_s, sent_at=sent_at)
                return Having(self.name, owner, tenure)
            try:
                wait.go_on(f"held by {view.holder!r}")
            except TimeoutError as error:
                raise LockNotAcquired(str(error), lock=self.name, holder=view.holder) from None


class Having:
    """One time of having a lock, from the answer that gave it to its release."""

    def __init__(self, name: str, owner: str, tenure: Tenure) -> None:
        self.name = name
        self.owner = owner
        self.tenure = tenure
        self.is_over = False  # whoever had it lets go of it

    def lost(self) -> LockLost:
        return LockLost(self.name, self.owner, fence=self.tenure.fence)

    def keeping(self, on_lost: OnLost | None) -> Conversation[None]:
        """Renew the lock until it is lost."""
        tenure = self.tenure
        renewal = LockRenew(owner=self.owner, fence=tenure.fence)
        while tenure.is_held(now_s()):
            yield max(0.0, tenure.next_at - now_s())
            sent_at = now_s()
            if not tenure.is_held(sent_at):
                break
            # Half of what is left: time for another try on another connection.
            timeout_s = max(SHORTEST_TIMEOUT_S, (tenure.ends_at - sent_at) / 2)
            call = keeping_calls.renew_lock(self.name, renewal)
            try:
                yield msgspec.structs.replace(call, timeout_s=timeout_s)
                tenure.renew(sent_at=sent_at)
            except LockLost:
                tenure.is_lost = True
            except RotaError as error:
                log.warning("lock not renewed", lock=self.name, reason=error.detail)
                tenure.fail(now=now_s())
            if self.is_over:
                return  # what a late renewal says of it does not matter any more
        log.warning("lock lost", lock=self.name, fence=tenure.fence)
        if on_lost is not None:
            on_lost(self.lost())

    def releasing(self) -> Conversation[None]:
        """Let go of the lock; when that is not heard, it runs out by itself."""
        if not self.tenure.is_held(now_s()):
            raise self.lost()
        call = keeping_calls.release_lock(
            self.name, LockRelease(owner=self.owner, fence=self.tenure.fence)
        )
        try:
            yield call
        except Unavailable:
            yield RELEASED_AGAIN_AFTER_S
        else:
            return
        try:
            yield call
        except LockLost:
            return  # it was heard the first time
        except Unavailable as error:
            log.warning("lock not released", lock=self.name, reason=error.detail)


class _Thread:
    """Keeps a lock on a thread of its own."""

    def __init__(self, client: Client, keeping: Conversation[None]) -> None:
        self._is_over = threading.Event()
        self._client = client
        self._keeping = keeping
        threading.Thread(target=self._run, name="rota-lock", daemon=True).start()

    def cancel(self) -> None:
        """Stop; a renewal that is under way ends on its own."""
        self._is_over.set()

    def _run(self) -> None:
        with suppress(_Over):
            converse(self._keeping, self._client, pause=self._pause)

    def _pause(self, seconds: float) -> None:
        if self._is_over.wait(seconds):
            raise _Over


class _Over(Exception):  # noqa: N818 - nothing is wrong
    """The lock need not be kept any longer."""


def _new_owner() -> str:
    """What the coordinator knows this time of having a lock by."""
    host = socket.gethostname()[:100]
    return f"{host}-{os.getpid()}-{secrets.token_hex(4)}"
