"""The ZeroMQ gateway: heartbeats of the members of services, and their assignments.

Theory of operation. One ROUTER socket on the command loop. A message is read, checked and handed to
the coordinator as a command; its answer is sent when the commit is done, together with all others
of that commit. The gateway starts no task for a message and waits for no peer: a peer that does not
read loses what it is sent (its next heartbeat is answered with the same) and costs the others
nothing. When too much waits for its commit the gateway stops reading, and the network holds the
peers back.

A message that is not valid is counted, logged once in a while and refused. Peers that understand
more than the old protocol are sent the reason; the others are sent nothing but assignments.
"""

import errno
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec
import structlog
import zmq

from rota.core.shards.commands import LeaveMember, MemberCommand, ShardReply
from rota.core.shards.members import Assignment
from rota.engine.coordinator import Coordinator
from rota.engine.topics import Assignments
from rota.errors import Forbidden, Malformed, RotaError
from rota.gateways.errors import presentable
from rota.gateways.throttled_log import ThrottledLog
from rota.gateways.zeromq import binding
from rota.gateways.zeromq.address_book import AddressBook
from rota.gateways.zeromq.auth.authenticator import ZapAuthenticator
from rota.gateways.zeromq.auth.keyring import Keyring
from rota.gateways.zeromq.byte_meter import ByteMeter
from rota.gateways.zeromq.connections import Connections
from rota.gateways.zeromq.decoder import MessageDecoder, is_newer_than_old, kind_of, seems_newer
from rota.gateways.zeromq.descriptors import ListenerGuard
from rota.gateways.zeromq.encoder import AssignmentEncoder, error_message
from rota.gateways.zeromq.flow_control import FlowControl
from rota.gateways.zeromq.peer_account import wire_bytes
from rota.gateways.zeromq.poller import NOW, NOW_WITH_MORE, SocketPoller
from rota.settings import Settings

log = structlog.get_logger("rota.zeromq")

MOST_SKIPPED_AT_ONCE = 64  # frames of a message that is refused for having too many
GIVEN_ADDRESS = b"\0"  # the first byte of addresses that libzmq has chosen


def open_gateway(coordinator: Coordinator, settings: Settings) -> "ShardGateway | None":
    """Listen; None: ZeroMQ is disabled, and the log has the reason."""
    binding.refuse_unsafe_binding(settings)
    if not binding.is_wanted(settings):
        return None
    gateway = ShardGateway(coordinator, settings)
    try:
        is_bound = gateway.bind()
    except BaseException:
        gateway.close()
        raise
    if not is_bound:
        gateway.close()
        return None
    return gateway


class OversizedMessage:
    """A message with more frames than one, of which some were read."""

    __slots__ = ("body", "descriptor", "frames", "length", "peer")

    def __init__(self, peer: bytes, body: bytes, descriptor: int, length: int) -> None:
        self.peer = peer
        self.body = body  # the first frame
        self.descriptor = descriptor
        self.length = length  # of its frames on the wire
        self.frames = 1


