"""How does a worker get its work? It asks for as much as it has room for, two calls at a time.

Under load a call goes out as soon as half of the room is free, so that the coordinator fetches the
next half while this one is worked off. With little room it goes out after a short wait, in which
more may come free: few large calls, not many small ones. Without work a call waits at the
coordinator, and is answered the moment there is some.
"""

import asyncio
from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

import structlog

from rota.core import limits
from rota.errors import RotaError, StaleIncarnation, WorkerNotFound
from rota.messages import LeaseRequest, LeaseView
from rota.sdk import calls
from rota.sdk.backoff import Backoff
from rota.sdk.client import Client
from rota.sdk.sessions import Session, now_s

log = structlog.get_logger("rota.worker")

CALLS_AT_ONCE = 2
WAIT_MS = 30_000
EARLY_S = WAIT_MS / 1000 / 2
SENT_AWAY_S = 1.0
GATHER_S = 0.002  # how long a little room waits for more


class Line(StrEnum):
    """How a worker is connected."""

    AUTO = "auto"  # by a stream, or by polling where there is none to be had
    WEBSOCKET = "websocket"  # by nothing but a stream
    HTTP = "http"  # by nothing but polling


class Work(Protocol):
    """Where leases go, and how many more may come."""

    @property
    def room(self) -> int: ...

    def begin(self, leases: list[LeaseView]) -> None: ...


class Leasing:
    """Asks for work on behalf of the session it is given."""

    def __init__(
        self,
        client: Client,
        work: Work,
        *,
        concurrency: int,
        on_refused: Callable[[Session, RotaError], None],
    ) -> None:
        self.session: Session | None = None
        self._client = client
        self._work = work
        self._on_refused = on_refused
        self._half = (concurrency + 1) // 2
        self._asked = 0  # by calls under way
        self._changed = asyncio.Event()

    def look_again(self) -> None:
        """There may be room now, or somebody to ask."""
        if not self._changed.is_set():
            self._changed.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(CALLS_AT_ONCE):
                group.create_task(self._keep_asking())

    async def _keep_asking(self) -> None:
        backoff = Backoff()
        while True:
            session, room = await self._room()
            self._asked += room
            leases: list[LeaseView] = []
            try:
                asked_at = now_s()
                leases = await self._ask(session, room)
                if not leases and now_s() - asked_at < EARLY_S:
                    # Sent away before the time: it is about to stop, so do not press it.
                    await asyncio.sleep(backoff.wait_s(at_least_s=SENT_AWAY_S))
                else:
                    backoff.reset()
            except (WorkerNotFound, StaleIncarnation) as error:
                self._on_refused(session, error)
            except RotaError as error:
                log.warning("no work to be had; trying again", reason=error.detail)
                await asyncio.sleep(backoff.wait_s(at_least_s=_wished_wait_s(error)))
            finally:
                self._asked -= room
            if leases and not session.is_over:
                self._work.begin(leases)
            self.look_again()

    async def _ask(self, session: Session, room: int) -> list[LeaseView]:
        request = LeaseRequest(incarnation=session.incarnation, max=room, wait_ms=WAIT_MS)
        answer = await self._client.arun(calls.lease(session.worker_id, request))
        return answer.leases

    async def _room(self) -> tuple[Session, int]:
        """Wait until there is somebody to ask and enough room to ask for."""
        while True:
            self._changed.clear()
            room = self._unasked_room()
            if self.session is None or self.session.is_over or room <= 0:
                await self._changed.wait()
            elif room >= self._half:
                return self.session, room
            elif self._asked >= room:
                await self._changed.wait()  # the call under way has more room than this
            else:
                await asyncio.sleep(GATHER_S)
                room = self._unasked_room()
                if room > self._asked and not self.session.is_over:
                    return self.session, room

    def _unasked_room(self) -> int:
        return min(self._work.room, limits.MAX_LEASES_PER_CALL) - self._asked


def _wished_wait_s(error: RotaError) -> float:
    """How long the coordinator asked us to stay away; no longer than a minute, whatever it said."""
    wished = getattr(error, "retry_after_s", 0)
    return min(float(wished), 60.0)
