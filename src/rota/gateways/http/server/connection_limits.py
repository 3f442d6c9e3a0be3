"""The limits of one HTTP connection, which hold before the caller is known.

Sans-I/O: the protocol reports to a `RequestMeter` what it hands to the parser and what the parser
finds, and asks `Deadlines` how long it goes on waiting. Neither costs more than a few additions a
request, because a request that arrives in one read is never measured: it cannot be larger than the
read. The protocol itself counts header fields, and looks at the length of the target.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from rota.core import limits
from rota.errors import HeadTooLarge, TargetTooLong

FIELD_OVERHEAD = 4  # bytes of a header field besides its name and value: a colon, a space, CR LF
# What a chunk may take besides its data without being counted: a size, and two line ends.
CHUNK_OVERHEAD = 32


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What a client may send, and how long it may take. Tests use shorter times."""

    head_bytes: int = limits.MAX_HEAD_BYTES
    head_fields: int = limits.MAX_HEAD_FIELDS
    target_bytes: int = limits.MAX_TARGET_BYTES
    trailer_bytes: int = limits.MAX_TRAILER_BYTES
    head_s: float = limits.HEAD_TIMEOUT_MS / 1000
    body_s: float = limits.BODY_TIMEOUT_MS / 1000
    idle_s: float = limits.IDLE_CONNECTION_MS / 1000
    unread_s: float = limits.UNREAD_ANSWER_MS / 1000


class Stage(Enum):
    """Where in a request the reading of a connection has got to."""

    BETWEEN = auto()  # no byte of the next request has arrived
    HEAD = auto()
    BODY = auto()


# A member of an enumeration is looked up several times a request; by a name it takes a tenth of it.
BETWEEN, HEAD, BODY = Stage.BETWEEN, Stage.HEAD, Stage.BODY


class RequestMeter:
    """Counts the bytes of the request that is being read.

    A parser that is fed a read does not report where in it a head begins or ends. So a head is
    known to have at least the reads that lie wholly within it, and at most all reads that it
    touches. It is added up field by field only if these two disagree about the limit.
    """

    __slots__ = ("_at_least", "_at_most", "_began_as", "_limits", "_overhead", "_size", "stage")

    def __init__(self, given: ConnectionLimits) -> None:
        self._limits = given
        self.stage = BETWEEN
        self._began_as = BETWEEN  # the stage in which the current read began
        self._size = 0  # of the current read
        self._at_least = 0  # bytes of the current head
        self._at_most = 0
        self._overhead = 0  # bytes of the current body that are not data

    # --- around a read --------------------------------------------------------------------------

    def start_read(self, size: int) -> None:
        """The parser is about to be given a read of `size` bytes."""
        self._size = size
        self._began_as = self.stage
        self._at_most += size

    def end_read(self) -> None:
        """The parser has taken the read.

        Raises HeadTooLarge if what is still incomplete has grown over its limit.
        """
        if self.stage is BETWEEN:
            return
        is_whole = self._began_as is self.stage
        if self.stage is HEAD:
            self._at_least += self._size if is_whole else 0
            if self._at_least > self._limits.head_bytes:
                raise head_too_large(self._limits)
        elif not is_whole:
            self._overhead = 0
        else:
            self._overhead = max(0, self._overhead + self._size)
            if self._overhead > self._limits.trailer_bytes:
                raise trailer_too_large(self._limits)

    # --- what the parser finds ------------------------------------------------------------------

    def begin_head(self) -> None:
        self.stage = HEAD
        self._began_as = BETWEEN
        self._at_least = 0
        self._at_most = self._size

    def complete_head(self, target: bytes, headers: Iterable[tuple[bytes, bytes]]) -> None:
        if self._at_most > self._limits.head_bytes:
            size = len(target) + sum(
                len(name) + len(value) + FIELD_OVERHEAD for name, value in headers
            )
            if size > self._limits.head_bytes:
                raise head_too_large(self._limits)
        self.stage = BODY
        self._overhead = 0

    def take_chunk(self) -> None:
        self._overhead -= CHUNK_OVERHEAD

    def take_body(self, size: int) -> None:
        self._overhead -= size

    def complete_message(self) -> None:
        self.stage = BETWEEN


class Deadlines:
    """The moments until which a connection is waited for while none of its requests is answered.

    No moment moves because a byte has arrived, so that a client cannot keep a connection by
    trickling.
    """

    __slots__ = ("_limits", "answered_at_s", "connected_at_s", "head_began_at_s")

    def __init__(self, given: ConnectionLimits) -> None:
        self._limits = given
        self.connected_at_s = 0.0
        self.head_began_at_s: float | None = None  # None: not known yet, or no head is read
        self.answered_at_s: float | None = None  # the last request; None: none yet

    def due_at_s(self, stage: Stage) -> float:
        """The moment at which the connection is closed unless its stage changes before."""
        if stage is HEAD and self.head_began_at_s is not None:
            return self.head_began_at_s + self._limits.head_s
        if self.answered_at_s is None:
            return self.connected_at_s + self._limits.head_s
        if stage is BODY:
            # The request was answered before it had been sent as a whole.
            return self.answered_at_s + self._limits.body_s
        return self.answered_at_s + self._limits.idle_s


def head_too_large(given: ConnectionLimits) -> HeadTooLarge:
    most = given.head_bytes
    return HeadTooLarge(f"the request head is over {most} bytes", limit=most)


def too_many_fields(given: ConnectionLimits) -> HeadTooLarge:
    most = given.head_fields
    return HeadTooLarge(f"the request head has more than {most} header fields", limit=most)


def trailer_too_large(given: ConnectionLimits) -> HeadTooLarge:
    most = given.trailer_bytes
    return HeadTooLarge(
        f"the chunk extensions and trailer fields of the request are over {most} bytes", limit=most
    )


def target_too_long(given: ConnectionLimits) -> TargetTooLong:
    most = given.target_bytes
    return TargetTooLong(f"the path and query of the request are over {most} bytes", limit=most)
