"""Reports results and progress to the coordinator, over the worker's stream or by calls.

Results go out at once when the worker is idle, and in batches under load. One report is under way
at a time; what finishes in the meantime goes with the next. On a stream a second report may follow
as soon as it is a large one, and while many attempts are about to finish, a small one waits a few
milliseconds for more. A report without an answer is sent again until it is answered or its leases
are over: results are safe to repeat. A refused report is sent in halves until the result that
caused the refusal is alone.

Of the progress that a task reports, only the newest is sent.
"""

import asyncio
import contextlib
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Raw

from rota.errors import (
    Conflict,
    NotFound,
    RotaError,
    TooLarge,
    Unavailable,
)
from rota.messages import LeaseView, ProgressItem, ResultItem
from rota.sdk.client import calls
from rota.sdk.client.client import Client
from rota.sdk.outcomes import REFUSED_RESULT, failure
from rota.sdk.timing import RetryBackoff
from rota.sdk.worker.delivery import ReportDelivery
from rota.sdk.worker.log_reporting import LogReporter
from rota.sdk.worker.poller import OnRefused
from rota.sdk.worker.runners.in_process import Attempt
from rota.sdk.worker.session import WorkerSession
from rota.telemetry import library_logger

if TYPE_CHECKING:
    from rota.sdk.worker.streaming.stream import CoordinatorStream

log = library_logger("rota.worker")

MAX_REPORT_ITEMS = 5_000
MAX_REPORT_BYTES = 8 * 1024 * 1024
MOST_UNDER_WAY = 2  # reports over a stream; a call is awaited
GATHER_S = 0.005  # how long a small report waits for more results

Finished = tuple[LeaseView, ResultItem]


