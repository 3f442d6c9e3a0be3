"""What happened, and what should not have?"""

import hashlib
from collections.abc import Callable
from typing import NamedTuple

import msgspec
from msgspec import Struct

_encode = msgspec.json.Encoder(enc_hook=repr).encode

SHOWN_LINES = 40
SHOWN_WIDTH = 200


class Violation(Exception):  # noqa: N818 - read at the raise site: `raise Violation(...)`
    """A promise was broken."""


class Line(NamedTuple):
    at_s: float
    who: str
    what: object

    def __str__(self) -> str:
        text = str(self.what)
        if isinstance(self.what, Struct):
            # As JSON: a `repr` has the addresses of raw values in it, others in each run.
            text = f"{type(self.what).__name__} {_encode(self.what).decode()}"
        return f"{self.at_s:9.3f} {self.who:<12} {text}"


class Trace:
    """Everything that happened in a schedule, in order; rendered only when asked for."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._lines: list[Line] = []

    def note(self, who: str, what: object) -> None:
        self._lines.append(Line(self._now_s(), who, what))

    def __len__(self) -> int:
        return len(self._lines)

    def tail(self) -> str:
        return "\n".join(str(line)[:SHOWN_WIDTH] for line in self._lines[-SHOWN_LINES:])

    def digest(self) -> str:
        """The same for two runs that went the same way."""
        whole = hashlib.sha256()
        for line in self._lines:
            whole.update(str(line).encode())
        return whole.hexdigest()
