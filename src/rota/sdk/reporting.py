"""How do results reach the coordinator? In batches: at once when idle, gathered under load.

One report is under way at a time; what finishes meanwhile goes with the next. A report that does
not get through is kept and sent again until it does or its leases are over: results are safe to
repeat. A report that is refused is sent in halves until the one to blame stands alone.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable

import structlog

from rota.errors import Invalid, RotaError, StaleIncarnation, TooLarge, WorkerNotFound
from rota.messages import LeaseView, ResultAnswer, ResultItem
from rota.sdk import calls
from rota.sdk.backoff import Backoff
from rota.sdk.client import Client
from rota.sdk.outcomes import REFUSED_RESULT, failure
from rota.sdk.sessions import Session

log = structlog.get_logger("rota.worker")

MAX_REPORT_ITEMS = 5_000
MAX_REPORT_BYTES = 8 * 1024 * 1024
RETRY_MOST_S = 2.0


Finished = tuple[LeaseView, ResultItem]


class Reporter:
    """Delivers the results of one worker."""

    def __init__(
        self,
        client: Client,
        *,
        on_refused: Callable[[Session, RotaError], None],
        on_delivered: Callable[[], None],
    ) -> None:
        self.pending: dict[str, LeaseView] = {}  # finished here, not yet known to be accepted
        self.session: Session | None = None
        self._client = client
        self._on_refused = on_refused
        self._on_delivered = on_delivered
        self._waiting: deque[Finished] = deque()
        self._has_work = asyncio.Event()

    def add(self, lease: LeaseView, item: ResultItem) -> None:
        self.pending[lease.task_id] = lease
        self._waiting.append((lease, item))
        if not self._has_work.is_set():
            self._has_work.set()

    def forget(self) -> None:
        """The session is over, and with it the leases of everything that waits."""
        if self.pending:
            log.warning("results dropped: their leases are over", count=len(self.pending))
        self.pending.clear()
        self._waiting.clear()

    async def run(self) -> None:
        while True:
            await self._has_work.wait()
            batch = self._take()
            if batch and self.session is not None:
                await self._deliver(self.session, batch)
                self._on_delivered()

    def _take(self) -> list[Finished]:
        batch: list[Finished] = []
        size = 0
        while self._waiting and len(batch) < MAX_REPORT_ITEMS and size < MAX_REPORT_BYTES:
            one = self._waiting.popleft()
            batch.append(one)
            result = one[1].result
            if result is not None:
                size += memoryview(result).nbytes
        if not self._waiting:
            self._has_work.clear()
        return batch

    async def _deliver(self, session: Session, batch: list[Finished]) -> None:
        backoff = Backoff(most_s=RETRY_MOST_S)
        call = calls.report_results(
            session.worker_id,
            incarnation=session.incarnation,
            results=[item for _, item in batch],
        )
        while not session.is_over:
            try:
                answer = await self._client.arun(call)
            except (WorkerNotFound, StaleIncarnation) as error:
                self._on_refused(session, error)
            except (Invalid, TooLarge) as error:
                await self._deliver_apart(session, batch, error)
                return
            except RotaError as error:
                log.warning("results not delivered; trying again", reason=error.detail)
                await asyncio.sleep(backoff.wait_s())
            else:
                self._note(session, answer)
                return

    async def _deliver_apart(
        self, session: Session, batch: list[Finished], error: RotaError
    ) -> None:
        """Find the result that spoils the report; tell the coordinator what was wrong with it."""
        if len(batch) > 1:
            middle = len(batch) // 2
            await self._deliver(session, batch[:middle])
            await self._deliver(session, batch[middle:])
            return
        lease, item = batch[0]
        log.error("result refused", task_id=lease.task_id, task=lease.name, reason=error.detail)
        if _is_last_word(item):
            self.pending.pop(lease.task_id, None)
            return
        text = f"the result of {lease.name!r} was refused: {error.detail}"
        substitute = failure(lease, REFUSED_RESULT, text, retryable=False)
        await self._deliver(session, [(lease, substitute)])

    def _note(self, session: Session, answer: ResultAnswer) -> None:
        if session.is_over:
            return
        late: Counter[str] = Counter()
        for one in answer.outcomes:
            self.pending.pop(one.task_id, None)
            if one.outcome != "accepted":
                late[one.outcome] += 1
        if late:
            log.info("results came too late", **late)


def _is_last_word(item: ResultItem) -> bool:
    error = item.error
    return error is not None and not isinstance(error, str) and error.type == REFUSED_RESULT
