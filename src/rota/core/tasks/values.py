"""Checks of opaque JSON values (payloads, results, progress) for size and depth.

Values stay undecoded bytes. Their size and depth are checked because their readers have limits too.
"""

import re

from msgspec import Raw

from rota.core import limits
from rota.errors import Invalid, TooLarge

# A value this short cannot be too deep: every level opens and closes.
SHALLOW_BYTES = 2 * limits.MAX_JSON_DEPTH

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_SQUARE = bytes.maketrans(b"{}", b"[]")


def too_deep(field: str) -> Invalid:
    most = limits.MAX_JSON_DEPTH
    return Invalid(f"{field} is nested deeper than {most} levels", field=field, limit=most)


def check_value(value: Raw, field: str, *, most_bytes: int) -> None:
    """Refuse a value that is too large or too deep for its readers."""
    if len(value) > most_bytes:
        raise TooLarge(
            f"{field} has {len(value)} bytes; at most {most_bytes} are allowed",
            field=field,
            limit=most_bytes,
            setting="max_payload_bytes",
        )
    if len(value) > SHALLOW_BYTES and is_deeper_than(limits.MAX_JSON_DEPTH, bytes(value)):
        raise too_deep(field)


def is_deeper_than(most: int, json: bytes) -> bool:
    """Whether valid JSON is nested deeper than that, without decoding it."""
    if json.count(b"[") + json.count(b"{") <= most:
        return False
    brackets = _STRING.sub(b"", json).translate(_SQUARE, _NOT_BRACKETS)
    for _ in range(most):
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"")  # peels off the innermost level, and only that
    return bool(brackets)
