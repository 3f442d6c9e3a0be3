"""Are tasks that came with others' transactions accepted, each once, and the bad ones kept?"""

from typing import Any

import msgspec
import pytest

from rota.core import limits
from rota.core.flows.model import Concurrency
from rota.core.tasks.model import NewTask, TaskRecord, TaskState
from rota.engine.commit import loader
from rota.engine.duties import INBOX
from rota.store.database import Transaction
from rota.store.tasks.queues import InboxStore
from tests.engine.running import Engine, done


def put(engine: Engine, *rows: tuple[str, bytes]) -> None:
    """As a program does it that shares the database."""

    def body(tx: Transaction) -> None:
        for key, content in rows:
            InboxStore(tx).put(key, content, at_ms=1)

    engine.database.write(body)


def task(name: str = "work", **options: object) -> bytes:
    return msgspec.json.encode({"name": name, **options})


async def by_key(engine: Engine, key: str) -> TaskRecord:
    (found,) = await engine.coordinator.queries.tasks.with_key(key, queue=None, limit=10)
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
    assert engine.coordinator.metrics().inbox["accepted"] == 1
    assert not await engine.coordinator.queries.tasks.has_inbox()


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

    assert engine.coordinator.metrics().inbox == {"accepted": 1, "duplicate": 2, "refused": 0}


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
    assert engine.coordinator.metrics().inbox["refused"] == 1


async def test_a_payload_over_the_limit_is_dropped_with_its_reason(engine: Engine) -> None:
    most = engine.coordinator.settings.max_payload_bytes
    put(engine, ("large", task(payload="x" * most)))

    await engine.turn(1_000)

    large = await by_key(engine, "large")
    assert large.error is not None
    assert (large.error.type, large.payload) == ("too_large", b"null")


async def test_a_full_inbox_is_emptied_in_bounded_steps(engine: Engine) -> None:
    count = loader.TAKEN_PER_STEP * 2 + 1
    put(engine, *((f"k{number}", task()) for number in range(count)))
    before = engine.database.commits

    await engine.turn(1_000)

    assert engine.coordinator.metrics().inbox["accepted"] == count
    assert (await by_key(engine, f"k{count - 1}")).state is TaskState.QUEUED
    assert engine.database.commits > before + 2


async def test_a_task_that_is_put_off_waits_for_its_time(engine: Engine) -> None:
    put(engine, ("later", task(delay_ms=60_000)))

    await engine.turn(1_000)

    assert (await by_key(engine, "later")).state is TaskState.SCHEDULED


async def test_what_a_broken_commit_took_out_is_still_there(engine: Engine) -> None:
    put(engine, ("a", task()))
    engine.database.commit_problem = OSError("no space")
    await engine.coordinator.leading.duties._try(INBOX)
    engine.database.commit_problem = None

    await engine.turn(1_000)

    assert (await by_key(engine, "a")).state is TaskState.QUEUED


async def test_the_same_key_in_two_queues_makes_two_tasks(engine: Engine) -> None:
    await engine.submit(queue="a", key="k")
    put(engine, ("k", task(queue="a")), ("k", task(queue="b")))

    await engine.turn(1_000)

    found = await engine.coordinator.queries.tasks.with_key("k", queue=None, limit=10)
    assert [one.lane.queue for one in found] == ["b", "a"]
    assert engine.coordinator.metrics().inbox["duplicate"] == 1


async def test_what_finds_no_lane_fails_in_its_own_queue_and_the_rest_is_accepted(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_LANES_PER_QUEUE", 1)
    put(engine, ("1", task("a", queue="q")), ("2", task("b", queue="q")), ("3", task(queue="r")))

    await engine.turn(1_000)

    accepted, refused, other = [await by_key(engine, key) for key in ("1", "2", "3")]
    assert (accepted.state, other.state) == (TaskState.QUEUED, TaskState.QUEUED)
    assert (refused.state, refused.lane.queue) == (TaskState.FAILED, "q")
    assert refused.error is not None
    assert "'b'" in refused.error.message


async def test_a_delayed_row_that_finds_no_lane_fails_and_holds_nobody_up(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_LANES_PER_QUEUE", 1)
    late = task("new", queue="q", delay_ms=1_000)
    put(engine, ("a", task(queue="q")), ("late", late), ("b", task(queue="q")))

    await engine.turn(1_000)

    assert (await by_key(engine, "late")).state is TaskState.FAILED
    assert (await by_key(engine, "b")).state is TaskState.QUEUED


async def test_limits_of_inbox_tasks_count_like_those_of_others(engine: Engine) -> None:
    worker = await engine.register(heartbeat_interval_ms=3_600_000)
    limited: dict[str, Any] = {"concurrency": {"key": "k", "limit": 1}}
    put(engine, ("a", task(**limited)), ("b", task(**limited)))
    await engine.turn(0)

    first = await engine.lease(worker)
    assert await engine.lease(worker) == []
    await engine.report(worker, done(first[0]))

    assert len(await engine.lease(worker)) == 1


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"rate": {"key": "k", "limit": 1}}, "limit_kind_conflict"),
        ({"concurrency": {"key": "k", "on_full": "reject"}}, "key_busy"),
        ({"concurrency": [{"key": "x"}, {"key": "x"}]}, "invalid"),
    ],
)
async def test_a_row_with_impossible_limits_fails_alone(
    engine: Engine, options: dict[str, Any], code: str
) -> None:
    await engine.submit_all([NewTask(name="work", concurrency=Concurrency("k"))])
    put(engine, ("bad", task(**options)), ("good", task()))
    await engine.turn(0)

    bad = await by_key(engine, "bad")

    assert bad.error is not None
    assert bad.error.type == code
    assert (await by_key(engine, "good")).state is TaskState.QUEUED
