"""Are tasks that came with others' transactions accepted, each once, and the bad ones kept?"""

import msgspec

from rota.core.tasks import NewTask, Task, TaskState
from rota.engine import load
from rota.engine.duties.inbox import INBOX
from rota.store.database import Transaction
from rota.store.inbox import Inbox
from tests.engine.running import Engine, done


def put(engine: Engine, *rows: tuple[str, bytes]) -> None:
    """As a program does it that shares the database."""

    def body(tx: Transaction) -> None:
        for key, content in rows:
            Inbox(tx).put(key, content, at_ms=1)

    engine.database.write(body)


def task(name: str = "work", **options: object) -> bytes:
    return msgspec.json.encode({"name": name, **options})


async def by_key(engine: Engine, key: str) -> Task:
    found = await engine.coordinator.queries.task_by_key(key)
    assert found is not None
    return found


async def test_what_is_in_the_inbox_is_accepted_by_the_next_look(engine: Engine) -> None:
    put(engine, ("a", task(payload={"n": 1}, queue="q", labels=["x"])))

    await engine.turn(1_000)

    accepted = await by_key(engine, "a")
    assert (accepted.state, accepted.lane.queue, accepted.payload) == (
        TaskState.QUEUED,
        "q",
        b'{"n":1}',
    )
    assert engine.coordinator.figures().inbox["accepted"] == 1
    assert not await engine.coordinator.queries.has_inbox()


async def test_accepted_tasks_run_as_others_do(engine: Engine) -> None:
    put(engine, ("a", task()), ("b", task()))
    await engine.turn(1_000)

    worker = await engine.register()
    leased = await engine.lease(worker)

    assert [one.key for one in leased] == ["a", "b"]
    assert await engine.report(worker, *map(done, leased)) == ["accepted", "accepted"]


async def test_a_key_that_was_taken_over_already_is_not_taken_over_again(engine: Engine) -> None:
    put(engine, ("a", task()))
    await engine.turn(1_000)
    put(engine, ("a", task()), ("a", task()))

    await engine.turn(1_000)

    assert engine.coordinator.figures().inbox == {"accepted": 1, "duplicate": 2, "refused": 0}


async def test_a_key_that_came_over_http_counts_as_well(engine: Engine) -> None:
    (known,) = await engine.submit_all([NewTask(name="work", key="a")])
    put(engine, ("a", task()))

    await engine.turn(1_000)

    assert (await by_key(engine, "a")).id == known


async def test_a_bad_row_becomes_a_failed_task_and_holds_nobody_up(engine: Engine) -> None:
    put(engine, ("bad", b"{"), ("good", task()))

    await engine.turn(1_000)

    bad, good = await by_key(engine, "bad"), await by_key(engine, "good")
    assert (bad.state, good.state) == (TaskState.FAILED, TaskState.QUEUED)
    assert bad.error is not None
    assert bad.error.type == "malformed"
    assert [line["key"] for line in engine.log if line["log_level"] == "warning"] == ["bad"]
    assert engine.coordinator.figures().inbox["refused"] == 1


async def test_a_payload_over_the_limit_is_dropped_with_its_reason(engine: Engine) -> None:
    most = engine.coordinator.settings.max_payload_bytes
    put(engine, ("large", task(payload="x" * most)))

    await engine.turn(1_000)

    large = await by_key(engine, "large")
    assert large.error is not None
    assert (large.error.type, large.payload) == ("too_large", b"null")


async def test_a_full_inbox_is_emptied_in_bounded_steps(engine: Engine) -> None:
    count = load.TAKEN_PER_STEP * 2 + 1
    put(engine, *((f"k{number}", task()) for number in range(count)))
    before = engine.database.commits

    await engine.turn(1_000)

    assert engine.coordinator.figures().inbox["accepted"] == count
    assert (await by_key(engine, f"k{count - 1}")).state is TaskState.QUEUED
    assert engine.database.commits > before + 2


async def test_a_task_that_is_put_off_waits_for_its_time(engine: Engine) -> None:
    put(engine, ("later", task(delay_ms=60_000)))

    await engine.turn(1_000)

    assert (await by_key(engine, "later")).state is TaskState.SCHEDULED


async def test_what_a_broken_commit_took_out_is_still_there(engine: Engine) -> None:
    put(engine, ("a", task()))
    engine.database.commit_problem = OSError("no space")
    await engine.coordinator._duties._try(INBOX)
    engine.database.commit_problem = None

    await engine.turn(1_000)

    assert (await by_key(engine, "a")).state is TaskState.QUEUED
