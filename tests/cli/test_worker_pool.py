"""Does a pool start, retire and replace the right processes? With a turned clock and fakes."""

import errno
import os
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.cli.render.output import ExitCode
from rota.cli.supervisor.pool import (
    MAX_BACKOFF_MS,
    MIN_BACKOFF_MS,
    STEADY_MS,
    Pool,
    PoolChange,
    PoolDemand,
    demand_of,
)
from rota.core.dispatch.autoscaling import PoolPolicy, Term
from rota.messages import ScalePage, ScaleView

SHRINK_AFTER_MS = 10_000
COOL_DOWN_MS = 2_000


class FakeProcesses:
    """Processes that end when a test says so."""

    def __init__(self) -> None:
        self.alive: dict[int, int] = {}  # how often each was asked to stop
        self.is_full = False
        self._gone: list[tuple[int, int]] = []

    def start(self, number: int) -> None:
        assert number not in self.alive
        if self.is_full:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        self.alive[number] = 0

    def ask_to_stop(self, number: int) -> None:
        self.alive[number] += 1

    def ended(self) -> list[tuple[int, int]]:
        gone, self._gone = self._gone, []
        return gone

    def end(self, number: int, code: int = 0) -> None:
        del self.alive[number]
        self._gone.append((number, code))

    @property
    def draining(self) -> list[int]:
        return [number for number, asked in self.alive.items() if asked]


class DrivenPool:
    """A pool, its fake processes, a clock, and what was said."""

    def __init__(self, minimum: int = 1, maximum: int = 4) -> None:
        self.processes = FakeProcesses()
        self.said: list[PoolChange] = []
        self.now_ms = 1_000_000
        policy = PoolPolicy(
            minimum=minimum,
            maximum=maximum,
            shrink_after_ms=SHRINK_AFTER_MS,
            cool_down_ms=COOL_DOWN_MS,
        )
        self.pool = Pool(policy, self.processes, self.said.append)
        self.pool.start(now_ms=self.now_ms)

    def set_demand(self, wanted: int, *, times: int = 1, every_ms: int = 1_000) -> None:
        for _ in range(times):
            self.pool.set_demand(PoolDemand(workers=wanted, reason="so"), now_ms=self.now_ms)
            self.now_ms += every_ms

    def turn(self, by_ms: int) -> None:
        self.now_ms += by_ms
        self.pool.update(now_ms=self.now_ms)

    def end(self, number: int, code: int = 0) -> None:
        self.processes.end(number, code)
        self.pool.update(now_ms=self.now_ms)

    def end_any(self, place: int) -> None:
        if self.alive:
            self.end(self.alive[place % len(self.alive)])

    @property
    def alive(self) -> list[int]:
        return list(self.processes.alive)


def test_a_pool_begins_with_its_minimum() -> None:
    tended = DrivenPool(minimum=2)

    assert tended.alive == [1, 2]
    assert str(tended.said[0]) == "pool started, workers 2: between 2 and 4"


def test_a_pool_grows_at_once_and_says_why() -> None:
    tended = DrivenPool()

    tended.set_demand(9)

    assert tended.alive == [1, 2, 3, 4]
    assert str(tended.said[-1]) == "pool grown, workers 1 to 4 (9 wanted): so"


def test_a_pool_lets_the_newest_drain_one_after_the_other() -> None:
    tended = DrivenPool()
    tended.set_demand(2)
    tended.set_demand(3)

    tended.set_demand(1, times=11)
    first = tended.processes.draining
    tended.set_demand(1, times=2)

    assert first == [3]
    assert tended.processes.draining == [2, 3]
    assert [change.size for change in tended.said] == [1, 2, 3, 2, 1]
    assert str(tended.said[-1]) == "pool shrunk, workers 2 to 1 (1 wanted): so"


def test_nothing_is_said_while_nothing_changes() -> None:
    tended = DrivenPool()
    tended.set_demand(3)
    tended.said.clear()

    tended.set_demand(3, times=50)
    tended.set_demand(2, times=5)
    tended.set_demand(3, times=50)

    assert tended.said == []


def test_working_and_draining_together_never_pass_the_maximum() -> None:
    tended = DrivenPool(maximum=3)
    tended.set_demand(3)
    tended.set_demand(2, times=11)
    assert tended.processes.draining == [3]

    tended.set_demand(3)
    during = tended.alive
    tended.end(3)
    tended.set_demand(3)

    assert during == [1, 2, 3]
    assert tended.alive == [1, 2, 3]
    assert tended.processes.draining == []


def test_a_process_that_ends_is_started_anew_after_a_wait() -> None:
    tended = DrivenPool()

    tended.end(1, code=-9)
    tended.turn(MIN_BACKOFF_MS - 1)
    before = tended.alive
    tended.turn(1)

    assert (before, tended.alive) == ([], [1])
    assert str(tended.said[-1]) == (
        "pool ended, workers 1: a worker process ended with signal 9; another starts in 500 ms"
    )


def test_processes_that_keep_ending_early_wait_longer_each_time() -> None:
    tended = DrivenPool()
    waits = []

    for _ in range(9):
        tended.end(1, code=1)
        wait_ms = tended.pool.wait_ms(tended.now_ms)
        assert wait_ms is not None
        waits.append(wait_ms)
        tended.turn(wait_ms)
    tended.turn(STEADY_MS)
    tended.end(1, code=1)

    assert waits[:4] == [MIN_BACKOFF_MS, 1_000, 2_000, 4_000]
    assert waits[-1] == MAX_BACKOFF_MS
    assert tended.pool.wait_ms(tended.now_ms) == MIN_BACKOFF_MS


