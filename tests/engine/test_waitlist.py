"""Who waits for work, and at whose cost? Not at that of a batch that has nothing for them."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rota.core.commands import RegisterWorker, SetWorkerState
from rota.core.replies import Granted, Registered
from rota.core.tasks.model import Lane, NewTask
from rota.core.workers.model import WorkerRecord, WorkerState
from rota.core.workers.selection import Strategy
from rota.engine.dispatch.dispatcher import CHOICE
from rota.engine.dispatch.waitlist import SWEPT_AFTER, Waitlist
from tests.conftest import TurnedClock
from tests.engine.running import Engine, ask, done, running, settle, soon
from tests.engine.test_run_costs import CountedDatabase

Calls = dict[str, "asyncio.Task[Granted]"]


@asynccontextmanager
async def idle(
    folder: Path, count: int, *, of_each: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[tuple[Engine, Calls]]:
    """A coordinator with so many workers whose calls wait; the last one comes last."""
    async with running(folder / f"{count}.db", TurnedClock(), **settings) as engine:
        calls: Calls = {}
        for number in range(count):
            worker = await engine.register(f"w{number:04}", **(of_each or {}))
            lease = engine.coordinator.execute(ask(worker, 10, wait_ms=600_000))
            calls[worker.id] = asyncio.ensure_future(lease)
        await settle()
        try:
            yield engine, calls
        finally:
            for call in calls.values():
                call.cancel()


async def cost(folder: Path, count: int) -> Counter[str]:
    async with idle(folder, count) as (engine, _):
        counted = engine.database._inner = CountedDatabase(engine.database._inner)
        await engine.submit()
        return Counter(counted.counts)  # as they stand now: the end of it costs something too


async def test_a_task_costs_the_same_however_many_wait_for_one(tmp_path: Path) -> None:
    some, many = await cost(tmp_path, 2 * CHOICE), await cost(tmp_path, 20 * CHOICE)

    assert many == some


async def test_workers_that_cannot_serve_a_task_cost_it_nothing(tmp_path: Path) -> None:
    async with idle(tmp_path, 100, of_each={"queues": ("others",)}) as (engine, calls):
        able = await engine.parked(await engine.register("able"))
        counted = engine.database._inner = CountedDatabase(engine.database._inner)

        await engine.submit()

        assert len((await soon(able)).leases) == 1
        assert counted.counts["read"] < 10
        assert not any(call.done() for call in calls.values())


async def test_a_task_finds_the_one_that_may_take_it_behind_all_that_may_not(
    tmp_path: Path,
) -> None:
    async with idle(tmp_path, 200) as (engine, calls):
        for worker_id in list(calls)[:-1]:
            drain = SetWorkerState(worker_id=worker_id, state=WorkerState.DRAINING)
            await engine.execute(drain)

        await engine.submit()

        assert len((await soon(calls["w0199"])).leases) == 1


async def test_more_tasks_than_one_round_can_take_all_find_a_worker(tmp_path: Path) -> None:
    async with idle(tmp_path, 60, of_each={"max_concurrent_tasks": 1}) as (engine, calls):
        await engine.submit_all([NewTask(name="work")] * 50)
        await settle()

        given = [call for call in calls.values() if call.done()]
        assert [len(call.result().leases) for call in given] == [1] * 50


async def test_many_tasks_are_spread_over_all_who_are_idle(tmp_path: Path) -> None:
    async with idle(tmp_path, 100) as (engine, calls):
        await engine.submit_all([NewTask(name="work")] * 100)
        await settle()

        assert [len(call.result().leases) for call in calls.values()] == [1] * 100


async def test_in_turn_all_who_wait_are_chosen(tmp_path: Path) -> None:
    async with idle(tmp_path, 3 * CHOICE, strategy=Strategy.ROUND_ROBIN.value) as (engine, calls):
        asked: set[str] = set()
        for _ in range(10 * CHOICE):
            await engine.submit()
            await settle()
            (worker_id,) = [one for one, call in calls.items() if call.done()]
            asked.add(worker_id)
            (task,) = calls[worker_id].result().leases
            worker = await engine.coordinator.queries.workers.by_id(worker_id)
            assert worker is not None
            await engine.report(worker.worker, done(task))
            lease = engine.coordinator.execute(ask(worker.worker, 10, wait_ms=600_000))
            calls[worker_id] = asyncio.ensure_future(lease)
            await settle()

        assert asked == calls.keys()


async def test_a_call_waits_for_what_its_worker_can_serve_after_coming_back(
    engine: Engine,
) -> None:
    worker = await engine.register("w1", queues=("a",))
    call = await engine.parked(worker)

    again = RegisterWorker(
        worker_id="w1", node_id="n1", incarnation=worker.incarnation, queues=("b",)
    )
    reply = await engine.execute(again)
    assert isinstance(reply, Registered)
    assert reply.worker.incarnation == worker.incarnation
    await engine.submit(queue="a")
    await settle()
    assert not call.done()
    (wanted,) = await engine.submit(queue="b")

    assert [task.id for task in (await soon(call)).leases] == [wanted]


# --- the lines themselves -------------------------------------------------------------------------


class Waiting:
    """A call, as far as it matters where it stands."""

    command: object = None

    def __init__(self) -> None:
        self.is_abandoned = False


def worker_of(number: int, queue: str) -> WorkerRecord:
    return WorkerRecord(
        id=f"w{number}",
        incarnation=number,
        node_id="n",
        queues=(queue,),
        last_heartbeat_ms=0,
        started_at_ms=0,
    )


LANES = {number: Lane(queue, "work", ()) for number, queue in enumerate("abc", 1)}


@given(st.data())
def test_whoever_can_serve_is_found_and_nobody_else(data: st.DataObject) -> None:
    parking: Waitlist[Waiting] = Waitlist()
    waiting: dict[Waiting, str] = {}
    for number in range(data.draw(st.integers(0, 40))):
        call, queue = Waiting(), data.draw(st.sampled_from("abcd"))
        parking.add(call, worker_of(number, queue))
        waiting[call] = queue
    for call in [*waiting]:
        fate = data.draw(st.sampled_from(["stays", "stays", "drops", "goes"]))
        if fate == "drops":
            parking.drop(call)
        call.is_abandoned = fate == "goes"
        if fate != "stays":
            del waiting[call]
    wanted = data.draw(st.sets(st.sampled_from([*LANES])))
    lanes = {number: LANES[number] for number in wanted}

    found: list[Waiting] = []
    while some := parking.some(lanes, data.draw(st.integers(1, 10)), but=found):
        found += some

    queues = {lane.queue for lane in lanes.values()}
    assert len(set(found)) == len(found)
    assert set(found) == {call for call, queue in waiting.items() if queue in queues}


def test_whoever_waits_behind_those_who_have_gone_is_found_however_few_are_wanted() -> None:
    parking: Waitlist[Waiting] = Waitlist()
    calls = [Waiting() for _ in range(100)]
    for number, call in enumerate(calls):
        parking.add(call, worker_of(number, "a"))
    for call in calls[:-1]:
        call.is_abandoned = True

    assert parking.some(LANES, 1, but=()) == [calls[-1]]
    assert len(parking) == 1


def test_those_who_were_not_asked_for_longest_are_asked_first() -> None:
    parking: Waitlist[Waiting] = Waitlist()
    calls = [Waiting() for _ in range(10)]
    for number, call in enumerate(calls):
        parking.add(call, worker_of(number, "a"))

    rounds = [parking.some(LANES, 4, but=()) for _ in range(5)]

    assert [call for some in rounds for call in some] == calls * 2


def test_calls_whose_callers_have_gone_do_not_pile_up() -> None:
    parking: Waitlist[Waiting] = Waitlist()
    for number in range(20 * SWEPT_AFTER):
        call = Waiting()
        parking.add(call, worker_of(number, "a"))
        call.is_abandoned = True
        parking.sweep()

    assert len(parking) <= 2 * SWEPT_AFTER
