"""Leases work by long polls, two calls at a time.

Under load a call is sent as soon as half of the slots are free, so that the coordinator prepares
the next half while the worker runs this one. With fewer free slots it is sent after a short wait,
in which more may become free: few large calls instead of many small ones. Without work a call waits
at the coordinator, which answers it as soon as there is some.
"""

import asyncio
from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

from rota.core import limits
from rota.errors import RotaError, StaleIncarnation, WorkerNotFound
from rota.messages import LeaseRequest, LeaseView
from rota.sdk.client import calls
from rota.sdk.client.client import Client
from rota.sdk.client.requests import retry_after_s
from rota.sdk.timing import RetryBackoff, now_s
from rota.sdk.worker.contact import CoordinatorContact
from rota.sdk.worker.session import WorkerSession

CALLS_AT_ONCE = 2
WAIT_MS = 30_000
EARLY_S = WAIT_MS / 1000 / 2  # an empty answer before this time means a stopping coordinator
EARLY_PAUSE_S = 1.0
GATHER_S = 0.002  # how long a few free slots wait for more


class LeaseTransport(StrEnum):
    """How a worker gets its leases."""

    AUTO = "auto"  # by a stream, or by polling where no stream is possible
    WEBSOCKET = "websocket"  # by a stream only
    HTTP = "http"  # by polling only


class LeaseSink(Protocol):
    """Where leases go, and how many more it takes."""

    @property
    def free_slots(self) -> int: ...

    def begin(self, leases: list[LeaseView]) -> None: ...


OnRefused = Callable[[WorkerSession, RotaError], None]


class LeasePoller:
    """Leases work for the session that it is given."""

    def __init__(
        self,
        client: Client,
        sink: LeaseSink,
        *,
        concurrency: int,
        contact: CoordinatorContact,
        on_refused: OnRefused,
    ) -> None:
        self.session: WorkerSession | None = None
        self._client = client
        self._sink = sink
        self._contact = contact
        self._on_refused = on_refused
        self._half = (concurrency + 1) // 2
        self._requested = 0  # slots requested by calls under way
        self._changed = asyncio.Event()

    def wake(self) -> None:
        """Notice that slots may have become free, or that the session has changed."""
        if not self._changed.is_set():
            self._changed.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(CALLS_AT_ONCE):
                group.create_task(self._poll())

    async def _poll(self) -> None:
        backoff = RetryBackoff()
        while True:
            session, count = await self._next_request()
            self._requested += count
            leases: list[LeaseView] = []
            sent_at = now_s()
            try:
                leases = await self._lease(session, count)
                self._contact.note_answer()
                if not leases and now_s() - sent_at < EARLY_S:
                    await asyncio.sleep(backoff.wait_s(at_least_s=EARLY_PAUSE_S))
                else:
                    backoff.reset()
            except (WorkerNotFound, StaleIncarnation) as error:
                self._on_refused(session, error)
            except RotaError as error:
                self._contact.note_failure("lease_failed", error, sent_at=sent_at)
                await asyncio.sleep(backoff.wait_s(at_least_s=retry_after_s(error)))
            finally:
                self._requested -= count
            if leases and not session.is_over:
                self._sink.begin(leases)
            self.wake()

    async def _lease(self, session: WorkerSession, count: int) -> list[LeaseView]:
        request = LeaseRequest(incarnation=session.incarnation, max=count, wait_ms=WAIT_MS)
        answer = await self._client.arun(calls.lease(session.worker_id, request))
        return answer.leases

    async def _next_request(self) -> tuple[WorkerSession, int]:
        """Wait for a session and for enough free slots that no other call has requested."""
        while True:
            self._changed.clear()
            free = self._unrequested()
            if self.session is None or self.session.is_over or free <= 0:
                await self._changed.wait()
            elif free >= self._half:
                return self.session, free
            elif self._requested >= free:
                await self._changed.wait()  # the call under way has requested more
            else:
                await asyncio.sleep(GATHER_S)
                free = self._unrequested()
                if free > self._requested and not self.session.is_over:
                    return self.session, free

    def _unrequested(self) -> int:
        return min(self._sink.free_slots, limits.MAX_LEASES_PER_CALL) - self._requested
