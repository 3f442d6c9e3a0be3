"""Durations as programs write them: a `timedelta`, or a text such as `"5m"`.

The wire has milliseconds, in fields that end in `_ms`. An option may be given without that ending:
`timeout=timedelta(minutes=5)` or `timeout="5m"` is `timeout_ms=300_000`. A plain number is refused
there, because it says no unit.
"""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any

from rota.core.schedules.durations import ENDING, milliseconds
from rota.errors import Invalid

Duration = timedelta | str  # a text has parts such as `90s`, `1h30m`, `1.5d`
Seconds = float | Duration  # of a parameter whose plain numbers are seconds

# Options that are mappings and may have durations, and the names of those.
NESTING = frozenset({"backoff", "unique", "debounce", "rate", "retry", "wait_for", "approval"})
NESTED_NAMES = frozenset({"initial", "max", "for", "wait", "max_wait", "per", "timeout"})


def epoch_ms(value: object, name: str) -> int:
    """A moment in milliseconds since the Unix epoch; a datetime without a zone is local time."""
    if not isinstance(value, datetime):
        raise Invalid(
            f"{name} is a datetime; milliseconds since 1970 are given as {name}{ENDING}", field=name
        )
    return round(value.timestamp() * 1000)


def optional_milliseconds(value: int | Duration | None, name: str) -> int | None:
    """The value of a parameter in milliseconds that may be given as a duration, too."""
    return value if value is None or isinstance(value, int) else milliseconds(value, name)


def seconds(value: Seconds, name: str) -> float:
    """The value of a parameter in seconds that may be given as a duration, too."""
    if isinstance(value, int | float):
        return value
    return milliseconds(value, name) / 1000


def optional_seconds(value: Seconds | None, name: str) -> float | None:
    """As `seconds`; None is no limit."""
    return None if value is None else seconds(value, name)


def in_milliseconds(options: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """The options with each duration or moment in milliseconds, under the name of its field.

    `known` are the fields that the wire has. Mappings among the options may have durations, too.
    """
    plain: dict[str, Any] = {}
    for name, value in options.items():
        field = f"{name}{ENDING}"
        if name in known or field not in known:
            plain[name] = _nested(value) if name in NESTING else value
            continue
        if field in options:
            raise Invalid(f"give {name} or {field}, not both", field=name)
        is_moment = isinstance(value, datetime) or name.endswith("at")
        plain[field] = (epoch_ms if is_moment else milliseconds)(value, name)
    return plain


def _nested(value: Any) -> Any:
    """The value of an option; in a mapping, durations become fields in milliseconds."""
    if not isinstance(value, Mapping):
        return value
    plain: dict[str, Any] = {}
    for name, one in value.items():
        if name in NESTED_NAMES or isinstance(one, timedelta):
            plain[f"{name}{ENDING}"] = milliseconds(one, name)
        else:
            plain[name] = _nested(one)
    return plain
