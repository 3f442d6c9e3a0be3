"""The worker's stream: credit and results out, leases and answers in.

Both sides count the worker's free slots. A credit states how many slots are free and how many
leases the worker has received so far; the coordinator subtracts the leases under way. So the worker
sends a credit only when its free slots differ from the number that the coordinator expects.

A call without an answer in time ends the stream: a connection whose other side is gone, or whose
packets are dropped on the way, is not closed by anything else. One timer watches the oldest call.
A slow connection gets more time, because the next one would be as slow. The messages up to the call
may take the time of `SLOWEST_BYTES_PER_S`; it counts what was written, since TLS does not tell what
has left. And the call is not overdue while the leases arrive that may come before its answer.
"""

import asyncio
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, Struct

from rota.core import ids
from rota.core.commands import EpochClaim
from rota.errors import RotaError, TooLarge, Unavailable
from rota.messages import (
    AttemptLogItem,
    HeartbeatAnswer,
    HeartbeatRequest,
    LeaseView,
    OperationsItem,
    ProgressItem,
    ResultItem,
    streams,
)
from rota.messages.sessions import FrameError
from rota.messages.streams import (
    StreamBeatAnswer,
    StreamCancel,
    StreamEnded,
    StreamLeases,
    StreamNoted,
    StreamOpened,
    StreamOperationsNoted,
)
from rota.sdk.client.problems import error_named
from rota.sdk.transport.transport import ANSWER_TIMEOUT_S
from rota.sdk.worker.poller import LeaseSink, OnRefused
from rota.sdk.worker.session import WorkerSession
from rota.sdk.worker.streaming.socket import StreamRefused, StreamSocket
from rota.telemetry import library_logger

log = library_logger("rota.worker")

UNKNOWN_TYPE = "Unknown message type"  # the answer of a coordinator without streams
CALL_TIMEOUT_S = ANSWER_TIMEOUT_S  # of the answer to one message
SLOWEST_BYTES_PER_S = 32 * 1024  # of a connection that is not given up: 4 MiB in two minutes
MOST_BYTES_AHEAD = 32 * 1024 * 1024  # that a coordinator may send before the answer to a call


class IncomingEnvelope(Struct, rename={"reply_to": "replyTo"}):
    """The parts of a coordinator's envelope that the stream needs."""

    type: str
    payload: Raw = Raw(b"\xc0")
    reply_to: int | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(IncomingEnvelope).decode
_decode_leases = msgspec.msgpack.Decoder(StreamLeases).decode
_decode_error = msgspec.msgpack.Decoder(FrameError | None).decode
_decode_opened = msgspec.msgpack.Decoder(StreamOpened).decode
_decode_noted = msgspec.msgpack.Decoder(StreamNoted).decode
_decode_operations = msgspec.msgpack.Decoder(StreamOperationsNoted).decode
_decode_beat = msgspec.msgpack.Decoder(StreamBeatAnswer).decode
Decode = Callable[[bytes], Any]


class UnansweredCall(NamedTuple):
    """A message that waits for its answer."""

    answer: asyncio.Future[Any]
    decode: Decode
    kind: str
    sent_s: float  # by the clock of the loop
    written_bytes: int  # of everything up to its end
    received_bytes: int  # of everything when it was sent


