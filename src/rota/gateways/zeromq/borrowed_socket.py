"""A socket object on the descriptor of a connection that belongs to libzmq.

The descriptor is read and shut down here, and never closed. libzmq may close it at any moment, and
its number may then be in use for something else. So the two ends of the connection are compared
before anything is changed.
"""

import fcntl
import socket
import struct
import sys
import termios
from contextlib import suppress

IS_AVAILABLE = sys.platform == "linux"

TCP = int(socket.IPPROTO_TCP)
TCP_INFO = int(socket.TCP_INFO) if IS_AVAILABLE else 0
# Of the kernel's struct tcp_info: tcpi_bytes_received and tcpi_notsent_bytes.
COUNTS = struct.Struct("=Q8xI")
COUNTS_AT = 128
INFO_BYTES = COUNTS_AT + COUNTS.size
UNREAD = struct.Struct("=i")

MOST_DISCARDED_BYTES = 4 * 1024 * 1024  # more than the kernel holds; discarded, not copied

RESET = struct.pack("ii", 1, 0)  # SO_LINGER: on, for no time


class BorrowedSocket(socket.socket):
    """One connection; making the object is dear, so it is kept as long as the connection."""

    def __init__(self, descriptor: int) -> None:
        """Borrow a descriptor; `OSError`: it is closed."""
        # With all three given, nothing else is asked of the descriptor; the addresses of IPv6 are
        # the longest, and those of IPv4 are read as well.
        super().__init__(socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=descriptor)

    def __del__(self) -> None:
        self.detach()  # the descriptor stays libzmq's to close

    def counts(self) -> tuple[int | None, int]:
        """Ask the kernel for the bytes received in all, and for those that it could not send yet.

        None: the connection is gone, or this system does not count (Linux does since 4.6).
        """
        if not IS_AVAILABLE:
            return None, 0
        try:
            info = self.getsockopt(TCP, TCP_INFO, INFO_BYTES)
            return COUNTS.unpack_from(info, COUNTS_AT)
        except (OSError, struct.error):
            return None, 0

    def unread_bytes(self) -> int:
        """Ask the kernel for the bytes that libzmq has not read yet."""
        try:
            answer = fcntl.ioctl(self.fileno(), termios.FIONREAD, bytes(UNREAD.size))
        except OSError:
            return 0
        unread: int = UNREAD.unpack(answer)[0]
        return unread

    def peer_address(self, port: int) -> str | None:
        """The address of the peer; None: this is, by now, no connection to that port."""
        try:
            here, there = self.getsockname(), self.getpeername()
        except OSError:
            return None
        if not isinstance(here, tuple) or not isinstance(there, tuple) or here[1] != port:
            return None
        return f"{there[0]}:{there[1]}"

    def reset(self) -> None:
        """End the connection; libzmq notices, and closes the descriptor."""
        with suppress(OSError):
            # The peer is reset: a flood that is only half closed would wait for us to read on.
            self.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            self.shutdown(socket.SHUT_RDWR)
            # What was received would still be read, and with small frames take much memory. In one
            # call, so that libzmq does not go on in the middle.
            self.recv(MOST_DISCARDED_BYTES, socket.MSG_TRUNC | socket.MSG_DONTWAIT)
