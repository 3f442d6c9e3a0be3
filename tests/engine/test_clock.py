import time

import pytest

from rota.engine.clock import SteadyClock, StoreClock, SystemClock, steady
from tests.conftest import TurnedClock


def test_a_steady_clock_goes_on_when_the_wall_clock_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SteadyClock()
    before_ms = clock.now_ms()

    monkeypatch.setattr(time, "time_ns", lambda: 0)

    assert 0 <= clock.now_ms() - before_ms < 10_000


def test_a_steady_clock_begins_with_the_time_of_day() -> None:
    assert abs(SteadyClock().now_ms() - SystemClock().now_ms()) < 10_000


def test_a_clock_that_is_turned_by_a_test_stays_the_one_it_is() -> None:
    turned = TurnedClock()

    assert steady(turned) is turned


def test_a_store_clock_goes_on_by_our_own_between_two_writes() -> None:
    own = TurnedClock(1_000)
    clock = StoreClock(own)
    clock.note(500_000)
    own.turn(250)

    assert clock.now_ms() == 500_250


def test_a_store_clock_never_goes_back_but_gives_way_slowly() -> None:
    own = TurnedClock()
    clock = StoreClock(own)
    clock.note(500_000)
    times = []
    for _ in range(5):
        own.turn(10)
        clock.note(500_000)  # it has come a long way, or the store's clock is slower
        times.append(clock.now_ms())

    assert times == sorted(times)
    assert times[-1] == 500_045


def test_a_store_clock_follows_one_that_was_set_back_for_good() -> None:
    own = TurnedClock()
    clock = StoreClock(own)
    clock.note(500_000)
    assert clock.now_ms() == 500_000

    clock.note(400_000)

    assert clock.now_ms() == 400_000


def test_before_the_store_has_said_anything_our_own_clock_counts() -> None:
    own = TurnedClock(9_000_000)
    clock = StoreClock(own)
    assert clock.now_ms() == 9_000_000

    clock.note(1_000)

    assert clock.now_ms() == 1_000
