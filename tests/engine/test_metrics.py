import asyncio
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.commands import CancelTasks
from rota.core.shards.commands import DrainMember
from rota.core.shards.members import Member, ShardPolicy
from rota.core.shards.service import Service
from rota.core.tasks.model import NewTask
from rota.engine.commit.request import BatchCounts
from rota.engine.metrics.activity import Activity
from rota.engine.metrics.metrics import ServiceMetrics
from rota.engine.metrics.rates import RATE_WINDOW_S, EventRate
from rota.engine.shards.changes import ServiceGauges, gauges_of
from tests.engine.running import Engine, done
from tests.engine.sharding import SERVICE, service, sweep, two

NOW_MS = 1_800_000_000_000


@given(st.lists(st.tuples(st.integers(0, 30_000), st.integers(0, 100)), max_size=40))
def test_a_rate_counts_the_last_minute_and_no_more(steps: list[tuple[int, int]]) -> None:
    rate, now_ms = EventRate(), NOW_MS
    counted: list[tuple[int, int]] = []

    for pause_ms, count in steps:
        now_ms += pause_ms
        rate.add(count, now_ms)
        counted.append((now_ms // 1000, count))

    newest = now_ms // 1000
    recent = sum(count for second, count in counted if second > newest - RATE_WINDOW_S)
    assert rate.per_second(now_ms) == recent / RATE_WINDOW_S


def test_a_rate_fades_without_new_events() -> None:
    rate = EventRate()
    rate.add(120, NOW_MS)

    assert rate.per_second(NOW_MS + 59_000) == 2.0
    assert rate.per_second(NOW_MS + 60_000) == 0.0


def test_a_clock_set_back_does_not_keep_a_rate_high() -> None:
    rate = EventRate()
    rate.add(6_000, NOW_MS)

    rate.add(60, NOW_MS - 3_600_000)

    assert rate.per_second(NOW_MS - 3_600_000) == 1.0
    assert rate.per_second(NOW_MS - 3_600_000 + 61_000) == 0.0


def test_commits_are_in_rates_and_charts_as_soon_as_these_are_read() -> None:
    activity = Activity()
    for count in range(1, 4):
        activity.note(BatchCounts({"q": count}, {("q", "failed"): 1}), NOW_MS)

    assert activity.rates["q"].submitted.per_second(NOW_MS) == 6 / RATE_WINDOW_S
    assert activity.rates["q"].finished.per_second(NOW_MS) == 3 / RATE_WINDOW_S
    assert activity.rates["q"].failed.per_second(NOW_MS) == 3 / RATE_WINDOW_S
    assert activity.series.all.total("submitted") == 6


def test_commits_are_added_up_once_while_several_threads_read() -> None:
    activity = Activity()
    is_over = threading.Event()

    def read() -> None:
        while not is_over.is_set():
            assert activity.series.all.total("submitted") >= 0

    readers = [threading.Thread(target=read) for _ in range(3)]
    for one in readers:
        one.start()
    for _ in range(2_000):
        activity.note(BatchCounts({"q": 1}, {}), NOW_MS)
    is_over.set()
    for one in readers:
        one.join()

    assert activity.series.all.total("submitted") == 2_000


def test_a_rate_may_be_read_while_it_is_counted() -> None:
    rate = EventRate()
    problems: list[BaseException] = []
    is_over = threading.Event()

    def read() -> None:
        second = 0
        try:
            while not is_over.is_set():
                second += 1
                assert rate.per_second(NOW_MS + second * 100) >= 0
        except BaseException as error:  # noqa: BLE001 - seen by the test
            problems.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for step in range(20_000):
        rate.add(1, NOW_MS + step * 100)
    is_over.set()
    for reader in readers:
        reader.join()

    assert problems == []


async def test_figures_count_what_was_done(engine: Engine) -> None:
    worker = await engine.register()
    ids = await engine.submit_all([NewTask(name="work", max_attempts=2)] * 4)
    tasks = await engine.lease(worker)
    await asyncio.gather(
        engine.report(worker, done(tasks[0]), done(tasks[1], ok=False), done(tasks[0])),
        engine.execute(CancelTasks((ids[2],))),
    )
    await engine.report(worker, done(tasks[2]))

    figures = engine.coordinator.metrics()
    assert figures.submitted == {"default": 4}
    assert figures.leased == 4
    assert figures.finished == {("default", "succeeded"): 1, ("default", "cancelled"): 1}
    assert figures.requeued == {"failed": 1}
    assert figures.refused_results == {"duplicate": 1, "stale": 1}
    assert (figures.batches, figures.batched_events) == (5, 6)
    assert figures.commit_seconds > 0
    assert (figures.waiting, figures.failed_batches) == (0, 0)


# --- services -------------------------------------------------------------------------------------


async def test_figures_tell_how_a_service_does(engine: Engine) -> None:
    a, b = await two(engine)
    await engine.coordinator.execute(DrainMember(service=SERVICE, worker_id="b"))
    await sweep(engine, 3_000)
    await a.beat()
    await sweep(engine, 1_000)

    figures = engine.coordinator.metrics().services[SERVICE]
    assert (figures.rebalances, figures.moved, figures.granted) == (3, 10, 15)
    assert (figures.forced, figures.departures, figures.fenced_effects) == (0, {}, 0)
    assert figures.beats == a.seq + b.seq
    gauges = figures.gauges
    assert gauges is not None
    assert (gauges.members, gauges.shard_count, gauges.unowned, gauges.revoking) == (2, 10, 0, 5)
    assert 3_000 <= gauges.oldest_revoke_ms <= 4_000
    assert gauges.lease_margin_ms == 15_000 - 4_000
    assert gauges.generation == (await service(engine)).generation
    assert gauges.imbalance == 0.0
    assert any(line["event"] == "shards_rebalanced" for line in engine.log)


def gauges(*members: Member, swept_ms: int = NOW_MS, count: int = 2) -> ServiceGauges:
    """How a service stands of whose shards nobody owns any."""
    service = Service("feed", members={one.worker_id: one for one in members})
    service.configure(shard_count=count)
    return gauges_of(service, ShardPolicy(), now_ms=swept_ms)


def member(worker_id: str = "a", **changes: Any) -> Member:
    fields = {"reported_count": 2, "joined_ms": NOW_MS, "seen_ms": NOW_MS, **changes}
    return Member(worker_id=worker_id, **fields)


@pytest.mark.parametrize(
    ("others", "stranded"),
    [
        ([], 0),
        ([member()], 2),
        ([member(max_shards=1)], 2),
        ([member(max_shards=0)], 0),
        ([member(draining=True), member("b", fenced="stuck")], 0),
        ([member(draining=True), member("b")], 2),
    ],
    ids=["nobody", "somebody", "room for one", "no room", "nobody that may", "one that may"],
)
def test_shards_are_stranded_when_somebody_could_own_them(
    others: list[Member], stranded: int
) -> None:
    found = gauges(*others)

    assert (found.unowned, found.stranded) == (2, stranded)


def test_shards_are_stranded_since_the_first_look_that_found_some_so() -> None:
    feed, since = ServiceMetrics(), []

    for swept_ms, members in enumerate(([], [member()], [member()], [], [member()])):
        feed.note_gauges(gauges(*members, swept_ms=swept_ms))
        since.append(feed.stranded_since_ms)

    assert since == [None, 1, 1, None, 4]
