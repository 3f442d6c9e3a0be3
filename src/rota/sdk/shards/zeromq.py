"""The member protocol over ZeroMQ: a DEALER socket that receives pushed assignments.

libzmq connects, and reconnects after a loss. Its file descriptor is edge-triggered: after each read
and each send the transport reads until nothing is left. Only workers that use ZeroMQ load this
module.

Of several coordinators on one store the worker speaks to one at a time. When a message gets no
answer before the next one is due, it changes to the next coordinator: a beat may be lost, the lease
is not.
"""

import asyncio
import contextlib
import random
from typing import Any, assert_never

import msgspec
import zmq
from msgspec import Struct

from rota.core.shards.commands import BeatMember, LeaveMember, MemberCommand, RegisterMember
from rota.errors import Invalid, Unavailable
from rota.messages.shards import (
    AssignmentData,
    ErrorMessage,
    HeartbeatMessage,
    Leave,
    LeaveData,
    MemberMessage,
    Register,
    heartbeat_data,
    register_data,
)
from rota.sdk.client.problems import error_of
from rota.sdk.shards.transport import LEAVE_TIMEOUT_S, AssignmentListener
from rota.sdk.transport.transport import Response
from rota.telemetry import library_logger

log = library_logger("rota.shards")

MOST_UNSENT = 16  # messages that wait for a connection; more are dropped, and repeated later
ERROR_AFTER_UNANSWERED = 3  # messages in a row, and again after as many more
MOST_AT_ONCE = 100  # messages read before the loop serves others
MOST_MESSAGE_BYTES = 64 * 1024 * 1024
RECONNECT_MS = 100
MOST_RECONNECT_MS = 1_000
PING_MS = 5_000  # on an idle connection, to detect a lost peer
PING_TIMEOUT_MS = 10_000


class CurveKeys(Struct, frozen=True, kw_only=True):
    """The keys of CURVE, each forty characters in ZeroMQ's Z85 encoding."""

    public_key: str
    secret_key: str
    server_key: str

    def __repr__(self) -> str:
        return f"<keys of {self.public_key}>"


class ReceivedAssignment(Struct, frozen=True, tag_field="type", tag="assignment"):
    data: AssignmentData


_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[ReceivedAssignment | ErrorMessage] = msgspec.json.Decoder(
    ReceivedAssignment | ErrorMessage
)


class ZeroMqShardTransport:
    def __init__(
        self, addresses: str, keys: CurveKeys | None, listener: AssignmentListener
    ) -> None:
        """Several addresses have commas between them; the worker begins with a random one."""
        self._addresses = [one.strip() for one in addresses.split(",") if one.strip()]
        random.shuffle(self._addresses)
        self._address = (self._addresses or [addresses])[0]
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._linger_ms = 0
        self._unanswered = 0  # messages since the last received one
        self._context: zmq.Context[Any] = zmq.Context()
        try:
            self._socket: zmq.Socket[Any] = self._open(self._address, keys)
        except BaseException:
            self._context.destroy(linger=0)
            raise
        self._file = int(self._socket.getsockopt(zmq.FD))
        self._loop.add_reader(self._file, self._drain)

    def _open(self, address: str, keys: CurveKeys | None) -> zmq.Socket[Any]:
        socket: zmq.Socket[Any] = self._context.socket(zmq.DEALER)
        for option, value in (
            (zmq.LINGER, 0),  # unsent messages to a coordinator left behind must not delay the end
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
                f"cannot connect to {address!r}: {error}; an address is like "
                "tcp://127.0.0.1:5555, and each CURVE key has forty characters"
            ) from None
        return socket

    def send(self, message: MemberCommand) -> None:
        if isinstance(message, LeaveMember):
            self._linger_ms = int(LEAVE_TIMEOUT_S * 1000)
        if self._unanswered and self._unanswered % ERROR_AFTER_UNANSWERED == 0:
            self._listener.note_error(Unavailable(f"no coordinator answers at {self._address}"))
        if self._unanswered and len(self._addresses) > 1:
            self._change_coordinator()
        self._unanswered += 1
        with contextlib.suppress(zmq.Again):  # the queue is full
            self._socket.send(_ENCODER.encode(encode_message(message)), zmq.DONTWAIT)
        # Sending may have consumed the event that there is something to read.
        self._loop.call_soon(self._drain)

    def _change_coordinator(self) -> None:
        """Speak to the next coordinator; unsent messages to this one are dropped."""
        self._addresses = [*self._addresses[1:], self._addresses[0]]
        with contextlib.suppress(zmq.ZMQError):  # libzmq has disconnected by itself
            self._socket.disconnect(self._address)
        self._address = self._addresses[0]
        log.info("coordinator_changed", address=self._address)
        self._socket.connect(self._address)

    async def close(self) -> None:
        self._loop.remove_reader(self._file)
        self._socket.close(self._linger_ms)
        # Waits for the last message off the loop, which goes on serving callbacks.
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
            log.warning("message_unreadable", address=self._address, reason=str(error))
            return
        if isinstance(message, ReceivedAssignment):
            self._listener.receive(message.data)
            return
        problem = {"code": message.data.code, "detail": message.data.message}
        response = Response(500, _ENCODER.encode(problem), {})
        self._listener.note_error(error_of(response, self._address))


def encode_message(message: MemberCommand) -> MemberMessage:
    """A command as a message of the wire."""
    match message:
        case RegisterMember():
            return Register(register_data(message))
        case BeatMember():
            return HeartbeatMessage(heartbeat_data(message))
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
