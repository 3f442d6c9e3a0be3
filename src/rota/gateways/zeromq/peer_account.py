"""The account of one connection: the bytes that it has sent, less those of its whole messages.

Theory of operation. The messages of a connection come one after the other, so a whole message ends
everything before it. What a connection has sent beyond its delivered messages is the message that
it has not finished, and whole ones that wait to be read. A frame has a known length on the wire, so
the account is exact, however many messages come and however the measurements fall between them.

What is no message, such as the handshake and pings, is not delivered and adds up. It is written off
when it is certain: once everything was read and the connection was quiet, the account is at most
the beginning of the next message. If that message is smaller, the rest was none of it.

A message has begun when the account exceeds what a handshake and a few pings leave, or when a whole
message came and that much is left. More bytes, and pings, do not make it any younger.
"""

SETTLED_S = 0.05  # of quiet, after which libzmq has read what the kernel has received

COUNTED_FROM_BYTES = 4_096  # a handshake and a few pings are no message

SHORT_BYTES = 255  # of a frame whose length takes one byte, and not eight
SHORT_HEADER_BYTES, LONG_HEADER_BYTES = 2, 9
CURVE_BYTES = 33  # its name, a nonce, a code and the flags, around each frame

GIVEN_ROUTING_ID = b"\0"  # the first byte of routing ids that libzmq has chosen; a count follows
COUNT_RANGE = 2**32


def wire_bytes(body_bytes: int, *, is_encrypted: bool) -> int:
    """The length of a frame on the wire."""
    length = body_bytes + (CURVE_BYTES if is_encrypted else 0)
    return length + (SHORT_HEADER_BYTES if length <= SHORT_BYTES else LONG_HEADER_BYTES)


class PeerAccount:
    __slots__ = (
        "_changed_s",
        "_delivered_bytes",
        "_received_bytes",
        "_routing_id",
        "begun_s",
        "unfinished_bytes",
        "whole_at_s",
    )

    def __init__(self, now_s: float) -> None:
        self.unfinished_bytes = 0
        self.whole_at_s = now_s  # when the last whole message, or the connection itself, came
        self.begun_s = now_s  # when the unfinished message, if there is one, began at the earliest
        self._routing_id = b""
        self._received_bytes = 0
        self._delivered_bytes = 0  # since the last measurement
        self._changed_s = now_s

    def deliver(self, routing_id: bytes, length: int) -> bool:
        """Count a whole message; False: it is of an earlier connection with this descriptor."""
        if routing_id != self._routing_id:
            if _is_older(routing_id, self._routing_id):
                return False
            self._routing_id = routing_id
        self._delivered_bytes += length
        return True

    def measure(self, received_bytes: int | None, now_s: float, caught_up_s: float) -> None:
        """Bring the account up to date; `caught_up_s`: when all whole messages were last read.

        Without a count of received bytes, only whole messages are taken for received.
        """
        delivered = self._delivered_bytes
        if received_bytes is None:
            received_bytes = self._received_bytes + delivered
        grown = received_bytes - self._received_bytes
        if not grown and not delivered:
            return
        unfinished = self.unfinished_bytes
        if delivered:
            if unfinished > delivered and self._changed_s + SETTLED_S <= caught_up_s:
                unfinished = delivered
            self.whole_at_s = now_s
            self._delivered_bytes = 0
        if delivered or self.unfinished_bytes <= COUNTED_FROM_BYTES:
            self.begun_s = now_s
        self.unfinished_bytes = max(0, unfinished + grown - delivered)
        self._received_bytes = received_bytes
        self._changed_s = now_s


def _is_older(routing_id: bytes, other: bytes) -> bool:
    """Whether libzmq gave out a routing id before the other; unknown for those of peers' choice."""
    if not routing_id.startswith(GIVEN_ROUTING_ID) or not other.startswith(GIVEN_ROUTING_ID):
        return False
    distance = int.from_bytes(other[1:]) - int.from_bytes(routing_id[1:])
    return 0 < distance % COUNT_RANGE < COUNT_RANGE // 2
