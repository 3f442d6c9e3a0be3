"""Commits the operations of running functions, those of many functions in one report.

A function waits for the commit of what it has done before it begins its next effect. So a report
goes out at once when none is under way; what is reported meanwhile goes with the next. A report
without an answer is sent again until it is answered or the session is over: the coordinator
recognises entries that it has.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import structlog
from msgspec import Raw

from rota.core import ids
from rota.core.workflow.functions.model import Operation
from rota.errors import RotaError, TooLarge
from rota.messages import LeaseView, OperationsItem, streams
from rota.sdk.client import function_calls
from rota.sdk.client.client import Client
from rota.sdk.functions.errors import LeaseLost
from rota.sdk.worker.delivery import ReportDelivery
from rota.sdk.worker.poller import OnRefused
from rota.sdk.worker.session import WorkerSession

if TYPE_CHECKING:
    from rota.sdk.worker.streaming.stream import CoordinatorStream

log = structlog.get_logger("rota.worker")

MAX_ITEMS = 1_000  # of one report
MAX_BYTES = 512 * 1024  # of one report, unless one item has more
MOST_UNDER_WAY = 2
KEPT = frozenset({"accepted", "duplicate"})
SESSION_OVER = "the session of the worker is over"

_encode = msgspec.json.Encoder().encode


class OperationsRefused(LeaseLost):
    """The coordinator does not accept what a function reports: it is not valid, or too large."""


class ItemOutcome(NamedTuple):
    """What the coordinator answers for one item."""

    outcome: str
    cancelled: str | None = None


Waiting = tuple[OperationsItem, "asyncio.Future[str | None]"]


class OperationsReporter:
    """Reports for all functions of one worker, on the event loop it is made on."""

    def __init__(self, client: Client, *, on_refused: OnRefused) -> None:
        self.session: WorkerSession | None = None
        self.find_stream: Callable[[], CoordinatorStream | None] = lambda: None
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Waiting] = deque()
        self._under_way = 0  # reports
        self._tasks: set[asyncio.Task[None]] = set()  # of reports that are sent again, or by calls
        self._delivery = ReportDelivery[Waiting, dict[str, ItemOutcome]](
            self, on_refused=on_refused
        )
        self._is_scheduled = False

    def commit(
        self, lease: LeaseView, after: int, operations: Sequence[Operation]
    ) -> "asyncio.Future[str | None]":
        """Commit the operations of one function; resolves to why its run was cancelled."""
        item = OperationsItem(
            task_id=lease.task_id,
            fence=lease.fence,
            after=after,
            operations=Raw(_encode(operations)),
        )
        answered: asyncio.Future[str | None] = self._loop.create_future()
        self._waiting.append((item, answered))
        if not self._is_scheduled and self._under_way < MOST_UNDER_WAY:
            # After everything that is ready now: functions that step together report together.
            self._is_scheduled = True
            self._loop.call_soon(self._begin)
        return answered

    def clear(self) -> None:
        """Tell all functions that wait that their leases are lost."""
        waiting, self._waiting = self._waiting, deque()
        _fail(waiting, LeaseLost(SESSION_OVER))

    def _begin(self) -> None:
        self._is_scheduled = False
        session = self.session
        while self._waiting and self._under_way < MOST_UNDER_WAY:
            if session is None or session.is_over:
                self.clear()
                return
            self._under_way += 1
            self._send_soon(session, self._take())

    def _send_soon(self, session: WorkerSession, batch: list[Waiting]) -> None:
        """Send a report: over the stream at once and without a task, unless something fails."""
        answer = self._streamed(session, batch)
        if answer is None:
            self._deliver(session, batch)
        else:
            answer.add_done_callback(lambda done: self._take_answer(session, batch, done))

    def _streamed(
        self, session: WorkerSession, batch: Sequence[Waiting]
    ) -> "asyncio.Future[streams.StreamOperationsNoted] | None":
        stream = self.find_stream()
        if stream is None or stream.session is not session:
            return None
        try:
            return stream.operations([item for item, _ in batch])
        except TooLarge:  # for a frame, but maybe not for a call
            return None

    def _take_answer(
        self,
        session: WorkerSession,
        batch: list[Waiting],
        answer: "asyncio.Future[streams.StreamOperationsNoted]",
    ) -> None:
        error = None if answer.cancelled() else answer.exception()
        if answer.cancelled() or isinstance(error, TooLarge):  # the latter maybe not for a call
            self._deliver(session, batch)
        elif error is not None:
            self._deliver(session, batch, error)
        else:
            self.accept(session, batch, _noted(answer.result()))
            self._end()

    def _deliver(
        self, session: WorkerSession, batch: list[Waiting], failed: BaseException | None = None
    ) -> None:
        task = self._loop.create_task(self._delivery.deliver(session, batch, failed))
        self._tasks.add(task)
        task.add_done_callback(self._end_task)

    def _end_task(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._end()

    def _end(self) -> None:
        self._under_way -= 1
        self._begin()

    def _take(self) -> list[Waiting]:
        batch: list[Waiting] = []
        size = 0
        while self._waiting and len(batch) < MAX_ITEMS:
            length = len(bytes(self._waiting[0][0].operations))
            if batch and size + length > MAX_BYTES:
                break
            batch.append(self._waiting.popleft())
            size += length
        return batch

    # --- as `ReportDelivery` asks for it ----------------------------------------------------------

    async def send(
        self, session: WorkerSession, batch: Sequence[Waiting]
    ) -> dict[str, ItemOutcome]:
        """Send one report; returns the outcomes by task, without accepted ones."""
        answer = self._streamed(session, batch)
        if answer is not None:
            with contextlib.suppress(TooLarge):
                return _noted(await answer)
        items = [item for item, _ in batch]
        reported = await self._client.arun(
            function_calls.report_operations(
                session.worker_id, incarnation=session.incarnation, items=items
            )
        )
        return {one.task_id: ItemOutcome(one.outcome, one.cancelled) for one in reported.outcomes}

    def accept(
        self,
        session: WorkerSession,  # noqa: ARG002 - a sender's; functions end with their session
        batch: Sequence[Waiting],
        answer: dict[str, ItemOutcome],
    ) -> None:
        for item, answered in batch:
            outcome, cancelled = answer.get(item.task_id, _ACCEPTED)
            if answered.done():
                continue
            if outcome in KEPT:
                answered.set_result(cancelled)
            else:
                answered.set_exception(LeaseLost(f"the report of the function is {outcome}"))

    def refuse(self, item: Waiting, error: RotaError) -> None:
        """End a function whose report the coordinator does not accept."""
        log.error("operations_refused", task_id=item[0].task_id, reason=error.detail)
        _fail([item], OperationsRefused(error.detail))

    def note_delay(self, error: RotaError) -> None:
        log.warning("operations_delayed", reason=error.detail)

    def lose(self, batch: Sequence[Waiting]) -> None:
        _fail(batch, LeaseLost(SESSION_OVER))


def _noted(noted: streams.StreamOperationsNoted) -> dict[str, ItemOutcome]:
    outcomes = {ids.to_text(number): ItemOutcome(str(outcome)) for number, outcome in noted.refused}
    for number, reason in noted.cancelled:
        task_id = ids.to_text(number)
        known = outcomes.get(task_id, _ACCEPTED)
        outcomes[task_id] = known._replace(cancelled=reason)
    return outcomes


_ACCEPTED = ItemOutcome("accepted")


def _fail(batch: Sequence[Waiting], error: LeaseLost) -> None:
    for _, answered in batch:
        if not answered.done():
            answered.set_exception(error)
