"""Delivers events to webhooks, while this coordinator leads.

Theory of operation. The deliverer reads the event log beside the writer, so tasks pay nothing for
webhooks. Each webhook has a cursor. Those that have read everything share one scan of what is new;
one that is behind reads by itself, as far as its deliveries that wait leave room. What a webhook
takes is written together with its cursor (`core/webhooks/commands.py`). A request that was made and
whose end was not written, because the coordinator was killed, is made again under the same id.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence

import structlog

from rota.core import limits
from rota.core.events import EventFilter
from rota.core.outbound.signatures import signed_headers
from rota.core.replies import CommandBase, Done, Taken
from rota.core.webhooks.commands import (
    DeliveryReport,
    QueueDeliveries,
    ReportDeliveries,
    TakenEvents,
)
from rota.core.webhooks.model import (
    WebhookDelivery,
    WebhookRecord,
    delivery_id,
    wanted_types,
    wants,
)
from rota.core.webhooks.rendering import body_of
from rota.engine.clock import Clock
from rota.engine.events.log import EventLog
from rota.engine.metrics.outbound import OutboundMetrics, OutboundOutcome
from rota.engine.outbound.client import (
    OutboundClient,
    OutboundFailed,
    OutboundRequest,
    elapsed_ms,
)
from rota.engine.outbound.responses import problem_of, retry_after_ms
from rota.engine.polling import Poller
from rota.engine.webhooks.queries import NONE_PENDING, WebhookBoard, WebhookQueries
from rota.errors import RotaError

log = structlog.get_logger("rota.webhooks")

INTERVAL_S = 0.5  # between two looks at the event log
EMPTY_S = 1.0  # between two looks for a webhook, while there is none
TROUBLE_PAUSE_S = 1.0  # after the end of a request could not be written
TAKEN_PER_SCAN = 500  # events that one scan of the log takes at most
CURSOR_KEPT_MS = 30_000  # how often a cursor is written that has moved over unwanted events
ANSWER_BYTES = 1_024  # of an answer that are read

Execute = Callable[[CommandBase[Done | Taken]], Awaitable[Done | Taken]]


class WebhookDeliverer:
    def __init__(
        self,
        execute: Execute,
        webhooks: WebhookQueries,
        events: EventLog,
        client: OutboundClient,
        *,
        clock: Clock,
        metrics: OutboundMetrics,
        last_seq: Callable[[], int],
    ) -> None:
        self._execute = execute
        self._webhooks = webhooks
        self._events = events
        self._client = client
        self._clock = clock
        self._metrics = metrics
        self._last_seq = last_seq
        self._seen_seq = -1  # of the log at the last look
        self._is_empty = False  # there was no webhook at the last look
        self._looked_s = 0.0  # when that was, by the clock of the event loop
        self._next_due_ms: int | None = None  # of the deliveries that wait; None: none does
        self._cursors: dict[str, int] = {}  # by uid, ahead of those that are stored
        self._cursors_kept_ms = 0
        self._under_way: dict[tuple[str, int], asyncio.Task[None]] = {}  # by uid and number
        self._has_news = asyncio.Event()
        self._looking = asyncio.Lock()
        self._poller = Poller(self._look, self._pause, log=log, failure="webhooks_not_read")

    def start(self) -> None:
        self._poller.start()

    async def stop(self) -> None:
        """End all requests; those under way are made again by the next leader."""
        await self._poller.stop()
        tasks = [*self._under_way.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def run_once(self) -> None:
        """Take what is new, and make the requests that are due, until they have ended."""
        self._is_empty = False
        await self._look()
        while self._under_way:
            await asyncio.wait([*self._under_way.values()], return_when=asyncio.FIRST_COMPLETED)
            await self._look()

    async def _pause(self) -> None:
        self._has_news.clear()
        try:
            async with asyncio.timeout(INTERVAL_S):
                await self._has_news.wait()
        except TimeoutError:
            pass

    async def _look(self) -> None:
        async with self._looking:
            last_seq, now_ms = self._last_seq(), self._clock.now_ms()
            is_due = self._next_due_ms is not None and self._next_due_ms <= now_ms
            if self._is_empty:
                # By time, and not with every event: without a webhook, events cost nothing.
                if asyncio.get_running_loop().time() - self._looked_s < EMPTY_S:
                    return
            elif last_seq == self._seen_seq and not is_due:
                return
            # Noted first: what changes during the reads below asks for another look.
            self._seen_seq = last_seq
            try:
                board = await self._webhooks.board()
                self._is_empty = not board.webhooks
                self._looked_s = asyncio.get_running_loop().time()
                live = [one for one in board.webhooks if one.is_live]
                if live and await self._take(live, board):
                    board = await self._webhooks.board()
                await self._send(live, board)
            except BaseException:
                self._look_again()
                raise

    def _look_again(self) -> None:
        self._seen_seq = -1
        self._has_news.set()

    # --- reading the log --------------------------------------------------------------------------

    async def _take(self, live: Sequence[WebhookRecord], board: WebhookBoard) -> bool:
        """Queue deliveries of new events; returns whether any was queued."""
        known = self._cursors
        cursors = {one.state.uid: max(one.cursor, known.get(one.state.uid, 0)) for one in live}
        head = max(cursors.values())
        current = [one for one in live if cursors[one.state.uid] == head]
        behind = [one for one in live if cursors[one.state.uid] < head]
        self._cursors = cursors
        now_ms, taken = self._clock.now_ms(), list[TakenEvents]()
        for group in (current, *([one] for one in behind)):
            taken += await self._scan(group, cursors[group[0].state.uid], board)
        is_keeping = now_ms - self._cursors_kept_ms >= CURSOR_KEPT_MS
        written = [one for one in taken if is_keeping or one.events or one.has_gap]
        if written:
            await self._execute(QueueDeliveries(taken=tuple(written)))
        if is_keeping:
            self._cursors_kept_ms = now_ms
        # Only now: what was not written is read again.
        self._cursors |= {one.uid: one.cursor for one in taken}
        return any(one.events for one in taken)

    async def _scan(
        self, group: Sequence[WebhookRecord], after: int, board: WebhookBoard
    ) -> list[TakenEvents]:
        """What the webhooks of a group, which have the same cursor, take from the log next."""
        rooms = {
            one.name: limits.MAX_PENDING_DELIVERIES
            - board.pending.get(one.name, NONE_PENDING).total
            for one in group
        }
        if max(rooms.values()) <= 0:
            return []
        types = frozenset().union(*(wanted_types(one.spec) for one in group))
        passage = await self._events.after(
            after,
            EventFilter(types=types),
            limit=TAKEN_PER_SCAN,
            sight=lambda event: any(wants(one.spec, event) for one in group),
        )
        if passage.position < passage.last_seq:
            self._look_again()
        taken = []
        for one in group:
            wanted = [event for event in passage.items if wants(one.spec, event)]
            room = max(0, rooms[one.name])
            is_cut = len(wanted) > room
            cursor = (wanted[room - 1].seq if room else after) if is_cut else passage.position
            if cursor > after:
                taken.append(
                    TakenEvents(
                        webhook=one.name,
                        uid=one.state.uid,
                        cursor=cursor,
                        events=tuple(wanted[:room]),
                        has_gap=after + 1 < passage.oldest_seq,
                    )
                )
        return taken

    # --- requests ---------------------------------------------------------------------------------

    async def _send(self, live: Iterable[WebhookRecord], board: WebhookBoard) -> None:
        """Begin the requests that are due, as many as may be under way."""
        records = {one.name: one for one in live if one.name in board.pending}
        busy = Counter(uid for uid, _ in self._under_way)
        places = {
            name: limits.MAX_DELIVERIES_OF_WEBHOOK if not one.state.failures else 1
            for name, one in records.items()
        }
        free = {
            name: most
            for name, most in places.items()
            if board.pending[name].first_due_ms <= self._clock.now_ms()
            and busy[records[name].state.uid] < most
        }
        due = await self._webhooks.due(free, now_ms=self._clock.now_ms())
        for delivery in due:
            record = records[delivery.webhook]
            uid, key = record.state.uid, (record.state.uid, delivery.event.seq)
            if len(self._under_way) >= limits.MAX_DELIVERIES_AT_ONCE:
                break
            if key in self._under_way or busy[uid] >= places[record.name]:
                continue
            busy[uid] += 1
            self._under_way[key] = asyncio.create_task(self._deliver(record, delivery))
        self._next_due_ms = min(
            (board.pending[name].first_due_ms for name in records), default=None
        )

    async def _deliver(self, record: WebhookRecord, delivery: WebhookDelivery) -> None:
        """Make one request, and report how it has ended."""
        uid, seq = record.state.uid, delivery.event.seq
        try:
            report = await self._attempt(record, delivery)
            self._metrics.note("webhook", outcome_of(report), is_last=report.is_last)
            await self._execute(ReportDeliveries(reports=(report,)))
        except RotaError as error:
            # The delivery is still due: it is made again, by this leader or the next.
            log.warning("delivery_not_reported", webhook=record.name, seq=seq, code=error.code)
            await asyncio.sleep(TROUBLE_PAUSE_S)
        finally:
            del self._under_way[uid, seq]
            self._look_again()  # fewer deliveries wait, or another is due

    async def _attempt(self, record: WebhookRecord, delivery: WebhookDelivery) -> DeliveryReport:
        started_s = time.monotonic()
        code, error, pause_ms = None, None, None
        try:
            with self._metrics.measure("webhook"):
                request = request_for(record, delivery, self._clock.now_ms())
                answer = await self._client.post(request)
        except OutboundFailed as failure:
            error = str(failure)
        else:
            code, error = answer.status, problem_of(answer)
            pause_ms = retry_after_ms(answer, now_ms=self._clock.now_ms())
        return DeliveryReport(
            webhook=record.name,
            uid=record.state.uid,
            seq=delivery.event.seq,
            attempt=delivery.attempts + 1,
            code=code,
            error=error,
            took_ms=elapsed_ms(started_s),
            retry_after_ms=pause_ms,
        )


def outcome_of(report: DeliveryReport) -> OutboundOutcome:
    """How a request has ended, for the metrics."""
    if report.error is None:
        return "delivered"
    if report.code is None:
        return "failed"
    return "refused" if report.retry_after_ms is None else "busy"


def request_for(record: WebhookRecord, delivery: WebhookDelivery, now_ms: int) -> OutboundRequest:
    """The signed request that delivers an event."""
    message_id = delivery_id(record.state.uid, delivery.event.seq)
    body = body_of(
        delivery.event, webhook=record.name, message_id=message_id, form=record.spec.format
    )
    return OutboundRequest(
        url=record.spec.url,
        body=body,
        headers=signed_headers(record.secret, message_id, body, now_s=now_ms // 1000),
        timeout_ms=limits.WEBHOOK_TIMEOUT_MS,
        max_answer_bytes=ANSWER_BYTES,
    )
