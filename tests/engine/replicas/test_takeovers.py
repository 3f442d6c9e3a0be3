"""The leader changes, by its death, silence or planned stop: nothing is lost, nothing doubled."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest
from msgspec import Raw

from rota.core.commands import CancelTasks, SubmitTasks, TaskFilter
from rota.core.events import EVERYTHING
from rota.core.ids import TaskId
from rota.core.kv import PutValue
from rota.core.locks import AcquireLock, LockAnswer, ReleaseLock
from rota.core.replicas import Role
from rota.core.replies import Granted
from rota.core.schedules.commands import PauseSchedule, ResumeSchedule, RunSchedule
from rota.core.tasks.model import NewTask, TaskRecord, TaskState
from rota.engine.dispatch import lease_rows
from rota.engine.dispatch.lease_rows import GrantedRows
from rota.engine.replicas import held
from rota.engine.replicas.held import LEADER_LOST, NO_LEADER
from rota.engine.topics import CommittedEvents, Leases
from rota.errors import OutcomeUnknown, RotaError, Unavailable
from rota.messages.streams import StreamedLease
from tests.conftest import TurnedClock
from tests.engine.running import done, settle, soon
from tests.engine.scheduling import MINUTE_MS, Schedules, put_of
from tests.engine.sharing import (
    LEASE_MS,
    Replica,
    SharedStore,
    leader_of,
    open_shared,
    replica,
    replicas,
)
from tests.engine.test_statements import reads_of

Three = tuple[Replica, Replica, Replica]


@pytest.fixture
async def engines(clock: TurnedClock) -> AsyncIterator[Three]:
    """The first leads, the others follow it."""
    async with replicas(clock, 3) as (a, b, c):
        yield a, b, c


async def lose_power(leader: Replica) -> None:
    """Be gone without a trace: the database still believes in its session."""
    await leader.freeze()
    leader.network.remove(leader.name)
    await settle()


async def tasks(engine: Replica) -> list[TaskRecord]:
    return list(await engine.coordinator.queries.tasks.page(TaskFilter(), limit=100))


# --- when -----------------------------------------------------------------------------------------


async def test_the_first_coordinator_leads_and_the_others_follow(engines: Three) -> None:
    a, b, c = engines

    assert [one.role for one in engines] == [Role.LEADER, Role.FOLLOWER, Role.FOLLOWER]
    assert a.coordinator.membership.followers.names == ["b", "c"]
    assert b.coordinator.is_ready
    assert c.coordinator.is_ready


async def test_only_the_heartbeat_of_the_leader_looks_for_silent_coordinators(
    engines: Three,
) -> None:
    with reads_of() as reads:
        for one in engines[1:]:
            await one.coordinator.membership.beat()
    assert reads == []

    with reads_of() as reads:
        await engines[0].coordinator.membership.beat()
    assert reads == ["replicas.silent"]


@pytest.mark.only("sqlite")  # there the lease goes by the clock of the test
async def test_a_leader_that_is_only_out_of_reach_keeps_its_place_until_its_lease_ends(
    clock: TurnedClock,
) -> None:
    async with replicas(clock) as (a, b):
        await lose_power(a)
        clock.turn(LEASE_MS - 1)
        await b.step()
        assert not b.coordinator.is_ready

        clock.turn(1)
        await b.step()

        assert b.role is Role.LEADER
        assert await b.submit()


async def test_links_that_do_not_last_are_not_opened_again_at_once(clock: TurnedClock) -> None:
    async with replicas(clock) as (_, b):
        opened = 0
        for _ in range(20):
            opened += len(b.network.links)
            while b.network.links:
                b.network.links.pop().cut()
            await settle()
            await b.step()

        assert 2 <= opened <= 5


async def test_a_leader_that_died_is_replaced_at_once(engines: Three) -> None:
    a, b, c = engines
    await a.die()

    ids = [*await b.submit(), *await c.submit()]

    assert sorted([b.role, c.role]) == [Role.FOLLOWER, Role.LEADER]
    assert [one.id for one in await tasks(b)] == sorted(ids, reverse=True)


@pytest.mark.only("sqlite")
async def test_a_follower_that_alone_cannot_reach_the_leader_does_not_take_over(
    clock: TurnedClock,
) -> None:
    async with replicas(clock) as (a, b):
        b.network.part("a", "b")
        await settle()
        await b.step()
        assert (a.role, b.role) == (Role.LEADER, Role.SEEKING)

        b.network.heal()
        await b.step()

        assert b.role is Role.FOLLOWER
        assert await b.submit()


async def test_a_leader_that_stops_hands_over_before_its_lease_ends(engines: Three) -> None:
    a, b, c = engines
    await a.coordinator.stop()

    assert await b.submit()

    assert sorted([b.role, c.role]) == [Role.FOLLOWER, Role.LEADER]


# --- commands on their way ------------------------------------------------------------------------


@pytest.mark.parametrize("is_committed", [True, False])
async def test_a_command_in_flight_at_a_dying_leader_is_answered_by_the_next_one(
    engines: Three, *, is_committed: bool
) -> None:
    a, b, _ = engines
    a.network.hold()
    if not is_committed:
        a.database.write_problem = ConnectionError("about to die")
    call = asyncio.ensure_future(b.submit("x", key="once"))
    await settle()
    assert not call.done()
    assert len(await tasks(a)) == is_committed

    await a.die()

    assert await soon(call) == [one.id for one in await tasks(b)]


async def test_a_submission_without_a_key_in_flight_is_answered_with_an_unknown_outcome(
    engines: Three,
) -> None:
    a, b, _ = engines
    a.network.hold()
    call = asyncio.ensure_future(b.submit("x"))
    await settle()
    await a.die()

    with pytest.raises(Unavailable) as raised:
        await soon(call)

    assert raised.value.detail == OutcomeUnknown(LEADER_LOST).detail
    assert len(await tasks(b)) == 1


async def test_a_command_that_comes_while_there_is_no_leader_is_held_for_the_next_one(
    engines: Three,
) -> None:
    a, b, c = engines
    await a.die()

    found = await asyncio.gather(b.submit("x"), c.submit("y"))

    assert len({*found[0], *found[1]}) == 2
    assert len(await tasks(b)) == 2


@pytest.mark.only("sqlite")
async def test_held_commands_are_refused_when_no_leader_comes_in_time(
    clock: TurnedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held, "HOLD_S", 0.02)
    async with replicas(clock) as (a, b):
        a.network.hold()
        sent = asyncio.ensure_future(b.submit("x"))
        await settle()
        await lose_power(a)
        await settle()
        fresh = asyncio.ensure_future(b.submit("y"))

        outcomes = await asyncio.gather(sent, fresh, return_exceptions=True)
        with pytest.raises(Unavailable) as refused:
            await b.submit("z")

        assert [str(one) for one in outcomes] == [OutcomeUnknown(LEADER_LOST).detail, NO_LEADER]
        assert refused.value.detail == NO_LEADER
        assert all(isinstance(one, Unavailable) and one.retry_after_s == 1 for one in outcomes)
        clock.turn(LEASE_MS)
        await b.step()
        assert [one.lane.name for one in await tasks(b)] == ["x"]
        assert await b.submit("z")


async def test_a_planned_handover_loses_no_command(clock: TurnedClock) -> None:
    store = open_shared(clock)
    async with replica(store, "a") as first:
        assert first.role is Role.LEADER
        async with replica(store, "b") as b, replica(store, "c") as c:
            calls = []

            async def go_on(engine: Replica) -> list[int]:
                return [(await engine.submit(f"{engine.name}{one}"))[0] for one in range(30)]

            calls = [asyncio.ensure_future(go_on(one)) for one in (b, c)]
            await settle()
            stopping = asyncio.ensure_future(first.coordinator.stop())
            ids = [one for call in calls for one in await soon(call)]
            await stopping

            assert len(set(ids)) == 60
            assert {one.id for one in await tasks(b)} == set(ids)
            assert sorted([b.role, c.role]) == [Role.FOLLOWER, Role.LEADER]
    store.close()


# --- a leader that was deposed --------------------------------------------------------------------


async def depose(old: Replica, new: Replica) -> None:
    """Let another coordinator take over while the leader notices nothing."""
    old.clock.turn(LEASE_MS)
    await new.step()
    assert (old.role, new.role) == (Role.LEADER, Role.LEADER)


@pytest.mark.only("sqlite")
async def test_a_deposed_leader_serves_its_callers_as_a_follower(clock: TurnedClock) -> None:
    async with replicas(clock) as (a, b):
        worker = await b.register()
        call = await a.parked(worker)
        await depose(a, b)

        (task_id,) = await a.submit("x")

        assert (a.role, b.role) == (Role.FOLLOWER, Role.LEADER)
        assert [one.id for one in (await soon(call)).leases] == [task_id]
        assert [one.id for one in await tasks(b)] == [task_id]


@pytest.mark.only("sqlite")
async def test_commands_forwarded_to_a_deposed_leader_are_executed_once(
    clock: TurnedClock,
) -> None:
    async with replicas(clock, 3) as (a, b, c):
        await depose(a, b)

        (task_id,) = await c.submit("x")
        await settle()

        assert [one.role for one in (a, b, c)] == [Role.FOLLOWER, Role.LEADER, Role.FOLLOWER]
        assert [one.id for one in await tasks(b)] == [task_id]


@pytest.mark.only("sqlite")
async def test_a_write_forwarded_to_a_deposed_leader_does_not_come_again_later(
    clock: TurnedClock,
) -> None:
    async with replicas(clock, 3) as (a, b, c):
        await depose(a, b)
        a.network.part("a", "b")  # it learns late where its held commands go
        await c.coordinator.execute(PutValue(key="k", value=b"1"))  # type: ignore[arg-type]
        await c.coordinator.execute(PutValue(key="k", value=b"2"))  # type: ignore[arg-type]

        a.network.heal()
        await a.step()
        await settle()

        assert a.role is Role.FOLLOWER
        found = await c.coordinator.queries.kv.get("k")
        assert found is not None
        assert bytes(found.value) == b"2"


# --- callers that wait ----------------------------------------------------------------------------


async def test_a_waiting_lease_call_at_a_follower_survives_a_change_of_leader(
    engines: Three,
) -> None:
    a, b, c = engines
    calls = [await one.parked(await one.register(f"w{one.name}"), 1) for one in (b, c)]
    await a.die()

    ids = await b.submit("x", "y")

    granted = [one.id for call in calls for one in (await soon(call)).leases]
    assert sorted(granted) == ids


async def test_a_streaming_worker_at_a_follower_survives_a_change_of_leader(
    engines: Three,
) -> None:
    a, b, c = engines
    decode_rows = msgspec.msgpack.Decoder(list[StreamedLease]).decode
    got: list[StreamedLease] = []
    ended: list[RotaError] = []
    room = 5

    def take(granted: Granted | GrantedRows) -> int:
        assert isinstance(granted, GrantedRows)  # as the leader encoded it
        got.extend(lease for one in granted.messages for lease in decode_rows(one.rows))
        return room - len(got)

    subscriptions = []
    for one in (b, c):
        worker = await one.register(f"w{one.name}")
        topic = Leases(
            worker_id=worker.id,
            incarnation=worker.incarnation,
            on_granted=take,
            on_ended=ended.append,
        )
        subscriptions.append(one.coordinator.subscribe(topic))
        subscriptions[-1].ask(room)
    await settle()
    await a.submit("x")
    await settle()
    await a.die()
    ids = await c.submit("y")
    for _ in range(20):
        await settle()

    assert not ended
    assert [one.name for one in got] == ["x", "y"]
    assert [one.task_id for one in got][1:] == ids
    for subscription in subscriptions:
        subscription.withdraw()


async def test_a_lease_granted_to_a_caller_that_just_gave_up_is_returned(engines: Three) -> None:
    a, b, _ = engines
    worker = await b.register(max_concurrent_tasks=1)
    call = await b.parked(worker, 1)
    a.network.hold()
    (task_id,) = await a.submit()
    await settle()
    assert (await a.task(task_id)).state is TaskState.RUNNING

    call.cancel()
    await settle()
    a.network.hold(is_held=False)
    await settle()

    task = await a.task(task_id)
    assert (task.state, task.attempt) == (TaskState.QUEUED, 0)
    assert [one.id for one in await b.lease(worker)] == [task_id]


async def test_leases_granted_to_a_streaming_worker_that_just_left_are_returned(
    engines: Three,
) -> None:
    a, b, _ = engines
    worker = await b.register(max_concurrent_tasks=2)
    got: list[Granted | GrantedRows] = []

    def take(granted: Granted | GrantedRows) -> int:
        got.append(granted)
        return 2

    topic = Leases(
        worker_id=worker.id,
        incarnation=worker.incarnation,
        on_granted=take,
        on_ended=lambda _: None,
    )
    subscription = b.coordinator.subscribe(topic)
    subscription.ask(2)
    await settle()
    a.network.hold()
    ids = await a.submit("x", "y")
    await settle()
    assert [(await a.task(one)).state for one in ids] == [TaskState.RUNNING] * 2

    subscription.withdraw()
    await settle()
    a.network.hold(is_held=False)
    await settle()

    assert not got
    assert [(task.state, task.attempt) for task in await tasks(a)] == [(TaskState.QUEUED, 0)] * 2
    assert sorted(one.id for one in await b.lease(worker, 2)) == ids


async def test_a_streaming_worker_gets_all_work_though_it_is_too_large_for_one_message(
    engines: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, _ = engines
    monkeypatch.setattr(lease_rows, "GRANT_BYTES", 1_000)
    for link in a.network.links:
        monkeypatch.setattr(link.from_leader._codec, "_most_bytes", 3_000)
    worker = await b.register(max_concurrent_tasks=20)
    got: list[tuple[TaskId, int]] = []

    def take(granted: Granted | GrantedRows) -> int:
        assert isinstance(granted, GrantedRows)
        got.extend(granted.holdings())
        return 20 - len(got)

    topic = Leases(
        worker_id=worker.id,
        incarnation=worker.incarnation,
        on_granted=take,
        on_ended=lambda _: None,
    )
    ids = []
    for _ in range(4):
        ids += await a.submit(*["x"] * 5, payload=Raw(b'"%s"' % (b"x" * 400)))
    subscription = b.coordinator.subscribe(topic)
    subscription.ask(20)
    for _ in range(20):
        await settle()

    assert [task_id for task_id, _ in got] == ids
    assert {task.attempt for task in await tasks(a)} == {1}
    subscription.withdraw()


async def test_a_caller_that_gives_up_takes_no_work_from_the_next(engines: Three) -> None:
    a, b, c = engines
    first = await b.parked(await b.register("w1"), 1)
    second = await c.parked(await c.register("w2"), 1)
    first.cancel()
    await settle()

    (task_id,) = await a.submit()

    assert [one.id for one in (await soon(second)).leases] == [task_id]


async def waiting_for_lock(engine: Replica, owner: str) -> "asyncio.Future[LockAnswer]":
    asking = AcquireLock(name="l", owner=owner, ttl_ms=600_000, wait_ms=600_000)
    wait = asyncio.ensure_future(engine.coordinator.execute(asking))
    await settle()
    return wait


async def test_callers_that_wait_for_a_lock_keep_their_places_when_the_leader_changes(
    engines: Three,
) -> None:
    a, b, c = engines
    held = await b.coordinator.execute(AcquireLock(name="l", owner="first", ttl_ms=600_000))
    waits = [await waiting_for_lock(one, f"at {one.name}") for one in (b, c)]
    await a.die()

    for wait, owner in zip(waits, ("at b", "at c"), strict=True):
        assert held.fence is not None
        releasing = ReleaseLock(name="l", owner=held.owner, fence=held.fence)
        await c.coordinator.execute(releasing)
        held = await soon(wait)
        assert (held.acquired, held.owner) == (True, owner)


async def test_a_caller_that_waits_for_a_task_learns_of_its_end_in_the_last_moment(
    engines: Three,
) -> None:
    a, b, _ = engines
    (task_id,) = await a.submit()
    wait = asyncio.ensure_future(b.coordinator.wait_for_end(task_id, wait_ms=600_000))
    await settle()
    a.network.hold()  # so that no follower is told
    await a.execute(CancelTasks((task_id,)))
    assert not wait.done()

    await a.die()

    await soon(wait)


async def test_a_watcher_at_a_follower_gets_each_event_once_when_the_leader_changes(
    engines: Three,
) -> None:
    a, b, c = engines
    seen: list[int] = []
    b.coordinator.subscribe(CommittedEvents(lambda some: seen.extend(one.seq for one in some)))
    await a.submit()
    await settle()
    a.network.hold()
    await a.submit()
    await a.die()
    await c.submit()
    await b.submit()
    found = await b.coordinator.queries.events.after(0, EVERYTHING, limit=100)
    while len(seen) < len(found.items):
        await settle()

    assert seen == [one.seq for one in found.items]


async def test_a_result_reported_again_after_a_takeover_is_accepted_once(engines: Three) -> None:
    a, b, _ = engines
    worker = await b.register()
    (task_id,) = await b.submit()
    (task,) = await b.lease(worker)
    a.network.hold()
    call = asyncio.ensure_future(b.report(worker, done(task)))
    await settle()
    await a.die()

    assert await soon(call) == ["duplicate"]
    assert (await b.task(task_id)).state is TaskState.SUCCEEDED


@pytest.mark.only("sqlite")
async def test_a_leader_that_is_cut_off_from_the_store_is_replaced_after_its_lease(
    clock: TurnedClock,
) -> None:
    store = SharedStore(clock)
    async with replica(store, "a") as a, replica(store, "b") as b:
        a.handle.is_cut_off = True
        with pytest.raises(Unavailable):
            await b.execute(SubmitTasks([NewTask(name="x")]))
        clock.turn(LEASE_MS)
        await b.step()
        assert await b.submit("y")
        a.handle.is_cut_off = False

        assert await a.submit("z")

        assert (a.role, b.role) == (Role.FOLLOWER, Role.LEADER)
        assert [one.lane.name for one in await tasks(b)] == ["z", "y"]
    store.close()


# --- schedules ------------------------------------------------------------------------------------


async def test_a_schedule_that_a_follower_takes_fires_once_whoever_leads(engines: Three) -> None:
    a, b, c = engines
    made = await b.execute(put_of(overlap="allow", missed="all"))
    await a.turn(MINUTE_MS)
    paused = await c.execute(PauseSchedule(name="clean"))
    await b.execute(ResumeSchedule(name="clean"))
    await a.turn(MINUTE_MS)

    await a.die()
    await b.submit("other")
    await b.turn(2 * MINUTE_MS)
    on_demand = await c.execute(RunSchedule(name="clean"))

    assert made.is_new
    assert paused.record.state.pause is not None
    assert await Schedules(b).nominals() == [1, 2, 3, 4, 4]
    assert on_demand.firing.is_manual
    keys = [one.key for one in await tasks(c) if one.lane.name == "work"]
    assert len(keys) == len(set(keys)) == 5


async def test_a_firing_that_waits_is_known_to_the_next_leader(engines: Three) -> None:
    a, b, c = engines
    await b.execute(put_of(overlap="queue_one"))
    await a.turn(MINUTE_MS)
    await a.turn(MINUTE_MS)
    (first,) = await tasks(b)

    await a.die()
    await b.execute(CancelTasks((first.id,)))
    await leader_of(b, c).turn(1)

    assert await Schedules(c).nominals() == [1, 2]
