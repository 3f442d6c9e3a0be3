from typing import Any

import pytest

from rota.core.commands import Result
from rota.core.decisions import NoteQuality
from rota.core.snapshot import Quality
from rota.core.tasks.model import Lane
from rota.core.workers.circuit_breaker import Breaker, BreakerPolicy, BreakerState
from rota.core.workers.model import WorkerRecord, WorkerState
from rota.core.workers.statistics import EMPTY
from tests.core.snapshots import (
    NOW_MS,
    Situation,
    add_running,
    add_worker,
    done,
    reduce,
    report,
    situation,
)

FAILURES = 5
STRICT = BreakerPolicy(failures_in_a_row=FAILURES)


def learned(snapshot: Situation, worker: WorkerRecord, *results: Result) -> dict[str, NoteQuality]:
    decisions, _ = reduce(snapshot, report(worker, *results))
    return {one.name: one for one in decisions if isinstance(one, NoteQuality)}


def results(
    snapshot: Situation, worker: WorkerRecord, count: int, *, first: int = 1, **changes: Any
) -> list[Result]:
    """Results of so many tasks that the worker has been running for 30 ms."""
    return [
        done(add_running(snapshot, number, worker=worker, started_at_ms=NOW_MS - 30), **changes)
        for number in range(first, first + count)
    ]


def test_results_are_counted_with_their_durations_by_task_name() -> None:
    snapshot = situation()
    worker = add_worker(snapshot)
    good = results(snapshot, worker, 2)
    bad = results(snapshot, worker, 1, first=3, ok=False)
    mail = done(add_running(snapshot, 4, worker=worker, lane=Lane("default", "mail")))

    notes = learned(snapshot, worker, *good, *bad, mail)

    work = notes["work"].statistics
    assert (work.tasks_completed, work.tasks_failed, work.total_duration_ms) == (2, 1, 90)
    assert notes["mail"].statistics.tasks_completed == 1


def test_what_is_learned_adds_up_over_reports_of_one_batch() -> None:
    snapshot = situation()
    worker = add_worker(snapshot)

    learned(snapshot, worker, *results(snapshot, worker, 2))
    notes = learned(snapshot, worker, *results(snapshot, worker, 3, first=3))

    assert notes["work"].statistics.tasks_completed == 5


def test_refused_results_and_snoozes_say_nothing_about_a_worker() -> None:
    snapshot = situation()
    worker = add_worker(snapshot)
    (good,) = results(snapshot, worker, 1)
    (stale,) = results(snapshot, worker, 1, first=2, fence=99)
    (snoozed,) = results(snapshot, worker, 1, first=3, snooze_ms=5)

    notes = learned(snapshot, worker, good, good, stale, snoozed)

    assert notes["work"].statistics.tasks_completed == 1
    assert learned(snapshot, worker, good, stale) == {}


def test_a_clock_set_back_during_a_task_makes_no_negative_duration() -> None:
    snapshot = situation()
    worker = add_worker(snapshot)
    lease = add_running(snapshot, worker=worker, started_at_ms=NOW_MS + 5_000)

    notes = learned(snapshot, worker, done(lease))

    assert notes["work"].statistics.total_duration_ms == 0


def test_a_row_of_failures_opens_the_breaker_when_others_can_do_the_work() -> None:
    snapshot = situation(breaker=STRICT)
    worker = add_worker(snapshot)
    add_worker(snapshot, "w2")

    notes = learned(snapshot, worker, *results(snapshot, worker, FAILURES, ok=False))

    assert notes["work"].breaker.state is BreakerState.OPEN
    assert snapshot.qualities["w1", "work"].breaker.state is BreakerState.OPEN


@pytest.mark.parametrize(
    "other",
    [
        None,
        {"tasks": ("mail",)},
        {"state": WorkerState.DRAINING},
        {"last_heartbeat_ms": NOW_MS - 10_001},
    ],
    ids=["alone", "the other cannot", "the other drains", "the other is late"],
)
def test_the_last_worker_for_a_name_stays_however_badly_it_works(
    other: dict[str, Any] | None,
) -> None:
    snapshot = situation(breaker=STRICT)
    worker = add_worker(snapshot)
    if other is not None:
        add_worker(snapshot, "w2", **other)

    notes = learned(snapshot, worker, *results(snapshot, worker, 2 * FAILURES, ok=False))

    assert notes["work"].breaker.state is BreakerState.CLOSED
    assert notes["work"].statistics.tasks_failed == 2 * FAILURES


def test_one_already_kept_out_does_not_count_as_somebody_who_can() -> None:
    snapshot = situation(breaker=STRICT)
    worker = add_worker(snapshot)
    add_worker(snapshot, "w2")
    broken = Breaker(state=BreakerState.OPEN, trips=1, opened_at_ms=NOW_MS)
    snapshot.qualities["w2", "work"] = Quality(EMPTY, broken)

    notes = learned(snapshot, worker, *results(snapshot, worker, FAILURES, ok=False))

    assert notes["work"].breaker.state is BreakerState.CLOSED


def test_in_a_large_fleet_no_more_than_a_tenth_is_kept_out() -> None:
    snapshot = situation(breaker=STRICT)
    workers = [add_worker(snapshot, f"w{number:02}") for number in range(20)]

    states = []
    for index, worker in enumerate(workers[:4]):
        failing = results(snapshot, worker, FAILURES, first=1 + index * FAILURES, ok=False)
        states.append(learned(snapshot, worker, *failing)["work"].breaker.state)

    assert states == [
        BreakerState.OPEN,
        BreakerState.OPEN,
        BreakerState.CLOSED,
        BreakerState.CLOSED,
    ]


def test_a_failed_probe_reopens_whatever_the_valve_says() -> None:
    snapshot = situation(breaker=STRICT)
    worker = add_worker(snapshot)
    half_open = Breaker(state=BreakerState.OPEN, trips=1, opened_at_ms=NOW_MS - 10_000)
    snapshot.qualities["w1", "work"] = Quality(EMPTY, half_open)

    notes = learned(snapshot, worker, *results(snapshot, worker, 1, ok=False))

    assert notes["work"].breaker.trips == 2
    assert notes["work"].breaker.opened_at_ms == NOW_MS


def test_a_probe_that_succeeds_closes_the_breaker() -> None:
    snapshot = situation(breaker=STRICT)
    worker = add_worker(snapshot)
    half_open = Breaker(state=BreakerState.OPEN, trips=1, opened_at_ms=NOW_MS - 10_000)
    snapshot.qualities["w1", "work"] = Quality(EMPTY, half_open)

    notes = learned(snapshot, worker, *results(snapshot, worker, 1))

    assert notes["work"].breaker.state is BreakerState.CLOSED
