"""Durations as people write them: `90s`, `1h30m`, `1.5d`."""

import re

UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
MAX_TEXT_LENGTH = 50
FORM = "30s, 5m, 1h30m or 500ms"
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)\s*")


def milliseconds_of(text: str) -> int | None:
    """The duration of a text in milliseconds; None: the text is no duration."""
    stripped = text.strip()
    parts = [] if len(text) > MAX_TEXT_LENGTH else _PART.findall(stripped)
    if not parts or _PART.sub("", stripped):
        return None
    return round(sum(float(count) * UNITS_MS[unit] for count, unit in parts))
