"""How does a worker stay a member of its service? One incarnation after the other.

Theory of operation. A membership is one incarnation. When its lease is over, or the coordinator
will not hear of it any more, all its shards are lost. Another begins once every callback has
returned, since registering anew may hand shards of the old one on; and after a pause that grows
from time to time. That goes on until a stop is asked for.

The driver has a thread and an event loop of its own, where nothing of the user's runs, so no
callback can hold up a beat.
"""

import asyncio
import secrets
from collections.abc import Callable
from typing import Any

import structlog
from msgspec.structs import replace

from rota.core.shards.events import RegisterMember
from rota.core.shards.holding import Loss
from rota.errors import RotaError
from rota.sdk.backoff import Backoff
from rota.sdk.client import Client
from rota.sdk.shards.callbacks import Callbacks
from rota.sdk.shards.lines import OpenLine
from rota.sdk.shards.membership import Membership
from rota.sdk.shards.seats import Functions
from rota.sdk.shift import StopReason

log = structlog.get_logger("rota.shards")

FENCED_PAUSE_S = 1.0  # at the least, before we try again under the same name
REPLACED_AT_MOST = 1  # by another process under the same id; once may be our own restart
SETTLED_AFTER_LEASES = 10  # a membership that lasted so long forgives what was before


class Driver:
    """One run of a shard worker, on the event loop it is made on."""

    def __init__(
        self,
        applicant: RegisterMember,
        functions: Functions,
        *,
        open_line: OpenLine,
        connect: Callable[[], Client],
        callback_loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
        drain_s: float,
    ) -> None:
        self._applicant = applicant
        self._functions = functions
        self._open_line = open_line
        self._connect = connect
        self._now_ms = now_ms
        self._drain_s = drain_s
        self._loop = asyncio.get_running_loop()
        self._callbacks = Callbacks(callback_loop)
        self._backoff = Backoff()
        self._replaced = 0
        self._stop_asked = asyncio.Event()
        self.membership: Membership | None = None

    async def run(self) -> StopReason:
        """Hold shards until a stop is asked for, then give them up and leave."""
        try:
            while not self._stop_asked.is_set():
                self.membership = membership = self._begin()
                began_at = self._loop.time()
                await membership.live(self._open_line)
                await membership.until_quiet()
                if self._stop_asked.is_set():
                    break
                self._look_back(membership, lasted_s=self._loop.time() - began_at)
                if self._replaced > REPLACED_AT_MOST:
                    return self._give_way()
                await self._pause(membership)
            return StopReason.STOPPED
        finally:
            self._callbacks.close()

    def stop(self) -> None:
        """Drain and leave."""
        if not self._stop_asked.is_set():
            self._stop_asked.set()
            if self.membership is not None:
                self.membership.drain(until=self._loop.time() + self._drain_s)

    def hurry(self) -> None:
        """Leave now; what is held is lost."""
        self._stop_asked.set()
        if self.membership is not None:
            self.membership.hurry()

    def take_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Something broke that nobody waits for: a worker that is wrong must not go on beating."""
        error = context.get("exception")
        if isinstance(error, Exception) and not isinstance(error, RotaError | OSError):
            assert self.membership is not None
            self.membership.break_off(error)
        loop.default_exception_handler(context)

    def _begin(self) -> Membership:
        # Not made of the time: a clock that was set back must not make us look old.
        incarnation = secrets.token_hex(16)
        return Membership(
            replace(self._applicant, incarnation=incarnation),
            self._functions,
            self._callbacks,
            connect=self._connect,
            now_ms=self._now_ms,
        )

    def _look_back(self, membership: Membership, *, lasted_s: float) -> None:
        if lasted_s > SETTLED_AFTER_LEASES * membership.lease_s > 0:
            self._replaced = 0
            self._backoff.reset()
        if membership.is_replaced:
            self._replaced += 1

    def _give_way(self) -> StopReason:
        log.error(
            "another worker process uses this id; stopping. Give each its own worker id",
            service=self._applicant.service,
            worker_id=self._applicant.worker_id,
        )
        return StopReason.REPLACED

    async def _pause(self, membership: Membership) -> None:
        """Before beginning anew: somebody may fight for our name, or the coordinator be down."""
        is_fenced = membership.lost is not None and membership.lost.loss is Loss.FENCED
        wait_s = self._backoff.wait_s(at_least_s=FENCED_PAUSE_S if is_fenced else 0.0)
        try:
            async with asyncio.timeout(wait_s):
                await self._stop_asked.wait()
        except TimeoutError:
            pass
