import asyncio
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from rota.core import limits
from rota.core.commands import (
    CancelTasks,
    CompleteJob,
    FailJob,
    LeaseWork,
    Progress,
    ReportProgress,
    RetryTasks,
    SetWorkerState,
    StartJob,
    SubmitTasks,
    TaskCommand,
)
from rota.core.context import Context
from rota.core.ids import TaskId
from rota.core.reducer import Decided, reduce
from rota.core.replies import Changed, JobChanged, Outcomes, Submitted
from rota.core.snapshot import Snapshot
from rota.core.tasks.model import NewTask, TaskError, TaskRecord, TaskState
from rota.core.workers.model import WorkerState
from rota.engine.commit import task_domain
from rota.errors import TooMany, WorkerNotFound
from tests.conftest import TurnedClock
from tests.core.model import Model
from tests.core.random_commands import HAPPENINGS, Happening, event_of
from tests.engine.holding import small_windows
from tests.engine.running import Engine, ask, done, running, settle, soon


def submission(*names: str, count: int = 1) -> SubmitTasks:
    return SubmitTasks([NewTask(name=name) for name in names or ("work",)] * count)


# --- one transaction ----------------------------------------------------------------------------


async def test_all_events_waiting_at_a_moment_share_one_transaction(engine: Engine) -> None:
    worker = await engine.register()
    (old,) = await engine.submit()
    commits = engine.database.commits

    replies = await asyncio.gather(
        engine.submit("a", "b"),
        engine.submit("c"),
        engine.execute(CancelTasks((old,))),
        engine.beat(worker),
        engine.lease(worker),
        engine.register("w2"),
    )

    assert engine.database.commits == commits + 1
    leased = replies[4]
    assert [task.lane.name for task in leased] == ["a", "b", "c"]
    assert (await engine.task(old)).state is TaskState.CANCELLED


async def test_what_comes_while_a_batch_is_carried_out_is_the_next_batch(
    tmp_path: Path, clock: TurnedClock
) -> None:
    async with running(tmp_path / "rota.db", clock, inline=False) as engine:
        is_open, may_go = threading.Event(), threading.Event()

        def hold() -> None:
            is_open.set()
            assert may_go.wait(30)

        engine.database.on_commit = hold
        first = asyncio.create_task(engine.submit_all([NewTask(name="work")] * 50))
        await asyncio.to_thread(is_open.wait, 30)
        engine.database.on_commit = None
        others = [asyncio.create_task(engine.submit()) for _ in range(20)]
        await settle()
        may_go.set()
        await soon(asyncio.gather(first, *others))

        assert engine.database.commits == 2


# --- an answer never leaves before its commit ---------------------------------------------------


async def test_an_answer_leaves_after_its_commit_inline(engine: Engine) -> None:
    worker = await engine.register()
    log: list[str] = []
    engine.database.on_commit = lambda: log.append("commit")

    async def noted(event: TaskCommand) -> None:
        await engine.execute(event)
        log.append("answer")

    await asyncio.gather(noted(submission()), noted(submission()))
    await noted(ask(worker))

    assert log == ["commit", "answer", "answer", "commit", "answer"]


async def test_nobody_is_answered_while_the_commit_is_under_way(
    tmp_path: Path, clock: TurnedClock
) -> None:
    async with running(tmp_path / "rota.db", clock, inline=False) as engine:
        worker = await engine.register()
        is_written, may_commit = threading.Event(), threading.Event()

        def hold() -> None:
            is_written.set()
            assert may_commit.wait(30)

        engine.database.on_commit = hold
        calls = [
            asyncio.ensure_future(engine.execute(submission(count=100))),
            asyncio.create_task(engine.lease(worker)),
        ]
        await asyncio.to_thread(is_written.wait, 30)
        await settle()
        answered_early = [call.done() for call in calls]
        engine.database.on_commit = None
        may_commit.set()
        await soon(asyncio.gather(*calls))

    assert answered_early == [False, False]


async def test_an_answer_can_be_found_by_whoever_looks_next(
    tmp_path: Path, clock: TurnedClock
) -> None:
    async with running(tmp_path / "rota.db", clock, inline=False) as engine:
        for count in (1, 30):
            ids = await engine.submit_all([NewTask(name="work")] * count)
            found = [await engine.coordinator.queries.tasks.by_id(task_id) for task_id in ids]

            assert all(task is not None for task in found)


# --- one failing event does not sink its batch --------------------------------------------------


async def test_a_refused_event_fails_alone(engine: Engine) -> None:
    worker = await engine.register()
    commits = engine.database.commits

    submitted, refused, leased = await asyncio.gather(
        engine.submit(),
        engine.execute(LeaseWork(worker_id="nobody", incarnation=1, most=1)),
        engine.lease(worker),
        return_exceptions=True,
    )

    assert isinstance(refused, WorkerNotFound)
    assert isinstance(leased, list)
    assert [task.id for task in leased] == submitted
    assert engine.database.commits == commits + 1


