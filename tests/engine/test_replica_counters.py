"""What coordinators on one store tell each other of their pace."""

import msgspec
import pytest

from rota.core.commands import CancelTasks
from rota.core.replicas import Counted, QueueCounts, Replica
from rota.engine.metrics.time_series import ALL, SLOT_MS
from rota.engine.replicas.counters import BEATS_TOLD, MOST_QUEUES, ReplicaCounters
from tests.conftest import TurnedClock
from tests.engine.sharing import SharedStore, replica

ONE = QueueCounts(submitted=1)


def beat(replica_counters: ReplicaCounters, name: str = "a", started_at_ms: int = 1) -> Replica:
    """What the store has of a coordinator after its beat."""
    return Replica(
        name=name,
        host="h",
        version="1",
        started_at_ms=started_at_ms,
        counts=replica_counters.draw_up(),
    )


@pytest.fixture
def a() -> ReplicaCounters:
    return ReplicaCounters("a")


@pytest.fixture
def b() -> ReplicaCounters:
    return ReplicaCounters("b")


def test_what_one_counts_between_two_beats_the_other_hears_once(
    a: ReplicaCounters, b: ReplicaCounters
) -> None:
    a.add("q", QueueCounts(submitted=2))
    a.add("q", QueueCounts(finished=3, failed=1))
    a.add("p", ONE)
    first = beat(a)

    assert b.new_of([first]) == [{"q": QueueCounts(2, 3, 1), "p": ONE}]
    assert b.new_of([first]) == []
    assert b.new_of([beat(a)]) == []
    a.add("q", ONE)
    assert b.new_of([beat(a), beat(b, "b")]) == [{"q": ONE}]


def test_nobody_adds_its_own_counts_twice(a: ReplicaCounters) -> None:
    a.add("q", ONE)

    assert a.new_of([beat(a)]) == []


def test_who_misses_beats_finds_them_in_the_next(a: ReplicaCounters, b: ReplicaCounters) -> None:
    assert b.new_of([beat(a)]) == []
    for _ in range(BEATS_TOLD - 1):
        a.add("q", ONE)
        beat(a)
    a.add("q", ONE)

    assert b.new_of([beat(a)]) == [{"q": ONE}] * BEATS_TOLD


def test_who_comes_later_adds_nothing_of_what_was_before_it(
    a: ReplicaCounters, b: ReplicaCounters
) -> None:
    for _ in range(BEATS_TOLD + 1):
        a.add("q", ONE)
        beat(a)

    assert b.new_of([beat(a)]) == []
    a.add("q", ONE)
    assert b.new_of([beat(a)]) == [{"q": ONE}]


def test_one_that_begins_anew_is_heard_from_its_first_beat(
    a: ReplicaCounters, b: ReplicaCounters
) -> None:
    a.add("q", ONE)
    b.new_of([beat(a)])
    again = ReplicaCounters("a")
    again.add("q", QueueCounts(finished=5))

    assert b.new_of([beat(again, started_at_ms=2)]) == [{"q": QueueCounts(finished=5)}]


def test_of_very_many_queues_the_busiest_are_named_and_the_others_summed(
    a: ReplicaCounters, b: ReplicaCounters
) -> None:
    for number in range(MOST_QUEUES + 3):
        a.add(f"q{number}", QueueCounts(submitted=2 if number < MOST_QUEUES else 1))

    (heard,) = b.new_of([beat(a)])

    assert len(heard) == MOST_QUEUES + 1
    assert heard[ALL] == QueueCounts(submitted=3)


def test_counts_are_read_as_they_were_written() -> None:
    counted = (Counted(number=7, queues={"q": QueueCounts(1, 2, 3)}),)

    read = msgspec.json.decode(msgspec.json.encode(counted), type=tuple[Counted, ...])

    assert read == counted


# --- in the engine --------------------------------------------------------------------------------


async def test_rates_and_charts_are_of_all_coordinators_whichever_is_asked(
    clock: TurnedClock,
) -> None:
    store = SharedStore(clock)
    async with replica(store, "a") as a, replica(store, "b") as b:
        (first, *_) = await a.submit("x", "y", "z")
        await b.submit("x")
        await b.execute(CancelTasks((first,)))
        for one in (a, b, a):
            await one.coordinator.tick()

        for one in (a, b):
            (queue,) = await one.coordinator.queries.queues.all()
            assert (queue.submitted_per_s, queue.finished_per_s) == (4 / 60, 1 / 60)
            figures = one.coordinator.metrics()
            span = figures.series.all.span(clock.now_ms() // SLOT_MS, 1)
            assert (span.submitted, span.finished, span.failed) == ([4], [1], [0])
        # What is counted for metrics stays each one's own: whoever reads those adds them up.
        assert [sum(one.coordinator.metrics().submitted.values()) for one in (a, b)] == [3, 1]
    store.close()
