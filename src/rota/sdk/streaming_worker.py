"""What does a worker say and hear on its stream? Rooms and results out, leases and answers in.

How much room there is both sides know without saying it for every lease: the worker tells how many
tasks it has room for and how many leases it has had so far, the coordinator takes off what is still
on its way. So a credit is sent only when the room is another than the coordinator must think.
"""

import asyncio
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import msgspec
import structlog
from msgspec import Raw, Struct

from rota.core import ids
from rota.core.events import ShardClaim
from rota.errors import RotaError, TooLarge
from rota.messages import (
    HeartbeatAnswer,
    HeartbeatRequest,
    LeaseView,
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
)
from rota.sdk.leasing import Work
from rota.sdk.problems import error_named
from rota.sdk.sessions import Session
from rota.sdk.streaming_socket import StreamRefused, StreamSocket

log = structlog.get_logger("rota.worker")

UNKNOWN_TYPE = "Unknown message type"  # what a coordinator without streams answers


class Heard(Struct, rename={"reply_to": "replyTo"}):
    """An envelope of the coordinator's, as far as it matters here."""

    type: str
    payload: Raw = Raw(b"\xc0")
    reply_to: int | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Heard).decode
_decode_leases = msgspec.msgpack.Decoder(StreamLeases).decode
_decode_error = msgspec.msgpack.Decoder(FrameError | None).decode
Decode = Callable[[bytes], Any]


class Stream:
    """An open stream of one session. Belongs to the event loop."""

    def __init__(
        self,
        socket: StreamSocket,
        session: Session,
        work: Work,
        *,
        on_refused: Callable[[Session, RotaError], None],
        on_cancelled: Callable[[list[str]], None],
    ) -> None:
        self.session = session
        self.max_frame_bytes = 1024 * 1024  # of what may be sent at once
        self._socket = socket
        self._work = work
        self._on_refused = on_refused
        self._on_cancelled = on_cancelled
        self._loop = asyncio.get_running_loop()
        self._numbers = count(1)
        self._asked: dict[int, tuple[asyncio.Future[Any], Decode]] = {}
        self._is_leasing = True
        self._taken = 0  # leases, over this stream
        self._expected = 0  # the room that the coordinator knows of
        socket.on_message = self._hear

    # --- speaking -------------------------------------------------------------------------------

    async def resume(self, running: Sequence[str]) -> StreamOpened:
        """Attach to the session's registration; what else it should have goes back."""
        payload = {
            "worker_id": self.session.worker_id,
            "incarnation": self.session.incarnation,
            "running": [int(one, 16) for one in running],
        }
        opened: StreamOpened = await self._ask(streams.RESUME, payload, _decode_opened)
        self.max_frame_bytes = opened.max_frame_bytes
        return opened

    def stop_leasing(self, running: Sequence[str]) -> None:
        """Take no more; what is on its way goes back at once, for it is not among what runs."""
        self._is_leasing = False
        self._taken = self._expected = 0
        resumed = asyncio.ensure_future(self.resume(running))
        resumed.add_done_callback(lambda done: done.cancelled() or done.exception())

    def credit(self) -> None:
        """Say how much room there is, if the coordinator does not know."""
        room = self._room()
        if room != self._expected:
            self._expected = room
            self._say(streams.CREDIT, {"free": room, "taken": self._taken})

    def report(self, items: Sequence[ResultItem]) -> "asyncio.Future[StreamNoted]":
        """Send results, and the room that they have made; answered when they are committed."""
        self._expected = self._room()
        payload = {
            "results": [result_row(item) for item in items],
            "free": self._expected,
            "taken": self._taken,
        }
        return self._ask(streams.RESULTS, payload, _decode_noted)

    def progress(self, items: Sequence[ProgressItem]) -> "asyncio.Future[StreamNoted]":
        rows = [
            (int(one.task_id, 16), one.fence, _bytes(one.progress), _bytes(one.partial))
            for one in items
        ]
        return self._ask(streams.PROGRESS, {"items": rows}, _decode_noted)

    def beat(self, request: HeartbeatRequest) -> "asyncio.Future[HeartbeatAnswer]":
        running = request.running
        payload = {
            "running": None if running is None else [int(one, 16) for one in running],
            "load": request.load,
        }
        return self._ask(streams.BEAT, payload, _read_beat)

    def close(self, error: RotaError) -> None:
        """The stream is over: nobody will answer any more."""
        asked, self._asked = self._asked, {}
        for future, _ in asked.values():
            if not future.done():
                future.set_exception(error)
                future.exception()  # whoever is interested asks again; nobody need be
        self._socket.close()

    def _room(self) -> int:
        return max(0, self._work.room)

    def _ask(self, kind: str, payload: Any, decode: Decode) -> "asyncio.Future[Any]":
        number = next(self._numbers)
        self._say(kind, payload, number)
        future: asyncio.Future[Any] = self._loop.create_future()
        self._asked[number] = future, decode
        return future

    def _say(self, kind: str, payload: Any, number: int | None = None) -> None:
        message = {"to": streams.MAIN, "type": kind, "id": number, "payload": payload}
        data = _encode(message)
        if len(data) > self.max_frame_bytes:
            raise TooLarge(f"a frame may have {self.max_frame_bytes} bytes, not {len(data)}")
        self._socket.send(data)

    # --- hearing --------------------------------------------------------------------------------

    def _hear(self, data: bytes) -> None:
        try:
            self._take(_decode(data))
        except msgspec.DecodeError as error:
            log.warning("the coordinator cannot be understood", reason=str(error))
            self._socket.close()

    def _take(self, heard: Heard) -> None:
        if heard.reply_to is not None:
            self._take_answer(heard.reply_to, heard.payload)
        elif heard.type == streams.LEASES:
            self._take_leases(_decode_leases(heard.payload))
        elif heard.type == streams.CANCEL:
            cancelled = msgspec.msgpack.decode(heard.payload, type=StreamCancel)
            self._on_cancelled([ids.to_text(one) for one in cancelled.task_ids])
        elif heard.type == streams.ENDED:
            ended = msgspec.msgpack.decode(heard.payload, type=StreamEnded)
            self._on_refused(self.session, error_named(ended.code, ended.error))

    def _take_leases(self, granted: StreamLeases) -> None:
        if not self._is_leasing:
            return
        number = len(granted.leases)
        self._taken += number
        self._expected -= number
        if not self.session.is_over:
            self._work.begin([lease_view(one) for one in granted.leases])

    def _take_answer(self, number: int, payload: Raw) -> None:
        future, decode = self._asked.pop(number, (None, None))
        if future is None or decode is None or future.done():
            return
        error = _error_in(payload)
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(decode(payload))


