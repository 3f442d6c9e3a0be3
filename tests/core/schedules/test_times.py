"""The times of schedules: expressions, zones whose clocks change, intervals, exclusions."""

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from rota.core import limits
from rota.core.schedules.model import ScheduleSpec
from rota.core.schedules.times import (
    check_timing,
    jitter_ms,
    next_nominal_ms,
    next_of_cron,
    upcoming,
    zone_of,
)
from rota.errors import Invalid

BERLIN, LORD_HOWE, APIA = "Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia"
# Shifts of an hour and of half an hour, rules that changed, a day that was left out, no shifts.
ZONES = (
    BERLIN,
    LORD_HOWE,
    APIA,
    "America/New_York",
    "America/Sao_Paulo",  # gave up its shifts
    "Africa/Casablanca",  # goes back for one month of each year
    "Asia/Kathmandu",
    "UTC",
)
MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS


def ms(text: str, zone: str = "UTC", fold: int = 0) -> int:
    local = datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold)
    return round(local.timestamp() * 1000)


def shown(moment_ms: int, zone: str) -> str:
    return datetime.fromtimestamp(moment_ms / 1000, ZoneInfo(zone)).strftime("%d %H:%M%z")


def times(cron: str, zone: str, after: str, count: int) -> list[str]:
    spec = ScheduleSpec(cron=cron, timezone=zone)
    return [shown(one, zone) for one in upcoming(spec, ms(after, zone), count)]


# --- clocks that change ---------------------------------------------------------------------------


def test_a_time_that_does_not_exist_fires_once_right_after_the_gap() -> None:
    found = times("30 2 * * *", BERLIN, "2026-03-28T12:00", 3)

    assert found == ["29 03:00+0200", "30 02:30+0200", "31 02:30+0200"]


def test_several_times_in_one_gap_fire_once() -> None:
    assert times("0,30 2,3 * * *", BERLIN, "2026-03-29T00:00", 3) == [
        "29 03:00+0200",
        "29 03:30+0200",
        "30 02:00+0200",
    ]


def test_a_time_that_comes_twice_fires_the_first_time() -> None:
    found = times("30 2 * * *", BERLIN, "2026-10-24T12:00", 2)

    assert found == ["25 02:30+0200", "26 02:30+0100"]


def test_a_search_that_begins_in_the_repeated_hour_finds_nothing_behind_it() -> None:
    after_ms = ms("2026-10-25T02:10", BERLIN, fold=1)

    assert next_of_cron("30 2 * * *", BERLIN, after_ms) == ms("2026-10-26T02:30", BERLIN)


def test_wildcards_go_by_elapsed_time_when_clocks_go_back() -> None:
    assert times("*/30 * * * *", BERLIN, "2026-10-25T01:45", 5) == [
        "25 02:00+0200",
        "25 02:30+0200",
        "25 02:00+0100",
        "25 02:30+0100",
        "25 03:00+0100",
    ]


def test_wildcards_go_by_elapsed_time_when_clocks_go_forward() -> None:
    assert times("*/30 * * * *", BERLIN, "2026-03-29T01:15", 3) == [
        "29 01:30+0100",
        "29 03:00+0200",
        "29 03:30+0200",
    ]


def test_a_shift_of_half_an_hour_leaves_out_nothing() -> None:
    assert times("*/15 3 * * *", LORD_HOWE, "2026-10-04T00:00", 2) == [
        "04 03:00+1100",
        "04 03:15+1100",
    ]
    assert times("15 2 * * *", LORD_HOWE, "2026-10-03T12:00", 2) == [
        "04 02:30+1100",
        "05 02:15+1100",
    ]
    assert times("*/15 1 * * *", LORD_HOWE, "2026-04-05T01:20", 5) == [
        "05 01:30+1100",
        "05 01:45+1100",
        "05 01:30+1030",
        "05 01:45+1030",
        "06 01:00+1030",
    ]


def test_a_day_that_a_zone_left_out_fires_once_after_it() -> None:
    # Samoa went from the end of 29 December 2011 to 31 December.
    found = times("0 12 * * *", APIA, "2011-12-29T00:00", 3)

    assert [one[:8] for one in found] == ["29 12:00", "31 00:00", "31 12:00"]


def test_a_zone_that_changed_its_rules_goes_by_those_of_each_year() -> None:
    # Turkey stayed on summer time in 2016.
    assert times("0 9 * * *", "Europe/Istanbul", "2015-12-01T00:00", 1) == ["01 09:00+0200"]
    assert times("0 9 * * *", "Europe/Istanbul", "2016-12-01T00:00", 1) == ["01 09:00+0300"]


