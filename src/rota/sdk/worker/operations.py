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
from rota.errors import Invalid, RotaError, StaleIncarnation, TooLarge, WorkerNotFound
from rota.messages import LeaseView, OperationsItem, streams
from rota.sdk.client import function_calls
from rota.sdk.client.client import Client
from rota.sdk.functions.errors import LeaseLost
from rota.sdk.timing import RetryBackoff
from rota.sdk.worker.poller import OnRefused
from rota.sdk.worker.session import WorkerSession

if TYPE_CHECKING:
    from rota.sdk.worker.streaming.stream import CoordinatorStream

log = structlog.get_logger("rota.worker")

MAX_ITEMS = 1_000  # of one report
MAX_BYTES = 512 * 1024  # of one report, unless one item has more
MOST_UNDER_WAY = 2
RETRY_MOST_S = 2.0
KEPT = frozenset({"accepted", "duplicate"})

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
        self._on_refused = on_refused
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Waiting] = deque()
        self._under_way: set[asyncio.Task[None]] = set()
        self._is_scheduled = False

    async def commit(
        self, lease: LeaseView, after: int, operations: Sequence[Operation]
    ) -> str | None:
        """Commit the operations of one function; returns why its run was cancelled."""
        item = OperationsItem(
            task_id=lease.task_id,
            fence=lease.fence,
            after=after,
            operations=Raw(_encode(operations)),
        )
        answered: asyncio.Future[str | None] = self._loop.create_future()
        self._waiting.append((item, answered))
        if not self._is_scheduled and len(self._under_way) < MOST_UNDER_WAY:
            # After everything that is ready now: functions that step together report together.
            self._is_scheduled = True
            self._loop.call_soon(self._begin)
        return await answered

    def clear(self) -> None:
        """Tell all functions that wait that their leases are lost."""
        waiting, self._waiting = self._waiting, deque()
        _fail(waiting, LeaseLost("the session of the worker is over"))

    def _begin(self) -> None:
        self._is_scheduled = False
        session = self.session
        while self._waiting and len(self._under_way) < MOST_UNDER_WAY:
            if session is None or session.is_over:
                self.clear()
                return
            task = self._loop.create_task(self._deliver(session, self._take()))
            self._under_way.add(task)
            task.add_done_callback(self._end)

    def _end(self, task: "asyncio.Task[None]") -> None:
        self._under_way.discard(task)
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

    async def _deliver(self, session: WorkerSession, batch: list[Waiting]) -> None:
        backoff = RetryBackoff(most_s=RETRY_MOST_S)
        while not session.is_over:
            try:
                outcomes = await self._send(session, [item for item, _ in batch])
            except (WorkerNotFound, StaleIncarnation) as error:
                self._on_refused(session, error)
            except (Invalid, TooLarge) as error:
                await self._deliver_apart(session, batch, error)
                return
            except RotaError as error:
                log.warning("operations_delayed", reason=error.detail)
                await asyncio.sleep(backoff.wait_s())
            else:
                _resolve(batch, outcomes)
                return
        _fail(batch, LeaseLost("the session of the worker is over"))

    async def _deliver_apart(
        self, session: WorkerSession, batch: list[Waiting], error: RotaError
    ) -> None:
        """Find the function whose report the coordinator refuses."""
        if len(batch) == 1:
            task_id = batch[0][0].task_id
            log.error("operations_refused", task_id=task_id, reason=error.detail)
            _fail(batch, OperationsRefused(error.detail))
            return
        middle = len(batch) // 2
        await self._deliver(session, batch[:middle])
        await self._deliver(session, batch[middle:])

    async def _send(
        self, session: WorkerSession, items: list[OperationsItem]
    ) -> dict[str, ItemOutcome]:
        """Send one report; returns the outcomes by task, without accepted ones."""
        stream = self.find_stream()
        if stream is not None and stream.session is session:
            with contextlib.suppress(TooLarge):  # for a frame, but maybe not for a call
                return _noted(await stream.operations(items))
        answer = await self._client.arun(
            function_calls.report_operations(
                session.worker_id, incarnation=session.incarnation, items=items
            )
        )
        return {one.task_id: ItemOutcome(one.outcome, one.cancelled) for one in answer.outcomes}


def _noted(noted: streams.StreamOperationsNoted) -> dict[str, ItemOutcome]:
    outcomes = {ids.to_text(number): ItemOutcome(str(outcome)) for number, outcome in noted.refused}
    for number, reason in noted.cancelled:
        task_id = ids.to_text(number)
        known = outcomes.get(task_id, _ACCEPTED)
        outcomes[task_id] = known._replace(cancelled=reason)
    return outcomes


_ACCEPTED = ItemOutcome("accepted")


def _resolve(batch: Sequence[Waiting], outcomes: dict[str, ItemOutcome]) -> None:
    for item, answered in batch:
        outcome, cancelled = outcomes.get(item.task_id, _ACCEPTED)
        if answered.done():
            continue
        if outcome in KEPT:
            answered.set_result(cancelled)
        else:
            answered.set_exception(LeaseLost(f"the report of the function is {outcome}"))


def _fail(batch: Sequence[Waiting], error: LeaseLost) -> None:
    for _, answered in batch:
        if not answered.done():
            answered.set_exception(error)
