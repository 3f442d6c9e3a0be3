"""`rota schedules`: list, show, put, fire, pause and delete schedules."""

from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from functools import partial
from typing import Any, get_args

import click
import msgspec

from rota.cli.connection import connected
from rota.cli.groups import CommandGroup
from rota.cli.inputs import json_value
from rota.cli.options import page_options, yes_flag
from rota.cli.render.formatting import absolute, duration, relative
from rota.cli.render.output import Facts, Table, confirm, show, show_page, table, visible
from rota.core import limits
from rota.core.schedules.model import OverlapPolicy
from rota.core.schedules.times import zone_of
from rota.errors import Invalid
from rota.messages.schedules import (
    BackfillCount,
    FiringView,
    ScheduleBackfill,
    SchedulePage,
    SchedulePut,
    ScheduleTimes,
    ScheduleView,
)
from rota.sdk.client import schedule_calls
from rota.sdk.client.client import Client

SHOWN_FIRINGS = 10


def moment(text: str) -> int:
    """A time: ISO 8601, local unless it has an offset, or milliseconds since the Unix epoch."""
    if text.isascii() and text.isdigit() and len(text) > len("20261231"):
        return int(text)
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is neither a time such as 2026-12-31T03:00 nor milliseconds"
        ) from None


@click.group(cls=CommandGroup)
def schedules() -> None:
    """List, show, put, fire, pause and delete schedules."""


@schedules.command("ls")
@page_options
@connected
def ls(client: Client, *, as_json: bool, **selection: Any) -> None:
    """List the schedules, with their next and last firings."""
    page = client.run(schedule_calls.list_schedules(**selection))
    show_page(page, as_json=as_json, render=_table)


@schedules.command("show")
@click.argument("name")
@connected
def show_one(client: Client, name: str, *, as_json: bool) -> None:
    """Show a schedule and its last firings."""
    found = client.run(schedule_calls.get_schedule(name))
    show(found, as_json=as_json, render=_facts)
    if not as_json and found.firings:
        click.echo()
        show(found, as_json=False, render=_firings)


@schedules.command("put")
@click.argument("name")
@click.argument("schedule")
@connected
def put(client: Client, name: str, schedule: str, *, as_json: bool) -> None:
    """Create or change a schedule. SCHEDULE is JSON, @FILE, or - for stdin."""
    document = json_value("SCHEDULE", schedule)
    assert document is not None, "the argument is required"
    try:
        request = msgspec.json.decode(document, type=SchedulePut)
    except msgspec.ValidationError as error:
        raise click.UsageError(f"SCHEDULE: {error}") from None
    show(client.run(schedule_calls.put_schedule(name, request)), as_json=as_json, render=_line)


@schedules.command("next")
@click.argument("name")
@click.option(
    "--count",
    type=click.IntRange(1, limits.MAX_NEXT_TIMES),
    default=10,
    show_default=True,
    help="How many times to show.",
)
@click.option("--after", "after_ms", type=moment, help="Times after this one; by default now.")
@connected
def next_times(
    client: Client, name: str, count: int, after_ms: int | None, *, as_json: bool
) -> None:
    """Show the next times of a schedule, by the clock of its time zone."""
    schedule = client.run(schedule_calls.get_schedule(name))
    call = schedule_calls.next_times(name, count=count, after_ms=after_ms)
    render = partial(_times, zone=_zone(schedule))
    show(client.run(call), as_json=as_json, render=render)


@schedules.command("run")
@click.argument("name")
@connected
def run(client: Client, name: str, *, as_json: bool) -> None:
    """Fire a schedule now, paused or not."""
    show(client.run(schedule_calls.run_schedule(name)), as_json=as_json, render=_firing_line)


@schedules.command("pause")
@click.argument("name")
@click.option("--note", default="", help="Why; it is shown with the schedule.")
@connected
def pause(client: Client, name: str, note: str, *, as_json: bool) -> None:
    """Pause a schedule until it is resumed."""
    show(client.run(schedule_calls.pause_schedule(name, note)), as_json=as_json, render=_line)


@schedules.command("resume")
@click.argument("name")
@connected
def resume(client: Client, name: str, *, as_json: bool) -> None:
    """Let a paused schedule fire again, from its next time on."""
    show(client.run(schedule_calls.resume_schedule(name)), as_json=as_json, render=_line)


