"""Fingerprints of errors, equal for failures that differ only in their particulars.

Numbers, ids, addresses, quoted texts and paths change from task to task; the rest of a message
names the cause. Tasks of one name with the same error type and the same rest have the same cause.
"""

import hashlib
import re

MOST_COMPARED = 300  # characters of a message; the rest is mostly data
FINGERPRINT_DIGITS = 16

_PARTICULARS = re.compile(
    r"""
      '[^'\n]{0,200}' | "[^"\n]{0,200}"        # quoted texts
    | \b0x[0-9a-fA-F]+\b                       # addresses
    | \b[0-9a-fA-F]{8,}(?:-[0-9a-fA-F]{4,})*\b # ids
    | (?:/[\w.@+-]+){2,}                       # paths
    | [+-]?\d+(?:[.,:]\d+)*                    # numbers and times
    """,
    re.VERBOSE,
)


def gist(message: str) -> str:
    """A message without its particulars."""
    return " ".join(_PARTICULARS.sub("…", message[:MOST_COMPARED]).split())


def cause(kind: str, message: str) -> str:
    """The cause that is stored with a failed task: equal for errors that are alike."""
    return _digest(kind, gist(message))


def fingerprint(name: str, of: str) -> str:
    """A short name for all failures of one task name that have one cause."""
    return _digest(name, of)


def _digest(*parts: str) -> str:
    text = "\0".join(parts)
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:FINGERPRINT_DIGITS]
