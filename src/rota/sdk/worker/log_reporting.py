"""Reports what handlers log to the coordinator, over the worker's stream or by calls.

A handler never waits for this: a line is put into a buffer, and what does not fit is counted. The
reporter sends all new lines together, about twice a second, and those of an attempt that ends with
its result. A line stays in the buffer until its report was answered, so it may be sent twice: lines
are numbered within their attempt, and the coordinator knows what it has.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Raw

from rota.core import ids, limits
from rota.core.tasks.logs import LogLine, has_room, size_of
from rota.errors import (
    Conflict,
    NotFound,
    Overloaded,
    RotaError,
    TooLarge,
    TooMany,
    Unavailable,
)
from rota.messages import AttemptLogItem, LeaseView, LogLineItem
from rota.sdk.client import calls
from rota.sdk.client.client import Client
from rota.sdk.timing import RetryBackoff, now_s
from rota.sdk.worker.runners.in_process import Attempt
from rota.sdk.worker.session import WorkerSession
from rota.telemetry import library_logger

if TYPE_CHECKING:
    from rota.messages.streams import StreamNoted
    from rota.sdk.worker.streaming.stream import CoordinatorStream

log = library_logger("rota.worker")

MAX_REPORT_BYTES = 256 * 1024  # of lines in one report
MAX_WAITING_ATTEMPTS = 10_000  # attempts with something to report; the lines of others are dropped
ENDED_WAIT_S = 0.25  # how long a result waits for a call with the lines before it
MOST_UNANSWERED = 16  # calls with the lines of ended attempts, each on a connection of its own
CLOSE_TIMEOUT_S = 1.0


class BufferedLog:
    """The log of one attempt, as far as it is not known to be kept."""

    __slots__ = ("dropped", "lease", "lines", "reported", "sent", "size", "waiting")

    def __init__(self, lease: LeaseView) -> None:
        self.lease = lease
        self.waiting: deque[LogLine] = deque()  # not answered yet
        self.sent = 0  # lines that are answered
        self.lines = 0  # kept here so far, waiting or answered
        self.size = 0  # of these lines, in bytes
        self.dropped = 0
        self.reported = 0  # of the dropped lines, how many the coordinator knows of

    @property
    def is_reported(self) -> bool:
        return not self.waiting and self.dropped == self.reported


class LogReporter:
    """Buffers the lines of all attempts of a worker, and sends them from the loop it is made on."""

    def __init__(self, client: Client, *, level: int, captured: Sequence[str] = ()) -> None:
        self.session: WorkerSession | None = None
        self.find_stream: Callable[[], CoordinatorStream | None] = lambda: None
        self.level = level
        self.captured = captured
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._lock = threading.RLock()  # a finalizer may log while a line is kept
        self._changed: dict[tuple[str, int], BufferedLog] = {}  # with something to report
        self._waiting_bytes = 0
        self._second = 0  # in which lines are counted, so that they stay below their rate
        self._in_second = 0
        self._has_work = asyncio.Event()
        self._unsupported: WorkerSession | None = None  # its coordinator does not keep logs
        self._under_way: set[asyncio.Task[bool]] = set()
        self._is_slow = False  # a result has waited for its lines to the limit: others do not wait

    # --- from handlers, in any thread -------------------------------------------------------------

    def keep(self, attempt: Attempt, line: LogLine) -> None:
        with self._lock:
            buffered = self._buffer_of(attempt)
            if buffered is None:
                return
            size = size_of(line)
            is_kept = (
                has_room(line, lines=buffered.lines, size=buffered.size)
                and self._waiting_bytes + size <= limits.MAX_WAITING_LOG_BYTES
                and self._is_within_rate()
            )
            if is_kept:
                buffered.waiting.append(line)
                buffered.lines += 1
                buffered.size += size
                self._waiting_bytes += size
            else:
                buffered.dropped += 1

    def note_left_out(self, attempt: Attempt, count: int) -> None:
        with self._lock:
            buffered = self._buffer_of(attempt)
            if buffered is not None:
                buffered.dropped += count

    def _buffer_of(self, attempt: Attempt) -> BufferedLog | None:
        """The buffer of an attempt, which has something to report now; None: there are too many.

        An attempt that was stopped may still log: the coordinator takes its last lines.
        """
        buffered: BufferedLog | None = attempt.logged
        if buffered is None:
            buffered = attempt.logged = BufferedLog(attempt.lease)
        key = buffered.lease.task_id, buffered.lease.fence
        if key not in self._changed:
            if len(self._changed) >= MAX_WAITING_ATTEMPTS:
                return None
            if not self._changed:
                with contextlib.suppress(RuntimeError):  # the loop has ended, and the worker
                    self._loop.call_soon_threadsafe(self._has_work.set)
            self._changed[key] = buffered
        return buffered

    def _is_within_rate(self) -> bool:
        second = int(now_s())
        if second != self._second:
            self._second, self._in_second = second, 0
        self._in_second += 1
        return self._in_second <= limits.MAX_LOG_LINES_PER_S

    @property
    def has_waiting(self) -> bool:
        return bool(self._changed)

    # --- on the loop ------------------------------------------------------------------------------

    async def run(self) -> None:
        backoff = RetryBackoff()
        while True:
            await self._has_work.wait()
            await asyncio.sleep(limits.LOG_INTERVAL_MS / 1000)  # more lines gather meanwhile
            self._has_work.clear()
            if not await self._report(self._all_changed()):
                await asyncio.sleep(backoff.wait_s())
            else:
                backoff.reset()
            if self._changed:
                self._has_work.set()

    async def send_ended(self, task_ids: Collection[str]) -> None:
        """Send the lines of attempts that end, ahead of their results.

        Over a stream this does not wait: what is sent first is taken first. By a call it waits for
        the answer, for a limited time, and not at all while such calls are not answered.
        """
        ended = [one for one in self._all_changed() if one.lease.task_id in task_ids]
        is_streaming = self._stream_of(self.session) is not None
        if not ended or (not is_streaming and len(self._under_way) >= MOST_UNANSWERED):
            return  # the lines that are left go with the next regular report
        report = self._loop.create_task(self._report(ended))
        self._under_way.add(report)
        report.add_done_callback(self._under_way.discard)
        if is_streaming:
            await asyncio.sleep(0)  # so that it is written to the socket before the results are
        elif not self._is_slow:
            done, _ = await asyncio.wait([report], timeout=ENDED_WAIT_S)
            self._is_slow = not done

    async def close(self) -> None:
        """Send what is left, if the coordinator takes it at once."""
        if self._changed:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._report(self._all_changed()), CLOSE_TIMEOUT_S)

    def clear(self) -> None:
        """Drop all lines: the session is over, and with it the leases of their attempts."""
        self._drop(self._all_changed())

    def _all_changed(self) -> list[BufferedLog]:
        with self._lock:
            return list(self._changed.values())

    async def _report(self, logs: Sequence[BufferedLog]) -> bool:
        """Send these logs; returns whether the coordinator can be reached."""
        session = self.session
        if session is None or session.is_over or session is self._unsupported:
            self._drop(logs)
            return True
        # Over a stream all of them are sent before the first is answered.
        under_way = [
            (portion, self._stream([item for _, item in portion], session))
            for portion in self._portions(logs)
        ]
        for portion, answer in under_way:
            try:
                refused = await self._answered(session, [item for _, item in portion], answer)
            except (Unavailable, Overloaded, TooMany):
                return False
            except RotaError as error:
                self._note_refused(session, error)
                self._drop([one for one, _ in portion])
            else:
                self._is_slow = False
                self._note_answered(portion, refused)
        return True

    def _portions(
        self, logs: Iterable[BufferedLog]
    ) -> Iterator[list[tuple[BufferedLog, AttemptLogItem]]]:
        """Yield reports of a bounded size that together have all that waits."""
        portion: list[tuple[BufferedLog, AttemptLogItem]] = []
        room = MAX_REPORT_BYTES
        for one in logs:
            with self._lock:
                lines, dropped, first = [*one.waiting], one.dropped, one.sent + 1
            begin = 0
            while True:
                end, room = _fitting(lines, begin, room)
                if end > begin or begin == len(lines):
                    portion.append(
                        (
                            one,
                            log_item(
                                one.lease, lines[begin:end], first=first + begin, dropped=dropped
                            ),
                        )
                    )
                if end == len(lines):
                    break
                yield portion
                portion, room, begin = [], MAX_REPORT_BYTES, end
            if len(portion) >= limits.MAX_RESULTS_PER_REPORT or room <= 0:
                yield portion
                portion, room = [], MAX_REPORT_BYTES
        if portion:
            yield portion

    def _stream(
        self, items: Sequence[AttemptLogItem], session: WorkerSession
    ) -> "asyncio.Future[StreamNoted] | None":
        """Send one report over the stream; None: there is none, or the report does not fit."""
        stream = self._stream_of(session)
        if stream is None:
            return None
        try:
            answer = stream.logs(items)
        except (TooLarge, Unavailable):
            return None
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        return answer

    async def _answered(
        self,
        session: WorkerSession,
        items: list[AttemptLogItem],
        streamed: "asyncio.Future[StreamNoted] | None",
    ) -> set[str]:
        """Wait for the answer to one report; returns the tasks whose lines were refused."""
        if streamed is not None:
            # A coordinator that does not know the message, or a lost stream: by a call.
            with contextlib.suppress(Unavailable):
                return {ids.to_text(number) for number, _ in (await streamed).refused}
        call = calls.report_logs(session.worker_id, incarnation=session.incarnation, items=items)
        answer = await self._client.arun(call)
        return {one.task_id for one in answer.outcomes if one.outcome != "accepted"}

    def _stream_of(self, session: WorkerSession | None) -> "CoordinatorStream | None":
        stream = self.find_stream()
        return stream if stream is not None and stream.session is session else None

    def _note_refused(self, session: WorkerSession, error: RotaError) -> None:
        if isinstance(error, Conflict):
            return  # the session is over; a result or the next heartbeat finds out
        if isinstance(error, NotFound):
            self._unsupported = session
        log.warning("task_logs_refused", reason=error.detail)

    def _note_answered(
        self, portion: Iterable[tuple[BufferedLog, AttemptLogItem]], refused: Collection[str]
    ) -> None:
        stale = [one for one, item in portion if item.task_id in refused]
        self._drop(stale)
        with self._lock:
            for one, item in portion:
                if one in stale:
                    continue
                while one.waiting and one.sent < item.first - 1 + len(item.lines):
                    self._waiting_bytes -= size_of(one.waiting.popleft())
                    one.sent += 1
                one.reported = max(one.reported, item.dropped)
                if one.is_reported:
                    self._changed.pop((one.lease.task_id, one.lease.fence), None)

    def _drop(self, logs: Iterable[BufferedLog]) -> None:
        """Give up the waiting lines of these logs."""
        with self._lock:
            for one in logs:
                self._waiting_bytes -= sum(map(size_of, one.waiting))
                one.sent += len(one.waiting)
                one.dropped += len(one.waiting)
                one.waiting.clear()
                self._changed.pop((one.lease.task_id, one.lease.fence), None)


def _fitting(lines: Sequence[LogLine], begin: int, room: int) -> tuple[int, int]:
    """Return how far the lines fit into the room of a report, and the room that is left."""
    end = begin
    while end < len(lines) and room > 0:
        room -= size_of(lines[end])
        end += 1
    return end, room


def log_item(
    lease: LeaseView, lines: Sequence[LogLine], *, first: int, dropped: int
) -> AttemptLogItem:
    """Lines of one attempt as they are reported."""
    return AttemptLogItem(
        task_id=lease.task_id,
        fence=lease.fence,
        lines=[
            LogLineItem(
                at_ms=one.at_ms,
                level=one.level,
                logger=one.logger,
                message=one.message,
                fields=None if one.fields is None else Raw(one.fields),
            )
            for one in lines
        ],
        first=first,
        dropped=dropped,
    )