class ShardGateway:
    def __init__(self, coordinator: Coordinator, settings: Settings) -> None:
        self._coordinator = coordinator
        self._settings = settings
        self._metrics = coordinator.metrics().wire
        self._throttled_log = ThrottledLog(log)
        keys = settings.zmq_keys
        self._keyring = None if keys is None else Keyring(Path(keys), self._throttled_log)
        self._address_book = AddressBook(self._metrics)
        self._decoder = MessageDecoder()
        self._encoder = AssignmentEncoder()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = binding.create_socket(self._context, self._keyring)
        self._meter = ByteMeter(
            self._metrics.dropped_peers,
            self._throttled_log,
            most_bytes=binding.MAX_UNFINISHED_BYTES,
            most_total_bytes=binding.MAX_UNFINISHED_BYTES_TOTAL,
            most_growth_bytes=binding.MAX_UNFINISHED_GROWTH_BYTES,
            most_message_s=max(binding.MAX_MESSAGE_MS, settings.shard_lease_ms) / 1000,
            most_silence_s=max(binding.MAX_SILENCE_MS, 2 * settings.shard_lease_ms) / 1000,
        )
        self._connections = Connections(
            self._socket, self._metrics, self._meter, handshake_ms=binding.HANDSHAKE_MS
        )
        self._listener_guard: ListenerGuard | None = None
        self._zap = ZapAuthenticator(
            self._context,
            self._connections,
            self._keyring,
            most=settings.zmq_max_connections,
            metrics=self._metrics,
            throttled_log=self._throttled_log,
        )
        self._poller: SocketPoller | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self._flow_control: FlowControl | None = None
        self._oversized: OversizedMessage | None = None
        self._is_open = True
        self.address = ""

    def bind(self) -> bool:
        """Take the address. Messages are read after `start`."""
        listening = binding.listen(self._settings)
        if listening is None:
            return False
        self._listener_guard = ListenerGuard(listening, self._metrics, self._throttled_log)
        self.address = binding.bind(self._socket, listening)
        return True

    def start(self) -> None:
        """Start reading; on the running loop, once the coordinator runs."""
        assert self._listener_guard is not None
        self._poller = SocketPoller(self._socket, self._take)
        self._flow_control = FlowControl(self._poller)
        self._meter.start(self._listener_guard.port, self._poller.is_behind)
        self._listener_guard.start()
        self._connections.start()
        self._zap.start()
        self._unsubscribe = self._coordinator.subscribe(Assignments(self._push))

    def close(self) -> None:
        """Stop, and close the socket; members connect again, here or elsewhere."""
        if not self._is_open:
            return
        self._is_open = False
        if self._unsubscribe is not None:
            self._unsubscribe()
        if self._poller is not None and self._flow_control is not None:
            self._poller.close()
            self._flow_control.close()
        if self._listener_guard is not None:
            self._listener_guard.close()
        self._meter.close()
        self._zap.close()
        self._connections.close()
        self._socket.close()
        self._context.term()

    # --- receiving ------------------------------------------------------------------------------

    def _take(self) -> None:
        """Take one message off the socket, or go on with one that has too many frames."""
        if self._oversized is not None:
            self._skip_frames(self._oversized)
            return
        peer = self._socket.recv(NOW)
        frame = self._socket.recv(NOW, copy=False)
        body = frame.bytes
        descriptor = int(frame.get(zmq.SRCFD))
        length = wire_bytes(len(body), is_encrypted=self._keyring is not None)
        if frame.more:
            self._oversized = OversizedMessage(peer, body, descriptor, length)
            self._skip_frames(self._oversized)
            return
        self._meter.note_message(descriptor, peer, length)
        try:
            command = self._decoder.decode(body)
            if is_newer_than_old(command):
                self._address_book.note_newer(peer)
            if self._keyring is not None:
                _refuse_chosen_address(peer)
                public = str(frame.get("User-Id"))
                by = self._keyring.check(public, command.service, command.worker_id)
                command = msgspec.structs.replace(command, by=by)
            self._metrics.received[kind_of(command)] += 1
            self._execute(peer, command, len(body))
        except RotaError as error:
            self._refuse(
                peer, error, is_newer=self._address_book.is_newer(peer) or seems_newer(body)
            )

    def _skip_frames(self, message: "OversizedMessage") -> None:
        """Skip some frames of an oversized message; the loop runs in between."""
        for _ in range(MOST_SKIPPED_AT_ONCE):
            message.frames += 1
            if message.frames == binding.MAX_MESSAGE_FRAMES:
                self._meter.drop(message.descriptor, "too_many_frames")
            frame = self._socket.recv(NOW, copy=False)
            message.length += wire_bytes(len(frame), is_encrypted=self._keyring is not None)
            if not frame.more:
                break
        else:
            return
        self._oversized = None
        self._meter.note_message(message.descriptor, message.peer, message.length)
        error = Malformed(f"a message must be one frame of JSON, not {message.frames}")
        is_newer = self._address_book.is_newer(message.peer) or seems_newer(message.body)
        self._refuse(message.peer, error, is_newer=is_newer)

    def _execute(self, peer: bytes, command: MemberCommand, length: int) -> None:
        assert self._flow_control is not None
        self._coordinator.execute(command, on_reply=partial(self._answer, peer, command, length))
        self._flow_control.enter(length)

    # --- sending --------------------------------------------------------------------------------

    def _answer(
        self, peer: bytes, command: MemberCommand, length: int, reply: ShardReply | Exception
    ) -> None:
        """Answer a command that was committed, or refused."""
        if not self._is_open or self._flow_control is None:
            return
        self._flow_control.leave(length)
        key = command.service, command.worker_id
        if isinstance(reply, Assignment):
            if reply.status == "ok":
                self._address_book.note_address(key, peer)
            if not reply.is_pending:
                self._send_assignment(peer, reply)
        elif isinstance(reply, Exception):
            # The engine has logged its own failure.
            self._refuse(peer, presentable(reply), is_newer=is_newer_than_old(command))
        elif isinstance(command, LeaveMember):
            self._address_book.forget_member(key, peer)

    def _push(self, pushes: Sequence[Assignment]) -> None:
        """Send changed assignments to the members whose address is known."""
        for one in pushes:
            peer = self._address_book.address((one.service, one.worker_id))
            if peer is not None and self._is_open:
                self._send_assignment(peer, one)

    def _send_assignment(self, peer: bytes, assignment: Assignment) -> None:
        if not self._send(peer, self._encoder.encode(assignment)):
            self._address_book.forget_member((assignment.service, assignment.worker_id), peer)

    def _refuse(self, peer: bytes, error: RotaError, *, is_newer: bool) -> None:
        self._metrics.refused[error.code] += 1
        self._throttled_log.warn("message_refused", code=error.code, problem=error.detail)
        if is_newer:
            self._send(peer, error_message(error.code, error.detail))

    def _send(self, peer: bytes, message: bytes) -> bool:
        """Send, or drop when the peer has too much to read already; False: it is gone."""
        poller = self._poller
        assert poller is not None
        poller.poll_soon()  # a send may have cleared the signal that there is something to read
        try:
            self._send_address(peer)
        except zmq.ZMQError as error:
            if error.errno not in (errno.EAGAIN, errno.EHOSTUNREACH):
                raise
            self._metrics.dropped += 1
            if error.errno == errno.EAGAIN:
                return True
            self._address_book.forget_connection(peer)
            return False
        self._socket.send(message, NOW)
        self._metrics.sent += 1
        return True

    def _send_address(self, peer: bytes) -> None:
        try:
            self._socket.send(peer, NOW_WITH_MORE)
        except zmq.Again:
            # libzmq checks only now and then whether the peer has read something; EVENTS makes it.
            self._socket.getsockopt(zmq.EVENTS)
            self._socket.send(peer, NOW_WITH_MORE)


def _refuse_chosen_address(peer: bytes) -> None:
    """Refuse a routing id that a client with a key chose: it could be that of another client."""
    if not peer.startswith(GIVEN_ADDRESS):
        raise Forbidden("a client with a key must not choose its routing id")