class Reporter:
    """Delivers the results of one worker."""

    def __init__(
        self,
        client: Client,
        *,
        concurrency: int,
        count_running: Callable[[], int],
        logs: LogReporter,
        on_refused: OnRefused,
        on_delivered: Callable[[], None],
    ) -> None:
        self.pending: dict[str, LeaseView] = {}  # finished here, not known to be accepted
        self.session: WorkerSession | None = None
        self.find_stream: Callable[[], CoordinatorStream | None] = lambda: None
        self._client = client
        self._logs = logs
        self._delivery = ReportDelivery[Finished, Counter[str]](self, on_refused=on_refused)
        self._on_delivered = on_delivered
        self._under_way = 0
        self._many = (concurrency + 1) // 2
        self._count_running = count_running
        self._is_asleep = True  # the next result wakes the reporter
        self._waiting: deque[Finished] = deque()
        self._has_work = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def add(self, lease: LeaseView, item: ResultItem) -> None:
        waiting = self._waiting
        self.pending[lease.task_id] = lease
        waiting.append((lease, item))
        if self._is_asleep or len(waiting) == self._many:
            self._wake()

    def _wake(self) -> None:
        """Send the waiting results now, or let more of them gather."""
        self._is_asleep = False
        if len(self._waiting) >= self._many:
            if self._under_way < MOST_UNDER_WAY:
                self._has_work.set()
        elif not self._under_way:
            is_calm = self.find_stream() is None or self._count_running() < self._many // 2
            if is_calm:
                self._has_work.set()
            else:
                self._loop.call_later(GATHER_S, self._has_work.set)

    def clear(self) -> None:
        """Drop all unreported results: the session is over, and with it their leases."""
        if self.pending:
            log.warning(
                "results_dropped", reason="their leases have expired", count=len(self.pending)
            )
        self.pending.clear()
        self._waiting.clear()
        self._is_asleep = True

    @property
    def has_unsent(self) -> bool:
        return bool(self._waiting)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                await self._has_work.wait()
                batch = self._take()
                if not batch or self.session is None:
                    continue
                self._under_way += 1
                report = group.create_task(self._delivery.deliver(self.session, batch))
                report.add_done_callback(self._note_delivered)
                if self.find_stream() is None:
                    await report

    def _note_delivered(self, _: object) -> None:
        self._under_way -= 1
        if self._waiting:
            self._wake()
        else:
            self._is_asleep = True
        self._on_delivered()

    def _take(self) -> list[Finished]:
        batch: list[Finished] = []
        size, waiting = 0, self._waiting
        while waiting and len(batch) < MAX_REPORT_ITEMS and size < MAX_REPORT_BYTES:
            one = waiting.popleft()
            batch.append(one)
            result = one[1].result
            if result is not None:
                size += memoryview(result).nbytes
        if not self._waiting:
            self._has_work.clear()
            self._is_asleep = True
        return batch

    # --- as `ReportDelivery` asks for it ----------------------------------------------------------

    async def send(self, session: WorkerSession, batch: Sequence[Finished]) -> Counter[str]:
        """Send one report; returns how many of its results came too late, by outcome."""
        items = [item for _, item in batch]
        if self._logs.has_waiting:
            await self._logs.send_ended({item.task_id for item in items})
        stream = self.find_stream()
        if stream is not None and stream.session is session:
            with contextlib.suppress(TooLarge):  # for a frame, but maybe not for a call
                noted = await stream.report(items)
                return Counter(str(outcome) for _, outcome in noted.refused)
        answer = await self._client.arun(
            calls.report_results(session.worker_id, incarnation=session.incarnation, results=items)
        )
        return Counter(one.outcome for one in answer.outcomes if one.outcome != "accepted")

    def accept(
        self, session: WorkerSession, batch: Sequence[Finished], answer: Counter[str]
    ) -> None:
        if not session.is_over:
            pending = self.pending
            for lease, _ in batch:
                task_id = lease.task_id
                # The same task may be here again, under a newer fence.
                if pending.get(task_id) is lease:
                    del pending[task_id]
        if answer:
            log.info("results_late", **answer)

    def refuse(self, item: Finished, error: RotaError) -> Finished | None:
        """Report an error in place of a result that the coordinator refuses."""
        lease, result = item
        log.error("result_refused", task_id=lease.task_id, task=lease.name, reason=error.detail)
        if _is_refusal(result):
            self.pending.pop(lease.task_id, None)
            return None
        text = f"the result of {lease.name!r} was refused: {error.detail}"
        return lease, failure(lease, REFUSED_RESULT, text, retryable=False)

    def note_delay(self, error: RotaError) -> None:
        log.warning("results_delayed", reason=error.detail)

    def lose(self, batch: Sequence[Finished]) -> None:
        """Do nothing: `clear` drops the results of a session that is over."""


class ProgressReporter:
    """Merges progress noted in any thread, and sends it from the loop it is made on."""

    def __init__(self, client: Client) -> None:
        self.session: WorkerSession | None = None
        self.find_stream: Callable[[], CoordinatorStream | None] = lambda: None
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
        backoff = RetryBackoff()
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            with self._lock:
                items, self._waiting = self._waiting, {}
            session = self.session
            if session is None or not items:
                continue
            try:
                await self._send(session, list(items.values()))
            except Unavailable:
                with self._lock:
                    self._waiting = items | self._waiting
                self._has_work.set()
                await asyncio.sleep(backoff.wait_s())
            except (Conflict, NotFound):
                continue  # too late; the result or the next heartbeat finds out the rest
            except RotaError as error:
                log.warning("progress_refused", reason=error.detail)
            else:
                backoff.reset()

    async def _send(self, session: WorkerSession, items: list[ProgressItem]) -> None:
        stream = self.find_stream()
        if stream is not None and stream.session is session:
            with contextlib.suppress(TooLarge):  # for a frame, but not for a call
                await stream.progress(items)
                return
        call = calls.report_progress(
            session.worker_id, incarnation=session.incarnation, items=items
        )
        await self._client.arun(call)


def _is_refusal(item: ResultItem) -> bool:
    """Whether this reports that an earlier result was refused."""
    error = item.error
    return error is not None and not isinstance(error, str) and error.type == REFUSED_RESULT
