"""ZMTP greetings, commands, frames and messages that are nearly valid."""

import struct
from random import Random
from typing import Any

from tests.fuzz.mutation import damaged, mutated, pieces, written
from tests.fuzz.target import Address, Finding, Target, Wire, check_text

NAME = "zeromq"
ANSWER_S = 0.06
HANDSHAKE_S = 5.0
GREETING_LENGTH = 64
GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
READY = b"\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"
MORE, LONG, COMMAND = 1, 2, 4
DATA: dict[str, Any] = {"serviceName": "s", "workerId": "w", "maxShardCount": 10}
MESSAGES: tuple[Any, ...] = (
    {"type": "register", "data": DATA},
    {"type": "register", "data": {**DATA, "protocol": 2, "incarnation": 1, "weight": 1.5}},
    {"type": "heartbeat", "data": {**DATA, "assignedShards": [0, 1, 2]}},
    {
        "type": "heartbeat",
        "data": {**DATA, "assignedShards": [1], "protocol": 2, "incarnation": 1, "generation": 3},
    },
    {"type": "leave", "data": {"serviceName": "s", "workerId": "w"}},
)


class ZeroMqFuzzer:
    name = NAME

    def __init__(self, target: Target) -> None:
        self.address: Address = target.zeromq

    def shoot(self, rng: Random, wire: Wire) -> None:
        """Greet, say a few things, and look at what comes back."""
        greeting = damaged(rng, GREETING) if rng.random() < 0.05 else _greeting(rng)
        ready = _ready(rng)
        data = b"".join(_message(rng) for _ in range(rng.randrange(1, 12)))
        if rng.random() < 0.1:
            data = damaged(rng, data)
        if rng.random() < 0.1:
            wire.send(greeting + ready + data)  # without waiting for the other side
        elif _is_greeted(wire, greeting) and wire.send(ready) and _is_ready(wire):
            for piece in pieces(rng, data):
                if not wire.send(piece):
                    break
        answer = wire.receive_all(ANSWER_S)
        check_text(answer)
        if b'"internal"' in answer:
            raise Finding(f"answered with an internal error: {answer[:1_000]!r}")


def _is_greeted(wire: Wire, greeting: bytes) -> bool:
    """Exchange greetings; False: the other side has closed."""
    if not wire.send(greeting):
        return False
    timeout_s = HANDSHAKE_S if greeting == GREETING else ANSWER_S
    got = 0
    while got < GREETING_LENGTH and (data := wire.receive(timeout_s, GREETING_LENGTH - got)):
        got += len(data)
    return got > 0


def _is_ready(wire: Wire) -> bool:
    """Wait until the other side is ready, if it should be; False: it has closed."""
    is_valid = wire.sent == [GREETING, READY]
    return wire.receive(HANDSHAKE_S if is_valid else ANSWER_S) != b""


def _greeting(rng: Random) -> bytes:
    if rng.random() < 0.9:
        return GREETING
    version = rng.choice((b"\x03\x01", b"\x01\x00", b"\x00\x00", b"\xff\xff", b"\x02\x00"))
    mechanism = rng.choice((b"NULL", b"PLAIN", b"CURVE", b"GSSAPI", b"\xff" * 20, b""))
    as_server = rng.choice((b"\x00", b"\x01"))
    greeting = GREETING[:10] + version + mechanism.ljust(20, b"\0") + as_server
    return greeting.ljust(GREETING_LENGTH, b"\0")


def _ready(rng: Random) -> bytes:
    if rng.random() < 0.7:
        return READY
    kind = rng.choice((b"DEALER",) * 10 + (b"REQ", b"PUB", b"X", b""))
    identity = rng.choice((b"",) * 6 + (b"w", b"\x00abc", rng.randbytes(255)))
    body = b"\x05READY" + _property(b"Socket-Type", kind) + _property(b"Identity", identity)
    if rng.random() < 0.15:
        body += _property(rng.choice((b"", b"X-" + b"y" * 200)), rng.randbytes(rng.randrange(500)))
    if rng.random() < 0.1:
        body = damaged(rng, body)
    name = rng.choice((b"READY",) * 12 + (b"HELLO", b"PING", b"ERROR", b"JOIN"))
    return _frame(rng, body.replace(b"READY", name), COMMAND)


def _property(name: bytes, value: bytes) -> bytes:
    return struct.pack("!B", min(255, len(name))) + name + struct.pack("!I", len(value)) + value


def _message(rng: Random) -> bytes:
    if rng.random() < 0.08:
        command = rng.choice((b"\x04PING\x00\x01ctx", b"\x04PONG", b"\x09SUBSCRIBEx", b"\xff", b""))
        return _frame(rng, command, COMMAND)
    message = rng.choice(MESSAGES)
    content = written(mutated(rng, message) if rng.random() < 0.5 else message)
    if rng.random() < 0.08:
        content = damaged(rng, content)
    if rng.random() < 0.9:
        return _frame(rng, content)
    parts = [content] * rng.choice((2, 3, 50))
    frames = [_frame(rng, part, MORE) for part in parts[:-1]]
    return b"".join((*frames, _frame(rng, parts[-1], rng.choice((0, 0, 0, MORE)))))


def _frame(rng: Random, content: bytes, flags: int = 0) -> bytes:
    length = len(content)
    if rng.random() < 0.02:
        length = rng.choice((0, length + 1, max(0, length - 1), 2**31, 2**63, 2**64 - 1))
        flags |= rng.choice((0, 0, 0x08, 0x80, 0xF8))
    if length > 255 or rng.random() < 0.1:
        return struct.pack("!BQ", flags | LONG, length) + content
    return struct.pack("!BB", flags, length) + content


# --- connections that are left alone ------------------------------------------------------------

HANDSHAKE_LIMIT_S, SILENT_S = 5.0, 60.0

ABANDONED: tuple[tuple[str, bytes, float], ...] = (
    ("says nothing", b"", HANDSHAKE_LIMIT_S),
    ("half a greeting", GREETING[:30], HANDSHAKE_LIMIT_S),
    ("a greeting and no more", GREETING, HANDSHAKE_LIMIT_S),
    ("half a message", GREETING + READY + b"\x00\x50{", SILENT_S),
)
