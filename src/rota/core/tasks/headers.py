"""Headers: a small map of texts that travels with a task or a run, beside its payload.

Middleware writes and reads them, for example the context of a trace. Handlers never get them as
arguments.
"""

import re
from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta

from rota.core import limits
from rota.errors import Invalid

HeaderName = Annotated[str, Meta(min_length=1, max_length=limits.MAX_HEADER_NAME_LENGTH)]
HeaderValue = Annotated[str, Meta(max_length=limits.MAX_HEADER_LENGTH)]
Headers = Annotated[dict[HeaderName, HeaderValue], Meta(max_length=limits.MAX_HEADERS)]

TRACEPARENT = "traceparent"
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def size_of(headers: Mapping[str, str]) -> int:
    """The bytes of all names and values, in UTF-8."""
    return sum(len(name.encode()) + len(value.encode()) for name, value in headers.items())


def check_headers(headers: Mapping[str, str]) -> None:
    """Refuse headers that are larger together than they may be; their types check the rest."""
    size, most = size_of(headers), limits.MAX_HEADERS_BYTES
    if size > most:
        raise Invalid(
            f"headers: {size} bytes of names and values, and {most} are allowed; send larger "
            "values in the payload",
            field="headers",
        )


def add_fitting(headers: dict[str, str], more: Mapping[str, str]) -> None:
    """Add those of more headers that fit: a task is never refused because of its trace."""
    size = size_of(headers)
    for name, value in more.items():
        is_new = name not in headers
        before = 0 if is_new else size_of({name: headers[name]})
        grown = size - before + size_of({name: value})
        if (
            len(name) <= limits.MAX_HEADER_NAME_LENGTH
            and len(value) <= limits.MAX_HEADER_LENGTH
            and len(headers) + is_new <= limits.MAX_HEADERS
            and grown <= limits.MAX_HEADERS_BYTES
        ):
            headers[name] = value
            size = grown


def is_traceparent(text: str) -> bool:
    """Whether a text is the W3C context of a span; one that is malformed is ignored."""
    return _TRACEPARENT.fullmatch(text) is not None


def trace_headers(traceparent: bytes | None) -> dict[str, str] | None:
    """The headers of a run whose request has a `traceparent`; one that is malformed is ignored."""
    if traceparent is None:
        return None
    text = traceparent.decode("latin-1")
    return {TRACEPARENT: text} if is_traceparent(text) else None
