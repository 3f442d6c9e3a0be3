"""Celery's periodic tasks as schedules: `crontab`, and the entries of `beat_schedule`."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from rota.errors import Invalid

Field = str | int
ENTRY_FIELDS = {"task", "schedule", "args", "kwargs", "options", "relative"}


class Crontab(NamedTuple):
    """A time pattern in the words of Celery; `crontab` makes it."""

    minute: Field = "*"
    hour: Field = "*"
    day_of_week: Field = "*"
    day_of_month: Field = "*"
    month_of_year: Field = "*"

    @property
    def expression(self) -> str:
        """The five fields of cron, which have another order."""
        fields = (
            self.minute,
            self.hour,
            self.day_of_month,
            self.month_of_year,
            self.day_of_week,
        )
        return " ".join(str(field).replace(" ", "") for field in fields)


def crontab(
    minute: Field = "*",
    hour: Field = "*",
    day_of_week: Field = "*",
    day_of_month: Field = "*",
    month_of_year: Field = "*",
) -> Crontab:
    """The times at which a periodic task runs, in the time zone of the app."""
    return Crontab(minute, hour, day_of_week, day_of_month, month_of_year)


class PeriodicCall(NamedTuple):
    """One entry of `beat_schedule`, or one call of `add_periodic_task`."""

    name: str
    task: str
    schedule: Any
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}  # it is not changed
    options: Mapping[str, Any] = {}  # it is not changed

    def timing(self, timezone: str | None) -> tuple[tuple[str, ...], dict[str, Any]]:
        """The cron expressions of the schedule, and its other options."""
        match self.schedule:
            case Crontab() as pattern:
                zone = {} if timezone is None else {"timezone": timezone}
                return (pattern.expression,), zone
            case timedelta() as interval:
                return (), {"every": interval}
            case int() | float() as seconds:
                return (), {"every": timedelta(seconds=seconds)}
            case _:
                raise Invalid(
                    f"periodic task {self.name!r}: its schedule is a number of seconds, a "
                    f"timedelta or crontab(…), not {type(self.schedule).__name__}",
                    schedule=self.name,
                )


def entries_of(beat_schedule: Mapping[str, Mapping[str, Any]]) -> list[PeriodicCall]:
    """The entries of the setting `beat_schedule`."""
    return [_entry(name, entry) for name, entry in beat_schedule.items()]


def _entry(name: str, entry: Mapping[str, Any]) -> PeriodicCall:
    unknown = sorted(entry.keys() - ENTRY_FIELDS)
    missing = sorted({"task", "schedule"} - entry.keys())
    if unknown or missing:
        wrong = f"has no field {unknown[0]!r}" if unknown else f"lacks {missing[0]!r}"
        raise Invalid(f"beat_schedule: an entry {wrong}: {name!r}", schedule=name)
    return PeriodicCall(
        name,
        entry["task"],
        entry["schedule"],
        tuple(entry.get("args") or ()),
        dict(entry.get("kwargs") or {}),
        dict(entry.get("options") or {}),
    )
