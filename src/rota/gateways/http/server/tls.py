"""TLS on a connection: a protocol to the plain transport below, a transport to the protocol above.

The event loop's own TLS transport hides what waits below it for a peer that does not read, cannot
half-close, and ends a close after a fixed time. The server's limits on peers that do not read would
not hold on it, and slow readers would lose the end of their answers. Here, flow control and the
size of the write buffer are those of the plain transport: everything that is written is encrypted
and handed down at once. So a connection has the same limits with and without TLS.

A handshake is limited before the caller is known: by its time, and by how many of them one address
has under way, silent connections included. A caller that speaks plain HTTP is told so in plain
HTTP.
"""

import asyncio
import contextlib
import functools
import ssl
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, ClassVar, cast

import structlog

from rota.core import limits
from rota.errors import Invalid
from rota.gateways.http.server.connection import OpenConnections, refusal_of
from rota.gateways.http.server.transport import LINGER_S
from rota.gateways.quotas import Quota, Reservation, address_of_host
from rota.settings import Settings
from rota.tls import server_context

log = structlog.get_logger("rota.tls")

HANDSHAKE = 0x16  # the first byte of a TLS connection
READ_BYTES = 64 * 1024  # asked for at once; a record has at most 16 KiB


class ServerTls:
    """The certificate of a server, and the handshakes under way on it."""

    def __init__(self, load: Callable[[], ssl.SSLContext]) -> None:
        """`load` reads the certificate and its key; `reload` calls it again."""
        self._load = load
        self.context = load()
        self.handshakes = Quota(
            "TLS handshakes",
            limits.MAX_TLS_HANDSHAKES,
            share=limits.MAX_TLS_HANDSHAKES_OF_ADDRESS,
            name="MAX_TLS_HANDSHAKES",
        )

    def reload(self) -> None:
        """Read the certificate again, for new connections; one that cannot be used is not taken."""
        try:
            self.context = self._load()
        except Invalid as error:
            log.error("certificate_not_reloaded", error=error.detail)  # noqa: TRY400 - no trace
        else:
            log.info("certificate_reloaded")