def test_demand_does_not_shorten_the_wait_of_processes_that_fail() -> None:
    tended = DrivenPool()
    tended.end(1, code=1)

    tended.set_demand(4, every_ms=MIN_BACKOFF_MS)
    before = tended.alive
    tended.set_demand(4)

    assert (before, tended.alive) == ([], [1, 2, 3, 4])


def test_without_room_for_a_process_the_pool_tries_again_later() -> None:
    tended = DrivenPool()
    tended.processes.is_full = True

    tended.set_demand(2)
    problem = tended.said[-1].reason
    tended.processes.is_full = False
    tended.turn(MIN_BACKOFF_MS)

    assert "no worker process can be started" in problem
    assert tended.alive == [1, 2]


def test_what_could_never_work_is_not_tried_again() -> None:
    tended = DrivenPool(minimum=2)

    tended.end(1, code=ExitCode.UNUSABLE)
    tended.end(2, code=ExitCode.UNUSABLE)

    assert tended.pool.is_over
    assert tended.pool.exit_code == ExitCode.UNUSABLE


def test_a_broken_deployment_does_not_end_those_that_work() -> None:
    tended = DrivenPool()
    tended.turn(STEADY_MS)
    tended.set_demand(2)

    tended.end(2, code=ExitCode.UNUSABLE)

    assert not tended.pool.is_stopping
    assert tended.alive == [1]


def test_a_stop_lets_all_drain_and_starts_nobody() -> None:
    tended = DrivenPool()
    tended.set_demand(3)

    tended.pool.stop()
    tended.set_demand(4)
    asked = dict(tended.processes.alive)
    for number in (1, 2, 3):
        tended.end(number)

    assert asked == {1: 1, 2: 1, 3: 1}
    assert tended.pool.is_over
    assert tended.pool.exit_code == ExitCode.OK


def test_a_stop_does_not_hurry_those_that_drain_already_but_a_second_does() -> None:
    tended = DrivenPool()
    tended.set_demand(2)
    tended.set_demand(1, times=11)

    tended.pool.stop()
    first = dict(tended.processes.alive)
    tended.pool.stop()

    assert first == {1: 1, 2: 1}
    assert tended.processes.alive == {1: 2, 2: 2}


def test_a_process_that_fails_while_all_stop_is_told_by_the_exit_code() -> None:
    tended = DrivenPool()

    tended.pool.stop()
    tended.end(1, code=1)

    assert tended.pool.exit_code == ExitCode.FAILED


def test_a_pool_may_be_empty_until_there_is_work() -> None:
    tended = DrivenPool(minimum=0)
    before = tended.alive

    tended.set_demand(1)

    assert (before, tended.alive) == ([], [1])


steps = st.lists(
    st.one_of(
        st.tuples(st.just("heed"), st.integers(0, 9)),
        st.tuples(st.just("turn"), st.integers(0, 20_000)),
        st.tuples(st.just("end"), st.integers(0, 5)),
    ),
    max_size=60,
)


@given(st.integers(0, 3), st.integers(1, 3), steps)
def test_whatever_happens_there_are_never_too_many_and_in_time_enough(
    minimum: int, more: int, happenings: list[tuple[str, int]]
) -> None:
    tended = DrivenPool(minimum, minimum + more)
    acts: dict[str, Callable[[int], None]] = {
        "heed": tended.set_demand,
        "turn": tended.turn,
        "end": tended.end_any,
    }

    for act, number in happenings:
        acts[act](number)
        assert len(tended.alive) <= minimum + more
    tended.turn(MAX_BACKOFF_MS)

    working = len(tended.alive) - len(tended.processes.draining)
    assert working == tended.pool.size >= minimum


# --- what is wanted of it -----------------------------------------------------------------------


def item(queue: str, wanted: float, *requires: str) -> ScaleView:
    return ScaleView(
        queue=queue,
        requires=requires,
        paused=False,
        depth=1,
        running=0,
        submitted_per_s=0.0,
        finished_per_s=0.0,
        workers=0,
        capacity=0,
        available_capacity=0,
        wanted_capacity=wanted,
        wanted_workers=1,
        decided_by=Term.BACKLOG,
        explanation=f"{queue} is deep",
    )


def page(*items: ScaleView) -> ScalePage:
    wanted = sum(one.wanted_capacity for one in items)
    return ScalePage(items=[*items], depth=1, running=0, wanted_capacity=wanted, wanted_workers=9)


def test_the_demand_is_that_of_all_the_work_a_worker_of_the_pool_can_do() -> None:
    whole = page(item("a", 3.0), item("b", 4.5, "gpu"), item("c", 90.0, "gpu", "tape"))

    plain = demand_of(whole, capabilities=(), concurrency=2)
    fit = demand_of(whole, capabilities=("gpu", "big"), concurrency=2)

    assert plain == PoolDemand(workers=2, reason="queue a: a is deep")
    assert fit == PoolDemand(workers=4, reason="queue b requiring gpu: b is deep")


@pytest.mark.parametrize("whole", [page(), page(item("a", 5.0, "gpu"))])
def test_work_for_others_is_no_demand(whole: ScalePage) -> None:
    assert demand_of(whole, capabilities=(), concurrency=1).workers == 0
