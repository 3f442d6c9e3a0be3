"""How does a worker talk about shards over ZeroMQ? A DEALER, to which assignments are also pushed.

libzmq connects, and connects again when the other side went away. The socket is watched by its file
descriptor, which tells only that something has changed: after each look and each sending we look
again until there is nothing left. This module is loaded only by workers that speak ZeroMQ.

Of several coordinators on one store one is spoken to at a time. One that leaves a message without
an answer is left when the next one is due: a beat may be lost, the lease not.
"""

import asyncio
import contextlib
import random
from typing import Any, assert_never

import msgspec
import structlog
import zmq
from msgspec import Struct

from rota.core.shards.events import BeatMember, LeaveMember, MemberEvent, RegisterMember
from rota.errors import Invalid, Unavailable
from rota.messages.shards import (
    THOUSANDTHS,
    AssignmentData,
    ErrorMessage,
    Heartbeat,
    HeartbeatData,
    Leave,
    LeaveData,
    MemberMessage,
    Register,
    RegisterData,
)
from rota.sdk.problems import error_of
from rota.sdk.shards.lines import LAST_WORDS_S, Hearer
from rota.sdk.transport import Response

log = structlog.get_logger("rota.shards")

MOST_UNSENT = 16  # messages that wait for a connection; more are dropped, and said again later
TELL_AFTER_UNANSWERED = 3  # messages in a row, and again after as many more
MOST_AT_ONCE = 100  # messages taken in before others on the loop have their turn
MOST_MESSAGE_BYTES = 64 * 1024 * 1024
RECONNECT_MS = 100
MOST_RECONNECT_MS = 1_000
PING_MS = 5_000  # on an idle connection, to find out that the other side is gone
PING_TIMEOUT_MS = 10_000


class Keys(Struct, frozen=True, kw_only=True):
    """Of CURVE, each forty characters in the writing of ZeroMQ."""

    public_key: str
    secret_key: str
    server_key: str

    def __repr__(self) -> str:
        return f"<keys of {self.public_key}>"


class Told(Struct, frozen=True, tag_field="type", tag="assignment"):
    data: AssignmentData


_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[Told | ErrorMessage] = msgspec.json.Decoder(Told | ErrorMessage)


class ZeroMQLine:
    def __init__(self, addresses: str, keys: Keys | None, hearer: Hearer) -> None:
        """Several addresses have commas between them; one of them is begun with, by chance."""
        self._addresses = [one.strip() for one in addresses.split(",") if one.strip()]
        random.shuffle(self._addresses)
        self._address = (self._addresses or [addresses])[0]
        self._hearer = hearer
        self._loop = asyncio.get_running_loop()
        self._linger_ms = 0
        self._unanswered = 0  # messages since we last heard anything
        self._context: zmq.Context[Any] = zmq.Context()
        try:
            self._socket: zmq.Socket[Any] = self._open(self._address, keys)
        except BaseException:
            self._context.destroy(linger=0)
            raise
        self._file = int(self._socket.getsockopt(zmq.FD))
        self._loop.add_reader(self._file, self._drain)

    def _open(self, address: str, keys: Keys | None) -> zmq.Socket[Any]:
        socket: zmq.Socket[Any] = self._context.socket(zmq.DEALER)
        for option, value in (
            (zmq.LINGER, 0),  # what is left for one that we have left must not hold up the end
            (zmq.SNDHWM, MOST_UNSENT),
            (zmq.MAXMSGSIZE, MOST_MESSAGE_BYTES),
            (zmq.RECONNECT_IVL, RECONNECT_MS),
            (zmq.RECONNECT_IVL_MAX, MOST_RECONNECT_MS),
            (zmq.HEARTBEAT_IVL, PING_MS),
            (zmq.HEARTBEAT_TIMEOUT, PING_TIMEOUT_MS),
        ):
            socket.setsockopt(option, value)
        try:
            if keys is not None:
                socket.curve_publickey = keys.public_key.encode()
                socket.curve_secretkey = keys.secret_key.encode()
                socket.curve_serverkey = keys.server_key.encode()
            socket.connect(address)
        except (zmq.ZMQError, ValueError, TypeError) as error:
            raise Invalid(
                f"no line to {address!r} can be opened: {error}; an address is like "
                "tcp://127.0.0.1:5555, and each CURVE key has forty characters"
            ) from None
        return socket

    def send(self, message: MemberEvent) -> None:
        if isinstance(message, LeaveMember):
            self._linger_ms = int(LAST_WORDS_S * 1000)
        if self._unanswered and self._unanswered % TELL_AFTER_UNANSWERED == 0:
            self._hearer.note_trouble(Unavailable(f"nobody answers at {self._address}"))
        if self._unanswered and len(self._addresses) > 1:
            self._move_on()
        self._unanswered += 1
        with contextlib.suppress(zmq.Again):  # too many wait already
            self._socket.send(_ENCODER.encode(written(message)), zmq.DONTWAIT)
        # Sending may have used up the sign that there is something to read.
        self._loop.call_soon(self._drain)

    def _move_on(self) -> None:
        """Speak to the next one; what waits for the one before is dropped, and said again."""
        self._addresses = [*self._addresses[1:], self._addresses[0]]
        with contextlib.suppress(zmq.ZMQError):  # it was given up by itself
            self._socket.disconnect(self._address)
        self._address = self._addresses[0]
        log.info("going on with another coordinator", address=self._address)
        self._socket.connect(self._address)

    async def close(self) -> None:
        self._loop.remove_reader(self._file)
        self._socket.close(self._linger_ms)
        # Waits for the last words, off the loop: what callbacks have to tell goes on meanwhile.
        await self._loop.run_in_executor(None, self._context.term)

    def _drain(self) -> None:
        for _ in range(MOST_AT_ONCE):
            if self._socket.closed:
                return
            try:
                frames = self._socket.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                return
            self._take(frames[-1])
        self._loop.call_soon(self._drain)

    def _take(self, content: bytes) -> None:
        self._unanswered = 0
        try:
            message = _DECODER.decode(content)
        except msgspec.MsgspecError as error:
            log.warning("what came cannot be read", address=self._address, reason=str(error))
            return
        if isinstance(message, Told):
            self._hearer.hear(message.data)
            return
        problem = {"code": message.data.code, "detail": message.data.message}
        response = Response(500, _ENCODER.encode(problem), {})
        self._hearer.note_trouble(error_of(response, self._address))


def written(message: MemberEvent) -> MemberMessage:
    """An event as it stands on the wire."""
    match message:
        case RegisterMember():
            return Register(
                RegisterData(
                    service_name=message.service,
                    worker_id=message.worker_id,
                    max_shard_count=message.shard_count,
                    protocol=message.protocol,
                    incarnation=message.incarnation,
                    weight=message.weight / THOUSANDTHS,
                    max_shards=message.max_shards,
                    seq=message.seq,
                )
            )
        case BeatMember():
            return Heartbeat(
                HeartbeatData(
                    service_name=message.service,
                    worker_id=message.worker_id,
                    max_shard_count=message.shard_count,
                    assigned_shards=list(message.holds),
                    protocol=message.protocol,
                    incarnation=message.incarnation,
                    generation=message.generation,
                    seq=message.seq,
                    draining=message.draining,
                )
            )
        case LeaveMember():
            return Leave(
                LeaveData(
                    service_name=message.service,
                    worker_id=message.worker_id,
                    incarnation=message.incarnation,
                )
            )
        case _:
            assert_never(message)
