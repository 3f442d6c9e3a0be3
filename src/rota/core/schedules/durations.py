"""Durations as people write them: `90s`, `1h30m`, `1.5d`, or a `timedelta`."""

import re
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from msgspec import StructMeta

from rota.errors import Invalid

ENDING = "_ms"  # of fields in milliseconds

UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
MAX_TEXT_LENGTH = 50
FORM = "30s, 5m, 1h30m or 500ms"
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)\s*")


@runtime_checkable
class Timedelta(Protocol):
    """A `timedelta`; the core does not import `datetime`."""

    def total_seconds(self) -> float: ...


Duration = Timedelta | str  # a text has parts such as `90s`, `1h30m`, `1.5d`


class DurationFields(StructMeta):
    """The metaclass of options whose fields in milliseconds may be given as durations, too.

    `Rate("api", limit=10, per="1m")` is `Rate("api", limit=10, per_ms=60_000)`. Only calls of the
    class come here; decoding reads milliseconds.
    """

    if not TYPE_CHECKING:  # type checkers know the parameters from `__init__` of the classes

        def __call__(cls, *values: Any, **options: Any) -> Any:  # noqa: N805 - of a metaclass
            fields = cls.__struct_fields__
            for name in options.keys() - {*fields}:
                field = f"{name.removesuffix('_')}{ENDING}"  # `for_`: `for` is a keyword of Python
                if field in options:
                    raise Invalid(f"give {name} or {field}, not both", field=name)
                if field in fields:
                    options[field] = milliseconds(options.pop(name), name)
            return super().__call__(*values, **options)


def milliseconds(value: object, name: str) -> int:
    """A duration in milliseconds; `name` is the option, for the error."""
    if isinstance(value, str):
        return _milliseconds_of_text(value, name)
    if isinstance(value, Timedelta):
        return round(value.total_seconds() * UNITS_MS["s"])
    number = (
        ""
        if isinstance(value, bool) or not isinstance(value, int | float)
        else (f"; a number of milliseconds is given as {name}{ENDING}")
    )
    raise Invalid(f'{name} is a timedelta, or a text such as "30s" or "5m"{number}', field=name)


def _milliseconds_of_text(text: str, name: str) -> int:
    found = milliseconds_of(text)
    if found is None:
        raise Invalid(
            f"{name}: {text[:MAX_TEXT_LENGTH]!r} is not a duration; write it as {FORM}", field=name
        )
    return found


def milliseconds_of(text: str) -> int | None:
    """The duration of a text in milliseconds; None: the text is no duration."""
    stripped = text.strip()
    parts = [] if len(text) > MAX_TEXT_LENGTH else _PART.findall(stripped)
    if not parts or _PART.sub("", stripped):
        return None
    return round(sum(float(count) * UNITS_MS[unit] for count, unit in parts))
