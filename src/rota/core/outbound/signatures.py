"""Signatures of requests that the coordinator sends, in the form of Standard Webhooks.

The signature covers the id, the time and the body, so none of them can be changed, and an old
request cannot be sent again after the tolerance. A secret is `whsec_` and base64.
"""

import binascii
import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Mapping

from rota.core import limits
from rota.errors import Invalid

SECRET_PREFIX = "whsec_"  # noqa: S105 - not a secret, but how one begins
ID_HEADER = "webhook-id"
TIMESTAMP_HEADER = "webhook-timestamp"
SIGNATURE_HEADER = "webhook-signature"
VERSION = "v1"


class SignatureMismatch(Exception):  # noqa: N818 - read at the raise site
    """A request is not what its secret's owner sent; the text says what is wrong with it."""


def new_secret(key: bytes) -> str:
    """Write random bytes as a secret."""
    return SECRET_PREFIX + b64encode(key).decode()


def key_of(secret: str, field: str = "secret") -> bytes:
    """The key of a secret; refuses one that is short, long or of another form."""
    try:
        key = b64decode(secret.removeprefix(SECRET_PREFIX).encode(), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        key = b""
    is_long = limits.MIN_SECRET_BYTES <= len(key) <= limits.MAX_SECRET_BYTES
    if not secret.startswith(SECRET_PREFIX) or not is_long:
        raise Invalid(
            f"{field}: must be {SECRET_PREFIX} followed by {limits.MIN_SECRET_BYTES} to "
            f"{limits.MAX_SECRET_BYTES} random bytes in base64; leave it out to get a new one",
            field=field,
        )
    return key


def signed_headers(secret: str, message_id: str, body: bytes, *, now_s: int) -> dict[str, str]:
    """The headers that sign a request."""
    signature = _signature(key_of(secret), message_id, str(now_s), body)
    return {
        ID_HEADER: message_id,
        TIMESTAMP_HEADER: str(now_s),
        SIGNATURE_HEADER: f"{VERSION},{signature}",
    }


def check_signature(
    headers: Mapping[str, str], body: bytes, secret: str, *, now_s: float, tolerance_s: float
) -> None:
    """Refuse a request whose signature or time is wrong; names of headers in any case."""
    found = {name.lower(): value for name, value in headers.items()}
    missing = [
        name for name in (ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER) if name not in found
    ]
    if missing:
        raise SignatureMismatch(f"the request has no header {missing[0]}")
    timestamp = found[TIMESTAMP_HEADER]
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):
        raise SignatureMismatch(f"{TIMESTAMP_HEADER} is not a number of seconds")
    expected = _signature(key_of(secret), found[ID_HEADER], timestamp, body).encode()
    # Several signatures may be listed while a secret is replaced. Each is compared in full.
    matches = [
        hmac.compare_digest(given.partition(",")[2].encode("utf-8", "replace"), expected)
        for given in found[SIGNATURE_HEADER].split(" ")
        if given.startswith(f"{VERSION},")
    ]
    if not any(matches):
        raise SignatureMismatch("no signature of the request matches its body, id, time and secret")
    if abs(now_s - int(timestamp)) > tolerance_s:
        raise SignatureMismatch(
            f"the request was signed {abs(now_s - int(timestamp)):.0f} s from now, and at most "
            f"{tolerance_s:g} s are accepted; check the clocks, or it is an old request"
        )


def _signature(key: bytes, message_id: str, timestamp: str, body: bytes) -> str:
    signed = f"{message_id}.{timestamp}.".encode("utf-8", "replace") + body
    return b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
