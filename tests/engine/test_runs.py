"""Runs on the engine: in the transaction of their tasks, on the ordinary queue, once."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rota.core.commands import CancelTasks, TaskCommand, TaskFilter
from rota.core.context import Context
from rota.core.ids import TaskId
from rota.core.reducer import reduce
from rota.core.tasks.model import TaskState
from rota.core.workflow.commands import PruneRuns
from rota.core.workflow.decisions import CloseScope
from rota.errors import Invalid, Unavailable
from rota.store.database import Transaction
from rota.store.workflow.runs import RunStore
from tests.conftest import TurnedClock
from tests.engine.flows import Flows, ended_tokens, flowing, payload_of, perform
from tests.engine.graphs import CHILD, FAN, LINE, NAP, PARENT
from tests.engine.running import Engine, done, settle, soon


@pytest.fixture
def flows(engine: Engine) -> Flows:
    return Flows(engine)


# --- one transaction ------------------------------------------------------------------------------


async def test_a_run_goes_on_in_the_transaction_that_accepts_the_result(flows: Flows) -> None:
    engine = flows.engine
    worker = await engine.register()
    run_id = await flows.start(LINE)
    (first,) = await engine.lease(worker)
    commits = engine.database.commits

    await engine.report(worker, done(first, result=b"1"))

    assert engine.database.commits == commits + 1
    (second,) = await engine.lease(worker)
    assert payload_of(second) == {"got": 1}
    await engine.report(worker, done(second, result=b"2"))
    assert await flows.output(run_id) == {"second": 2}
    assert engine.database.commits == commits + 3


async def test_the_next_task_of_a_run_is_leased_in_the_same_transaction(flows: Flows) -> None:
    engine = flows.engine
    busy, idle = await engine.register("busy"), await engine.register("idle")
    await flows.start(LINE)
    (first,) = await engine.lease(busy)
    waiting = await engine.parked(idle)
    commits = engine.database.commits

    await engine.report(busy, done(first, result=b"1"))
    granted = await soon(waiting)

    assert [task.lane.name for task in granted.leases] == ["second"]
    assert engine.database.commits == commits + 1


async def test_a_commit_that_fails_leaves_result_and_run_where_they_were(flows: Flows) -> None:
    engine = flows.engine
    worker = await engine.register()
    run_id = await flows.start(LINE)
    (first,) = await engine.lease(worker)
    before = await flows.journal(run_id)
    engine.database.commit_problem = OSError("the disk is full")

    with pytest.raises(Unavailable):
        await engine.report(worker, done(first, result=b"1"))

    assert run_id not in flows.cache.runs
    assert (await engine.task(first.id)).state is TaskState.RUNNING
    assert await flows.journal(run_id) == before
    engine.database.commit_problem = None
    assert (await flows.look(run_id)).context["state"] == {}
    assert await engine.report(worker, done(first, result=b"1")) == ["accepted"]
    assert await flows.work(worker, {"second": lambda payload: payload["got"]})
    assert await flows.output(run_id) == {"second": 1}
    assert await flows.replays(run_id)


async def test_a_run_whose_start_is_not_committed_never_was(flows: Flows) -> None:
    engine = flows.engine
    await flows.put(LINE)
    engine.database.commit_problem = OSError("the disk is full")

    with pytest.raises(Unavailable):
        await flows.begin("line", key="k")

    engine.database.commit_problem = None
    assert await flows.runs() == []
    assert await engine.coordinator.queries.tasks.count(TaskFilter()) == 0
    assert not (await flows.begin("line", key="k")).is_duplicate


async def test_an_event_that_breaks_its_batch_takes_no_run_with_it(
    flows: Flows, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = flows.engine
    worker = await engine.register()
    runs = [await flows.start(LINE) for _ in range(2)]
    leases = await engine.lease(worker)

    def fragile(snapshot: Any, command: TaskCommand, context: Context) -> Any:
        if isinstance(command, CancelTasks):
            raise ArithmeticError("our mistake")  # noqa: TRY004 - any will do
        return reduce(snapshot, command, context)

    monkeypatch.setattr("rota.engine.commit.task_domain.reduce", fragile)
    answers = await asyncio.gather(
        engine.report(worker, done(leases[0], result=b"1")),
        engine.execute(CancelTasks((TaskId(1),))),
        engine.report(worker, done(leases[1], result=b"2")),
        return_exceptions=True,
    )

    assert [answers[0], answers[2]] == [["accepted"], ["accepted"]]
    assert isinstance(answers[1], ArithmeticError)
    for run_id in runs:
        assert ended_tokens(await flows.journal(run_id)) == [1]
        assert await flows.replays(run_id)
    assert len(await engine.lease(worker)) == 2


async def test_results_of_one_batch_reach_their_join_once(flows: Flows) -> None:
    engine = flows.engine
    worker = await engine.register(max_concurrent_tasks=50)
    run_id = await flows.start(FAN, {"count": 40})
    leases = await engine.lease(worker)
    commits = engine.database.commits

    halves = [leases[::2], leases[1::2]]
    await asyncio.gather(
        *(
            engine.report(
                worker, *(perform(one, {"work": lambda got: got["index"]}) for one in half)
            )
            for half in halves
        )
    )

    assert engine.database.commits == commits + 1
    assert await flows.output(run_id) == {"all": list(range(40))}
    decided = [one for entry in await flows.journal(run_id) for one in entry.decisions]
    assert sum(isinstance(one, CloseScope) for one in decided) == 1


async def test_waiting_for_a_run_ends_with_the_commit_that_ends_it(flows: Flows) -> None:
    engine = flows.engine
    worker = await engine.register()
    run_id = await flows.start(CHILD)
    waiting = asyncio.create_task(engine.coordinator.wait_for_end(run_id, wait_ms=600_000))
    await settle()
    assert not waiting.done()

    await flows.work(worker, {"work": lambda _: 1})

    await soon(waiting)
    assert await flows.output(run_id) == {"done": 1}
    await soon(asyncio.ensure_future(engine.coordinator.wait_for_end(run_id, wait_ms=600_000)))


# --- starting -------------------------------------------------------------------------------------


async def test_a_key_starts_one_run_even_in_one_batch(flows: Flows) -> None:
    engine = flows.engine
    await flows.put(CHILD)

    shown = await asyncio.gather(*(flows.begin("child", {"n": n}, key="k") for n in range(5)))
    later = await flows.begin("child", {"n": 9}, key="k")

    assert len({one.record.id for one in [*shown, later]}) == 1
    assert [one.is_duplicate for one in shown] == [False, True, True, True, True]
    assert later.record.input == {"n": 0}
    assert await engine.coordinator.queries.tasks.count(TaskFilter()) == 1


async def test_a_key_still_names_its_run_when_that_has_ended(
    tmp_path: Path, clock: TurnedClock
) -> None:
    async with flowing(tmp_path / "rota.db", clock) as flows:
        worker = await flows.engine.register()
        run_id = await flows.start(CHILD, key="k")
        await flows.work(worker, {"work": lambda _: 7})

    async with flowing(tmp_path / "rota.db", clock) as flows:
        again = await flows.begin("child", key="k")

    assert again.is_duplicate
    assert (again.record.id, again.record.output) == (run_id, {"done": 7})


async def test_an_input_that_breaks_its_schema_starts_nothing(flows: Flows) -> None:
    await flows.put(
        "{name: strict, input: {type: object, required: [n]}, initial_node: a, nodes: {a: {}}}"
    )

    with pytest.raises(Invalid):
        await flows.begin("strict", {}, key="k")

    assert await flows.runs() == []
    assert (await flows.begin("strict", {"n": 1}, key="k")).record.state == "completed"


async def test_ids_of_runs_and_tasks_rise_together_after_restarts_and_pruning_too(
    tmp_path: Path, clock: TurnedClock
) -> None:
    seen: list[int] = []
    for _ in range(3):
        async with flowing(tmp_path / "rota.db", clock) as flows:
            worker = await flows.engine.register()
            seen.append(await flows.start(CHILD))
            (task,) = await flows.engine.lease(worker)
            seen.append(task.id)
            await flows.engine.report(worker, done(task))
            seen += await flows.engine.submit("other")
            (other,) = await flows.engine.lease(worker)
            await flows.engine.report(worker, done(other))
            await flows.engine.turn(1_000)
            await flows.command(PruneRuns(clock.now_ms()))
            clock.turn(-500)  # set back: ids must not come again

    assert seen == sorted(set(seen))


# --- time -----------------------------------------------------------------------------------------


async def test_a_timer_fires_at_its_moment_and_not_before(flows: Flows) -> None:
    run_id = await flows.start(NAP)

    await flows.engine.turn(999)
    assert await flows.state(run_id) == "running"
    await flows.engine.turn(1)

    assert await flows.state(run_id) == "completed"
    assert await flows.engine.coordinator.queries.tasks.next_moment_ms() is None


async def test_a_timer_that_came_up_while_nobody_ran_fires_at_the_next_start(
    tmp_path: Path, clock: TurnedClock
) -> None:
    async with flowing(tmp_path / "rota.db", clock) as flows:
        due, later = await flows.start(NAP), None
        clock.turn(500)
        later = (await flows.begin("nap")).record.id
    clock.turn(600)

    async with flowing(tmp_path / "rota.db", clock) as flows:
        await flows.engine.turn(0)
        assert [await flows.state(due), await flows.state(later)] == ["completed", "running"]
        assert await flows.engine.coordinator.queries.tasks.next_moment_ms() == clock.now_ms() + 400
        await flows.engine.turn(400)
        assert await flows.state(later) == "completed"


async def test_a_run_that_takes_too_long_times_out_with_its_tasks(flows: Flows) -> None:
    engine = flows.engine
    worker = await engine.register()
    run_id = await flows.start(CHILD, timeout_ms=1_000)
    (task,) = await engine.lease(worker)

    await engine.turn(1_000)

    assert await flows.state(run_id) == "timed_out"
    assert (await engine.beat(worker, [task.id])).cancel == (task.id,)
    assert await engine.report(worker, done(task)) == ["stale"]


async def test_the_timers_of_a_run_that_has_ended_are_gone(flows: Flows) -> None:
    run_id = await flows.start(NAP)

    await flows.steer(run_id, "cancel")

    assert await flows.engine.coordinator.queries.tasks.next_moment_ms() is None
    await flows.engine.turn(2_000)
    assert len(await flows.journal(run_id)) == 2


async def test_more_timers_than_one_step_takes_all_fire_at_once(flows: Flows) -> None:
    await flows.put(NAP)
    await asyncio.gather(*(flows.begin("nap") for _ in range(620)))

    await flows.engine.turn(1_000)

    assert {one.state for one in await flows.runs()} == {"completed"}


# --- forgetting -----------------------------------------------------------------------------------


def rows(tx: Transaction, run_id: int) -> tuple[int, bool, bool]:
    runs = RunStore(tx)
    return len(runs.journal(run_id)), run_id in runs.by_ids([run_id]), bool(runs.has_tasks())


async def test_runs_past_their_time_are_forgotten_with_all_that_is_theirs(flows: Flows) -> None:
    engine = flows.engine
    worker = await engine.register()
    run_id = await flows.start(CHILD, key="k")
    await flows.work(worker, {"work": lambda _: 1})
    assert engine.database.read(lambda tx: rows(tx, run_id)) == (2, True, True)

    engine.clock.turn(1)
    await flows.command(PruneRuns(engine.clock.now_ms()))

    assert engine.database.read(lambda tx: rows(tx, run_id)) == (0, False, False)
    assert run_id not in flows.cache.runs
    again = await flows.begin("child", key="k")
    assert not again.is_duplicate
    assert again.record.id > run_id


async def test_a_run_is_kept_as_long_as_its_parent_is_under_way(flows: Flows) -> None:
    engine = flows.engine
    worker = await engine.register(max_concurrent_tasks=1, heartbeat_interval_ms=600_000)
    await flows.put(CHILD)
    parent = await flows.start(PARENT)
    await flows.work(worker, {"work": lambda _: 1})
    ended = [one.id for one in await flows.runs() if one.state == "completed"]
    assert len(ended) == 1

    engine.clock.turn(1_000)
    assert (await flows.command(PruneRuns(engine.clock.now_ms()))).count == 0
    await flows.work_off(worker, {"work": lambda _: 1})
    assert await flows.output(parent) == {"all": [1, 1, 1]}
    engine.clock.turn(1)
    assert (await flows.command(PruneRuns(engine.clock.now_ms()))).count == 4

    assert await flows.runs() == []


async def test_history_of_tasks_may_be_forgotten_before_their_run(
    tmp_path: Path, clock: TurnedClock
) -> None:
    async with flowing(tmp_path / "rota.db", clock, history_keep_ms=1_000) as flows:
        worker = await flows.engine.register(heartbeat_interval_ms=600_000)
        run_id = await flows.start(LINE)
        await flows.work(worker, {"first": lambda _: 1})
        await flows.engine.turn(60_000)
        assert await flows.state(run_id) == "running"
        await flows.work(worker, {"second": lambda payload: payload["got"]})

        assert await flows.output(run_id) == {"second": 1}
        await flows.engine.turn(60_000)
        assert await flows.runs() == []


# --- memory ---------------------------------------------------------------------------------------


async def test_runs_in_memory_are_bounded_and_those_dropped_go_on_all_the_same(
    flows: Flows, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = flows.engine
    monkeypatch.setattr("rota.engine.runs.cache.MOST_CACHED", 3)
    worker = await engine.register()
    await flows.put(LINE)
    runs = [(await flows.begin("line")).record.id for _ in range(10)]

    assert len(flows.cache.runs) == 3
    await flows.work_off(worker, {"first": lambda _: 1, "second": lambda payload: payload["got"]})

    assert len(flows.cache.runs) == 3
    assert [await flows.output(one) for one in runs] == [{"second": 1}] * 10
    assert all([await flows.replays(one) for one in runs])


# --- what is remembered between batches -----------------------------------------------------------


async def test_a_run_starts_on_the_version_that_was_put_last(flows: Flows) -> None:
    await flows.put(CHILD)
    assert (await flows.begin("child")).record.version == 1

    await flows.put(CHILD.replace("output.done", "output.made"))

    assert (await flows.begin("child")).record.version == 2


async def test_the_runs_of_one_batch_are_all_written_each_with_its_journal(flows: Flows) -> None:
    engine = flows.engine
    worker = await engine.register()
    await flows.put(LINE)
    shown = await asyncio.gather(*(flows.begin("line") for _ in range(5)))
    tasks = await engine.lease(worker, most=5)

    await engine.report(worker, *(done(task, result=b"1") for task in tasks))

    for one in shown:
        journal = await engine.coordinator.queries.runs.journal(one.record.id, after=0, limit=9)
        assert [entry.number for entry in journal] == [1, 2]
