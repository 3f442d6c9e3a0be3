import time

import pytest

from rota.engine.clock import SteadyClock, SystemClock, steady
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
