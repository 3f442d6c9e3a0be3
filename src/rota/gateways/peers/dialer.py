"""The follower's end of a link: connects to the leader, and shakes hands with it."""

import asyncio
import ssl
from typing import Any, cast
from urllib.parse import urlsplit

from rota.engine.metrics.links import LinkMetrics
from rota.engine.replicas.link.codec import FollowerCodec
from rota.engine.replicas.link.frames import FollowerFrame, LeaderFrame, OnLeaderFrame, OnLost
from rota.gateways.peers.handshake import MAX_HANDSHAKE_BYTES, DialerHandshake, LinkRefused
from rota.gateways.peers.link import DEFAULT_LIMITS, LinkLimits, PeerLink
from rota.gateways.peers.messages import MessageReader, MessageTooLong, with_length
from rota.gateways.peers.server import PEER_PATH, UPGRADE

DIAL_S = 2.0
HEAD_END = b"\r\n\r\n"
SWITCHING_LINE = b"HTTP/1.1 101 "
DEFAULT_PORTS = {"http": 80, "https": 443}

FollowerLink = PeerLink[FollowerFrame, LeaderFrame]


async def dial(
    address_url: str,
    *,
    secret: bytes,
    name: str,
    epoch: int,
    tls: ssl.SSLContext | None,
    on_frame: OnLeaderFrame,
    on_lost: OnLost,
    timeout_s: float = DIAL_S,
    link_limits: LinkLimits = DEFAULT_LIMITS,
    links: LinkMetrics | None = None,
) -> FollowerLink:
    """Open a link to the coordinator that is taken for the leader at `epoch`.

    Raises `LinkRefused`, or `OSError` when the coordinator cannot be reached in time. `on_lost` is
    called only for a link that was opened.
    """
    host, port, authority = _split(address_url)
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(timeout_s):
        _, dialing = await loop.create_connection(
            lambda: DialProtocol(authority, DialerHandshake(secret, name, epoch)),
            host,
            port,
            ssl=tls,
            server_hostname=host if tls is not None else None,
        )
        try:
            peer, transport, rest = await dialing.opened
        except BaseException:
            dialing.abort()
            raise
    if transport.is_closing():
        raise ConnectionResetError("lost at the end of the handshake")
    codec = FollowerCodec(link_limits.message_bytes)
    link = FollowerLink(
        transport,
        codec,
        peer,
        stops_reading_when_full=False,
        link_limits=link_limits,
        links=links,
    )
    link.start(on_frame, on_lost, rest)
    return link


def _split(address_url: str) -> tuple[str, int, bytes]:
    """The host and the port of a coordinator, and both as the request names them."""
    try:
        parts = urlsplit(address_url)
        port = parts.port or DEFAULT_PORTS[parts.scheme]
        authority = parts.netloc.rpartition("@")[2].encode("ascii")
    except (KeyError, ValueError) as error:
        raise LinkRefused("not_a_peer", f"{address_url!r} is not an address") from error
    return parts.hostname or "", port, authority


class DialProtocol(asyncio.Protocol):
    """A connection in its handshake; `opened` has the peer's name once it is over."""

    def __init__(self, authority: bytes, handshake: DialerHandshake) -> None:
        self._authority = authority
        self._handshake = handshake
        self._head = b""
        self._reader: MessageReader | None = None  # None: the upgrade is not answered yet
        self._is_answered = False  # the challenge
        self._transport: asyncio.Transport
        self.opened: asyncio.Future[tuple[str, asyncio.Transport, bytes]] = (
            asyncio.get_running_loop().create_future()
        )
        self.opened.add_done_callback(_retrieve)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's does not inherit from it
        request = b"GET %b HTTP/1.1\r\nhost: %b\r\nconnection: Upgrade\r\nupgrade: %b\r\n\r\n" % (
            PEER_PATH.encode(),
            self._authority,
            UPGRADE,
        )
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        try:
            if self._reader is None:
                data = self._take_head(data)
            if self._reader is not None:
                self._reader.feed(data)
                self._take_messages(self._reader)
        except MessageTooLong as error:
            self._fail(LinkRefused("malformed", str(error)))
        except LinkRefused as error:
            self._fail(error)

    def _take_head(self, data: bytes) -> bytes:
        """Take the answer to the upgrade; return what is behind it."""
        self._head += data
        head, end, rest = self._head.partition(HEAD_END)
        if not end:
            if len(self._head) > MAX_HANDSHAKE_BYTES:
                raise LinkRefused("not_a_peer", "no answer to an upgrade")
            return b""
        if not head.startswith(SWITCHING_LINE):
            line = head.partition(b"\r\n")[0].decode("latin-1")
            raise LinkRefused("not_a_peer", f"the upgrade was answered with {line[:100]!r}")
        self._reader = MessageReader(MAX_HANDSHAKE_BYTES)
        return rest

    def _take_messages(self, reader: MessageReader) -> None:
        while not self.opened.done() and (message := reader.take()) is not None:
            if not self._is_answered:
                self._is_answered = True
                self._transport.write(with_length(self._handshake.hello(message)))
                continue
            peer = self._handshake.conclude(message)
            # Nothing more is read before the link has taken over.
            self._transport.pause_reading()
            self.opened.set_result((peer, self._transport, reader.take_rest()))

    def _fail(self, error: Exception) -> None:
        if not self.opened.done():
            self.opened.set_exception(error)
        self._transport.abort()

    def abort(self) -> None:
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.opened.done():
            self.opened.set_exception(exc or ConnectionResetError("closed in the handshake"))


def _retrieve(opened: "asyncio.Future[Any]") -> None:
    """Mark the error of a dialer that no longer waits as known."""
    if not opened.cancelled():
        opened.exception()
