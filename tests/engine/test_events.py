"""What the outside is told of what is committed."""

import ast
import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.core.access import AccessToken, Scope
from rota.core.commands import (
    AddToken,
    CancelTasks,
    LeaveWorker,
    PauseQueue,
    RetryTasks,
    RevokeToken,
    SetWorkerState,
    StartJob,
    SubmitTasks,
)
from rota.core.events import EVENT_KINDS, LoggedEvent
from rota.core.ids import to_text
from rota.core.limits import MAX_SINGLE_EVENTS
from rota.core.outbound.signatures import ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER
from rota.core.tasks.model import Backoff, NewTask, TaskError
from rota.core.webhooks.rendering import TEST_TYPE
from rota.core.workers.model import WorkerState
from rota.engine.topics import CommittedEvents
from tests.conftest import TurnedClock
from tests.engine.recording import told, types_told
from tests.engine.running import Engine, done, running, settle

AT_ONCE = Backoff(kind="none")
MANY = MAX_SINGLE_EVENTS + 1


def failed(task: Any, **error: Any) -> Any:
    return done(task, ok=False, error=TaskError(**{"type": "Boom", "message": "no", **error}))


# --- tasks --------------------------------------------------------------------------------------


async def test_the_life_of_a_task_is_told_in_order(engine: Engine) -> None:
    worker = await engine.register()
    (task_id,) = await engine.submit("resize", queue="images", backoff=AT_ONCE)
    await engine.report(worker, failed((await engine.lease(worker))[0]))
    await engine.report(worker, done((await engine.lease(worker))[0]))

    notices = await told(engine, "task-*")

    tried = {"queue": "images", "name": "resize", "worker_id": "w1"}
    assert [(one.type, one.data) for one in notices] == [
        ("task-submitted", {"queue": "images", "name": "resize"}),
        ("task-started", {**tried, "attempt": 1}),
        (
            "task-retrying",
            {
                **tried,
                "attempt": 1,
                "reason": "failed",
                "error": {"type": "Boom", "message": "no"},
            },
        ),
        ("task-started", {**tried, "attempt": 2}),
        ("task-succeeded", {**tried, "attempt": 2}),
    ]
    assert {one.subject for one in notices} == {to_text(task_id)}


async def test_numbers_rise_by_one_from_notice_to_notice(engine: Engine) -> None:
    worker = await engine.register()
    await engine.submit("a", "b")
    await engine.report(worker, *(done(task) for task in await engine.lease(worker)))

    assert [one.seq for one in await told(engine)] == list(range(1, 8))


async def test_a_failure_is_told_with_its_error(engine: Engine) -> None:
    worker = await engine.register()
    await engine.submit(max_attempts=1)
    await engine.report(worker, failed((await engine.lease(worker))[0]))

    (notice,) = await told(engine, "task-failed")

    assert notice.data["error"] == {"type": "Boom", "message": "no"}


async def test_a_task_for_later_is_told_with_its_moment(engine: Engine) -> None:
    await engine.submit(delay_ms=5_000)

    (notice,) = await told(engine)

    assert notice.data["due_at_ms"] == engine.clock.now_ms() + 5_000


async def test_cancelling_and_sending_round_again_are_told(engine: Engine) -> None:
    (task_id,) = await engine.submit()
    await engine.execute(CancelTasks((task_id,)))
    await engine.execute(RetryTasks((task_id,)))

    assert await types_told(engine) == ["task-submitted", "task-cancelled", "task-retrying"]
    (again,) = await told(engine, "task-retrying")
    assert again.data == {"queue": "default", "name": "work", "reason": "retried"}


async def test_a_task_started_as_a_job_is_told_with_its_holder(engine: Engine) -> None:
    (task_id,) = await engine.submit()
    await engine.execute(StartJob(task_id=task_id, holder="somebody"))

    (notice,) = await told(engine, "task-started")

    assert notice.data["worker_id"] == "somebody"


async def test_a_call_that_was_parked_is_told_of_with_its_worker(engine: Engine) -> None:
    call = await engine.parked(await engine.register())
    await engine.submit()
    await call

    assert await types_told(engine) == ["worker-registered", "task-submitted", "task-started"]
    assert (await told(engine))[-1].data["worker_id"] == "w1"


async def test_the_key_of_a_task_that_is_there_already_tells_nothing_new(engine: Engine) -> None:
    await engine.submit(key="once")
    await engine.submit(key="once")

    assert await types_told(engine) == ["task-submitted"]


# --- many tasks ---------------------------------------------------------------------------------