async def test_events_that_contradict_each_other_in_one_batch_are_carried_out_in_turn(
    engine: Engine,
) -> None:
    (job,) = await engine.submit()

    started, completed, submitted = await asyncio.gather(
        engine.execute(StartJob(task_id=job, holder="me")),
        engine.execute(CompleteJob(task_id=job, result=Raw(b"1"))),
        engine.execute(submission("other")),
    )

    assert isinstance(started, JobChanged)
    assert isinstance(completed, JobChanged)
    assert isinstance(submitted, Submitted)
    assert started.task.state is TaskState.RUNNING
    assert (await engine.task(job)).state is TaskState.SUCCEEDED
    assert (await engine.task(submitted.items[0].id)).state is TaskState.QUEUED
    assert engine.coordinator.metrics().failed_batches == 1
    assert engine.coordinator.store_problem is None


async def test_a_mistake_of_ours_fails_its_own_event_and_no_other(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mistaken(snapshot: Snapshot, command: TaskCommand, context: Context) -> Decided:
        if isinstance(command, FailJob):
            raise KeyError("a mistake")
        return reduce(snapshot, command, context)

    monkeypatch.setattr(task_domain, "reduce", mistaken)

    first, broken, second = await asyncio.gather(
        engine.submit("first"),
        engine.execute(FailJob(task_id=TaskId(1), error=TaskError())),
        engine.submit("second"),
        return_exceptions=True,
    )

    assert isinstance(broken, KeyError)
    assert isinstance(first, list)
    assert isinstance(second, list)
    assert (await engine.task(first[0])).lane.name == "first"
    assert (await engine.task(second[0])).lane.name == "second"
    assert engine.coordinator.store_problem is None
    (line,) = engine.log
    assert (line["event"], line["kind"]) == ("command_failed", "FailJob")


async def test_a_submission_with_too_many_lanes_fails_alone(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_LANES", 2)

    first, refused, second = await asyncio.gather(
        engine.submit("a"),
        engine.submit("b", "c", "d"),
        engine.submit("b"),
        return_exceptions=True,
    )

    assert isinstance(refused, TooMany)
    assert isinstance(first, list)
    assert isinstance(second, list)
    assert (await engine.task(second[0])).lane.name == "b"
    assert await engine.submit("a", "b")


async def test_a_mistake_after_the_commit_does_not_carry_events_out_twice(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = engine.coordinator.metrics()

    def mistaken(_counts: object, _now_ms: int) -> None:
        raise KeyError("a mistake")

    monkeypatch.setattr(figures, "note_counts", mistaken)
    loop = asyncio.get_running_loop()
    raised: list[object] = []
    loop.set_exception_handler(lambda _loop, context: raised.append(context.get("exception")))

    calls = [asyncio.create_task(engine.submit()) for _ in range(2)]
    await settle()
    for call in calls:
        call.cancel()

    assert engine.database.tries == 1
    assert [type(error) for error in raised] == [KeyError]


# --- what a batch keeps -------------------------------------------------------------------------


async def test_progress_is_kept_even_if_the_result_comes_in_the_same_batch(
    engine: Engine,
) -> None:
    worker = await engine.register()
    (task_id,) = await engine.submit()
    (task,) = await engine.lease(worker)
    items = [Progress(task_id, task.fence, progress=Raw(b"1"), partial=Raw(b"[7]"))]

    noted, reported = await asyncio.gather(
        engine.execute(ReportProgress(worker_id="w1", incarnation=worker.incarnation, items=items)),
        engine.report(worker, done(task)),
    )

    assert (noted, reported) == (Outcomes(["accepted"]), ["accepted"])
    finished = await engine.task(task_id)
    assert (finished.progress, finished.partial) == (b"1", b"[7]")


async def test_the_same_result_in_two_calls_of_one_batch_is_accepted_once(engine: Engine) -> None:
    worker = await engine.register()
    await engine.submit("a", "b", "c")
    tasks = await engine.lease(worker)
    results = [
        done(tasks[0]),
        done(tasks[1], ok=False),
        done(tasks[2], snooze_ms=5),
    ]

    outcomes = await asyncio.gather(*(engine.report(worker, *results) for _ in range(3)))

    assert outcomes == [["accepted"] * 3, ["duplicate"] * 3, ["duplicate"] * 3]
    assert await engine.report(worker, *results) == ["duplicate"] * 3


async def test_a_key_is_accepted_once_in_one_batch_and_ever_after(engine: Engine) -> None:
    calls = await asyncio.gather(*(engine.submit(key="k") for _ in range(5)))
    later = await engine.submit("other name", key="k")

    assert {task_id for ids in [*calls, later] for task_id in ids} == {calls[0][0]}


async def test_a_task_cancelled_and_retried_in_one_batch_is_served_again(engine: Engine) -> None:
    worker = await engine.register()
    (task_id,) = await engine.submit()
    (first,) = await engine.lease(worker)

    cancelled, retried = await asyncio.gather(
        engine.execute(CancelTasks((task_id,))), engine.execute(RetryTasks((task_id,)))
    )
    (second,) = await engine.lease(worker)

    assert cancelled == retried == Changed((task_id,), {})
    assert second.fence == first.fence + 1
    assert (await engine.beat(worker, [task_id])).cancel == ()
    assert await engine.report(worker, done(first), done(second)) == ["stale", "accepted"]


async def test_a_worker_is_told_of_a_cancellation_until_it_reports_or_lets_go(
    engine: Engine,
) -> None:
    worker = await engine.register()
    ids = await engine.submit("a", "b")
    (first, _) = await engine.lease(worker)
    await engine.execute(CancelTasks(tuple(ids)))

    both = await engine.beat(worker, ids)
    await engine.report(worker, done(first))
    one = await engine.beat(worker, ids[1:])
    last = await engine.beat(worker, [])
    none = await engine.beat(worker, [])

    assert [beat.cancel for beat in (both, one, last, none)] == [
        tuple(ids),
        (ids[1],),
        (ids[1],),
        (),
    ]


async def test_a_repeated_report_is_a_duplicate_even_if_the_task_is_leased_anew(
    engine: Engine,
) -> None:
    worker = await engine.register()
    await engine.submit()
    (first,) = await engine.lease(worker)
    failure = done(first, ok=False, retry_in_ms=0)
    await engine.report(worker, failure)
    (second,) = await engine.lease(worker)

    outcomes = await engine.report(worker, failure, done(first), done(second))

    assert outcomes == ["duplicate", "stale", "accepted"]


# --- against the model --------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(
        st.lists(HAPPENINGS, min_size=1, max_size=5),
        st.booleans(),
        st.sampled_from([0, 1, 20, 600, 1_000, 16_000]),
    ),
    min_size=1,
    max_size=8,
)


def told(task: TaskRecord) -> tuple[object, ...]:
    """What the model and the store must agree on."""
    return (
        task.id,
        task.lane,
        task.state,
        task.attempt,
        task.fence,
        task.due_at_ms,
        task.deadline_ms,
        task.worker_id,
        task.finished_at_ms,
        task.result,
        task.error,
        task.log,
    )


async def play(steps: list[tuple[list[Happening], bool, int]]) -> None:
    """Let the same things happen to the model, one by one, and to the engine, batch by batch."""
    clock = TurnedClock()
    model = Model(clock.now_ms())
    async with running(":memory:", clock, dice=lambda: 0.5) as engine:
        # The coordinator swept once when it started.
        model.watch = engine.coordinator.leading.pipeline._state.watch
        for happenings, all_ask, pause_ms in [([("register", 0, 2, 0)], True, 0), *steps]:
            events = [event_of(model, happening) for happening in happenings]
            batch_of = [event for event in events if event is not None]
            expected = [answer for event in batch_of for answer in model.handle([event])]
            answers = await asyncio.gather(
                *(engine.execute(event) for event in batch_of), return_exceptions=True
            )
            assert [type(one) for one in answers] == [type(one) for one in expected]
            assert [one for one in answers if isinstance(one, Outcomes)] == [
                one for one in expected if isinstance(one, Outcomes)
            ]
            if all_ask:
                asking: list[TaskCommand] = [ask(worker) for worker in model.workers.values()]
                model.handle(asking)
                model.deal()
                await asyncio.gather(*(engine.execute(event) for event in asking))
            for task in model.tasks.values():
                assert told(await engine.task(task.id)) == told(task)
            found = {one.worker.id: one for one in await engine.coordinator.queries.workers.all()}
            assert found.keys() == model.workers.keys()
            model.check()
            model.now_ms += pause_ms
            clock.turn(pause_ms)


@pytest.mark.slow
@given(STEPS)
def test_batches_on_sqlite_lead_where_the_rules_lead_one_by_one(
    steps: list[tuple[list[Happening], bool, int]],
) -> None:
    asyncio.run(play(steps))


@pytest.mark.slow
@given(STEPS)
def test_batches_with_small_windows_lead_where_the_rules_lead_one_by_one(
    steps: list[tuple[list[Happening], bool, int]],
) -> None:
    with small_windows():
        asyncio.run(play(steps))


async def test_a_worker_that_is_resumed_is_served_by_the_same_batch(engine: Engine) -> None:
    worker = await engine.register()
    await engine.execute(SetWorkerState(worker_id="w1", state=WorkerState.DRAINING))
    await engine.submit()
    call = await engine.parked(worker)

    await engine.execute(SetWorkerState(worker_id="w1", state=WorkerState.ACTIVE))

    granted = await soon(call)
    assert len(granted.leases) == 1
