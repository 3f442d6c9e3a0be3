"""The nominal times of a schedule: cron expressions in a time zone, intervals, and lists of times.

Theory of operation. `cronsim` finds the local times that match an expression, without any time
zone. The functions here map a local time to moments. A zone has local times that do not exist, when
clocks go forward, and times that come twice, when clocks go back. As in Debian's cron, expressions
with a wildcard for the minute or the hour go by elapsed time: they fire at every moment whose local
time matches. Every other expression names times of the day: one that does not exist fires once,
right after the gap, and one that comes twice fires once, the first time.

Zones come from the `tzdata` package, never from the machine, so that all coordinators agree.
"""

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from hashlib import blake2b
from importlib import resources
from itertools import islice
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from rota.core import limits
from rota.core.schedules.model import ScheduleSpec
from rota.errors import Invalid

MINUTE = timedelta(minutes=1)
DAY_MS = 24 * 3600 * 1000
LONGEST_GAP_MINUTES = 2 * 24 * 60  # a zone may skip a whole day
MAX_EXAMINED = 10_000  # times that one search may find excluded
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


# --- checks ---------------------------------------------------------------------------------------


def check_timing(spec: ScheduleSpec) -> None:
    """Refuse expressions, zones and combinations that mean nothing."""
    if not spec.crons and spec.every_ms is None and not spec.at_ms:
        raise Invalid("give one of cron, every_ms and at_ms", field="cron")
    if spec.offset_ms and spec.every_ms is None:
        raise Invalid("offset_ms: only with every_ms", field="offset_ms")
    if spec.every_ms is not None and spec.offset_ms >= spec.every_ms:
        raise Invalid("offset_ms: must be below every_ms", field="offset_ms")
    start_ms, end_ms = spec.starts_at_ms, spec.ends_at_ms
    if start_ms is not None and end_ms is not None and start_ms >= end_ms:
        raise Invalid("ends_at_ms: must be after starts_at_ms", field="ends_at_ms")
    zone_of(spec.timezone)
    for expression in spec.crons:
        _check_cron(expression, "cron")
    for text in spec.exclude:
        if _DATE.fullmatch(text):
            _date_of(text)
        else:
            _check_cron(text, "exclude")


def _check_cron(expression: str, field: str) -> None:
    try:
        _parsed(expression)
    except CronSimError as error:
        raise Invalid(
            f"{field}: {expression!r} is not a cron expression of five fields "
            f"(minute, hour, day of month, month, day of week): {error}",
            field=field,
        ) from None