@schedules.command("backfill")
@click.argument("name")
@click.option("--from", "from_ms", type=moment, required=True, help="Start of the range.")
@click.option("--to", "to_ms", type=moment, required=True, help="End of the range, exclusive.")
@click.option(
    "--overlap",
    type=click.Choice(get_args(OverlapPolicy)),
    help="The rule for overlaps; by default that of the schedule.",
)
@click.option("--dry-run", is_flag=True, help="Count the times, and fire nothing.")
@connected
def backfill(client: Client, name: str, *, as_json: bool, **given: Any) -> None:
    """Fire a schedule for its times in a range that has passed."""
    request = ScheduleBackfill(**given)
    verb = "would fire" if request.dry_run else "fires"

    def line(answer: BackfillCount) -> str:
        return f"schedule {visible(name)} {verb} for {answer.count} times"

    answer = client.run(schedule_calls.backfill_schedule(name, request))
    show(answer, as_json=as_json, render=line)


@schedules.command("rm")
@click.argument("name")
@yes_flag
@connected
def remove(client: Client, name: str, *, yes: bool, as_json: bool) -> None:
    """Delete a schedule with its history; what it has fired stays."""
    if not yes:
        confirm(f"delete schedule {name!r}?")
    gone = client.run(schedule_calls.delete_schedule(name))
    show(gone, as_json=as_json, render=lambda one: f"schedule {visible(one.name)} is deleted")


# --- rendering ----------------------------------------------------------------------------------


def _rule(schedule: ScheduleView) -> str:
    rules = [schedule.cron] if isinstance(schedule.cron, str) else [*(schedule.cron or ())]
    if schedule.every_ms is not None:
        rules.append(f"every {duration(schedule.every_ms)}")
    if schedule.at_ms:
        rules.append(f"{len(schedule.at_ms)} times")
    return ", ".join(rules)


def _fires(schedule: ScheduleView) -> str:
    if schedule.run is not None:
        return f"run {schedule.run['workflow']}"
    return f"task {schedule.task['name']}"


def _state(schedule: ScheduleView) -> str:
    if schedule.paused:
        return "paused"
    return "over" if schedule.next_at_ms is None else "active"


def _table(page: SchedulePage) -> Table:
    columns: dict[str, Callable[[ScheduleView], object]] = {
        "schedule": lambda one: one.name,
        "state": _state,
        "times": _rule,
        "zone": lambda one: one.timezone,
        "fires": _fires,
        "next": lambda one: relative(one.next_at_ms),
        "last": lambda one: relative(one.firings[0].fired_at_ms if one.firings else None),
        "outcome": lambda one: one.firings[0].outcome if one.firings else "-",
    }
    return table(page.items, columns, empty="no schedules yet")


def _facts(schedule: ScheduleView) -> Facts:
    paused = None
    if schedule.paused:
        parts = (absolute(schedule.paused_at_ms), schedule.paused_by, schedule.note)
        paused = ", ".join(one for one in parts if one)
    return Facts(
        [
            ("schedule", schedule.name),
            ("state", _state(schedule)),
            ("paused", paused),
            ("times", _rule(schedule)),
            ("time zone", schedule.timezone),
            ("excluded", ", ".join(schedule.exclude) or None),
            ("fires", _fires(schedule)),
            ("next", absolute(schedule.next_at_ms)),
            ("last fired", absolute(schedule.last_fired_at_ms)),
            ("last success", absolute(schedule.previous_success_ms)),
            ("failures", schedule.failures or None),
            ("waiting", schedule.waiting or None),
            ("missed", schedule.missed),
            ("overlap", schedule.overlap),
            ("from code", schedule.source),
            ("pinned", "yes: the code leaves it alone" if schedule.pinned else None),
            ("orphaned", "yes: the code does not have it" if schedule.orphaned else None),
        ]
    )


def _zone(schedule: ScheduleView) -> tzinfo:
    """The zone of a schedule; UTC where this machine does not know it."""
    try:
        return zone_of(schedule.timezone)
    except Invalid:
        return UTC


def _firings(schedule: ScheduleView) -> Table:
    zone = _zone(schedule)
    rows = [
        (
            absolute(one.nominal_ms, zone=zone),
            one.outcome if one.count == 1 else f"{one.outcome} x{one.count}",
            one.task_id or one.run_id or "-",
            one.reason or ("on demand" if one.manual else ""),
        )
        for one in schedule.firings[:SHOWN_FIRINGS]
    ]
    return Table(("time", "outcome", "task or run", "note"), rows)


def _times(times: ScheduleTimes, *, zone: tzinfo) -> str:
    return "\n".join(absolute(one, zone=zone) or "" for one in times.items) or "no further times"


def _line(schedule: ScheduleView) -> str:
    following = relative(schedule.next_at_ms)
    text = f"schedule {visible(schedule.name)} is {_state(schedule)}"
    return text if schedule.next_at_ms is None else f"{text}, next {following}"


def _firing_line(firing: FiringView) -> str:
    item = firing.task_id or firing.run_id
    return firing.outcome if item is None else f"{firing.outcome} {item}"
