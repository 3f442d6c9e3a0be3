"""A wish for work that stays is granted over and over, and is nobody's once its worker is gone."""

import asyncio

import pytest

from rota.core.commands import LeaseWork, SubmitTasks
from rota.core.replies import Granted
from rota.core.tasks.model import NewTask, TaskRecord
from rota.core.workers.model import WorkerRecord
from rota.engine.commit.request import QueuedCommand
from rota.engine.dispatch.lease_rows import GrantedRows
from rota.engine.dispatch.subscription import LeaseSubscription
from rota.engine.topics import Leases
from rota.errors import RotaError
from tests.engine.running import Engine, done, settle


class Connected:
    """A worker whose connection stays open, with room for so many at once."""

    def __init__(self, engine: Engine, worker: WorkerRecord, room: int) -> None:
        self.given: list[TaskRecord] = []
        self.ended: list[RotaError] = []
        self.room = room
        self.call: LeaseSubscription = engine.coordinator.subscribe(
            Leases(
                worker_id=worker.id,
                incarnation=worker.incarnation,
                on_granted=self._take,
                on_ended=self.ended.append,
            )
        )

    def _take(self, granted: Granted | GrantedRows) -> int:
        assert isinstance(granted, Granted)
        self.given += granted.leases
        self.room -= len(granted.leases)
        return self.room

    async def ask(self) -> None:
        self.call.ask(self.room)
        await settle()


async def connected(engine: Engine, worker_id: str = "w1", room: int = 10) -> Connected:
    one = Connected(engine, await engine.register(worker_id), room)
    await one.ask()
    return one


async def test_what_was_not_given_need_not_be_asked_for_anew(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await connected(engine)
    writer, entered = engine.coordinator.leading.writer, list[type]()
    put = writer.put

    def noted_put(entry: QueuedCommand) -> None:
        entered.append(type(entry.command))
        put(entry)

    monkeypatch.setattr(writer, "put", noted_put)

    for _ in range(5):
        await engine.submit()
        await settle()

    assert len(worker.given) == 5
    assert (entered.count(SubmitTasks), entered.count(LeaseWork)) == (5, 0)


async def test_no_more_is_given_than_there_is_room_for(engine: Engine) -> None:
    worker = await connected(engine, room=3)

    for _ in range(5):
        await engine.submit()
        await settle()
    assert len(worker.given) == 3
    figures = await engine.coordinator.queries.workers.by_id("w1")
    assert figures is not None
    await engine.report(figures.worker, done(worker.given[0]))
    worker.room += 1
    await worker.ask()

    assert len(worker.given) == 4
    worker.call.withdraw()


async def test_a_worker_that_has_no_room_any_more_takes_back_all_of_its_calls(
    engine: Engine,
) -> None:
    worker = Connected(engine, await engine.register("w1"), room=0)
    worker.call.ask(1)
    worker.call.ask(2)  # entered beside the first, which a batch may be executing

    worker.call.ask(0)
    await engine.submit()
    await settle()

    assert worker.given == []


async def test_the_rest_of_a_wish_takes_part_in_the_next_choice(engine: Engine) -> None:
    first, second = await connected(engine, "w1"), await connected(engine, "w2")

    for _ in range(10):
        await engine.submit()
        await settle()

    # Each time the emptier one is the better choice.
    assert [len(first.given), len(second.given)] == [5, 5]


async def test_a_wish_with_more_work_at_hand_is_granted_until_the_room_is_full(
    engine: Engine,
) -> None:
    await engine.submit(*["work"] * 25)

    worker = await connected(engine, room=10)

    assert len(worker.given) == 10


async def test_whoever_withdraws_is_given_nothing_more_and_keeps_nothing_back(
    engine: Engine,
) -> None:
    leaving, staying = await connected(engine, "w1"), await connected(engine, "w2")
    await engine.submit(*["work"] * 2)
    await settle()
    had = len(leaving.given)

    leaving.call.withdraw()
    tasks = await engine.submit(*["work"] * 6)
    await settle()

    assert len(leaving.given) == had
    assert {task.id for task in staying.given} >= set(tasks)


async def test_what_is_granted_while_its_worker_withdraws_goes_back_with_the_rest_of_the_wish(
    engine: Engine,
) -> None:
    leaving = await connected(engine, "w1")
    submitting = asyncio.ensure_future(engine.submit())
    # The batch runs now, and delivers; what takes the grant has not had its turn.
    while not submitting.done():
        await asyncio.sleep(0)
        leaving.call.withdraw()
    await settle()

    staying = await connected(engine, "w2")
    later = await engine.submit()
    await settle()

    assert leaving.given == []
    assert [task.id for task in staying.given] == [*submitting.result(), *later]


async def test_a_worker_that_idles_is_given_its_work_before_the_submitter_hears_of_it(
    engine: Engine,
) -> None:
    worker = await connected(engine)
    order: list[str] = []
    take = worker._take

    def noted(granted: Granted | GrantedRows) -> int:
        order.append("given")
        return take(granted)

    worker.call._on_granted = noted
    submitted = asyncio.ensure_future(engine.execute(SubmitTasks([NewTask(name="work")])))
    submitted.add_done_callback(lambda _: order.append("answered"))
    await submitted
    await settle()

    assert order == ["given", "answered"]


async def test_a_mistake_of_one_that_is_given_work_does_not_keep_answers_from_others(
    engine: Engine,
) -> None:
    worker = await connected(engine)

    def mistaken(_: Granted | GrantedRows) -> int:
        raise ZeroDivisionError

    worker.call._on_granted = mistaken

    assert len(await engine.submit()) == 1