def _date_of(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise Invalid(f"exclude: {text!r}: {error}", field="exclude") from None


@lru_cache(maxsize=1)
def _zone_names() -> frozenset[str]:
    return frozenset((resources.files("tzdata") / "zones").read_text().split())


@lru_cache(maxsize=600)
def _zone(name: str) -> tzinfo:
    file = resources.files("tzdata").joinpath("zoneinfo", *name.split("/"))
    with file.open("rb") as content:
        return ZoneInfo.from_file(content, key=name)


def zone_of(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    if name not in _zone_names():
        raise Invalid(
            f"timezone: {name!r} is not a time zone; use an IANA name such as Europe/Berlin",
            field="timezone",
        )
    return _zone(name)


# --- one expression -------------------------------------------------------------------------------


@lru_cache(maxsize=4_096)
def _parsed(expression: str) -> CronSim:
    """An expression to match with; it is never advanced."""
    if len(expression.split()) != 5:
        raise CronSimError("Wrong number of fields")
    return CronSim(expression, datetime(2000, 1, 1))  # noqa: DTZ001 - a local time, in no zone


def _matches(expression: str, local: datetime) -> bool:
    cron = _parsed(expression)
    return (
        local.minute in cron.minutes
        and local.hour in cron.hours
        and local.month in cron.months
        and cron.match_day(local.date())
    )


def _goes_by_elapsed_time(expression: str) -> bool:
    minute, hour, *_ = expression.split()
    return minute.startswith("*") or hour.startswith("*")


@lru_cache(maxsize=8_192)  # many schedules share an expression
def next_of_cron(expression: str, timezone: str, after_ms: int) -> int | None:
    """The first time of an expression after a moment; None: none within fifty years."""
    zone = zone_of(timezone)
    after = _moment(after_ms)
    try:
        if zone is UTC:
            return _ms(next(CronSim(expression, after)))
        if _goes_by_elapsed_time(expression):
            return _next_by_elapsed_time(expression, zone, after)
        return _next_time_of_day(expression, zone, after)
    except (StopIteration, OverflowError):
        return None


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms // 1000, UTC)


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def _local(moment: datetime, zone: tzinfo) -> datetime:
    """The local time of a moment, without its zone; `fold` tells the second of two apart."""
    return moment.astimezone(zone).replace(tzinfo=None)


def _moments_of(local: datetime, zone: tzinfo) -> tuple[datetime, ...]:
    """The moments at which a local time is shown: none in a gap, two where clocks go back."""
    found = dict.fromkeys(local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    shown = local.replace(fold=0)
    return tuple(sorted(one for one in found if _local(one, zone).replace(fold=0) == shown))


def _next_time_of_day(expression: str, zone: tzinfo, after: datetime) -> int | None:
    for local in CronSim(expression, _local(after, zone).replace(fold=0)):
        moments = _moments_of(local, zone) or (_end_of_gap(local, zone),)
        if moments[0] > after:
            return _ms(moments[0])
    return None


def _end_of_gap(local: datetime, zone: tzinfo) -> datetime:
    for minutes in range(1, LONGEST_GAP_MINUTES):
        moments = _moments_of(local + minutes * MINUTE, zone)
        if moments:
            return moments[0]
    raise OverflowError


def _next_by_elapsed_time(expression: str, zone: tzinfo, after: datetime) -> int | None:
    local = _local(after, zone)
    found = [_next_shown(expression, zone, after, local.replace(fold=0))]
    overlap = _overlap(local, zone)
    if overlap and local.fold == 0:
        # The clock will go back: the local times of before come once more, and may match.
        found.append(_next_shown(expression, zone, after, local.replace(fold=0) - overlap))
    return min((_ms(one) for one in found if one is not None), default=None)


def _next_shown(expression: str, zone: tzinfo, after: datetime, since: datetime) -> datetime | None:
    for local in CronSim(expression, since):
        for moment in _moments_of(local, zone):
            if moment > after:
                return moment
    return None


def _overlap(local: datetime, zone: tzinfo) -> timedelta:
    """How far the clock goes back at a local time that comes twice; nothing: it comes once."""
    first, second = (
        local.replace(tzinfo=zone, fold=fold).utcoffset() or timedelta() for fold in (0, 1)
    )
    return max(first - second, timedelta())


# --- a schedule -----------------------------------------------------------------------------------


def next_nominal_ms(spec: ScheduleSpec, after_ms: int) -> int | None:
    """The first time of a schedule after a moment; None: there is none."""
    return next(_times(spec, after_ms), None)


def upcoming(spec: ScheduleSpec, after_ms: int, count: int) -> list[int]:
    """The next times of a schedule, without regard to how often it may fire."""
    return list(islice(_times(spec, after_ms), count))


def _times(spec: ScheduleSpec, after_ms: int) -> Iterator[int]:
    """The times of a schedule, in order. Ends early when nearly all times are excluded."""
    if spec.starts_at_ms is not None:
        after_ms = max(after_ms, spec.starts_at_ms - 1)
    end_ms = limits.MAX_SCHEDULE_TIME_MS if spec.ends_at_ms is None else spec.ends_at_ms
    examined = 0
    while examined < MAX_EXAMINED:
        found = _next_of_any(spec, after_ms)
        if found is None or found >= end_ms:
            return
        resumes_after_ms = _excluded_until_ms(spec, found)
        if resumes_after_ms is None:
            yield found
            after_ms = found
        else:
            examined += 1
            after_ms = max(found, resumes_after_ms - 1)


def _next_of_any(spec: ScheduleSpec, after_ms: int) -> int | None:
    found: list[int] = [one for one in spec.at_ms if one > after_ms]
    if spec.every_ms is not None:
        passed = (after_ms - spec.offset_ms) // spec.every_ms
        found.append(spec.offset_ms + (passed + 1) * spec.every_ms)
    for expression in spec.crons:
        one = next_of_cron(expression, spec.timezone, after_ms)
        if one is not None:
            found.append(one)
    return min(found, default=None)


def _excluded_until_ms(spec: ScheduleSpec, nominal_ms: int) -> int | None:
    """When the exclusion of a time may be over; None: it is not excluded."""
    if not spec.exclude:
        return None
    zone = zone_of(spec.timezone)
    local = _local(_moment(nominal_ms), zone)
    for text in spec.exclude:
        if _DATE.fullmatch(text):
            if local.date() == _date_of(text):
                return _first_ms(local.replace(hour=0, minute=0, second=0) + timedelta(1), zone)
        elif _matches(text, local):
            minute, hour, *_ = text.split()
            if minute == "*" and hour == "*":
                return _first_ms(local.replace(hour=0, minute=0, second=0) + timedelta(1), zone)
            return nominal_ms + 1
    return None


def _first_ms(local: datetime, zone: tzinfo) -> int:
    moments = _moments_of(local.replace(fold=0), zone)
    return _ms(moments[0] if moments else _end_of_gap(local, zone))


def jitter_ms(name: str, nominal_ms: int, most_ms: int) -> int:
    """The delay of one firing, from 0 to `most_ms`; the same on every coordinator."""
    if not most_ms:
        return 0
    digest = blake2b(f"{name}\0{nominal_ms}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) % (most_ms + 1)


def due_ms(name: str, spec: ScheduleSpec, nominal_ms: int) -> int:
    """When a nominal time fires."""
    return nominal_ms + jitter_ms(name, nominal_ms, spec.jitter_ms)
