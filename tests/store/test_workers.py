from typing import Any

import pytest

from rota.core.decisions import NoteHeartbeat, NoteQuality
from rota.core.ids import TaskId
from rota.core.snapshot import Quality
from rota.core.workers.circuit_breaker import Breaker, BreakerState
from rota.core.workers.model import WorkerRecord, WorkerState
from rota.core.workers.statistics import EMPTY, Outcome, record
from tests.store.opened import NOW_MS, Opened

OPEN = Breaker(state=BreakerState.OPEN, trips=2, opened_at_ms=NOW_MS)
GOOD = record(EMPTY, [Outcome(ok=True, duration_ms=12.5)] * 3, now_ms=NOW_MS)


def worker(worker_id: str = "w1", incarnation: int = 1, **changes: Any) -> WorkerRecord:
    fields: dict[str, Any] = {"node_id": "n1", "last_heartbeat_ms": 5, "started_at_ms": 5}
    return WorkerRecord(id=worker_id, incarnation=incarnation, **{**fields, **changes})


@pytest.mark.parametrize("labels", [None, {"zone": "a"}, ["spot"]])
def test_a_worker_is_found_as_it_registered(
    store: Opened, labels: dict[str, str] | list[str] | None
) -> None:
    registered = worker(
        capabilities=("gpu",),
        max_concurrent_tasks=7,
        tasks=("resize",),
        queues=(),
        heartbeat_interval_ms=100,
        group="g",
        labels=labels,
    )

    store.workers.put(registered)

    assert store.workers.by_ids(["w1", "w2"]) == {"w1": registered}
    assert store.workers.by_ids([]) == {}


def test_worker_ids_may_be_awkward(store: Opened) -> None:
    ids = ["a\0b", "a", "ü€😀", "'"]
    for number, worker_id in enumerate(ids, start=1):
        store.workers.put(worker(worker_id, number))

    assert store.workers.by_ids(ids).keys() == set(ids)
    assert len(store.workers.all()) == len(ids)


def test_a_new_incarnation_replaces_the_row(store: Opened) -> None:
    store.workers.put(worker(state=WorkerState.DRAINING))
    store.workers.record_heartbeats([NoteHeartbeat("w1", 9, {"lag_ms": 1.0})])
    store.workers.put(worker(incarnation=2))

    assert store.workers.all() == {"w1": worker(incarnation=2)}
    assert store.workers.counter("incarnation") == 2


def test_beats_are_noted_and_the_last_load_stays(store: Opened) -> None:
    store.workers.put(worker("w1", 1))
    store.workers.put(worker("w2", 2))

    store.workers.record_heartbeats(
        [NoteHeartbeat("w1", 8, {"lag_ms": 1.5}), NoteHeartbeat("w2", 9)]
    )
    store.workers.record_heartbeats([NoteHeartbeat("w1", 10)])

    found = store.workers.all()
    assert (found["w1"].last_heartbeat_ms, found["w1"].load) == (10, {"lag_ms": 1.5})
    assert (found["w2"].last_heartbeat_ms, found["w2"].load) == (9, {})


def test_an_operators_wish_is_kept_for_the_incarnation_it_was_about(store: Opened) -> None:
    store.workers.put(worker(incarnation=2))

    store.workers.set_state("w1", 2, WorkerState.QUARANTINED)
    store.workers.set_state("w1", 1, WorkerState.DRAINING)

    assert store.workers.all()["w1"].state is WorkerState.QUARANTINED


def test_a_removed_worker_takes_along_what_was_known_of_it(store: Opened) -> None:
    store.workers.put(worker())
    store.workers.put_qualities([NoteQuality("w1", "work", GOOD, OPEN)])
    store.workers.add_cancelled([(1, TaskId(9))])

    store.workers.delete("w1", 1)

    assert store.workers.all() == {}
    assert store.workers.qualities(["w1"]) == {}
    assert store.workers.all_cancelled() == {}


def test_a_stale_removal_leaves_the_new_incarnation_alone(store: Opened) -> None:
    store.workers.put(worker(incarnation=2))

    store.workers.delete("w1", 1)

    assert len(store.workers.all()) == 1


def test_qualities_are_kept_by_task_name(store: Opened) -> None:
    store.workers.put_qualities(
        [NoteQuality("w1", "a", GOOD, Breaker()), NoteQuality("w2", "a", EMPTY, OPEN)]
    )
    store.workers.put_qualities([NoteQuality("w1", "b", EMPTY, OPEN)])

    assert store.workers.qualities(["w1"])["w1"] == {
        "a": Quality(GOOD, Breaker()),
        "b": Quality(EMPTY, OPEN),
    }
    assert store.workers.all_qualities(open_only=True).keys() == {("w1", "b"), ("w2", "a")}
    assert len(store.workers.all_qualities()) == 3


def test_a_breaker_that_closes_is_no_longer_among_the_open_ones(store: Opened) -> None:
    store.workers.put_qualities([NoteQuality("w1", "a", EMPTY, OPEN)])
    store.workers.put_qualities([NoteQuality("w1", "a", GOOD, Breaker())])

    assert store.workers.all_qualities(open_only=True) == {}
    assert store.workers.qualities(["w1"])["w1"]["a"].statistics == GOOD


def test_what_a_worker_should_be_told_is_remembered_until_it_knows(store: Opened) -> None:
    store.workers.add_cancelled([(1, TaskId(5)), (1, TaskId(6)), (2, TaskId(7))])
    store.workers.add_cancelled([(1, TaskId(5))])

    assert store.workers.all_cancelled() == {1: {5, 6}, 2: {7}}
    store.workers.drop_cancelled([(1, TaskId(5)), (9, TaskId(9))])
    assert store.workers.all_cancelled() == {1: {6}, 2: {7}}


@pytest.mark.parametrize("name", ["task", "incarnation"])
def test_counters_only_rise(store: Opened, name: str) -> None:
    assert store.workers.counter(name) == 0

    for value in (5, 3, 2**62, 7):
        store.workers.raise_counter(name, value)

    assert store.workers.counter(name) == 2**62
