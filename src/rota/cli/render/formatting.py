"""Formats times and durations for people."""

import time
from datetime import UTC, datetime, tzinfo

# In the largest unit that fits, rounded down: "3 h ago" is never less than three hours.
_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def duration(milliseconds: float | None) -> str:
    if milliseconds is None:
        return "-"
    for size, unit in _UNITS:
        if milliseconds >= size:
            return f"{int(milliseconds // size)} {unit}"
    return f"{int(milliseconds)} ms"


def rate_text(limit: int, per_ms: int) -> str:
    """A rate as it can be given on the command line: "10/s", "600/5m"."""
    for size, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")):
        if per_ms % size == 0:
            count = per_ms // size
            return f"{limit}/{unit}" if count == 1 else f"{limit}/{count}{unit}"
    return f"{limit}/{per_ms}ms"


def relative(moment_ms: int | None, *, now_ms: int | None = None) -> str:
    """The distance of a moment from now: "3 h ago", "in 5 s"; below a second "now"."""
    if moment_ms is None:
        return "-"
    age_ms = (time.time_ns() // 1_000_000 if now_ms is None else now_ms) - moment_ms
    if abs(age_ms) < 1_000:
        return "now"
    return f"{duration(age_ms)} ago" if age_ms > 0 else f"in {duration(-age_ms)}"


def absolute(
    moment_ms: int | None, *, now_ms: int | None = None, zone: tzinfo | None = None
) -> str | None:
    """A moment by the clock of a zone, or of this machine, and its distance from now."""
    if moment_ms is None:
        return None
    moment = datetime.fromtimestamp(moment_ms / 1000, tz=UTC).astimezone(zone)
    text = moment.isoformat(sep=" ", timespec="milliseconds")
    return f"{text} ({relative(moment_ms, now_ms=now_ms)})"
