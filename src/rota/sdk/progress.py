"""How does progress reach the coordinator? As it comes; when it comes fast, the newest of it."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog
from msgspec import Raw

from rota.errors import Conflict, NotFound, RotaError, TooLarge, Unavailable
from rota.messages import ProgressItem, ResultAnswer
from rota.sdk import calls
from rota.sdk.attempts import Attempt
from rota.sdk.backoff import Backoff
from rota.sdk.client import Client
from rota.sdk.sessions import Session

if TYPE_CHECKING:
    from rota.sdk.streaming_worker import Stream

log = structlog.get_logger("rota.worker")


class ProgressReporter:
    """Merges progress noted in any thread and sends it from the loop it was made on."""

    def __init__(self, client: Client) -> None:
        self.session: Session | None = None
        self.find_stream: Callable[[], Stream | None] = lambda: None
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._waiting: dict[str, ProgressItem] = {}
        self._has_work = asyncio.Event()

    def note(self, attempt: Attempt, progress: Raw | None, partial: Raw | None) -> None:
        if attempt.is_settled or (progress is None and partial is None):
            return
        lease = attempt.lease
        with self._lock:
            was_waiting = bool(self._waiting)
            before = self._waiting.get(lease.task_id)
            if before is not None and before.fence == lease.fence:
                progress = before.progress if progress is None else progress
                partial = before.partial if partial is None else partial
            self._waiting[lease.task_id] = ProgressItem(
                task_id=lease.task_id, fence=lease.fence, progress=progress, partial=partial
            )
        if not was_waiting:
            self._loop.call_soon_threadsafe(self._has_work.set)

    async def run(self) -> None:
        backoff = Backoff()
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            items = self._take()
            session = self.session
            if session is None or not items:
                continue
            try:
                await self._send(session, items)
            except Unavailable:
                self._put_back(items)
                await asyncio.sleep(backoff.wait_s())
            except (Conflict, NotFound):
                continue  # too late; whoever reports results or beats learns the rest
            except RotaError as error:
                log.warning("progress refused", reason=error.detail)
            else:
                backoff.reset()

    async def _send(self, session: Session, items: dict[str, ProgressItem]) -> None:
        stream = self.find_stream()
        if stream is not None and stream.session is session:
            with contextlib.suppress(TooLarge):  # not for a call
                await stream.progress(list(items.values()))
                return
        await self._client.arun(_report(session, items))

    def _take(self) -> dict[str, ProgressItem]:
        with self._lock:
            items, self._waiting = self._waiting, {}
        return items

    def _put_back(self, items: dict[str, ProgressItem]) -> None:
        with self._lock:
            self._waiting = items | self._waiting
        self._has_work.set()


def _report(session: Session, items: dict[str, ProgressItem]) -> calls.Call[ResultAnswer]:
    return calls.report_progress(
        session.worker_id, incarnation=session.incarnation, items=list(items.values())
    )
