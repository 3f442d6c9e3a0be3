"""WebSocket handshakes, frames and envelopes that are nearly valid."""

import struct
from random import Random
from typing import Any

import msgspec

from tests.fuzz.http import check_answers
from tests.fuzz.mutation import damaged, mutated, pieces, written
from tests.fuzz.target import Address, Finding, Target, Wire, check_text
from tests.gateways.access.oracle import MESSAGES, filled

NAME = "websocket"
ANSWER_S = 0.03
HANDSHAKE_S = 5.0
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
HANDSHAKE = (
    b"GET /ws HTTP/1.1\r\nhost: localhost\r\nconnection: Upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n"
)
PACKED = b"sec-websocket-protocol: rota.v1.msgpack\r\n"
PLACE = {
    **dict.fromkeys(("queue", "own_queue"), "q"),
    **dict.fromkeys(("worker", "socket_worker", "pinned_worker", "foreign_worker"), "w"),
    "incarnation": "1",
}
SYSTEM: tuple[Any, ...] = (
    {"type": "ping"},
    {"to": "__system__", "type": "HEARTBEAT_PING", "id": 1},
    {"to": "nobody:x", "type": "x", "id": 1},
    {"to": "coordinator:", "type": "get_status"},
    None,
    [],
    "text",
)


class WebSocketFuzzer:
    name = NAME

    def __init__(self, target: Target) -> None:
        self.address: Address = target.http

    def shoot(self, rng: Random, wire: Wire) -> None:
        """Open a socket, say a few things, and look at what comes back."""
        is_packed = rng.random() < 0.4
        handshake = HANDSHAKE + (PACKED if is_packed else b"") + b"\r\n"
        answer_s = HANDSHAKE_S
        if rng.random() < 0.08:
            handshake, answer_s = damaged(rng, handshake), ANSWER_S
        data = b"".join(
            self._message(rng, is_packed=is_packed) for _ in range(rng.randrange(1, 12))
        )
        if rng.random() < 0.15:
            wire.send(handshake + data)  # before the handshake is answered
        elif wire.send(handshake) and b" 101 " in (answer := wire.receive(answer_s) or b""):
            check_text(answer)
            for piece in pieces(rng, data):
                if not wire.send(piece):
                    break
        answer = wire.receive_all(ANSWER_S)
        check_answers(answer)
        check_frames(answer)

    def _message(self, rng: Random, *, is_packed: bool) -> bytes:
        if rng.random() < 0.1:
            return _control(rng)
        content = _envelopes(rng, is_packed=is_packed)
        opcode = BINARY if is_packed else TEXT
        if rng.random() < 0.05:
            opcode = rng.choice((0, TEXT, BINARY, 3, 7, 11, 15))
        return _fragmented(rng, opcode, content)


# --- what is said -------------------------------------------------------------------------------


def _envelope(rng: Random) -> Any:
    if rng.random() < 0.1:
        return rng.choice(SYSTEM)
    rule = rng.choice(MESSAGES)
    envelope = {
        "to": filled(rule.path, PLACE),
        "type": rule.route,
        "id": rng.randrange(100),
        "from": "w",
        "payload": filled(rule.body, PLACE),
    }
    return mutated(rng, envelope) if rng.random() < 0.5 else envelope


def _envelopes(rng: Random, *, is_packed: bool) -> bytes:
    several = rng.random() < 0.1
    value = [_envelope(rng) for _ in range(rng.randrange(30))] if several else _envelope(rng)
    if is_packed:
        try:
            content = msgspec.msgpack.encode(value)
        except (OverflowError, msgspec.ValidationError):  # numbers that the packing has not
            content = msgspec.msgpack.encode(str(value))
    else:
        content = written(value)
    if rng.random() < 0.08:
        content = damaged(rng, content)
    return content


# --- frames -------------------------------------------------------------------------------------


def _frame(
    rng: Random, opcode: int, content: bytes, *, is_last: bool = True, is_odd: bool = False
) -> bytes:
    first = (0x80 if is_last else 0) | opcode
    length, is_masked = len(content), True
    if is_odd:
        first |= rng.choice((0, 0x40, 0x20, 0x10))
        length = rng.choice(
            (length, length + 1, max(0, length - 1), 2**16, 2**31, 2**63, 2**64 - 1)
        )
        is_masked = rng.random() < 0.6
    bit = 0x80 if is_masked else 0
    width = rng.choice((7, 16, 64)) if is_odd else 7
    if length >= 2**16 or width == 64:
        head = struct.pack("!BBQ", first, bit | 127, length)
    elif length >= 126 or width == 16:
        head = struct.pack("!BBH", first, bit | 126, length)
    else:
        head = struct.pack("!BB", first, bit | length)
    if not is_masked:
        return head + content
    mask = rng.randbytes(4)
    return head + mask + bytes(one ^ mask[place % 4] for place, one in enumerate(content))


def _control(rng: Random) -> bytes:
    opcode = rng.choice((CLOSE, PING, PONG))
    content = rng.choice(
        (
            *(b"", b"x", b"\x03\xe8", b"\x03\xe8goodbye", b"\x00\x00", b"\x03\xed", b"\xff\xff"),
            *(b"x" * 125, b"x" * 126, b"\x03\xe8\xff\xfe", rng.randbytes(20)),
        )
    )
    return _frame(rng, opcode, content, is_last=rng.random() < 0.9, is_odd=rng.random() < 0.2)


def _fragmented(rng: Random, opcode: int, content: bytes) -> bytes:
    if rng.random() < 0.7:
        return _frame(rng, opcode, content, is_odd=rng.random() < 0.05)
    parts = pieces(rng, content) if rng.random() < 0.8 else [bytes((one,)) for one in content[:200]]
    frames = []
    for place, part in enumerate(parts):
        kind = opcode if place == 0 else 0
        if rng.random() < 0.05:
            kind = opcode  # another beginning in the middle
        is_last = place == len(parts) - 1 and rng.random() < 0.9
        frames.append(_frame(rng, kind, part, is_last=is_last))
        if rng.random() < 0.1:
            frames.append(_control(rng))
    return b"".join(frames)


def check_frames(data: bytes) -> None:
    """Frames are not taken apart: what must not be in them is a text of its own."""
    if b'"code":"internal"' in data or b"\xa4code\xa8internal" in data:
        raise Finding(f"answered with an internal error: {data[:1_000]!r}")


# --- connections that are left alone ------------------------------------------------------------

HEAD_S, SILENT_S = 15.0, 30.0
GREETING = HANDSHAKE + b"\r\n"

ABANDONED: tuple[tuple[str, bytes, float], ...] = (
    ("half a handshake", HANDSHAKE, HEAD_S),
    ("answers no ping", GREETING, SILENT_S),
    ("half a frame", GREETING + b"\x81\xfe\xff", SILENT_S),
    ("an unfinished message", GREETING + b"\x01\x81\x00\x00\x00\x00x", SILENT_S),
)
