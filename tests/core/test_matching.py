from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.commands import LeaseWork
from rota.core.decisions import LeaseTask
from rota.core.dispatch import matching
from rota.core.dispatch.matching import LeaseCall
from rota.core.ids import TaskId
from rota.core.snapshot import Quality
from rota.core.tasks.model import Lane, Lease, TaskRecord, TaskState
from rota.core.workers.circuit_breaker import Breaker, BreakerState
from rota.core.workers.model import WorkerState
from rota.core.workers.selection import Strategy
from rota.core.workers.statistics import EMPTY, Outcome, Statistics, record
from rota.errors import StaleIncarnation, WorkerNotFound
from tests.core.snapshots import NOW_MS, Situation, add_task, add_worker, ask, situation

LANES = {
    1: Lane("default", "resize"),
    2: Lane("default", "mail"),
    3: Lane("other", "mail"),
    4: Lane("default", "resize", ("gpu",)),
    5: Lane("default", "resize", ("eu", "gpu")),
}


def claim(snapshot: Situation, most: int = 100, **worker: Any) -> LeaseCall:
    worker_asks = ask(add_worker(snapshot, **worker), most)
    return matching.claim(snapshot, worker_asks, LANES, snapshot.context)


def opened(*, since_ms: int) -> Quality:
    breaker = Breaker(state=BreakerState.OPEN, trips=1, opened_at_ms=NOW_MS - since_ms)
    return Quality(EMPTY, breaker)


# --- what one worker may have -------------------------------------------------------------------


def test_a_worker_may_fill_its_free_capacity_and_no_more() -> None:
    snapshot = situation()
    snapshot.held = {1: 7}

    assert claim(snapshot, most=100, max_concurrent_tasks=10).free == 3


def test_a_worker_gets_no_more_than_it_asks_for() -> None:
    assert claim(situation(), most=2).free == 2


def test_calls_of_one_worker_share_its_capacity() -> None:
    snapshot = situation()
    worker = add_worker(snapshot, max_concurrent_tasks=5)

    first = matching.claim(snapshot, ask(worker, 3), LANES, snapshot.context)
    second = matching.claim(snapshot, ask(worker, 3), LANES, snapshot.context, promised=first.free)
    third = matching.claim(
        snapshot, ask(worker, 3), LANES, snapshot.context, promised=first.free + second.free
    )

    assert [one.free for one in (first, second, third)] == [3, 2, 0]


@pytest.mark.parametrize("held", [10, 11])
def test_a_full_worker_may_have_nothing(held: int) -> None:
    snapshot = situation()
    snapshot.held = {1: held}

    nothing = claim(snapshot, max_concurrent_tasks=10)

    assert (nothing.free, nothing.lanes, nothing.probes) == (0, (), ())


@pytest.mark.parametrize("state", [WorkerState.DRAINING, WorkerState.QUARANTINED])
def test_a_worker_that_is_not_active_may_have_nothing(state: WorkerState) -> None:
    assert claim(situation(), state=state).free == 0


@pytest.mark.parametrize(
    ("worker", "lanes"),
    [
        ({}, (1, 2, 3)),
        ({"tasks": ("mail",)}, (2, 3)),
        ({"queues": ("other",)}, (3,)),
        ({"capabilities": ("gpu",)}, (1, 2, 3, 4)),
        ({"capabilities": ("gpu", "eu"), "tasks": ("resize",)}, (1, 4, 5)),
        ({"tasks": ()}, ()),
    ],
)
def test_a_worker_may_have_what_it_can_serve(
    worker: dict[str, Any], lanes: tuple[int, ...]
) -> None:
    assert claim(situation(), **worker).lanes == lanes


def test_an_open_breaker_keeps_a_worker_from_tasks_of_that_name() -> None:
    snapshot = situation()
    snapshot.qualities["w1", "mail"] = opened(since_ms=1)
    snapshot.qualities["w2", "resize"] = opened(since_ms=1)

    bounded = claim(snapshot)

    assert (bounded.lanes, bounded.probes) == ((1,), ())


