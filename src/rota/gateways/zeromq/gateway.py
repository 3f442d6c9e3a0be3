"""The ZeroMQ gateway: members of services say how they are, and are told what is theirs.

Theory of operation. One ROUTER socket on the event loop. A message is read, checked and handed to
the coordinator as an event; its answer is sent when the commit is done, together with all others of
that commit. No task is started for a message, and nobody is waited for: a peer that does not
read loses what is said to it (its next beat brings that again) and costs the others nothing. When
too much waits for its commit we stop reading, and the network holds the peers back.

What is no message of ours is counted, logged once in a while and refused. Peers that understand
more than the old protocol are told why; to the others nothing is ever sent but assignments.
"""

import errno
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import structlog
import zmq

from rota.core.shards.events import LeaveMember, MemberEvent
from rota.core.shards.members import Assignment
from rota.engine.coordinator import Coordinator
from rota.engine.shards import ShardReply
from rota.errors import Forbidden, Internal, Malformed, RotaError
from rota.gateways.zeromq import binding
from rota.gateways.zeromq.admission import Doorkeeper
from rota.gateways.zeromq.complaints import Complaints
from rota.gateways.zeromq.connections import Connections
from rota.gateways.zeromq.keyring import Keyring
from rota.gateways.zeromq.peers import Peers
from rota.gateways.zeromq.pump import NOW, NOW_WITH_MORE, Pump
from rota.gateways.zeromq.reading import Reader, hints_at_newer, is_newer_than_old, kind_of
from rota.gateways.zeromq.window import Window
from rota.gateways.zeromq.wording import Words, complaint
from rota.settings import Settings

log = structlog.get_logger("rota.zeromq")

GIVEN_ADDRESS = b"\0"  # how addresses begin that peers have not chosen themselves


def open_gateway(coordinator: Coordinator, settings: Settings) -> "ShardGateway | None":
    """Listen; None: there is to be no ZeroMQ, and the log says why."""
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


