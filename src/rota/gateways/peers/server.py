"""The leader's end of a link: an HTTP connection that asks for an upgrade, up to its open link."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from rota.engine.metrics.links import LinkMetrics
from rota.engine.replicas.link.codec import LeaderCodec
from rota.engine.replicas.link.frames import LeaderFrame, OnFollowerFrame, OnLost, PeerConnection
from rota.errors import MethodNotAllowed, NotFound
from rota.gateways.http.server.connection import OpenConnections
from rota.gateways.http.server.exchange import RequestHead
from rota.gateways.peers.handshake import (
    MAX_HANDSHAKE_BYTES,
    AcceptorHandshake,
    LinkRefused,
    Refusal,
    unproven_refusal,
)
from rota.gateways.peers.link import DEFAULT_LIMITS, LinkLimits, PeerLink
from rota.gateways.peers.messages import MessageReader, MessageTooLong, with_length
from rota.gateways.quotas import Quota, Reservation, address_of_host
from rota.gateways.throttled_log import ThrottledLog

log = structlog.get_logger("rota.peers")

PEER_PATH = "/internal/peer"
UPGRADE = b"rota-peer/1"  # the name of the protocol in the header fields
HANDSHAKE_S = 5.0
SWITCHING = (
    b"HTTP/1.1 101 Switching Protocols\r\nupgrade: %b\r\nconnection: Upgrade\r\n\r\n" % UPGRADE
)

Accept = Callable[[str, PeerConnection[LeaderFrame]], tuple[OnFollowerFrame, OnLost]]


@dataclass(frozen=True, slots=True)
class PeerGate:
    """What a coordinator decides about the links that it is asked for."""

    name: str  # of this coordinator
    secret: Callable[[], bytes | None]  # of the store; None: not known yet
    is_leading: Callable[[], int | None]  # the epoch at which this coordinator leads, if it does
    accept: Accept  # takes the name of a follower, and its link
    handshakes: Quota  # the open handshakes, by address
    link_limits: LinkLimits = DEFAULT_LIMITS
    handshake_s: float = HANDSHAKE_S
    links: LinkMetrics = field(default_factory=LinkMetrics)
    refusals: ThrottledLog = field(default_factory=lambda: ThrottledLog(log))


class PeerProtocol(asyncio.Protocol):
    """A connection in its handshake. It ends with the link, or with a refusal."""

    def __init__(
        self, head: RequestHead, open_connections: OpenConnections, *, gate: PeerGate
    ) -> None:
        """Raises a `RotaError` when the request is not for a link."""
        secret = gate.secret()
        if head.path != PEER_PATH or not secret:
            raise NotFound(f"path {head.path!r} not found", path=head.path)
        if head.method != "GET":
            text = f"a link is opened with GET, not {head.method}"
            raise MethodNotAllowed(text, path=head.path, allowed=["GET"])
        client = head.endpoints.client
        self._address = address_of_host(client and client[0])
        self._reservation = Reservation(self._address)
        self._reservation.take(gate.handshakes)
        self._gate = gate
        self._open = open_connections
        self._handshake = AcceptorHandshake(secret, gate.name)
        self._reader = MessageReader(MAX_HANDSHAKE_BYTES)
        self._timer: asyncio.TimerHandle
        self._transport: asyncio.Transport

    def take_over(self, transport: asyncio.Transport, data: bytes) -> None:
        """Go on with an HTTP connection; the peer must not have sent anything yet."""
        self._transport = transport
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._gate.handshake_s, self._expire)
        self._open.add(self)
        transport.set_protocol(self)
        transport.write(SWITCHING + with_length(self._handshake.challenge()))
        transport.resume_reading()  # the request may have waited for its turn
        if data:
            self.data_received(data)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            message = self._reader.take()
            if message is not None:
                self._answer(message)
        except MessageTooLong:
            self._refuse("malformed", unproven_refusal("malformed"))
        except LinkRefused as refused:
            self._refuse(refused.reason, unproven_refusal(refused.reason))

    def _answer(self, message: bytes) -> None:
        """Answer the only message of the peer, and open the link if it is wanted."""
        epoch = self._gate.is_leading()
        hello, verdict = self._handshake.answer(message, epoch)
        if epoch == hello.epoch:
            self._open_link(hello.name, verdict)
        else:
            self._refuse("not_leader", verdict, hello.name)

    def _open_link(self, name: str, verdict: bytes) -> None:
        link = PeerLink(
            self._transport,
            LeaderCodec(self._gate.link_limits.message_bytes),
            name,
            stops_reading_when_full=True,
            link_limits=self._gate.link_limits,
            links=self._gate.links,
        )
        on_frame, on_lost = self._gate.accept(name, link)

        # The server's stop leaves the link open: followers go on until the leader has resigned.
        self._end()
        self._transport.write(with_length(verdict))
        link.start(on_frame, on_lost, self._reader.take_rest())

    def _refuse(self, reason: Refusal, verdict: bytes, name: str | None = None) -> None:
        self._gate.refusals.warn("peer_refused", code=reason, address=self._address, peer=name)
        self._transport.write(with_length(verdict))
        self._transport.close()

    def _expire(self) -> None:
        self._gate.refusals.warn("peer_refused", code="late", address=self._address, peer=None)
        self._transport.abort()

    # --- ending ---------------------------------------------------------------------------------

    def _end(self) -> None:
        """The handshake is over."""
        self._timer.cancel()
        self._reservation.end()
        self._open.drop(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's form
        self._end()

    def shutdown(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()