def test_a_half_open_breaker_lets_it_be_probed() -> None:
    snapshot = situation()
    snapshot.qualities["w1", "mail"] = opened(since_ms=10_000)

    bounded = claim(snapshot)

    assert (bounded.lanes, bounded.probes) == ((1,), (2, 3))


def test_a_closed_breaker_is_none() -> None:
    snapshot = situation()
    snapshot.qualities["w1", "mail"] = Quality()

    assert claim(snapshot).lanes == (1, 2, 3)


def test_only_a_living_incarnation_may_ask() -> None:
    snapshot = situation()
    worker = add_worker(snapshot)
    zombie = ask(worker)
    add_worker(snapshot, incarnation=2)

    with pytest.raises(StaleIncarnation):
        matching.claim(snapshot, zombie, LANES, snapshot.context)
    with pytest.raises(WorkerNotFound):
        matching.claim(situation(), zombie, LANES, snapshot.context)


# --- who gets what ------------------------------------------------------------------------------


def test_claims_on_the_same_lanes_are_one_group() -> None:
    snapshot = situation()
    any_1 = claim(snapshot, worker_id="a")
    mailer = claim(snapshot, worker_id="b", tasks=("mail",))
    any_2 = claim(snapshot, worker_id="c")
    full = claim(snapshot, worker_id="d", state=WorkerState.DRAINING)
    useless = claim(snapshot, worker_id="e", tasks=())

    assert matching.groups([any_1, mailer, any_2, full, useless]) == [[any_1, any_2], [mailer]]


def head_of(snapshot: Situation, count: int, **options: Any) -> list[TaskRecord]:
    return [add_task(snapshot, number, **options) for number in range(1, count + 1)]


def dealt(
    snapshot: Situation,
    head: list[TaskRecord],
    group: list[LeaseCall],
    statistics: dict[str, Statistics] | None = None,
    turns: dict[str, int] | None = None,
) -> dict[str, list[int]]:
    candidates = [
        matching.candidate(
            snapshot,
            one,
            {"work": Quality((statistics or {}).get(one.worker.id, EMPTY))},
            snapshot.context,
            last_chosen=(turns or {}).get(one.worker.id, 0),
        )
        for one in group
    ]
    lists = matching.assign(snapshot, head, group, candidates, snapshot.context)
    return {
        one.worker.id: [lease.id for lease in leases]
        for one, leases in zip(group, lists, strict=True)
    }


def test_a_lease_carries_the_next_fence_and_attempt_and_its_deadline() -> None:
    snapshot = situation()
    head = [
        add_task(snapshot, 1, fence=6, attempt=2, timeout_ms=80),
        add_task(snapshot, 2),
    ]
    one = claim(snapshot)

    leases = matching.lease_all(snapshot, head, one.worker, snapshot.context)

    assert leases == [
        LeaseTask(head[0].id, TaskState.QUEUED, 1, 7, 3, NOW_MS, NOW_MS + 80),
        LeaseTask(head[1].id, TaskState.QUEUED, 1, 1, 1, NOW_MS, None),
    ]
    assert snapshot.held == {1: 2}


def test_a_worker_alone_gets_the_head_in_its_order() -> None:
    snapshot = situation()
    head = head_of(snapshot, 5)

    assert dealt(snapshot, head, [claim(snapshot, most=3)]) == {"w1": [1, 2, 3]}


def test_the_better_worker_is_preferred() -> None:
    snapshot = situation()
    good, bad = claim(snapshot, worker_id="good"), claim(snapshot, worker_id="bad")
    failures = record(EMPTY, [Outcome(ok=False, duration_ms=9_000)] * 10, now_ms=NOW_MS)

    shares = dealt(snapshot, head_of(snapshot, 3), [bad, good], {"bad": failures})

    assert shares == {"bad": [], "good": [1, 2, 3]}


