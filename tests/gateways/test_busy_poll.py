"""How long the loop is kept awake for a caller, by a clock that is turned."""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from rota.gateways.http.server import scheduling
from rota.gateways.http.server.scheduling import BUSY_POLL_S, BusyPoll


class Loop:
    """Notes what is to be called in its next turn."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def go_round(self) -> int:
        """One turn; the answer is how many callbacks it had."""
        soon, self.soon = self.soon, []
        for callback in soon:
            callback()
        return len(soon)


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(scheduling, "perf_counter", clock)
    monkeypatch.setattr(scheduling, "IS_WORTH_IT", True)
    return clock


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def caller(loop: Loop, clock: Clock) -> BusyPoll:
    return BusyPoll(cast("asyncio.AbstractEventLoop", loop))


def ask(caller: BusyPoll) -> None:
    caller.note_request()
    caller.note_response()


def test_a_first_caller_and_a_slow_one_are_not_waited_for(
    caller: BusyPoll, loop: Loop, clock: Clock
) -> None:
    for _ in range(3):
        ask(caller)
        clock.now_s += 2 * BUSY_POLL_S

        assert loop.go_round() == 0


def test_a_caller_in_a_hurry_is_waited_for_until_its_time_is_over(
    caller: BusyPoll, loop: Loop, clock: Clock
) -> None:
    ask(caller)
    clock.now_s += BUSY_POLL_S / 2
    ask(caller)

    for _ in range(3):
        clock.now_s += BUSY_POLL_S / 4
        assert loop.go_round() == 1
    clock.now_s += BUSY_POLL_S / 2
    assert [loop.go_round(), loop.go_round()] == [1, 0]


def test_however_often_it_asks_the_loop_is_kept_awake_once(
    caller: BusyPoll, loop: Loop, clock: Clock
) -> None:
    for _ in range(20):
        ask(caller)
        clock.now_s += BUSY_POLL_S / 2

        assert loop.go_round() <= 1


def test_a_caller_that_becomes_slow_costs_one_wait_and_no_more(
    caller: BusyPoll, loop: Loop, clock: Clock
) -> None:
    ask(caller)
    ask(caller)
    clock.now_s += 5 * BUSY_POLL_S
    assert loop.go_round() == 1
    ask(caller)

    assert loop.go_round() == 0


def test_where_there_is_one_processor_nobody_is_waited_for(
    caller: BusyPoll, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling, "IS_WORTH_IT", False)
    ask(caller)
    ask(caller)

    assert loop.go_round() == 0
