"""What a schedule does at a moment: over any jumps of the clock, and any ends of what it fired."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from rota.core import limits
from rota.core.schedules.firing import (
    FiredEnd,
    FiringPlan,
    note_fired,
    note_refused,
    plan_backfill,
    plan_due,
    plan_now,
    settle,
)
from rota.core.schedules.model import FiredItem, Firing, ScheduleSpec, ScheduleState
from rota.core.schedules.times import next_nominal_ms, upcoming
from rota.core.tasks.model import NewTask

START_MS = 1_800_000_000_000
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
POLICIES: tuple[Any, ...] = ("skip", "queue_one", "queue_all", "cancel_running", "allow")


class Life:
    """A schedule over time, with tasks that end when they are told to."""

    def __init__(self, **options: Any) -> None:
        fields = {"every_ms": MINUTE_MS, "task": NewTask(name="work"), **options}
        self.spec = ScheduleSpec(**fields)
        self.now_ms = START_MS
        self.state = ScheduleState(
            created_at_ms=START_MS,
            updated_at_ms=START_MS,
            next_nominal_ms=next_nominal_ms(self.spec, START_MS),
        )
        self.rows: dict[int, Firing] = {}
        self.live: dict[int, int] = {}  # the tasks that have not ended, with their times
        self.cancelled: list[int] = []
        self.ends: dict[int, FiredEnd] = {}
        self.busiest = 0

    def take(self, plan: FiringPlan) -> None:
        for item in plan.cancels:
            self.end(item.id, is_success=None)
            self.cancelled.append(item.id)
        self.state = plan.state
        for row in plan.rows:
            self.rows[row.number] = row
        for planned in plan.fires:
            item_id = len(self.rows) * 1_000 + planned.number
            self.live[item_id] = planned.nominal_ms
            self.state, row = note_fired(self.state, planned, item_id, self.now_ms, is_run=False)
            self.rows[row.number] = row
        self.busiest = max(self.busiest, len(self.live))

    def look(self) -> None:
        """Plan until nothing is due any more, as the engine does."""
        for _ in range(1_000):
            self.state = settle(self.state, self.ends)
            plan = plan_due("s", self.spec, self.state, self.now_ms, most=1_000)
            is_idle = not plan.rows and not plan.fires and plan.state == self.state
            self.take(plan)
            if is_idle:
                return
        raise AssertionError("it never comes to rest")

    def turn(self, by_ms: int) -> None:
        self.now_ms += by_ms
        self.look()

    def end(self, item_id: int, *, is_success: bool | None = True) -> None:
        if self.live.pop(item_id, None) is not None:
            self.ends[item_id] = FiredEnd(is_success, self.now_ms)

    def end_all(self, *, is_success: bool | None = True) -> None:
        for item_id in list(self.live):
            self.end(item_id, is_success=is_success)

    @property
    def fired(self) -> list[int]:
        return [one.nominal_ms for one in self.rows.values() if one.outcome == "fired"]

    @property
    def outcomes(self) -> list[str]:
        return [self.rows[number].outcome for number in sorted(self.rows)]


TURNS = st.lists(
    st.one_of(
        st.integers(1, 3 * MINUTE_MS),  # time passes
        st.integers(HOUR_MS, 5 * HOUR_MS),  # no coordinator is there, or the clock jumps
        st.integers(-2 * HOUR_MS, 0),  # the clock is set back
    ),
    max_size=12,
)


@given(TURNS, st.sampled_from(POLICIES), st.sampled_from(["last", "skip", "all"]), st.data())
def test_each_time_is_decided_once_whatever_the_clock_does(
    turns: list[int], overlap: Any, missed: Any, data: st.DataObject
) -> None:
    life = Life(overlap=overlap, missed=missed, jitter_ms=data.draw(st.sampled_from([0, 90_000])))

    for turn in turns:
        life.turn(turn)
        for item_id in list(life.live):
            if data.draw(st.booleans()):
                life.end(item_id, is_success=data.draw(st.sampled_from([True, False, None])))
        life.look()

    times = set(upcoming(life.spec, START_MS, 20_000))
    assert len(life.fired) == len(set(life.fired))
    assert set(life.fired) <= times
    latest_ms = max([START_MS, *life.fired])
    assert life.state.next_nominal_ms is not None
    assert life.state.next_nominal_ms > latest_ms
    decided = sum(one.count for one in life.rows.values() if one.outcome != "queued")
    assert decided + len(life.state.waiting) == len(
        [one for one in times if one < life.state.next_nominal_ms]
    )
    if overlap != "allow":
        assert life.busiest <= 1


@example([15_210_001, 15_240_000, 15_240_000, 14_400_000])  # more in all than one absence may miss
@given(TURNS)
def test_every_time_within_the_window_fires_where_all_missed_ones_shall(turns: list[int]) -> None:
    life = Life(overlap="allow", missed="all", catch_up_ms=24 * HOUR_MS)

    for turn in turns:
        life.turn(turn)

    assert life.state.next_nominal_ms is not None
    wanted = [
        one for one in upcoming(life.spec, START_MS, 20_000) if one < life.state.next_nominal_ms
    ]
    assert sorted(life.fired) == wanted


@given(TURNS)
def test_the_last_of_the_missed_times_fires(turns: list[int]) -> None:
    life = Life(overlap="allow", missed="last", every_ms=HOUR_MS)

    for turn in turns:
        before_ms = life.state.next_nominal_ms
        life.turn(turn)
        due = [one for one in upcoming(life.spec, (before_ms or 0) - 1, 50) if one <= life.now_ms]
        # The window is an hour, so the last time is never too old.
        assert not due or due[-1] == life.fired[-1]


def test_times_beyond_the_bound_are_skipped_oldest_first() -> None:
    life = Life(overlap="allow", missed="all", every_ms=1_000, catch_up_ms=HOUR_MS)

    life.turn(HOUR_MS)

    # The newest half minute is not late; of the rest the oldest fire.
    on_time = limits.SCHEDULE_ON_TIME_MS // 1_000 + 1
    assert len(life.fired) == limits.MAX_CAUGHT_UP + on_time
    assert life.fired[: limits.MAX_CAUGHT_UP] == upcoming(life.spec, START_MS, limits.MAX_CAUGHT_UP)


def test_an_absence_of_years_is_passed_over_in_few_steps() -> None:
    life = Life(every_ms=1_000)
    life.now_ms += 5 * 365 * 24 * HOUR_MS

    plans = 0
    while life.state.next_nominal_ms is not None and life.state.next_nominal_ms <= life.now_ms:
        life.take(plan_due("s", life.spec, life.state, life.now_ms, most=10))
        plans += 1

    assert plans <= 10
    assert life.fired


def test_only_the_last_of_several_times_cancels_and_fires() -> None:
    life = Life(overlap="cancel_running", missed="all")
    life.turn(MINUTE_MS)
    (first,) = life.live

    life.turn(3 * MINUTE_MS)

    assert life.cancelled == [first]
    assert life.outcomes == ["fired", "skipped_overlap", "fired"]
    assert life.rows[2].count == 2


def test_a_bounded_number_of_firings_waits() -> None:
    life = Life(overlap="queue_all", every_ms=1_000, missed="all", catch_up_ms=24 * HOUR_MS)
    life.turn(1_000)

    for _ in range(limits.MAX_WAITING_FIRINGS + 5):
        life.turn(1_000)

    assert len(life.state.waiting) == limits.MAX_WAITING_FIRINGS
    assert life.outcomes[-5:] == ["dropped"] * 5


def test_a_waiting_firing_whose_row_has_left_the_history_gets_a_new_one() -> None:
    life = Life(overlap="queue_one")
    for _ in range(limits.MAX_KEPT_FIRINGS + 3):
        life.turn(MINUTE_MS)
    life.end_all()

    life.look()

    assert max(life.rows) == limits.MAX_KEPT_FIRINGS + 4
    assert life.rows[max(life.rows)].nominal_ms == START_MS + 2 * MINUTE_MS


@pytest.mark.parametrize("overlap", POLICIES)
def test_no_more_fire_than_the_schedule_may(overlap: Any) -> None:
    life = Life(overlap=overlap, max_firings=3, missed="all")

    for _ in range(10):
        life.turn(MINUTE_MS)
        life.end_all()

    assert len(life.fired) == 3
    assert life.state.next_nominal_ms is None


def test_failures_in_a_row_pause_and_others_do_not_count() -> None:
    life = Life(pause_on_failure=2)
    for is_success in (False, True, False, None, False):
        life.turn(MINUTE_MS)
        life.end_all(is_success=is_success)

    life.turn(MINUTE_MS)

    assert life.state.pause is not None
    assert life.state.failures == 2
    assert len(life.fired) == 5


def test_the_last_success_is_the_latest_time_that_succeeded() -> None:
    state = Life().state
    state = replace(state, open=(FiredItem(1, 10), FiredItem(2, 20), FiredItem(3, 30)))

    after = settle(
        state, {2: FiredEnd(is_success=True, at_ms=5), 1: FiredEnd(is_success=True, at_ms=9)}
    )

    assert after.previous_success_ms == 20
    assert after.open == (FiredItem(3, 30),)


def test_a_refused_firing_is_not_open() -> None:
    life = Life()
    plan = plan_now(life.spec, life.state, START_MS)

    row = note_refused(plan.fires[0], "x" * 10_000, START_MS)

    assert (row.outcome, len(row.reason)) == ("refused", limits.MAX_EVENT_TEXT)
    assert plan.state.open == ()


def test_a_backfill_fires_in_order_and_by_its_own_rule() -> None:
    state = Life().state

    allowed = plan_backfill(state, [1, 2, 3], "allow", START_MS)
    waiting = plan_backfill(state, [1, 2, 3], "queue_all", START_MS)

    assert [one.nominal_ms for one in allowed.fires] == [1, 2, 3]
    assert [one.nominal_ms for one in waiting.fires] == [1]
    assert [one.nominal_ms for one in waiting.state.waiting] == [2, 3]
