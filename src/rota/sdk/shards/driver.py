"""Keeps a worker a member of its service, one incarnation after the other.

Theory of operation. A membership is one incarnation. When its lease is over, or the coordinator
refuses it, all its shards are lost. The next one begins after a growing pause, once every callback
has returned, because registering again may hand the old shards to others. That goes on until a stop
is requested.

The driver has its own thread and event loop, where no user code runs, so no callback can delay a
heartbeat.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from rota.core.shards.commands import RegisterMember
from rota.core.shards.member_client import Loss
from rota.errors import RotaError
from rota.sdk.client.client import Client
from rota.sdk.shards.callbacks import CallbackRunner
from rota.sdk.shards.membership import Membership
from rota.sdk.shards.slots import UserCallbacks
from rota.sdk.shards.transport import OpenTransport
from rota.sdk.timing import RetryBackoff
from rota.sdk.worker.stopping import StopReason
from rota.telemetry import library_logger

log = library_logger("rota.shards")

FENCED_PAUSE_S = 1.0  # at least, before the worker registers again under a fenced id
REPLACED_AT_MOST = 1  # by another process under the same id; once may be this worker's restart
SETTLED_AFTER_LEASES = 10  # a membership that lasted so long resets the count of replacements


class ShardDriver:
    """One run of a shard worker, on the event loop it is made on."""

    def __init__(
        self,
        registration: RegisterMember,
        user_callbacks: UserCallbacks,
        *,
        open_transport: OpenTransport,
        connect: Callable[[], Client],
        callback_loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
        drain_s: float,
    ) -> None:
        self._registration = registration
        self._user_callbacks = user_callbacks
        self._open_transport = open_transport
        self._connect = connect
        self._now_ms = now_ms
        self._drain_s = drain_s
        self._loop = asyncio.get_running_loop()
        self._runner = CallbackRunner(callback_loop)
        self._backoff = RetryBackoff()
        self._replaced = 0
        self._stop_requested = asyncio.Event()
        self.membership: Membership | None = None

    async def run(self) -> StopReason:
        """Hold shards until a stop is requested, then give them up and leave."""
        try:
            while not self._stop_requested.is_set():
                self.membership = membership = self._begin()
                began_at = self._loop.time()
                await membership.run(self._open_transport)
                await membership.wait_for_callbacks()
                if self._stop_requested.is_set():
                    break
                self._review(membership, lasted_s=self._loop.time() - began_at)
                if self._replaced > REPLACED_AT_MOST:
                    log.error(
                        "worker_id_taken",
                        hint="give each process its own worker id",
                        service=self._registration.service,
                        worker_id=self._registration.worker_id,
                    )
                    return StopReason.REPLACED
                await self._pause(membership)
            return StopReason.STOPPED
        finally:
            self._runner.close()

    def stop(self) -> None:
        """Drain and leave."""
        if not self._stop_requested.is_set():
            self._stop_requested.set()
            if self.membership is not None:
                self.membership.drain(until=self._loop.time() + self._drain_s)

    def hurry(self) -> None:
        """Leave now; held shards are lost."""
        self._stop_requested.set()
        if self.membership is not None:
            self.membership.hurry()

    def take_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle an error of a callback of the loop: a broken worker must not go on beating."""
        error = context.get("exception")
        if isinstance(error, Exception) and not isinstance(error, RotaError | OSError):
            assert self.membership is not None
            self.membership.break_off(error)
        loop.default_exception_handler(context)

    def _begin(self) -> Membership:
        # Random, not a time: a clock that was set back must not make this incarnation look old.
        incarnation = secrets.token_hex(16)
        return Membership(
            replace(self._registration, incarnation=incarnation),
            self._user_callbacks,
            self._runner,
            connect=self._connect,
            now_ms=self._now_ms,
        )

    def _review(self, membership: Membership, *, lasted_s: float) -> None:
        if lasted_s > SETTLED_AFTER_LEASES * membership.lease_s > 0:
            self._replaced = 0
            self._backoff.reset()
        if membership.is_replaced:
            self._replaced += 1

    async def _pause(self, membership: Membership) -> None:
        """Wait before registering again: the id may be contested, or the coordinator away."""
        is_fenced = membership.lost is not None and membership.lost.loss is Loss.FENCED
        wait_s = self._backoff.wait_s(at_least_s=FENCED_PAUSE_S if is_fenced else 0.0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._stop_requested.wait()