FIELDS = st.tuples(
    st.sampled_from(["*", "*/15", "0", "30", "5,45", "59"]),
    st.sampled_from(["*", "*/6", "0", "2", "1-3", "23"]),
    st.sampled_from(["*", "1", "L", "29", "*/10"]),
    st.sampled_from(["*", "3,10", "4-10", "FEB"]),
    st.sampled_from(["*", "SUN", "MON-FRI", "SUN#1", "0L"]),
)
FIRST, LAST = datetime(2005, 1, 1, tzinfo=UTC), datetime(2037, 1, 1, tzinfo=UTC)


@cache
def shifts(zone: str) -> list[int]:
    """The days on which the clocks of a zone change."""
    place, day, found = zone_of(zone), FIRST, []
    while day < LAST:
        following = day + timedelta(1)
        if day.astimezone(place).utcoffset() != following.astimezone(place).utcoffset():
            found.append(round(day.timestamp() * 1000))
        day = following
    return found or [round(FIRST.timestamp() * 1000)]


def moments(zone: str) -> st.SearchStrategy[tuple[str, int]]:
    """Any moment, and one near a change of the clocks half of the time."""
    anywhere = st.integers(round(FIRST.timestamp()) * 1000, round(LAST.timestamp()) * 1000)
    near = st.builds(
        lambda day_ms, by_ms: day_ms + by_ms,
        st.sampled_from(shifts(zone)),
        st.integers(-DAY_MS // 2, DAY_MS),
    )
    return st.tuples(st.just(zone), anywhere | near)


MOMENTS = st.sampled_from(ZONES).flatmap(moments)


@given(FIELDS, MOMENTS)
def test_the_next_time_is_the_first_that_the_rules_allow(
    fields: tuple[str, ...], place: tuple[str, int]
) -> None:
    """Minute by minute from the moment on: the time that is found is the first that matches."""
    expression = " ".join(fields)
    zone, after_ms = place
    found = next_of_cron(expression, zone, after_ms)
    by_minute = first_by_minute(expression, zone, after_ms)

    if by_minute is not None:
        assert found == by_minute
    else:
        assert found is None or found > after_ms + WALKED_DAYS * DAY_MS - MINUTE_MS


WALKED_DAYS = 2


def first_by_minute(expression: str, zone: str, after_ms: int) -> int | None:
    """The rule, written a second time as a walk over every minute that the clock of a zone shows.

    Expressions without a wildcard name times of the day: those inside a gap fire at its end, and
    those that the clock shows for a second time do not fire.
    """
    minute, hour = expression.split()[:2]
    goes_by_elapsed_time = minute.startswith("*") or hour.startswith("*")
    place = zone_of(zone)
    moment = datetime.fromtimestamp(after_ms // MINUTE_MS * 60, UTC)
    shown_before = moment.astimezone(place).replace(tzinfo=None, fold=0)
    matching = local_matches(expression, shown_before - timedelta(2))
    for _ in range(WALKED_DAYS * 24 * 60):
        moment += timedelta(minutes=1)
        local = moment.astimezone(place)
        naive = local.replace(tzinfo=None, fold=0)
        if goes_by_elapsed_time:
            is_due = naive in matching
        else:
            gap = (naive - shown_before) // timedelta(minutes=1) - 1
            left_out = [naive - timedelta(minutes=number + 1) for number in range(max(0, gap))]
            is_due = local.fold == 0 and naive in matching
            is_due = is_due or not matching.isdisjoint(left_out)
        if is_due:
            return round(moment.timestamp() * 1000)
        shown_before = naive
    return None


def local_matches(expression: str, since: datetime) -> set[datetime]:
    """The local times of an expression, in no zone."""
    found: set[datetime] = set()
    for one in CronSim(expression, since):
        if one > since + timedelta(WALKED_DAYS + 5):
            break
        found.add(one)
    return found


@given(FIELDS, MOMENTS)
def test_times_rise_and_do_not_depend_on_where_the_search_begins(
    fields: tuple[str, ...], place: tuple[str, int]
) -> None:
    zone, after_ms = place
    spec = ScheduleSpec(cron=" ".join(fields), timezone=zone)
    found = upcoming(spec, after_ms, 12)

    assert found == sorted(set(found))
    for number, one in enumerate(found[:-1]):
        following = found[number + 1]
        assert next_nominal_ms(spec, one) == following
        assert next_nominal_ms(spec, (one + following) // 2) == following
        assert next_nominal_ms(spec, following - 1) == following


# --- other rules ----------------------------------------------------------------------------------


def test_an_interval_counts_from_the_epoch() -> None:
    spec = ScheduleSpec(every_ms=7_000, offset_ms=500)

    assert upcoming(spec, 0, 3) == [500, 7_500, 14_500]
    assert upcoming(spec, 7_500, 1) == [14_500]


def test_the_times_of_all_rules_come_in_one_order() -> None:
    spec = ScheduleSpec(
        cron=("0 3 * * *", "0 4 * * *"), every_ms=DAY_MS // 4, at_ms=(ms("2026-01-01T05:00"),)
    )

    assert [shown(one, "UTC")[:8] for one in upcoming(spec, ms("2026-01-01T00:00"), 5)] == [
        "01 03:00",
        "01 04:00",
        "01 05:00",
        "01 06:00",
        "01 12:00",
    ]


def test_a_schedule_begins_and_ends_at_its_moments() -> None:
    spec = ScheduleSpec(every_ms=1_000, starts_at_ms=5_000, ends_at_ms=8_000)

    assert upcoming(spec, 0, 10) == [5_000, 6_000, 7_000]


def test_excluded_days_and_hours_do_not_count() -> None:
    spec = ScheduleSpec(
        cron="0 * * * *", timezone=BERLIN, exclude=("2026-12-25", "* 0-22 26 12 *", "* * * * SUN")
    )
    found = upcoming(spec, ms("2026-12-24T22:30", BERLIN), 4)

    # The 27th is a Sunday.
    assert [shown(one, BERLIN)[:8] for one in found] == [
        "24 23:00",
        "26 23:00",
        "28 00:00",
        "28 01:00",
    ]


def test_a_search_among_excluded_times_comes_to_an_end() -> None:
    assert upcoming(ScheduleSpec(every_ms=1_000, exclude=("* * * * *", "0 * * * *")), 0, 5) == []
    assert upcoming(ScheduleSpec(every_ms=1_000, exclude=("*/1 * * * *",)), 0, 5) == []


def test_a_date_that_never_comes_has_no_time() -> None:
    assert next_of_cron("0 0 * 2 MON#5", "UTC", ms("2030-01-01T00:00")) == ms("2044-02-29T00:00")
    assert upcoming(ScheduleSpec(cron="0 0 30 2 MON#1,TUE#5"), 0, 1) != []


@pytest.mark.parametrize(
    ("problem", "fields"),
    [
        ("one of cron", {}),
        ("not a cron expression", {"cron": "nonsense"}),
        ("not a cron expression", {"cron": "0 3 * *"}),
        ("not a cron expression", {"cron": "0 0 3 * * *"}),
        ("not a cron expression", {"cron": "0 25 * * *"}),
        ("Bad day-of-month", {"cron": "0 0 30 2 *"}),
        ("not a cron expression", {"cron": ("0 3 * * *", "x")}),
        ("not a time zone", {"cron": "0 3 * * *", "timezone": "Berlin"}),
        ("not a time zone", {"cron": "0 3 * * *", "timezone": "../../etc/passwd"}),
        ("exclude", {"cron": "0 3 * * *", "exclude": ("2026-13-01",)}),
        ("exclude", {"cron": "0 3 * * *", "exclude": ("monday",)}),
        ("only with every_ms", {"cron": "0 3 * * *", "offset_ms": 1}),
        ("below every_ms", {"every_ms": 1_000, "offset_ms": 1_000}),
        ("after starts_at_ms", {"every_ms": 1_000, "starts_at_ms": 5, "ends_at_ms": 5}),
    ],
)
def test_what_means_nothing_is_refused(problem: str, fields: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match=problem):
        check_timing(ScheduleSpec(**fields))


@given(st.text("0123456789*/-,#LWMONJAN ", max_size=30), st.sampled_from(ZONES))
def test_any_text_is_an_expression_or_is_refused(text: str, zone: str) -> None:
    spec = ScheduleSpec(cron=text or "x", timezone=zone)
    try:
        check_timing(spec)
    except Invalid:
        return
    found = upcoming(spec, ms("2026-01-01T00:00"), 2)
    assert found == sorted(found)


def test_every_zone_of_the_package_is_known() -> None:
    assert zone_of("UTC") is UTC
    assert zone_of("Antarctica/Troll").utcoffset(datetime(2026, 1, 1, tzinfo=None)) is not None  # noqa: DTZ001


@given(st.text(max_size=20), st.integers(0, 2**50), st.integers(0, limits.MAX_JITTER_MS))
def test_jitter_follows_from_name_and_time(name: str, nominal_ms: int, most_ms: int) -> None:
    delay_ms = jitter_ms(name, nominal_ms, most_ms)

    assert 0 <= delay_ms <= most_ms
    assert delay_ms == jitter_ms(name, nominal_ms, most_ms)


def test_jitter_spreads_schedules_over_its_whole_range() -> None:
    found = {jitter_ms(f"s{number}", 0, 9) for number in range(200)}

    assert found == set(range(10))
