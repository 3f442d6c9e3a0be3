"""WebSocket framing of ordinary messages; the rest is the library's.

Nearly all that a stream carries are binary messages, each in one frame. To read such a frame, or to
write it, takes a few bytes of its head. Everything else (texts, fragments, pings, closes, broken
frames) is passed to the protocol library as it came, one whole frame after the other.
"""

from collections.abc import Iterator
from typing import NamedTuple

try:
    from websockets.speedups import apply_mask
except ImportError:  # a platform without the compiled part
    from websockets.utils import apply_mask

PLAIN = 0x82  # the first byte of a frame that is a whole binary message
PLAIN_TEXT = 0x81  # the same of a text
MASKED = 0x80
SHORT, MEDIUM, LONG = 125, 126, 127  # up to so many bytes; two bytes of length; eight
MOST_MEDIUM = 0xFFFF
MASK_BYTES = 4


class Piece(NamedTuple):
    raw: bytes
    message: bytes | None  # what is in it, if it is a plain frame; None: it is for the library


class FrameReader:
    """Cuts what comes in into frames. Those of clients are masked, those of servers are not."""

    def __init__(self, *, is_masked: bool, most_bytes: int) -> None:
        self._mask_bit = MASKED if is_masked else 0
        self._most_bytes = most_bytes
        self._rest = bytearray()  # grows in place: a frame may come in very many pieces
        self._wanted = 0  # bytes of the frame that has begun, as far as is known
        self._is_beyond = False  # a frame has come that only the library can read

    @property
    def waiting_bytes(self) -> int:
        """The bytes of a frame that has begun and has not come to its end."""
        return len(self._rest)

    def feed(self, data: bytes) -> Iterator[Piece]:
        if self._is_beyond:
            yield Piece(data, None)
            return
        if self._rest:
            self._rest += data
            if len(self._rest) < self._wanted:
                return
            data = bytes(self._rest)
            self._rest.clear()
        start, end = 0, len(data)
        while start < end:
            head, size = _measured(data, start, end)
            if size is not None and size > self._most_bytes:
                self._is_beyond = True
                yield Piece(data[start:], None)
                return
            wanted = head if size is None else head + size
            if end - start < wanted:
                self._rest += data[start:]
                self._wanted = wanted
                return
            whole = data if wanted == end and not start else data[start : start + wanted]
            yield Piece(whole, self._message(whole, head))
            start += wanted

    def _message(self, frame: bytes, head: int) -> bytes | None:
        if frame[0] != PLAIN or frame[1] & MASKED != self._mask_bit:
            return None
        if self._mask_bit:
            return apply_mask(frame[head:], frame[head - MASK_BYTES : head])
        return frame[head:]


def _measured(data: bytes, start: int, end: int) -> tuple[int, int | None]:
    """How long a frame's head is, and what follows it; None: so much of the head is needed."""
    if end - start < 2:
        return 2, None
    length = data[start + 1]
    head = 2 + MASK_BYTES if length & MASKED else 2
    length &= ~MASKED
    if length <= SHORT:
        return head, length
    extra = 2 if length == MEDIUM else 8
    if end - start < 2 + extra:
        return 2 + extra, None
    return head + extra, int.from_bytes(data[start + 2 : start + 2 + extra])


def framed(message: bytes, mask: bytes | None = None, *, first: int = PLAIN) -> bytes:
    """A message as one frame; clients give an unpredictable mask."""
    size, bit = len(message), MASKED if mask else 0
    if size <= SHORT:
        head = bytes((first, bit | size))
    elif size <= MOST_MEDIUM:
        head = bytes((first, bit | MEDIUM)) + size.to_bytes(2)
    else:
        head = bytes((first, bit | LONG)) + size.to_bytes(8)
    return head + message if mask is None else b"".join((head, mask, apply_mask(message, mask)))