async def test_many_tasks_of_a_queue_are_told_of_together(engine: Engine) -> None:
    worker = await engine.register(max_concurrent_tasks=100)
    ids = await engine.submit(*["work"] * MANY)
    tasks = await engine.lease(worker)
    await engine.report(worker, *(done(task) for task in tasks))

    notices = await told(engine, "task-*")

    together = {
        "queue": "default",
        "count": MANY,
        "first_id": to_text(ids[0]),
        "last_id": to_text(ids[-1]),
    }
    assert [(one.type, one.subject, one.data) for one in notices] == [
        ("task-submitted", "default", together),
        ("task-started", "default", together),
        ("task-succeeded", "default", together),
    ]


async def test_a_handful_is_told_of_one_by_one(engine: Engine) -> None:
    await engine.submit(*["work"] * MAX_SINGLE_EVENTS)

    assert await types_told(engine) == ["task-submitted"] * MAX_SINGLE_EVENTS


async def test_each_queue_is_told_of_by_itself(engine: Engine) -> None:
    worker = await engine.register(max_concurrent_tasks=100)
    tasks = [NewTask(name="work", queue="busy")] * MANY + [NewTask(name="work", queue="calm")] * 2
    await engine.submit_all(tasks)
    leased = await engine.lease(worker)
    await engine.report(worker, *(done(task) for task in leased))

    for kind in ("task-submitted", "task-started", "task-succeeded"):
        notices = await told(engine, kind)
        assert sorted(one.data["queue"] for one in notices) == ["busy", "calm", "calm"]
        assert [one.data.get("count") for one in notices].count(MANY) == 1
    started = [one.data for one in await told(engine, "task-started") if "count" not in one.data]
    assert {one["worker_id"] for one in started} == {"w1"}


async def test_every_failure_is_told_of_by_itself(engine: Engine) -> None:
    worker = await engine.register(max_concurrent_tasks=100)
    await engine.submit(*["work"] * MANY, max_attempts=1)
    await engine.submit(*["again"] * MANY, max_attempts=2)
    leased = await engine.lease(worker)
    await engine.report(worker, *(failed(task, message=to_text(task.id)) for task in leased))

    singles = await told(engine, "task-failed", "task-retrying")

    assert [one.type for one in singles].count("task-failed") == MANY
    assert [one.type for one in singles].count("task-retrying") == MANY
    assert {one.data["error"]["message"] for one in singles} == {one.subject for one in singles}


async def test_what_a_leaving_worker_gives_back_is_told_of_together(engine: Engine) -> None:
    worker = await engine.register(max_concurrent_tasks=100)
    await engine.submit(*["work"] * MANY)
    await engine.lease(worker)
    await engine.execute(LeaveWorker(worker_id=worker.id))

    (notice,) = await told(engine, "task-retrying")

    assert (notice.data["reason"], notice.data["count"]) == ("released", MANY)


async def test_all_that_a_batch_has_to_tell_is_one_commit(engine: Engine) -> None:
    before = engine.database.commits
    await asyncio.gather(*(engine.execute(SubmitTasks([NewTask(name="work")])) for _ in range(5)))

    assert engine.database.commits == before + 1
    assert await types_told(engine) == ["task-submitted"] * 5


# --- workers ------------------------------------------------------------------------------------


async def test_a_worker_is_told_of_when_it_comes_and_goes(engine: Engine) -> None:
    worker = await engine.register(capabilities=("gpu",), queues=("images",), group="g")
    await engine.execute(SetWorkerState(worker_id="w1", state=WorkerState.DRAINING))
    await engine.execute(LeaveWorker(worker_id="w1"))

    notices = await told(engine)

    incarnation = worker.incarnation
    assert [(one.type, one.data) for one in notices] == [
        (
            "worker-registered",
            {
                "incarnation": incarnation,
                "node_id": "n1",
                "capabilities": ["gpu"],
                "queues": ["images"],
                "group": "g",
            },
        ),
        (
            "worker-state",
            {"state": "draining", "incarnation": incarnation, "queues": ["images"]},
        ),
        (
            "worker-unregistered",
            {"incarnation": incarnation, "reason": "left", "queues": ["images"]},
        ),
    ]


async def pass_seconds(engine: Engine, seconds: int) -> None:
    for _ in range(seconds):
        await engine.turn(1_000)


async def healths_told(engine: Engine) -> list[tuple[str, str]]:
    return [(one.data["was"], one.data["health"]) for one in await told(engine, "worker-health")]


async def test_a_worker_that_falls_silent_is_told_of_step_by_step(engine: Engine) -> None:
    await engine.register(heartbeat_interval_ms=2_000)
    await pass_seconds(engine, 12)

    assert await types_told(engine) == [
        "worker-registered",
        "worker-health",
        "worker-health",
        "worker-unregistered",
    ]
    assert await healths_told(engine) == [("healthy", "degraded"), ("degraded", "unhealthy")]
    assert (await told(engine))[-1].data["reason"] == "unhealthy"