def test_equal_workers_share_alike() -> None:
    snapshot = situation()
    group = [claim(snapshot, worker_id=name) for name in "abc"]

    shares = dealt(snapshot, head_of(snapshot, 9), group)

    assert [len(ids) for ids in shares.values()] == [3, 3, 3]


def test_round_robin_begins_with_the_one_whose_turn_is_longest_ago() -> None:
    snapshot = situation(strategy=Strategy.ROUND_ROBIN)
    group = [claim(snapshot, worker_id=name) for name in "abc"]

    shares = dealt(snapshot, head_of(snapshot, 4), group, turns={"a": 3, "b": 1, "c": 2})

    assert shares == {"a": [3], "b": [1, 4], "c": [2]}


@given(
    st.sampled_from(Strategy),
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 7)), min_size=1, max_size=5),
    st.integers(0, 30),
    st.floats(0, 1, exclude_max=True),
)
def test_every_strategy_gives_each_task_once_and_never_passes_a_capacity(
    strategy: Strategy, workers: list[tuple[int, int]], waiting: int, dice: float
) -> None:
    snapshot = situation(strategy=strategy, dice=lambda: dice)
    claims = []
    for number, (maximum, held) in enumerate(workers):
        worker = add_worker(snapshot, f"w{number}", max_concurrent_tasks=maximum)
        snapshot.held[worker.incarnation] = held
        claims.append(matching.claim(snapshot, ask(worker), LANES, snapshot.context))
    groups = matching.groups(claims)
    head = head_of(snapshot, waiting)[: sum(one.free for one in claims)]

    given_out = [ids for group in groups for ids in dealt(snapshot, head, group).values()]

    flat = [number for ids in given_out for number in ids]
    assert sorted(flat) == [task.id for task in head]
    assert all(ids == sorted(ids) for ids in given_out)
    for worker in snapshot.workers.values():
        before = workers[int(worker.id[1:])][1]
        assert snapshot.held[worker.incarnation] <= max(before, worker.max_concurrent_tasks)


# --- answers that were lost ---------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(st.integers(1, 2), st.none() | st.sets(st.integers(1, 6)), st.integers(1, 4)),
        max_size=5,
    ),
    st.dictionaries(st.integers(1, 6), st.tuples(st.integers(1, 2), st.booleans())),
)
def test_a_lease_that_no_call_of_its_worker_lists_is_granted_again_once(
    asked: list[tuple[int, set[int] | None, int]], leased: dict[int, tuple[int, bool]]
) -> None:
    calls = [
        LeaseWork(
            worker_id=f"w{number}",
            incarnation=number,
            most=most,
            running=None if running is None else tuple(map(TaskId, running)),
        )
        for number, running, most in asked
    ]
    held: dict[int, list[Lease]] = {}
    for number, (incarnation, is_over) in leased.items():
        deadline_ms = NOW_MS if is_over else None
        lease = Lease(TaskId(number), LANES[1], incarnation, 1, 1, 0, deadline_ms)
        held.setdefault(incarnation, []).append(lease)

    repeated = matching.leases_to_repeat(calls, held, now_ms=NOW_MS)

    given_again = [one for ids in repeated.values() for one in ids]
    assert len(given_again) == len(set(given_again))
    for number, ids in repeated.items():
        call = calls[number]
        ours = [one for one in calls if one.incarnation == call.incarnation]
        listed = {one for other in ours for one in other.running or ()}
        assert call.running is not None
        assert all(one.running is None for one in calls[number + 1 :] if one in ours)
        missing = [
            lease.id
            for lease in held.get(call.incarnation, [])
            if lease.id not in listed and lease.deadline_ms is None
        ]
        assert ids == missing[: call.most]
    asking = {call.incarnation for call in calls if call.running is not None}
    assert {calls[number].incarnation for number in repeated} == asking
