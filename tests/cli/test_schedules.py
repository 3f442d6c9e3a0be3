"""`rota schedules`, against a served coordinator."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from rota.cli.render.output import ExitCode
from tests.cli.conftest import Command, document

HOUR_MS = 3_600_000
NIGHTLY: dict[str, Any] = {
    "cron": "0 3 * * *",
    "timezone": "Europe/Berlin",
    "exclude": ["2026-12-25"],
    "task": {"name": "clean", "queue": "cleaning"},
}


def put(rota: Command, name: str, **changes: Any) -> None:
    made = rota("schedules", "put", name, json.dumps({**NIGHTLY, **changes}))
    assert made.exit_code == ExitCode.OK, made.stderr


def words(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_schedules_are_put_listed_and_deleted(rota: Command, tmp_path: Path) -> None:
    file = tmp_path / "hourly.json"
    file.write_text(json.dumps({"every_ms": HOUR_MS, "run": {"workflow": "w"}}))
    put(rota, "listed")
    assert rota("schedules", "put", "listed-hourly", f"@{file}").exit_code == ExitCode.OK

    table = words(rota("schedules", "ls").stdout)
    refused = rota("schedules", "rm", "listed")
    gone = [rota("schedules", "rm", name, "--yes") for name in ("listed", "listed-hourly")]

    assert table[0] == ["SCHEDULE", "STATE", "TIMES", "ZONE", "FIRES", "NEXT", "LAST", "OUTCOME"]
    rows = {row[0]: row for row in table[1:]}
    assert " ".join(rows["listed"][1:10]) == "active 0 3 * * * Europe/Berlin task clean"
    assert rows["listed-hourly"][1:7] == ["active", "every", "1", "h", "UTC", "run"]
    assert refused.exit_code == ExitCode.UNUSABLE
    assert gone[0].stdout == "schedule listed is deleted\n"
    assert "listed" not in rota("schedules", "ls").stdout


def test_a_schedule_is_shown_with_its_firings(rota: Command) -> None:
    put(rota, "shown")

    fired = rota("schedules", "run", "shown").stdout.split()
    skipped = rota("schedules", "run", "shown").stdout
    shown = words(rota("schedules", "show", "shown").stdout)
    view = document(rota("schedules", "show", "shown", "--json"))

    assert (fired[0], skipped) == ("fired", "skipped_overlap\n")
    assert ["time", "zone", "Europe/Berlin"] in shown
    assert ["excluded", "2026-12-25"] in shown
    assert any(row[-4:] == ["fired", fired[1], "on", "demand"] for row in shown)
    assert [one["outcome"] for one in view["firings"]] == ["skipped_overlap", "fired"]


def test_the_next_times_are_shown(rota: Command) -> None:
    put(rota, "coming", timezone="UTC")

    after = ("--after", "2027-01-01T00:00+00:00", "--count", "2")
    times = document(rota("schedules", "next", "coming", *after, "--json"))["items"]
    lines = rota("schedules", "next", "coming", "--count", "3").stdout.splitlines()

    assert times == [1_798_772_400_000, 1_798_858_800_000]
    assert len(lines) == 3


@pytest.mark.parametrize(
    ("cron", "after", "shown"),
    [
        # In October the clock goes from 02:00 to 02:30: a time in between fires at 02:30.
        (
            "15 2 * * *",
            "2026-10-02T12:00+11:00",
            ["03 02:15:00.000+10:30", "04 02:30:00.000+11:00", "05 02:15:00.000+11:00"],
        ),
        # In April it goes from 02:00 back to 01:30: a time of the day fires once, the first time,
        # and one that goes by elapsed time fires twice.
        (
            "45 1 * * *",
            "2026-04-04T00:00+11:00",
            ["04 01:45:00.000+11:00", "05 01:45:00.000+11:00", "06 01:45:00.000+10:30"],
        ),
        (
            "*/30 1-2 * * *",
            "2026-04-05T01:00+11:00",
            ["05 01:30:00.000+11:00", "05 01:30:00.000+10:30", "05 02:00:00.000+10:30"],
        ),
    ],
)
def test_the_next_times_are_by_the_clock_of_a_zone_that_shifts_by_half_an_hour(
    rota: Command, cron: str, after: str, shown: list[str]
) -> None:
    put(rota, "island", cron=cron, timezone="Australia/Lord_Howe")

    wanted = ("schedules", "next", "island", "--after", after, "--count", "3")
    lines = rota(*wanted).stdout.splitlines()
    times = document(rota(*wanted, "--json"))["items"]

    assert [line.partition(" (")[0][8:] for line in lines] == shown
    clock = [datetime.fromtimestamp(one / 1000, ZoneInfo("Australia/Lord_Howe")) for one in times]
    assert [one.isoformat(" ", "milliseconds")[8:] for one in clock] == shown


def test_a_schedule_is_paused_with_a_note_and_resumed(rota: Command) -> None:
    put(rota, "resting")

    paused = rota("schedules", "pause", "resting", "--note", "moving house")
    shown = rota("schedules", "show", "resting").stdout
    resumed = rota("schedules", "resume", "resting")

    assert paused.stdout == "schedule resting is paused\n"
    assert "moving house" in shown
    assert resumed.stdout.startswith("schedule resting is active, next in ")


def test_a_backfill_is_counted_first(rota: Command) -> None:
    put(rota, "late", timezone="UTC", overlap="allow")
    wanted = ("--from", "2026-01-01T00:00+00:00", "--to", "1767398400000")

    counted = rota("schedules", "backfill", "late", *wanted, "--dry-run")
    made = rota("schedules", "backfill", "late", *wanted, "--overlap", "queue_all")

    assert counted.stdout == "schedule late would fire for 2 times\n"
    assert made.stdout == "schedule late fires for 2 times\n"
    view = document(rota("schedules", "show", "late", "--json"))
    assert [one["outcome"] for one in view["firings"]] == ["queued", "fired"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("show", "nobody"), ExitCode.FAILED, "schedule_not_found"),
        (("put", "bad", "{"), ExitCode.UNUSABLE, "not JSON"),
        (("put", "bad", '{"unheard": 1}'), ExitCode.UNUSABLE, "unheard"),
        (("put", "bad", '{"cron": "x", "task": {"name": "t"}}'), ExitCode.UNUSABLE, "five fields"),
        (("next", "x", "--after", "tomorrow"), ExitCode.UNUSABLE, "neither a time"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(
    rota: Command, arguments: tuple[str, ...], code: ExitCode, said: str
) -> None:
    ended = rota("schedules", *arguments)

    assert ended.exit_code == code
    assert said in ended.stderr
