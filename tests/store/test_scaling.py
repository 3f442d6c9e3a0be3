import msgspec
import pytest

from rota.core.decisions import NoteQuality
from rota.core.ids import COUNTER_BITS
from rota.core.workers.circuit_breaker import Breaker
from rota.core.workers.statistics import EMPTY, Outcome, record
from rota.store import scaling
from rota.store.scaling import LaneWork, ScalingStore
from tests.store.opened import NOW_MS, Opened


def test_work_is_what_waits_and_runs_in_each_lane(store: Opened) -> None:
    store.add(1, name="a")
    store.add(2, name="a")
    for number, started_at_ms in ((3, NOW_MS), (4, NOW_MS + 500)):
        store.add(number, name="a")
        store.lease(number, started_at_ms=started_at_ms)
    store.running(5, name="b")
    store.add(6, name="c", due_at_ms=NOW_MS + 5)

    assert ScalingStore(store.tx).work() == {
        1: LaneWork(2, NOW_MS, running=2, running_since_ms=NOW_MS + 250),
        2: LaneWork(running=1, running_since_ms=NOW_MS),
    }


def test_the_newest_tasks_are_found_wherever_they_stand(store: Opened) -> None:
    first = NOW_MS << COUNTER_BITS
    store.add(first - 1, name="old")
    store.add(first, name="a")
    store.running(first + 1, name="a")
    store.history(first + 2, name="b")

    lane_a, lane_b = (store.lanes.matching(name=name)[0] for name in "ab")
    assert ScalingStore(store.tx).submitted(since_ms=NOW_MS) == {lane_a: 2, lane_b: 1}


def test_the_last_to_finish_are_counted_by_lane(store: Opened) -> None:
    store.history(1, name="a", finished_at_ms=NOW_MS - 1)
    store.history(2, name="a", finished_at_ms=NOW_MS)
    store.history(3, name="b", finished_at_ms=NOW_MS + 1)

    assert ScalingStore(store.tx).finished(since_ms=NOW_MS) == {1: 1, 2: 1}


def test_a_sample_is_no_larger_than_it_must_be(
    store: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaling, "MOST_SAMPLED", 3)
    for number in range(1, 6):
        store.history(number, name="old")
        store.add(number + 10, name="new")

    assert ScalingStore(store.tx).submitted(since_ms=0) == {2: 3}
    assert ScalingStore(store.tx).finished(since_ms=0) == {1: 3}


def test_statistics_are_read_without_their_histogram(store: Opened) -> None:
    known = record(
        EMPTY,
        [Outcome(ok=True, duration_ms=40.0), Outcome(ok=False, duration_ms=60.0)],
        now_ms=NOW_MS,
    )
    store.workers.put_qualities([NoteQuality("w1", "a", known, Breaker())])

    ((name, read),) = ScalingStore(store.tx).statistics()

    stored, expected = msgspec.structs.asdict(read), msgspec.structs.asdict(known)
    assert name == "a"
    assert {**stored, "buckets": None} == {**expected, "buckets": None}