# --- how it is written ----------------------------------------------------------------------------

_decode_opened = msgspec.msgpack.Decoder(StreamOpened).decode
_decode_noted = msgspec.msgpack.Decoder(StreamNoted).decode
_decode_beat = msgspec.msgpack.Decoder(StreamBeatAnswer).decode


def _error_in(payload: Raw) -> RotaError | None:
    """The refusal that an answer is, if it is one."""
    try:
        refused = _decode_error(payload)
    except msgspec.ValidationError:
        return None  # it lacks what every refusal has
    if refused is None:
        return None
    if refused.error == UNKNOWN_TYPE:
        return StreamRefused("the coordinator knows no streams")
    return error_named(refused.code, refused.error)


def _read_beat(payload: bytes) -> HeartbeatAnswer:
    told: StreamBeatAnswer = _decode_beat(payload)
    return HeartbeatAnswer(
        health=told.health,
        state=told.state,
        cancel=[ids.to_text(one) for one in told.cancel],
        lost=[ids.to_text(one) for one in told.lost],
        heartbeat_interval_ms=told.heartbeat_interval_ms,
        lease_ms=told.lease_ms,
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
    )


def result_row(item: ResultItem) -> tuple[Any, ...]:
    """A result as `rota.core.events.Result` is written, without what most do not have."""
    number = int(item.task_id, 16)
    if item.shard is None and item.ok:
        if item.result is None:
            return number, item.fence
        return number, item.fence, True, bytes(item.result)
    claim = None
    if item.shard is not None:
        claim = ShardClaim(item.shard.service, item.shard.shard, item.shard.epoch)
    return (
        number,
        item.fence,
        bool(item.ok),
        _bytes(item.result),
        item.error,
        item.retry_in_ms,
        item.snooze_ms,
        claim,
    )


def _bytes(value: Raw | None) -> bytes | None:
    return None if value is None else bytes(value)
