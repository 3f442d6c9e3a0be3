"""The codecs of a socket: JSON text, or MessagePack where it was negotiated.

Payloads and results are stored as JSON; on a MessagePack socket they are converted.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import Raw

from rota.errors import Invalid
from rota.messages.sessions import (
    MSGPACK,
    Envelope,
    Outgoing,
    decode_json,
    decode_msgpack,
    is_given,
)

T = TypeVar("T")


class Codec(NamedTuple):
    is_text: bool
    subprotocol: str | None
    decode: Callable[[Any], list[Envelope | None]]
    encode: Callable[[Outgoing], bytes]
    read_value: Callable[..., Any]
    empty: bytes  # an empty object
    as_json: Callable[[Raw], Raw]  # a value of this packing
    from_json: Callable[[bytes], Raw]

    def read(self, raw: Raw, kind: type[T]) -> T:
        """Decode a payload into the struct of its message, or raise `Invalid`."""
        try:
            value: T = self.read_value(bytes(raw) if is_given(raw) else self.empty, type=kind)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise Invalid(f"payload: {error}", field="payload") from None
        return value


def _unpacked(packed: Raw) -> Raw:
    try:
        return Raw(msgspec.json.encode(msgspec.msgpack.decode(packed)))
    except (msgspec.MsgspecError, TypeError, UnicodeError, RecursionError, OverflowError) as error:
        raise Invalid(f"a value that JSON cannot hold: {error}") from None


def _packed(json: bytes) -> Raw:
    return Raw(msgspec.msgpack.encode(_parsed(json)))


def _parsed(json: bytes) -> Any:
    try:
        value = msgspec.json.decode(json)
        msgspec.msgpack.encode(value)
    except (msgspec.MsgspecError, OverflowError):
        # A number too large for MessagePack is sent as its text.
        return json.decode(errors="replace")
    return value


JSON_CODEC = Codec(
    is_text=True,
    subprotocol=None,
    decode=decode_json,
    encode=msgspec.json.Encoder().encode,
    read_value=msgspec.json.decode,
    empty=b"{}",
    as_json=lambda raw: raw,
    from_json=Raw,
)
MSGPACK_CODEC = Codec(
    is_text=False,
    subprotocol=MSGPACK,
    decode=decode_msgpack,
    encode=msgspec.msgpack.Encoder().encode,
    read_value=msgspec.msgpack.decode,
    empty=b"\x80",
    as_json=_unpacked,
    from_json=_packed,
)


def codec_for(offered: Sequence[str]) -> Codec:
    return MSGPACK_CODEC if MSGPACK in offered else JSON_CODEC