class CoordinatorStream:
    """An open stream of one session, on the event loop it is made on."""

    def __init__(
        self,
        socket: StreamSocket,
        session: WorkerSession,
        sink: LeaseSink,
        *,
        on_refused: OnRefused,
        on_cancelled: Callable[[list[str]], None],
    ) -> None:
        self.session = session
        self.max_frame_bytes = 1024 * 1024  # of a message to the coordinator
        self._socket = socket
        self._sink = sink
        self._on_refused = on_refused
        self._on_cancelled = on_cancelled
        self._loop = asyncio.get_running_loop()
        self._numbers = count(1)
        self._calls: dict[int, UnansweredCall] = {}  # the oldest first
        self._watch: asyncio.TimerHandle | None = None  # while a call waits
        self._arrived_bytes = 0  # of what was written, as the answers show
        self._looked_bytes = 0  # had been received at the last look at the oldest call
        self._moved_s = 0.0  # when something last arrived that may come before an answer
        self._closed: RotaError | None = None  # why
        self._is_leasing = True
        self._received = 0  # leases, over this stream
        self._expected_free = 0  # the free slots that the coordinator knows of
        socket.on_message = self._receive

    # --- sending --------------------------------------------------------------------------------

    async def resume(self, running: Sequence[str]) -> StreamOpened:
        """Attach to the session's registration; leases not in `running` go back."""
        payload = {
            "worker_id": self.session.worker_id,
            "incarnation": self.session.incarnation,
            "running": [int(one, 16) for one in running],
        }
        opened: StreamOpened = await self._call(streams.RESUME, payload, _decode_opened)
        self.max_frame_bytes = opened.max_frame_bytes
        return opened

    def stop_leasing(self, running: Sequence[str]) -> None:
        """Take no more leases; those under way go back at once, because they do not run."""
        self._is_leasing = False
        self._received = self._expected_free = 0
        resumed = asyncio.ensure_future(self.resume(running))
        resumed.add_done_callback(lambda done: done.cancelled() or done.exception())

    def credit(self) -> None:
        """Send the number of free slots, if the coordinator expects another one."""
        free = self._free_slots()
        if free != self._expected_free:
            self._expected_free = free
            self._send(streams.CREDIT, {"free": free, "taken": self._received})

    def report(self, items: Sequence[ResultItem]) -> "asyncio.Future[StreamNoted]":
        """Send results with a credit; answered when the results are committed."""
        self._expected_free = self._free_slots()
        payload = {
            "results": [result_row(item) for item in items],
            "free": self._expected_free,
            "taken": self._received,
        }
        return self._call(streams.RESULTS, payload, _decode_noted)

    def progress(self, items: Sequence[ProgressItem]) -> "asyncio.Future[StreamNoted]":
        rows = [
            (int(one.task_id, 16), one.fence, _bytes(one.progress), _bytes(one.partial))
            for one in items
        ]
        return self._call(streams.PROGRESS, {"items": rows}, _decode_noted)

    def logs(self, items: Sequence[AttemptLogItem]) -> "asyncio.Future[StreamNoted]":
        rows = [
            (
                int(one.task_id, 16),
                one.fence,
                [
                    (line.at_ms, line.level, line.logger, line.message, _bytes(line.fields))
                    for line in one.lines
                ],
                one.first,
                one.dropped,
            )
            for one in items
        ]
        return self._call(streams.LOGS, {"items": rows}, _decode_noted)

    def operations(
        self, items: Sequence[OperationsItem]
    ) -> "asyncio.Future[StreamOperationsNoted]":
        """Send operations of functions; answered when they are committed."""
        rows = [
            (int(one.task_id, 16), one.fence, one.after, bytes(one.operations)) for one in items
        ]
        return self._call(streams.OPERATIONS, {"items": rows}, _decode_operations)

    def beat(self, request: HeartbeatRequest) -> "asyncio.Future[HeartbeatAnswer]":
        running = request.running
        payload = {
            "running": None if running is None else [int(one, 16) for one in running],
            "load": request.load,
        }
        return self._call(streams.BEAT, payload, _read_beat)

    def close(self, error: RotaError) -> None:
        """Close the stream, and fail all calls that wait for an answer."""
        self._fail_calls(error)
        self._socket.close()

    def _fail_calls(self, error: RotaError) -> None:
        self._closed = error
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        calls, self._calls = self._calls, {}
        for call in calls.values():
            if not call.answer.done():
                _fail(call.answer, error)

    def _free_slots(self) -> int:
        return max(0, self._sink.free_slots)

    def _call(self, kind: str, payload: Any, decode: Decode) -> "asyncio.Future[Any]":
        answer: asyncio.Future[Any] = self._loop.create_future()
        if self._closed is not None:
            _fail(answer, self._closed)
            return answer
        number = next(self._numbers)
        self._send(kind, payload, number)
        self._calls[number] = UnansweredCall(
            answer,
            decode,
            kind,
            self._loop.time(),
            written_bytes=self._socket.written_bytes,
            received_bytes=self._socket.received_bytes,
        )
        if self._watch is None:
            self._looked_bytes = self._socket.received_bytes
            self._watch = self._loop.call_later(CALL_TIMEOUT_S, self._look_at_oldest)
        return answer

    def _look_at_oldest(self) -> None:
        """End the stream if its oldest call is overdue; otherwise look again when it could be."""
        self._watch = None
        oldest = next(iter(self._calls.values()), None)
        if oldest is None:
            return
        received_bytes = self._socket.received_bytes
        if self._looked_bytes < min(received_bytes, oldest.received_bytes + MOST_BYTES_AHEAD):
            self._moved_s = self._socket.received_s
        self._looked_bytes = received_bytes
        limit_s = CALL_TIMEOUT_S + self._unanswered_bytes(oldest) / SLOWEST_BYTES_PER_S
        left_s = max(oldest.sent_s, self._moved_s) + limit_s - self._loop.time()
        if left_s > 0:
            self._watch = self._loop.call_later(left_s, self._look_at_oldest)
            return
        limit_s = round(limit_s, 1)
        text = f"the coordinator did not answer {oldest.kind} within {limit_s:g} s"
        log.warning("stream_unanswered", message=oldest.kind, timeout_s=limit_s)
        self._fail_calls(Unavailable(text))
        self._socket.abort()  # the other side would not answer the closing handshake either

    def _unanswered_bytes(self, call: UnansweredCall) -> int:
        """The bytes up to the end of a call that may still be on their way."""
        return max(0, call.written_bytes - self._arrived_bytes)

    def _send(self, kind: str, payload: Any, number: int | None = None) -> None:
        message = {"to": streams.MAIN, "type": kind, "id": number, "payload": payload}
        data = _encode(message)
        if len(data) > self.max_frame_bytes:
            raise TooLarge(f"a frame may have {self.max_frame_bytes} bytes, not {len(data)}")
        self._socket.send(data)

    # --- receiving ------------------------------------------------------------------------------

    def _receive(self, data: bytes) -> None:
        try:
            self._take(_decode(data))
        except msgspec.DecodeError as error:
            log.warning("coordinator_unreadable", reason=str(error))
            self._socket.close()

    def _take(self, envelope: IncomingEnvelope) -> None:
        if envelope.reply_to is not None:
            self._take_answer(envelope.reply_to, envelope.payload)
        elif envelope.type == streams.LEASES:
            self._take_leases(_decode_leases(envelope.payload))
        elif envelope.type == streams.CANCEL:
            cancelled = msgspec.msgpack.decode(envelope.payload, type=StreamCancel)
            self._on_cancelled([ids.to_text(one) for one in cancelled.task_ids])
        elif envelope.type == streams.ENDED:
            ended = msgspec.msgpack.decode(envelope.payload, type=StreamEnded)
            self._on_refused(self.session, error_named(ended.code, ended.error))

    def _take_leases(self, granted: StreamLeases) -> None:
        if not self._is_leasing:
            return
        number = len(granted.leases)
        self._received += number
        self._expected_free -= number
        if not self.session.is_over:
            self._sink.begin([lease_view(one) for one in granted.leases])

    def _take_answer(self, number: int, payload: Raw) -> None:
        call = self._calls.get(number)
        if call is not None:
            self._arrived_bytes = max(self._arrived_bytes, call.written_bytes)
        if call is not None and not call.answer.done():
            error = _error_in(payload)
            if error is not None:
                call.answer.set_exception(error)
            else:
                call.answer.set_result(call.decode(payload))
        # Last: a call whose answer cannot be read fails with the others as the stream closes.
        self._calls.pop(number, None)