def open_tls(settings: Settings) -> ServerTls | None:
    """The certificate of a coordinator with these settings; None: it serves without TLS."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return ServerTls(functools.partial(server_context, settings.tls_cert, settings.tls_key))


class TlsState(Enum):
    SILENT = auto()  # nothing has arrived
    HANDSHAKE = auto()
    OPEN = auto()
    ENDING = auto()  # nothing more is written, and what arrives is discarded


class TlsConnection(asyncio.Protocol, asyncio.Transport):
    """A TLS connection; the protocol above it is made when the handshake is complete."""

    handshake_s: ClassVar[float] = limits.TLS_HANDSHAKE_MS / 1000

    def __init__(
        self,
        tls: ServerTls,
        create_protocol: Callable[[], asyncio.Protocol],
        open_connections: OpenConnections,
    ) -> None:
        super().__init__()
        self._server = tls
        self._create_protocol = create_protocol
        self._open = open_connections
        self._loop = asyncio.get_running_loop()
        self._state = TlsState.SILENT
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._reservation: Reservation | None = None  # until the handshake is complete
        self._timer: asyncio.TimerHandle | None = None
        self._is_read_paused = False
        self._is_delivery_due = False
        self._transport: asyncio.Transport  # the plain one; set when the connection is made
        self._tls: ssl.SSLObject  # set when the handshake begins
        self._protocol: asyncio.Protocol | None = None

    # --- the connection below -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name
        peer = transport.get_extra_info("peername")
        address = address_of_host(str(peer[0]) if isinstance(peer, tuple) else None)
        self._reservation = Reservation(address)
        self._open.add(self)
        if self._reservation.try_take(self._server.handshakes):
            self._timer = self._loop.call_later(
                self.handshake_s, self._fail, f"not complete within {self.handshake_s:g} s"
            )
        else:
            self._fail("too many handshakes of this address, or of all")

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave_handshake()
        self._state = TlsState.ENDING
        if self._protocol is not None:
            self._protocol.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._state is TlsState.ENDING:
            return
        if self._state is TlsState.SILENT and not self._begin(data[0]):
            return
        self._incoming.write(data)
        if self._state is TlsState.OPEN or self._advance_handshake():
            self._deliver()

    def eof_received(self) -> None:
        """The peer sends no more; the plain transport closes itself."""
        self._state = TlsState.ENDING
        if self._protocol is not None:
            self._protocol.eof_received()

    def pause_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.resume_writing()

    # --- the handshake --------------------------------------------------------------------------

    def _begin(self, first: int) -> bool:
        if first == HANDSHAKE:
            self._state = TlsState.HANDSHAKE
            self._tls = self._server.context.wrap_bio(
                self._incoming, self._outgoing, server_side=True
            )
            return True
        # The socket is read on for a moment: one that is closed with unread data is reset, and the
        # answer may be lost.
        self._state = TlsState.ENDING
        self._transport.write(_not_tls())
        self._transport.write_eof()
        self._stop_timer()
        self._timer = self._loop.call_later(LINGER_S, self.abort)
        return False

    def _advance_handshake(self) -> bool:
        """Go on with the handshake; True: it is complete, and the protocol above is connected."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except OSError as error:
            self._note_failure(str(error))
            self._flush()  # the alert for the peer
            self._transport.close()
            return False
        self._flush()
        self._leave_handshake()
        self._state = TlsState.OPEN
        self._protocol = self._create_protocol()
        self._protocol.connection_made(self)
        return True

    def _fail(self, reason: str) -> None:
        self._note_failure(reason)
        self._transport.abort()

    def _note_failure(self, reason: str) -> None:
        address = "" if self._reservation is None else self._reservation.holder
        log.debug("tls_handshake_failed", address=address, error=reason)
        self._state = TlsState.ENDING

    def _leave_handshake(self) -> None:
        self._stop_timer()
        self._open.drop(self)
        if self._reservation is not None:
            self._reservation.end()
            self._reservation = None

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def shutdown(self) -> None:
        """End a connection whose handshake is not complete, because the server stops."""
        self._transport.abort()

    # --- reading --------------------------------------------------------------------------------

    def _deliver(self) -> None:
        """Give the protocol what has arrived, until it pauses reading."""
        protocol = self._protocol
        while protocol is not None and self._state is TlsState.OPEN and not self._is_read_paused:
            try:
                data = self._tls.read(READ_BYTES)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                data = b""
            except ssl.SSLError as error:
                log.debug("tls_record_refused", error=str(error))
                self._flush()
                self._transport.abort()
                return
            if not data:  # the peer has closed its side
                protocol.eof_received()
                self.close()
                return
            protocol.data_received(data)
            protocol = self._protocol  # it may have handed over to another
        self._flush()  # what TLS itself answers

    def _deliver_later(self) -> None:
        self._is_delivery_due = False
        self._deliver()

    def is_reading(self) -> bool:
        return not self._is_read_paused and not self.is_closing()

    def pause_reading(self) -> None:
        self._is_read_paused = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._is_read_paused = False
        self._transport.resume_reading()
        # Not at once: the protocol may be in the midst of what it has received.
        has_input = self._incoming.pending or self._tls.pending()
        if has_input and self._state is TlsState.OPEN and not self._is_delivery_due:
            self._is_delivery_due = True
            self._loop.call_soon(self._deliver_later)

    # --- writing --------------------------------------------------------------------------------

    def write(self, data: "bytes | bytearray | memoryview[Any]") -> None:
        if self._state is not TlsState.OPEN or self._transport.is_closing():
            return
        left = memoryview(data)
        try:
            while left:
                left = left[self._tls.write(left) :]
        except ssl.SSLError as error:
            log.debug("tls_record_not_written", error=str(error))
            self._transport.abort()
            return
        self._flush()

    def _flush(self) -> None:
        if self._outgoing.pending and not self._transport.is_closing():
            self._transport.write(self._outgoing.read())

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._transport.get_write_buffer_limits()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Send the last word of TLS and half-close; what still arrives is discarded."""
        if self._send_close():
            self._transport.write_eof()

    def _send_close(self) -> bool:
        """Tell the peer that nothing follows; False: that has been done."""
        if self._state is not TlsState.OPEN:
            return False
        self._state = TlsState.ENDING
        with contextlib.suppress(ssl.SSLError):  # the peer's own close is not waited for
            self._tls.unwrap()
        self._flush()
        return True

    # --- ending ---------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._send_close()
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    # --- what else a transport has --------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "ssl_object":
            return self._tls
        return self._transport.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = cast("asyncio.Protocol", protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol


@functools.cache
def _not_tls() -> bytes:
    return refusal_of(Invalid("this port speaks TLS: call it with https://, or wss://"))
