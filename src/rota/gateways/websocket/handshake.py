"""The opening handshake of a WebSocket (RFC 6455, section 4.2)."""

import base64
import binascii
import hashlib

from rota.errors import HeadTooLarge, Invalid, MethodNotAllowed
from rota.gateways.http.server.exchange import RequestHead

ACCEPT_SUFFIX = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
KEY_BYTES = 16
MAX_FIELD_BYTES = 8_192
VERSION = b"13"


class Handshake:
    """A valid request for a WebSocket. No extension is negotiated."""

    def __init__(self, head: RequestHead) -> None:
        """Check the request; one that is not valid is refused with a `RotaError`."""
        if head.method != "GET":
            text = f"a WebSocket is opened with GET, not {head.method}"
            raise MethodNotAllowed(text, path=head.path, allowed=["GET"])
        if any(len(name) + len(value) > MAX_FIELD_BYTES for name, value in head.headers):
            raise HeadTooLarge(
                f"a header field of a WebSocket handshake is over {MAX_FIELD_BYTES} bytes",
                limit=MAX_FIELD_BYTES,
            )
        key = _only(head, b"sec-websocket-key")
        if _only(head, b"sec-websocket-version") != VERSION:
            raise Invalid("only version 13 of the WebSocket protocol is supported")
        try:
            is_key = len(base64.b64decode(key, validate=True)) == KEY_BYTES
        except binascii.Error:
            is_key = False
        if not is_key:
            raise Invalid(f"sec-websocket-key: {KEY_BYTES} bytes in base64 are needed")
        self._key = key

    def acceptance(self, subprotocol: str | None) -> bytes:
        """The response that opens the socket."""
        digest = hashlib.sha1(self._key + ACCEPT_SUFFIX, usedforsecurity=False).digest()
        lines = [
            b"HTTP/1.1 101 Switching Protocols",
            b"upgrade: websocket",
            b"connection: Upgrade",
            b"sec-websocket-accept: " + base64.b64encode(digest),
        ]
        if subprotocol is not None:
            lines.append(b"sec-websocket-protocol: " + subprotocol.encode("ascii"))
        return b"\r\n".join(lines) + b"\r\n\r\n"


def subprotocols_of(head: RequestHead) -> list[str]:
    """The subprotocols that the client speaks, in the order of its preference."""
    found = [value for name, value in head.headers if name == b"sec-websocket-protocol"]
    return [token.strip() for value in found for token in value.decode("latin-1").split(",")]


def _only(head: RequestHead, name: bytes) -> bytes:
    found = [value.strip() for field, value in head.headers if field == name]
    if len(found) != 1:
        raise Invalid(f"a WebSocket handshake needs one {name.decode()} header")
    return found[0]