def _fail(answer: "asyncio.Future[Any]", error: RotaError) -> None:
    answer.set_exception(error)
    answer.exception()  # marks it as retrieved: the caller may be gone


# --- encoding and decoding ----------------------------------------------------------------------


def _error_in(payload: Raw) -> RotaError | None:
    """The error of an answer that is a refusal; None for any other answer."""
    try:
        refused = _decode_error(payload)
    except msgspec.ValidationError:
        return None  # it lacks the fields of a refusal
    if refused is None:
        return None
    if refused.error == UNKNOWN_TYPE:
        return StreamRefused("the coordinator does not support streams")
    return error_named(refused.code, refused.error)


def _read_beat(payload: bytes) -> HeartbeatAnswer:
    answer: StreamBeatAnswer = _decode_beat(payload)
    return HeartbeatAnswer(
        health=answer.health,
        state=answer.state,
        cancel=[ids.to_text(one) for one in answer.cancel],
        lost=[ids.to_text(one) for one in answer.lost],
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        lease_ms=answer.lease_ms,
    )


def lease_view(one: streams.StreamedLease) -> LeaseView:
    return LeaseView(
        task_id=ids.to_text(one.task_id),
        fence=one.fence,
        name=one.name,
        payload=Raw(one.payload),
        attempt=one.attempt,
        max_attempts=one.max_attempts,
        deadline_ms=one.deadline_ms,
        timeout_ms=one.timeout_ms,
        queue=one.queue,
        priority=one.priority,
        key=one.key,
        labels=one.labels,
        created_at_ms=one.created_at_ms,
        run_id=one.run_id,
        headers=one.headers,
    )


def result_row(item: ResultItem) -> tuple[Any, ...]:
    """A result as `rota.core.commands.Result` is encoded; absent fields at the end are left out."""
    number = int(item.task_id, 16)
    if item.shard is None and item.ok and item.traceparent is None:
        if item.result is None:
            return number, item.fence
        return number, item.fence, True, bytes(item.result)
    claim = None
    if item.shard is not None:
        claim = EpochClaim(item.shard.service, item.shard.shard, item.shard.epoch)
    return (
        number,
        item.fence,
        bool(item.ok),
        _bytes(item.result),
        item.error,
        item.retry_in_ms,
        item.snooze_ms,
        claim,
        item.rate_limited,
        item.traceparent,
    )


def _bytes(value: Raw | None) -> bytes | None:
    return None if value is None else bytes(value)
