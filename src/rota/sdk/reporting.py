"""How do results reach the coordinator? In batches: at once when idle, gathered under load.

One report is under way at a time; what finishes meanwhile goes with the next. On a stream a second
one may follow as soon as it is a large one, so that the coordinator need not wait for it; and while
much else is about to finish, a small one waits a few milliseconds for more. A report
that does not get through is kept and sent again until it does or its leases are over: results are
safe to repeat. A report that is refused is sent in halves until the one to blame stands alone.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from rota.errors import Invalid, RotaError, StaleIncarnation, TooLarge, WorkerNotFound
from rota.messages import LeaseView, ResultAnswer, ResultItem
from rota.messages.streams import StreamNoted
from rota.sdk import calls
from rota.sdk.backoff import Backoff
from rota.sdk.client import Client
from rota.sdk.outcomes import REFUSED_RESULT, failure
from rota.sdk.sessions import Session

if TYPE_CHECKING:
    from rota.sdk.streaming_worker import Stream

log = structlog.get_logger("rota.worker")

MAX_REPORT_ITEMS = 5_000
MAX_REPORT_BYTES = 8 * 1024 * 1024
RETRY_MOST_S = 2.0
MOST_UNDER_WAY = 2  # reports over a stream
GATHER_S = 0.005  # how long a small one waits for more


Finished = tuple[LeaseView, ResultItem]


class Reporter:
    """Delivers the results of one worker."""

    def __init__(
        self,
        client: Client,
        *,
        concurrency: int,
        count_running: Callable[[], int],
        on_refused: Callable[[Session, RotaError], None],
        on_delivered: Callable[[], None],
    ) -> None:
        self.pending: dict[str, LeaseView] = {}  # finished here, not yet known to be accepted
        self.session: Session | None = None
        self.find_stream: Callable[[], Stream | None] = lambda: None
        self._client = client
        self._on_refused = on_refused
        self._on_delivered = on_delivered
        self._calls: deque[list[Finished]] = deque()  # reports that no stream takes
        self._backoff = Backoff(most_s=RETRY_MOST_S)  # of reports over streams
        self._under_way = 0  # over streams
        self._many = (concurrency + 1) // 2
        self._count_running = count_running
        self._is_asleep = True  # nobody has looked at what waits
        self._waiting: deque[Finished] = deque()
        self._has_work = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def add(self, lease: LeaseView, item: ResultItem) -> None:
        self.pending[lease.task_id] = lease
        self._waiting.append((lease, item))
        if self._is_asleep or len(self._waiting) == self._many:
            self._look()

    def _look(self) -> None:
        """Should what waits go out now, or more of it gather?"""
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

    def forget(self) -> None:
        """The session is over, and with it the leases of everything that waits."""
        if self.pending:
            log.warning("results dropped: their leases are over", count=len(self.pending))
        self.pending.clear()
        self._waiting.clear()
        self._calls.clear()
        self._is_asleep = True

    @property
    def has_unsent(self) -> bool:
        return bool(self._waiting)

    async def run(self) -> None:
        while True:
            await self._has_work.wait()
            stream = None if self._calls else self.find_stream()
            batch = self._calls.popleft() if self._calls else self._take()
            if not batch or self.session is None:
                continue
            if stream is not None:
                self._send(stream, batch)
            else:
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
            self._is_asleep = True
        return batch

    # --- over a stream --------------------------------------------------------------------------

    def _send(self, stream: "Stream", batch: list[Finished]) -> None:
        try:
            future = stream.report([item for _, item in batch])
        except TooLarge:
            self._call_later(batch)
        else:
            self._under_way += 1
            future.add_done_callback(lambda done: self._take_answer(stream.session, batch, done))

    def _call_later(self, batch: list[Finished]) -> None:
        self._calls.append(batch)
        self._has_work.set()

    def _take_answer(
        self, session: Session, batch: list[Finished], future: "asyncio.Future[StreamNoted]"
    ) -> None:
        self._under_way -= 1
        if self._waiting:
            self._look()
        else:
            self._is_asleep = True
        if session.is_over:
            return
        error = future.exception()
        match error:
            case None:
                self._backoff.reset()
                self._note_noted(batch, future.result())
            case WorkerNotFound() | StaleIncarnation():
                self._on_refused(session, error)
            case Invalid() | TooLarge():
                self._call_later(batch)  # which finds out whose fault it is
            case _:
                log.warning("results not delivered; trying again", reason=str(error))
                wait_s = self._backoff.wait_s()
                self._loop.call_later(wait_s, self._put_back, session, batch)
        self._on_delivered()

    def _note_noted(self, batch: list[Finished], noted: StreamNoted) -> None:
        pending = self.pending
        for lease, _ in batch:
            # By now the same task may be here once more, under a newer fence.
            if pending.get(lease.task_id) is lease:
                del pending[lease.task_id]
        if noted.refused:
            refused = Counter(str(outcome) for _, outcome in noted.refused)
            log.info("results came too late", **refused)

    def _put_back(self, session: Session, batch: list[Finished]) -> None:
        """What was not answered is sent again, before what came later."""
        if not session.is_over:
            self._waiting.extendleft(reversed(batch))
            self._has_work.set()

    # --- as calls -------------------------------------------------------------------------------

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