async def test_a_worker_that_is_heard_of_again_is_healthy_again(engine: Engine) -> None:
    worker = await engine.register(heartbeat_interval_ms=2_000)
    await pass_seconds(engine, 6)
    await engine.beat(worker)
    await pass_seconds(engine, 1)

    assert await healths_told(engine) == [("healthy", "degraded"), ("degraded", "healthy")]


async def test_a_new_incarnation_begins_healthy_without_being_told(engine: Engine) -> None:
    await engine.register(heartbeat_interval_ms=2_000)
    await pass_seconds(engine, 6)
    await engine.register(heartbeat_interval_ms=2_000)
    await pass_seconds(engine, 1)

    assert await healths_told(engine) == [("healthy", "degraded")]


async def test_silence_during_a_restart_is_nobodys_health(tmp_path: Path) -> None:
    clock = TurnedClock()
    async with running(tmp_path / "rota.db", clock) as engine:
        await engine.register(heartbeat_interval_ms=2_000)
    clock.turn(60_000)
    async with running(tmp_path / "rota.db", clock) as engine:
        await pass_seconds(engine, 3)

        assert await healths_told(engine) == []


# --- queues, tokens, pruning --------------------------------------------------------------------


async def test_a_queue_is_told_of_when_something_changes(engine: Engine) -> None:
    for paused in (True, True, False, False, True):
        await engine.execute(PauseQueue("mail", paused))

    assert await types_told(engine) == ["queue-paused", "queue-resumed", "queue-paused"]


async def test_tokens_are_told_of_without_what_opens_with_them(engine: Engine) -> None:
    token = AccessToken(
        id="t-1", hash="secret", name="ci", scopes=(Scope.READ,), created_at_ms=0, expires_at_ms=9
    )
    await engine.execute(AddToken(token))
    await engine.execute(RevokeToken("t-1"))

    created, revoked = await told(engine)

    assert created.data == {"name": "ci", "scopes": ["read"], "expires_at_ms": 9}
    assert (revoked.type, revoked.subject) == ("token-revoked", "t-1")


async def test_notices_are_kept_for_their_time(tmp_path: Path) -> None:
    async with running(tmp_path / "rota.db", events_keep_ms=10_000) as engine:
        await engine.submit()
        await engine.turn(9_000)
        kept = await types_told(engine)
        await engine.turn(2_000)

        assert kept == ["task-submitted"]
        assert await types_told(engine) == []


async def test_no_more_notices_are_kept_than_set(tmp_path: Path) -> None:
    async with running(tmp_path / "rota.db", max_events=3) as engine:
        await engine.submit(*["work"] * 5)
        await engine.turn(0)

        assert [one.seq for one in await told(engine)] == [3, 4, 5]


async def test_numbers_go_on_after_a_restart_even_when_all_is_forgotten(tmp_path: Path) -> None:
    async with running(tmp_path / "rota.db", max_events=0) as engine:
        await engine.submit("a", "b")
        await engine.turn(0)
    async with running(tmp_path / "rota.db") as engine:
        assert engine.coordinator.last_seq == 2
        await engine.submit()

        assert [one.seq for one in await told(engine)] == [3]


# --- trouble ------------------------------------------------------------------------------------


async def test_what_was_rolled_back_is_not_told(engine: Engine) -> None:
    heard: list[LoggedEvent] = []
    engine.coordinator.subscribe(CommittedEvents(heard.extend))
    engine.database.commit_problem = OSError("the disk is full")
    with pytest.raises(Exception, match="nothing was changed"):
        await engine.submit()
    engine.database.commit_problem = None
    await engine.submit()
    await settle()

    assert [one.seq for one in heard] == [1]
    assert await types_told(engine) == ["task-submitted"]


async def test_a_number_that_is_taken_after_all_does_not_stand_in_the_way(engine: Engine) -> None:
    await engine.submit()
    # As after a commit that only seemed to fail.
    engine.coordinator.leading.pipeline._state.last_seq = 0
    await engine.submit()

    assert [one.seq for one in await told(engine)] == [1, 2]
    assert [line["event"] for line in engine.log] == ["writer_state_was_wrong"]


# --- the table ----------------------------------------------------------------------------------


def test_every_type_that_is_told_of_has_its_meaning() -> None:
    source = Path(rota.__file__).parent
    described = source / "core" / "events.py"
    texts = {
        node.value
        for layer in ("core", "engine")
        for path in (source / layer).rglob("*.py")
        if path != described
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    nouns = "|".join({kind.partition("-")[0] for kind in EVENT_KINDS})
    made = {text for text in texts if re.fullmatch(rf"({nouns})-[a-z]+(-[a-z]+)?", text)}

    # Not in the log: the header fields of signed requests, and the event of a dry delivery.
    others = {ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER, TEST_TYPE}
    assert made - EVENT_KINDS.keys() - others == set()
    # Those of a run's end are put together from its state.
    assert {one for one in EVENT_KINDS.keys() - made if not one.startswith("run-")} == set()
