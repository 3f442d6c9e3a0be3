"""Peers that speak ZMTP by hand, to say what no library would; and what a process uses."""

import os
import socket
import time
from pathlib import Path

TIMEOUT_S = 30.0
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
READY = b"\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"
PING, PONG = b"\x04PING\x00\x00", b"\x04PONG"
MORE, LONG, COMMAND = 0x01, 0x02, 0x04
SHORT_BYTES = 255


def frame(body: bytes, *, flags: int = 0) -> bytes:
    if len(body) <= SHORT_BYTES:
        return bytes((flags, len(body))) + body
    return bytes((flags | LONG,)) + len(body).to_bytes(8) + body


def connect(address: str, *, receive_buffer_bytes: int | None = None) -> socket.socket:
    """Connect and shake hands, so that messages may follow."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    plug = socket.socket()
    plug.settimeout(TIMEOUT_S)
    if receive_buffer_bytes is not None:
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    plug.connect((host, int(port)))
    plug.sendall(GREETING + frame(READY, flags=COMMAND))
    length = _read(plug, len(GREETING) + 2)[-1]
    _read(plug, length)
    return plug


def _read(plug: socket.socket, length: int) -> bytes:
    heard = b""
    while len(heard) < length:
        some = plug.recv(length - len(heard))
        assert some, "the connection was ended"
        heard += some
    return heard


def flood(plug: socket.socket, data: bytes, *, most_bytes: int) -> int:
    """Send the same again and again until the other end hangs up; the bytes that were taken."""
    sent = 0
    try:
        while sent < most_bytes:
            plug.sendall(data)
            sent += len(data)
    except TimeoutError:
        raise AssertionError(f"nothing is read after {sent} bytes") from None
    except OSError:
        pass
    return sent


def is_ended(plug: socket.socket) -> bool:
    """Wait for the end of a connection."""
    try:
        while plug.recv(65_536):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


def ping(plug: socket.socket) -> bool:
    """Ping until the other end hangs up; False: it still answers after a long time."""
    end_s = time.monotonic() + TIMEOUT_S
    try:
        while time.monotonic() < end_s:
            plug.sendall(frame(PING, flags=COMMAND))
            if not plug.recv(len(frame(PONG))):
                return True
    except OSError:
        return True
    return False


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_bytes(pid: int) -> int:
    """The most that was ever resident."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    (kibibytes,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(kibibytes) * 1024


def processor_s(pid: int) -> float:
    """The processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
