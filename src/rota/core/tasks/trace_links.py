"""Trace links: the spans of joined tasks, in a header of the task that follows them.

The header has one group for each trace: the id of the trace, its flags, and the ids of its spans,
separated by hyphens. Groups are separated by commas. Most joined tasks are of one trace, which is
then written once.
"""

import re
from collections.abc import Iterable, Mapping

from rota.core import limits
from rota.core.tasks.headers import add_fitting

LINKS = "rota-links"
_GROUP = re.compile(r"([0-9a-f]{32})-([0-9a-f]{2})((?:-[0-9a-f]{16})+)")


def with_links(
    headers: Mapping[str, str] | None, traceparents: Iterable[str]
) -> dict[str, str] | None:
    """Headers with links to the spans of joined tasks: the first ones, as many as fit."""
    text = encode_links(traceparents)
    if not text:
        return None if headers is None else dict(headers)
    linked = dict(headers or {})
    add_fitting(linked, {LINKS: text})
    return linked


def encode_links(traceparents: Iterable[str]) -> str:
    """The value of the header for these spans; each counts once, and those too many are cut."""
    groups: dict[tuple[str, str], dict[str, None]] = {}
    count = length = 0
    for one in traceparents:
        if count == limits.MAX_TRACE_LINKS:
            break
        _, trace, span, flags = one.split("-")
        key = trace, flags
        is_new = key not in groups
        if not is_new and span in groups[key]:
            continue
        grown = length + 1 + len(span) + (is_new and len(trace) + 1 + len(flags) + bool(groups))
        if grown > limits.MAX_HEADER_LENGTH:
            continue  # a span of a trace that is named already may still fit
        groups.setdefault(key, {})[span] = None
        count, length = count + 1, grown
    return ",".join(
        f"{trace}-{flags}-{'-'.join(spans)}" for (trace, flags), spans in groups.items()
    )


def decode_links(text: str) -> list[tuple[str, str, str]]:
    """The trace, the span and the flags of each link; a malformed group is left out."""
    links = [
        (found[1], span, found[2])
        for found in map(_GROUP.fullmatch, text.split(","))
        if found is not None
        for span in found[3][1:].split("-")
    ]
    return links[: limits.MAX_TRACE_LINKS]
