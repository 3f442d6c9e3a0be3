"""Sessions in the engine: how what they submit stands, who is told, and what others pay for it."""

import asyncio
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Any

import pytest

from rota.core.commands import BeatWorker, ReportResults, SubmitTasks
from rota.core.ids import TaskId
from rota.core.replies import SubmissionStatus, SubmissionStatuses
from rota.core.sessions import ClearNotifications, SessionNotification, key_of
from rota.core.tasks.model import NewTask, TaskState
from rota.engine.topics import SessionNews
from rota.errors import WorkerNotFound
from rota.store.database import Transaction
from tests.engine.running import Engine, done, settle


async def assign(engine: Engine, name: str, session: str = "s") -> SubmissionStatus:
    task = NewTask(name="task", queue="main", key=key_of("main", name))
    reply = await engine.execute(SubmitTasks([task], session))
    assert isinstance(reply, SubmissionStatuses)
    return reply.items[0]


async def pending(engine: Engine, session: str = "s") -> list[tuple[int, str]]:
    """What a session is still to be told: numbers and states."""
    found = await engine.coordinator.queries.sessions.notifications(session, after=0, limit=100)
    return [(news.seq, "" if task is None else task.state.value) for news, task in found]


async def test_a_session_is_answered_how_its_task_stands_after_the_dealing(engine: Engine) -> None:
    worker = await engine.register(queues=("main",), max_concurrent_tasks=1)
    await engine.parked(worker)
    commits = engine.database.commits

    first, second, third = [await assign(engine, name) for name in "tuv"]
    again = await assign(engine, "t")

    assert engine.database.commits == commits + 4
    assert (first.task.state, first.task.worker_id) == (TaskState.RUNNING, "w1")
    assert [one.position for one in (first, second, third)] == [None, 1, 2]
    assert (again.is_duplicate, again.task.id) == (True, first.task.id)


async def test_whoever_asked_is_told_of_the_end_once_it_is_committed(engine: Engine) -> None:
    told: list[AbstractSet[str]] = []
    engine.coordinator.subscribe(SessionNews(told.append))
    worker = await engine.register(queues=("main",))
    for session in ("s", "t"):
        await assign(engine, "one", session)
    await assign(engine, "two")
    leases = await engine.lease(worker)

    await engine.report(worker, *map(done, leases))

    assert told == [{"s", "t"}]
    assert await pending(engine) == [(1, "succeeded"), (3, "succeeded")]
    assert await pending(engine, "t") == [(2, "succeeded")]


async def test_a_task_that_ended_before_it_was_asked_for_again_is_no_news(engine: Engine) -> None:
    worker = await engine.register(queues=("main",))
    await assign(engine, "one")
    await engine.report(worker, *map(done, await engine.lease(worker)))

    late = await assign(engine, "one", "t")

    assert late.task.state is TaskState.SUCCEEDED
    assert await pending(engine, "t") == []


async def test_what_was_told_is_cleared(engine: Engine) -> None:
    worker = await engine.register(queues=("main",))
    task_id = (await assign(engine, "one")).task.id
    await engine.report(worker, *map(done, await engine.lease(worker)))

    await engine.coordinator.execute(
        ClearNotifications((SessionNotification(seq=1, session_id="s", task_id=TaskId(task_id)),))
    )

    assert await pending(engine) == []


async def test_tasks_that_no_session_asked_for_cost_nothing_more(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await engine.register()
    asked: list[str] = []
    kind: Any = engine.database.write(type)

    def noting(way: Callable[..., Any]) -> Callable[..., Any]:
        def note(tx: Transaction, *arguments: object, **parameters: object) -> Any:
            asked.extend(one for one in arguments if isinstance(one, str))
            return way(tx, *arguments, **parameters)

        return note

    for way in ("rows", "records", "execute", "pipeline_many"):
        monkeypatch.setattr(kind, way, noting(getattr(kind, way)))
    await engine.submit("work", "work")
    await engine.report(worker, *map(done, await engine.lease(worker)))

    assert asked
    assert not any(query.startswith("sessions.") for query in asked)


# --- what sockets need of the engine ------------------------------------------------------------


async def test_events_that_come_together_are_one_batch(engine: Engine) -> None:
    workers = [await engine.register(f"w{number}") for number in range(3)]
    commits = engine.database.commits
    beats = [BeatWorker(worker_id=one.id, incarnation=one.incarnation) for one in workers]

    beats.append(BeatWorker(worker_id="nobody", incarnation=1))
    replies = await asyncio.gather(*map(engine.execute, beats), return_exceptions=True)

    assert engine.database.commits == commits + 1
    assert [type(one).__name__ for one in replies[:3]] == ["Beat"] * 3
    assert isinstance(replies[3], WorkerNotFound)


async def test_a_caller_that_goes_as_its_leases_come_gives_them_back(engine: Engine) -> None:
    """It is called off after the answer was there, and before it could take it."""
    worker, other = await engine.register("w1", queues=("main",)), await engine.register("w2")
    await assign(engine, "one")
    (one,) = await engine.lease(other)
    call = await engine.parked(worker)

    def call_off(_: AbstractSet[str]) -> None:
        call.cancel()

    engine.coordinator.subscribe(SessionNews(call_off))

    report = ReportResults(worker_id=other.id, incarnation=other.incarnation, results=[done(one)])
    submission = SubmitTasks([NewTask(name="task", queue="main")])
    await asyncio.gather(engine.execute(report), engine.execute(submission))
    await asyncio.wait((call,))
    await settle()
    (two,) = await engine.lease(worker)

    assert call.cancelled()
    assert two.fence == 2
