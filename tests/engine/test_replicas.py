"""Several coordinators on one store: each serves every caller, and wakes its own."""

import asyncio
from collections.abc import AsyncIterator
from collections.abc import Set as AbstractSet
from typing import Any

import pytest

from rota.core.commands import (
    CancelTasks,
    LeaveWorker,
    PauseQueue,
    ReportResults,
    SubmitTasks,
    TaskFilter,
)
from rota.core.decisions import TellCancelled
from rota.core.events import EVERYTHING, LoggedEvent
from rota.core.locks import AcquireLock, ReleaseLock
from rota.core.replies import Granted
from rota.core.sessions import ClearNotifications, SessionNotification
from rota.core.tasks.model import NewTask, TaskState
from rota.engine.topics import Cancellations, CommittedEvents, EventsAfter, SessionNews
from rota.errors import StaleIncarnation, Unavailable, WorkerNotFound
from tests.conftest import TurnedClock
from tests.engine.running import Engine, ask, done, settle, soon
from tests.engine.sharing import Replica, SharedStore, leader_of, replica, replicas
from tests.engine.test_sessions import assign, pending

Pair = tuple[Replica, Replica]


@pytest.fixture(params=[0, 1], ids=["first-leads", "second-leads"])
async def pair(clock: TurnedClock, request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    async with replicas(clock, leader=request.param) as engines:
        yield tuple(engines)


# --- what is remembered between batches -----------------------------------------------------------


async def test_ids_rise_over_all_replicas_in_the_order_of_acceptance(pair: Pair) -> None:
    a, b = pair

    ids = [(await one.submit())[0] for one in (a, b, b, a, b, a)]

    assert ids == sorted(set(ids))


async def test_a_lane_that_another_replica_made_is_known_and_its_number_not_given_again(
    pair: Pair,
) -> None:
    a, b = pair
    await a.submit("x")
    await b.submit("y")
    await a.submit("z", requires=("gpu",))
    worker = await a.register(capabilities=("gpu",))

    leases = await b.lease(worker)

    assert [one.lane.name for one in leases] == ["x", "y", "z"]


async def test_a_read_at_one_replica_sees_what_another_has_accepted(pair: Pair) -> None:
    a, b = pair
    (task_id,) = await b.submit("never-heard-of")

    assert (await a.task(task_id)).lane.name == "never-heard-of"
    assert [one.name for one in await a.coordinator.queries.queues.all()] == ["default"]


async def test_a_queue_that_is_paused_at_one_replica_is_paused_at_all(pair: Pair) -> None:
    a, b = pair
    worker = await a.register()
    await a.submit()
    await b.execute(PauseQueue("default", paused=True))

    assert await a.lease(worker) == []

    await b.execute(PauseQueue("default", paused=False))
    assert len(await a.lease(worker)) == 1


async def test_a_worker_hears_at_one_replica_that_its_task_was_cancelled_at_another(
    pair: Pair,
) -> None:
    a, b = pair
    worker = await a.register()
    (task_id,) = await a.submit()
    await a.lease(worker)
    await b.execute(CancelTasks((task_id,)))

    beat = await a.beat(worker, [task_id])

    assert beat.cancel == (task_id,)


async def test_a_result_is_accepted_once_at_whichever_replica_it_arrives(pair: Pair) -> None:
    a, b = pair
    worker = await a.register()
    await b.submit()
    (task,) = await a.lease(worker)

    assert await b.report(worker, done(task)) == ["accepted"]
    assert await a.report(worker, done(task)) == ["duplicate"]
    assert (await a.task(task.id)).state is TaskState.SUCCEEDED


async def test_a_newer_incarnation_at_one_replica_fences_the_older_at_another(pair: Pair) -> None:
    a, b = pair
    old = await a.register("w")
    await a.submit()
    (task,) = await a.lease(old)
    new = await b.register("w")

    with pytest.raises(StaleIncarnation):
        await a.report(old, done(task))
    (again,) = await a.lease(new)
    assert again.fence > task.fence


async def test_numbers_of_events_are_given_once_over_all_replicas(pair: Pair) -> None:
    a, b = pair
    for one in (a, b, b, a, a, b):
        await one.submit()

    found = await a.coordinator.queries.events.after(0, EVERYTHING, limit=100)

    assert [one.seq for one in found.items] == [1, 2, 3, 4, 5, 6]


# --- waking ---------------------------------------------------------------------------------------


async def test_a_call_that_waits_at_one_replica_gets_what_is_submitted_at_another(
    pair: Pair,
) -> None:
    a, b = pair
    worker = await a.register()
    call = await a.parked(worker)
    (task_id,) = await b.submit()

    await settle()

    assert [one.id for one in (await soon(call)).leases] == [task_id]


async def test_a_follower_gets_one_message_for_each_commit(clock: TurnedClock) -> None:
    async with replicas(clock, leader=0) as (_, follower):
        (link,) = follower.network.links
        await settle()
        before = link.from_leader.messages

        await asyncio.gather(*(follower.submit() for _ in range(5)))

        assert link.from_leader.messages == before + 1


async def test_a_caller_that_waits_for_a_task_is_woken_by_an_end_elsewhere(pair: Pair) -> None:
    a, b = pair
    worker = await b.register()
    (task_id,) = await a.submit()
    wait = asyncio.create_task(a.coordinator.wait_for_end(task_id, wait_ms=600_000))
    await settle()
    (task,) = await b.lease(worker)
    await b.report(worker, done(task))

    await settle()

    await soon(wait)


async def test_a_caller_that_waits_for_a_task_waits_on_while_it_only_moves(pair: Pair) -> None:
    a, b = pair
    worker = await b.register()
    (task_id,) = await a.submit()
    wait = asyncio.create_task(a.coordinator.wait_for_end(task_id, wait_ms=600_000))
    await settle()
    await b.lease(worker)

    await settle()
    await settle()

    assert not wait.done()
    wait.cancel()


async def test_a_call_of_a_worker_that_left_elsewhere_is_ended(pair: Pair) -> None:
    a, b = pair
    worker = await a.register()
    call = await a.parked(worker)
    await b.execute(LeaveWorker(worker_id=worker.id))

    await settle()

    with pytest.raises(WorkerNotFound):
        await soon(call)


async def test_a_call_of_an_incarnation_that_was_replaced_elsewhere_is_ended(pair: Pair) -> None:
    a, b = pair
    worker = await a.register("w")
    call = await a.parked(worker)
    await b.register("w")

    await settle()

    with pytest.raises(StaleIncarnation):
        await soon(call)


async def test_a_lock_released_at_one_replica_goes_to_the_caller_that_waits_at_another(
    pair: Pair,
) -> None:
    a, b = pair
    held = await b.coordinator.execute(AcquireLock(name="l", owner="first", ttl_ms=60_000))
    assert held.fence is not None
    asking = AcquireLock(name="l", owner="second", ttl_ms=60_000, wait_ms=600_000)
    wait = asyncio.ensure_future(a.coordinator.execute(asking))
    await settle()
    await b.coordinator.execute(ReleaseLock(name="l", owner="first", fence=held.fence))

    await settle()

    answer = await soon(wait)
    assert (answer.acquired, answer.owner) == (True, "second")
    assert (answer.fence or 0) > held.fence


async def test_streaming_workers_hear_once_of_a_cancellation_elsewhere(pair: Pair) -> None:
    a, b = pair
    heard: list[TellCancelled] = []
    a.coordinator.subscribe(Cancellations(heard.extend))
    worker = await a.register()
    ids = await a.submit("x", "y")
    await a.lease(worker)
    await b.execute(CancelTasks((ids[0],)))
    await settle()
    await a.execute(CancelTasks((ids[1],)))
    await b.submit()
    await settle()

    assert heard == [TellCancelled(worker.incarnation, one) for one in ids]


async def test_watchers_get_the_events_of_all_replicas_in_order_and_once(pair: Pair) -> None:
    a, b = pair
    heard: list[int] = []

    def hear(notices: Any) -> None:
        heard.extend(one.seq for one in notices)

    a.coordinator.subscribe(CommittedEvents(hear))
    await a.submit()
    await b.submit()
    await b.submit()
    await a.submit()
    await settle()
    await b.submit()
    await settle()
    await settle()

    assert heard == [1, 2, 3, 4, 5]


async def test_a_subscription_that_catches_up_and_goes_live_misses_and_doubles_nothing(
    pair: Pair,
) -> None:
    a, b = pair
    with a.coordinator.subscribe(EventsAfter(EVERYTHING, 0)) as follower:
        taken: list[LoggedEvent] = []
        for _ in range(5):
            await b.submit()
            await a.submit()
            await settle()
            taken += await soon(asyncio.ensure_future(follower.take(100)))
        await settle()
        while len(taken) < 10:
            taken += await soon(asyncio.ensure_future(follower.take(100)))

    assert [one.seq for one in taken] == list(range(1, 11))


async def test_a_session_here_is_told_of_an_end_elsewhere(pair: Pair) -> None:
    a, b = pair
    told: list[AbstractSet[str]] = []
    a.coordinator.subscribe(SessionNews(told.append, lambda: ["s"]))
    await assign(a, "one")
    worker = await b.register(queues=["main"])
    (task,) = await b.lease(worker)
    await b.report(worker, done(task))

    await settle()

    assert told == [{"s"}]
    assert await pending(a) == [(1, "succeeded")]


async def test_numbers_of_news_are_never_given_twice(pair: Pair) -> None:
    a, b = pair
    worker = await b.register(queues=["main"])

    async def end(engine: Engine, name: str) -> int:
        await assign(engine, name)
        (task,) = await engine.lease(worker)
        await engine.report(worker, done(task))
        ((seq, _),) = await pending(engine)
        news = SessionNotification(seq=seq, session_id="s", task_id=task.id)
        await engine.coordinator.execute(ClearNotifications((news,)))
        return seq

    seqs = [await end(one, name) for one, name in ((a, "t"), (b, "u"), (a, "v"), (b, "w"))]

    assert seqs == [1, 2, 3, 4]


# --- time -----------------------------------------------------------------------------------------


async def test_all_replicas_go_by_the_clock_of_the_store(clock: TurnedClock) -> None:
    store = SharedStore(clock)
    ahead, behind = TurnedClock(clock.now_ms() + 3_600_000), TurnedClock(5_000)
    async with (
        replica(store, "a", own_clock=ahead) as a,
        replica(store, "b", own_clock=behind) as b,
    ):
        worker = await a.register()
        (task_id,) = await b.submit(delay_ms=1_000)
        await a.coordinator.tick()
        assert await a.lease(worker) == []
        assert a.coordinator.clock.now_ms() == b.coordinator.clock.now_ms() == clock.now_ms()

        for one in (clock, ahead, behind):
            one.turn(1_000)
        for each in (a, b):
            await each.coordinator.tick()

        assert [one.id for one in await a.lease(worker)] == [task_id]
    store.close()


# --- several at once ------------------------------------------------------------------------------


async def test_a_worker_that_one_replica_hears_is_not_thought_gone_by_another(pair: Pair) -> None:
    a, b = pair
    worker = await a.register(heartbeat_interval_ms=1_000)
    await b.submit()
    (task,) = await a.lease(worker)
    for _ in range(30):
        a.clock.turn(500)
        await a.beat(worker, [task.id])
        await b.coordinator.tick()

    assert await a.report(worker, done(task)) == ["accepted"]


async def test_a_silent_worker_is_let_go_of_once_and_costs_one_attempt(pair: Pair) -> None:
    a, b = pair
    worker = await a.register(heartbeat_interval_ms=1_000)
    (task_id,) = await b.submit(max_attempts=5)
    await a.lease(worker)
    for _ in range(40):
        a.clock.turn(500)
        await a.coordinator.tick()
        await b.coordinator.tick()

    task = await a.task(task_id)
    assert (task.attempt, len(task.log)) == (1, 1)
    gone = [one for one in await _types(a) if one == "worker-unregistered"]
    assert len(gone) == 1


async def test_the_health_of_a_worker_is_recorded_once_when_both_replicas_look(pair: Pair) -> None:
    a, b = pair
    await a.register(heartbeat_interval_ms=1_000)
    for _ in range(40):
        a.clock.turn(500)
        await a.coordinator.tick()
        await b.coordinator.tick()

    healths = [one for one in await _types(a) if one == "worker-health"]
    assert len(healths) == 2  # degraded, and unhealthy


async def test_two_looks_at_workers_lie_apart_when_both_replicas_take_them(pair: Pair) -> None:
    a, b = pair
    worker = await a.register(heartbeat_interval_ms=1_000)
    for _ in range(6):  # both have looked for a while, and the worker has been heard
        a.clock.turn(500)
        await a.beat(worker)
        await a.coordinator.tick()
        await b.coordinator.tick()
    a.clock.turn(2_999)
    await a.coordinator.tick()
    a.clock.turn(2)

    # The first look that finds it silent, and another one at the same moment.
    await a.coordinator.tick()
    await b.coordinator.tick()

    assert (await a.beat(worker)).lease_ms == 3_000


async def test_the_start_of_a_replica_gives_no_worker_more_time(
    clock: TurnedClock,
) -> None:
    store = SharedStore(clock)
    async with replica(store, "a") as a:
        worker = await a.register(heartbeat_interval_ms=1_000)
        for step in range(12):
            clock.turn(500)
            await a.coordinator.tick()
            if step == 4:
                async with replica(store, "late") as late:
                    await late.coordinator.tick()

        with pytest.raises(WorkerNotFound):
            await a.beat(worker)
    store.close()


async def test_after_all_replicas_were_away_every_worker_has_a_lease_of_time(
    clock: TurnedClock,
) -> None:
    store = SharedStore(clock)
    async with replica(store, "a") as a:
        worker = await a.register(heartbeat_interval_ms=1_000)
        await a.coordinator.tick()
    clock.turn(60_000)
    async with replica(store, "b") as b:
        await b.coordinator.tick()
        clock.turn(1_000)
        await b.coordinator.tick()

        await b.beat(worker)
    store.close()


async def test_the_start_of_a_replica_leaves_those_in_line_elsewhere_where_they_are(
    clock: TurnedClock,
) -> None:
    store = SharedStore(clock)
    async with replica(store, "a") as a:
        held = await a.coordinator.execute(AcquireLock(name="l", owner="first", ttl_ms=60_000))
        asking = AcquireLock(name="l", owner="second", ttl_ms=60_000, wait_ms=600_000)
        wait = asyncio.ensure_future(a.coordinator.execute(asking))
        await settle()
        async with replica(store, "b") as b:
            assert held.fence is not None
            await b.coordinator.execute(ReleaseLock(name="l", owner="first", fence=held.fence))
        await settle()

        assert (await soon(wait)).acquired
    store.close()


async def test_places_in_line_at_a_replica_that_is_gone_are_not_waited_for(
    clock: TurnedClock,
) -> None:
    store = SharedStore(clock)
    async with replica(store, "b") as b:
        held = await b.coordinator.execute(AcquireLock(name="l", owner="first", ttl_ms=600_000))
        asking = AcquireLock(name="l", owner="gone", ttl_ms=600_000, wait_ms=600_000)
        async with replica(store, "a") as a:
            await a.coordinator.tick()
            wait = asyncio.ensure_future(a.coordinator.execute(asking))
            await settle()
            await a.die()
        await asyncio.gather(wait, return_exceptions=True)
        clock.turn(20_000)
        await b.coordinator.tick()

        assert held.fence is not None
        await b.coordinator.execute(ReleaseLock(name="l", owner="first", fence=held.fence))
        third = await b.coordinator.execute(AcquireLock(name="l", owner="third", ttl_ms=1_000))
        assert third.acquired
    store.close()


# --- an outcome that is not known -----------------------------------------------------------------


async def test_events_whose_commit_may_have_been_are_not_done_again(pair: Pair) -> None:
    a, b = pair
    unknown = Unavailable("the connection was lost while the commit was under way")
    leader = leader_of(a, b)
    leader.database.on_commit = _raiser(unknown)

    calls = [a.coordinator.execute(SubmitTasks([NewTask(name=name)])) for name in "xy"]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    leader.database.on_commit = None

    assert [str(one) for one in answers] == [unknown.detail, unknown.detail]
    assert leader.coordinator.store_problem == unknown.detail
    worker = await b.register()
    assert [one.lane.name for one in await b.lease(worker)] == ["x", "y"]
    # What was committed after all is known from here on.
    before = [one.id for one in await b.coordinator.queries.tasks.page(TaskFilter(), limit=100)]
    assert (await a.submit("z"))[0] > max(before)
    assert leader.coordinator.store_problem is None


async def test_what_was_leased_by_a_commit_that_may_have_been_is_not_given_twice(
    pair: Pair,
) -> None:
    a, b = pair
    worker = await a.register()
    await b.submit("x", "y")
    leader = leader_of(a, b)
    leader.database.on_commit = _raiser(Unavailable("lost"))
    with pytest.raises(Unavailable):
        await a.lease(worker, 1)
    leader.database.on_commit = None

    assert [one.lane.name for one in await a.lease(worker)] == ["y"]


# --- each other -----------------------------------------------------------------------------------


async def test_replicas_know_each_other_until_they_leave(clock: TurnedClock) -> None:
    store = SharedStore(clock)
    async with replica(store, "a") as a:
        await a.coordinator.tick()
        async with replica(store, "b") as b:
            await b.coordinator.tick()
            found = await a.coordinator.queries.dashboard.replicas()
            assert [one.name for one in found] == ["a", "b"]

        (left,) = await a.coordinator.queries.dashboard.replicas()
        assert (left.name, left.seen_ms, left.started_at_ms) == (
            "a",
            clock.now_ms(),
            clock.now_ms(),
        )
    store.close()


async def test_a_replica_that_died_is_listed_for_an_hour(clock: TurnedClock) -> None:
    store = SharedStore(clock)
    async with replica(store, "a") as a:
        async with replica(store, "b") as b:
            await b.coordinator.tick()
            await b.die()
        clock.turn(3_600_000)
        await a.coordinator.tick()
        assert [one.name for one in await a.coordinator.queries.dashboard.replicas()] == ["a", "b"]
        clock.turn(2)
        await a.coordinator.tick()

        assert [one.name for one in await a.coordinator.queries.dashboard.replicas()] == ["a"]
    store.close()


async def test_a_batch_of_results_is_answered_by_whichever_replica_gets_it(pair: Pair) -> None:
    a, b = pair
    worker = await a.register(max_concurrent_tasks=100)
    await a.submit(*"abcdefgh")
    leases = (await a.coordinator.execute(ask(worker, wait_ms=0))).leases
    halves = [leases[:4], leases[4:]]

    replies = [
        await one.execute(
            ReportResults(
                worker_id=worker.id,
                incarnation=worker.incarnation,
                results=[done(task) for task in half],
            )
        )
        for one, half in zip((b, a), halves, strict=True)
    ]

    assert all(set(one.outcomes) == {"accepted"} for one in replies)
    assert isinstance(await a.coordinator.execute(ask(worker, wait_ms=0)), Granted)


async def _types(engine: Engine) -> list[str]:
    passage = await engine.coordinator.queries.events.after(0, EVERYTHING, limit=1_000)
    return [one.type for one in passage.items]


def _raiser(error: Exception) -> Any:
    def fail() -> None:
        raise error

    return fail