class ShardGateway:
    def __init__(self, coordinator: Coordinator, settings: Settings) -> None:
        self._coordinator = coordinator
        self._settings = settings
        self._figures = coordinator.figures().wire
        self._complaints = Complaints()
        keys = settings.zmq_keys
        self._keyring = None if keys is None else Keyring(Path(keys), self._complaints)
        self._peers = Peers(self._figures)
        self._reader = Reader()
        self._words = Words()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = binding.create_socket(self._context, self._keyring)
        self._connections = Connections(
            self._socket, self._figures, handshake_ms=binding.HANDSHAKE_MS
        )
        self._doorkeeper = Doorkeeper(
            self._context,
            self._connections,
            self._keyring,
            most=settings.zmq_max_connections,
            figures=self._figures,
            complaints=self._complaints,
        )
        self._pump: Pump | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self._window: Window | None = None
        self._is_open = True
        self.address = ""

    def bind(self) -> bool:
        """Take the address. Whoever connects from now on is heard after `start`."""
        if not binding.bind(self._socket, self._settings):
            return False
        self.address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")
        return True

    def start(self) -> None:
        """Hear what members say; on the running loop, once the coordinator runs."""
        self._connections.start()
        self._doorkeeper.start()
        self._unsubscribe = self._coordinator.watch_assignments(
            self._push, lambda: len(self._peers) > 0
        )
        self._pump = Pump(self._socket, self._take)
        self._window = Window(self._pump)

    def close(self) -> None:
        """Say and hear nothing any more; members will find us, or another, again."""
        if not self._is_open:
            return
        self._is_open = False
        if self._unsubscribe is not None:
            self._unsubscribe()
        if self._pump is not None and self._window is not None:
            self._pump.close()
            self._window.close()
        self._doorkeeper.close()
        self._connections.close()
        self._socket.close()
        self._context.term()

    # --- hearing --------------------------------------------------------------------------------

    def _take(self) -> None:
        """Take one message off the socket."""
        peer = self._socket.recv(NOW)
        frame = self._socket.recv(NOW, copy=False)
        body = frame.bytes
        try:
            if frame.more:
                raise Malformed(f"a message is one frame of JSON; {1 + self._skip()} came")
            event = self._reader.event_of(body)
            if is_newer_than_old(event):
                self._peers.note_newer(peer)
            if self._keyring is not None:
                _refuse_chosen(peer)
                self._keyring.check(str(frame.get("User-Id")), event.service, event.worker_id)
            self._figures.received[kind_of(event)] += 1
            self._hand_in(peer, event, len(body))
        except RotaError as error:
            self._refuse(peer, error, is_newer=self._peers.is_newer(peer) or hints_at_newer(body))

    def _skip(self) -> int:
        """Take the rest of a message that has too many frames."""
        skipped = 1
        while self._socket.recv(NOW, copy=False).more:
            skipped += 1
        return skipped

    def _hand_in(self, peer: bytes, event: MemberEvent, length: int) -> None:
        assert self._window is not None
        self._coordinator.hear(event, partial(self._answer, peer, event, length))
        self._window.enter(length)

    # --- saying ---------------------------------------------------------------------------------

    def _answer(
        self, peer: bytes, event: MemberEvent, length: int, reply: ShardReply | Exception
    ) -> None:
        """An event was committed, or was not."""
        if not self._is_open or self._window is None:
            return
        self._window.leave(length)
        key = event.service, event.worker_id
        if isinstance(reply, Assignment):
            if reply.status == "ok":
                self._peers.note_address(key, peer)
            if not reply.is_pending:
                self._tell(peer, reply)
        elif isinstance(reply, Exception):
            # Others than our own errors are logged by the engine, which made them.
            told = reply if isinstance(reply, RotaError) else Internal("see the coordinator's log")
            self._refuse(peer, told, is_newer=is_newer_than_old(event))
        elif isinstance(event, LeaveMember):
            self._peers.forget_member(key, peer)

    def _push(self, pushes: Sequence[Assignment]) -> None:
        """What members have has changed: those that are here are told."""
        for one in pushes:
            peer = self._peers.address((one.service, one.worker_id))
            if peer is not None and self._is_open:
                self._tell(peer, one)

    def _tell(self, peer: bytes, assignment: Assignment) -> None:
        if not self._send(peer, self._words.telling(assignment)):
            self._peers.forget_member((assignment.service, assignment.worker_id), peer)

    def _refuse(self, peer: bytes, error: RotaError, *, is_newer: bool) -> None:
        self._figures.refused[error.code] += 1
        self._complaints.about("message refused", code=error.code, problem=error.detail)
        if is_newer:
            self._send(peer, complaint(error.code, error.detail))

    def _send(self, peer: bytes, message: bytes) -> bool:
        """Send, or drop when the peer has too much to read already; False: it is gone."""
        pump = self._pump
        assert pump is not None
        pump.look_soon()  # a send may have taken the note that there is something to read
        try:
            self._begin(peer)
        except zmq.ZMQError as error:
            if error.errno not in (errno.EAGAIN, errno.EHOSTUNREACH):
                raise
            self._figures.dropped += 1
            if error.errno == errno.EAGAIN:
                return True
            self._peers.forget_connection(peer)
            return False
        self._socket.send(message, NOW)
        self._figures.sent += 1
        return True

    def _begin(self, peer: bytes) -> None:
        try:
            self._socket.send(peer, NOW_WITH_MORE)
        except zmq.Again:
            # The library looks only now and then whether the peer has read something. This makes
            # it look.
            self._socket.getsockopt(zmq.EVENTS)
            self._socket.send(peer, NOW_WITH_MORE)


def _refuse_chosen(peer: bytes) -> None:
    """Who has a key needs no name; one that it chose could be meant to be somebody else's."""
    if not peer.startswith(GIVEN_ADDRESS):
        raise Forbidden("a client with a key must not choose its routing id")
